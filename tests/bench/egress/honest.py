"""Outputs of honest jobs, thousands of them: whatever is redacted in one of these was redacted wrongly.

From what the machine has (sources, headers, scripts, settings) and from generators; the seed decides both.
"""

from __future__ import annotations

import random
import re
import site
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from bench.egress.honest_code import CODE
from bench.egress.honest_numbers import NUMBERS
from bench.egress.honest_records import RECORDS, lines, word
from bench.egress.prose import LANGUAGES, prose, sentence

Rng = random.Random
Make = Callable[[Rng], str]
LARGEST = 200_000
#: Documentation shows made-up passwords here and there; whether to redact those is a matter of taste.
DOUBTFUL = re.compile(
    r"://[^/\s:@]+:[^/\s@]+@|PRIVATE KEY"
    r"|(?:passw|passphrase|secret|token|api_?key)\w*['\"]?\s*[=:]\s*['\"][^'\"\s]{4,}",
    re.IGNORECASE,
)


def honest(rng: Rng) -> Iterator[tuple[str, str]]:
    """Kind and text."""
    for kind, (count, make) in MAKERS.items():
        for _ in range(count):
            yield kind, make(rng)


def mixed(rng: Rng, size: int) -> str:
    """One output of that many characters: prose, code and JSON in turn."""
    parts, length = [], 0
    while length < size:
        part = rng.choice(
            (_prose("english"), _slice("stdlib"), RECORDS["json"][1], RECORDS["application log"][1])
        )(rng)
        parts.append(part[:20_000])
        length += len(parts[-1]) + 1
    return "\n".join(parts)[:size]


@cache
def _files(source: str) -> list[Path]:
    """Readable text of the machine, in an order that does not change from run to run."""
    places: dict[str, tuple[str, tuple[str, ...]]] = {
        "stdlib": (sysconfig.get_path("stdlib"), ("*.py", "[a-z]*/*.py")),
        "packages": (next(iter(site.getsitepackages())), ("*/*.py", "*/*/*.py")),
        "headers": ("/usr/include", ("*.h", "*/*.h")),
        "etc": ("/etc", ("*.conf", "*/*.conf", "*/*.cnf", "init.d/*", "profile.d/*")),
        "documents": ("/usr/share", ("common-licenses/*", "doc/*/*.md", "doc/*/README*")),
        "metadata": (next(iter(site.getsitepackages())), ("*.dist-info/METADATA", "*.dist-info/RECORD")),
    }
    root, patterns = places[source]
    found = sorted(
        path for pattern in patterns for path in Path(root).glob(pattern) if "test" not in path.parts
    )
    return [
        path
        for path in found
        if path.is_file() and 400 < path.stat().st_size < LARGEST and path.suffix != ".gz"
    ]


def _slice(source: str) -> Make:
    """Up to 300 lines out of one of these files; prose where there are none."""

    def make(rng: Rng) -> str:
        for _ in range(20 if _files(source) else 0):
            try:
                shown = rng.choice(_files(source)).read_text().splitlines(keepends=True)
            except (OSError, UnicodeDecodeError):
                continue
            start = rng.randrange(len(shown))
            text = "".join(shown[start : start + rng.randint(5, 300)])
            if text.strip() and not DOUBTFUL.search(text):
                return text
        return prose(rng, 2000)

    return make


def _numbered(rng: Rng) -> str:
    """As `cat -n` and `grep -n` show sources."""
    shown = _slice("stdlib")(rng).splitlines()[:80]
    form = rng.choice(("{n:6}\t{line}", "src/app.py:{n}:{line}", "{n:>4} | {line}"))
    return "\n".join(form.format(n=n, line=line) for n, line in enumerate(shown, start=rng.randint(1, 900)))


def _prose(language: str) -> Make:
    return lambda rng: prose(rng, rng.randint(80, 4000), language)


def _markdown(rng: Rng) -> str:
    parts: tuple[Callable[[], str], ...] = (
        lambda: f"## {word(rng).capitalize()} {word(rng)}\n",
        lambda: sentence(rng) + " " + sentence(rng) + "\n",
        lambda: lines(rng, lambda: f"- **{word(rng)}**: {sentence(rng)}", 2, 6),
        lambda: f"```python\n{CODE['functions'][1](rng)}```\n",
        lambda: f"See [{word(rng)}](https://example.com/{word(rng)}#{word(rng)}-{word(rng)}).\n",
        lambda: RECORDS["markdown table"][1](rng),
    )
    return f"# {sentence(rng)}\n\n" + lines(rng, lambda: rng.choice(parts)(), 3, 14)


def _poem(rng: Rng) -> str:
    verses = (lines(rng, lambda: " ".join(sentence(rng).split()[:6]), 4, 5) for _ in range(rng.randint(1, 6)))
    return "\n".join(verses)


def _one_value(rng: Rng) -> str:
    """What most jobs print."""
    number = rng.randrange(-999, 10**6)
    forms = (
        f"{number}",
        f"{number / 7}",
        f"[{number}]",
        f"Result: {number}",
        "True",
        "None",
        "ok",
        f"({number}, '{word(rng)}')",
    )
    return rng.choice(forms) + rng.choice(("", "\n"))


def _counted(rng: Rng) -> str:
    counts = Counter(prose(rng, 4000).split())
    return rng.choice((str(counts), str(counts.most_common(20)), str(dict(counts)), str(sorted(counts))))


MAKERS: dict[str, tuple[int, Make]] = {
    "stdlib": (420, _slice("stdlib")),
    "packages": (420, _slice("packages")),
    "headers": (120, _slice("headers")),
    "etc": (60, _slice("etc")),
    "documents": (90, _slice("documents")),
    "metadata": (90, _slice("metadata")),
    "numbered source": (60, _numbered),
    **{f"prose {language}": (40, _prose(language)) for language in LANGUAGES},
    "markdown": (80, _markdown),
    "poem": (40, _poem),
    "one value": (120, _one_value),
    "word counts": (50, _counted),
    **CODE,
    **NUMBERS,
    **RECORDS,
}
