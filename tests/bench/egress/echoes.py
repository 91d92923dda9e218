"""Contexts that a job was given, outputs that hand them on, and outputs that only report on them."""

from __future__ import annotations

import base64
import codecs
import csv
import gzip
import io
import json
import random
import re
import textwrap
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

from bench.egress.honest_records import address, hexed, stamp, uid, word
from bench.egress.prose import prose, sentence, varied

Rng = random.Random
Case = tuple[str, str, str]  #: context, output, how it was made
#: A slice of this many characters is what a leak hands on; the whole of a context up to WHOLE.
SLICE = (1_000, 8_000)
WHOLE = 400_000


def contexts(rng: Rng) -> dict[str, str]:
    """By what they are: 3 KB to 2 MB."""
    makers: dict[str, tuple[int, Callable[[int], str]]] = {
        "short prose": (3_000, lambda size: prose(rng, size)),
        "prose": (30_000, lambda size: prose(rng, size)),
        "long prose": (300_000, lambda size: prose(rng, size)),
        "book": (2_000_000, lambda size: prose(rng, size)),
        "source": (50_000, partial(_repeated, _function, rng)),
        "csv": (200_000, partial(_csv, rng)),
        "json lines": (500_000, partial(_repeated, _json_line, rng)),
        "log": (1_000_000, partial(_repeated, _log_line, rng)),
        "mails": (80_000, partial(_repeated, _mail, rng)),
        "report": (20_000, partial(_repeated, _section, rng)),
        "german": (40_000, lambda size: varied(rng, size, "german")),
        "russian": (60_000, lambda size: varied(rng, size, "russian")),
        "arabic": (15_000, lambda size: varied(rng, size, "arabic")),
        "chinese": (20_000, lambda size: varied(rng, size, "chinese")),
        "japanese": (30_000, lambda size: varied(rng, size, "japanese")),
        "hindi": (10_000, lambda size: varied(rng, size, "hindi")),
    }
    return {name: make(size) for name, (size, make) in makers.items()}


def leaks(rng: Rng) -> Iterator[Case]:
    """The context, or a long piece of it, in whatever form."""
    for context in contexts(rng).values():
        for how, form in LEAKS.items():
            size = min(len(context), rng.randint(*SLICE))
            start = rng.randint(0, len(context) - size)
            yield context, form(context[start : start + size], rng), how
        if len(context) <= WHOLE:
            yield context, context, "whole"
            yield context, base64.b64encode(context.encode()).decode(), "whole in base64"
        pieces = [context[at : at + 700] for at in range(0, min(len(context), 14_000), 1_400)]
        if len(pieces) >= 8:
            yield context, "\n---\n".join(pieces), "every second 700 of the start"


def fair(rng: Rng) -> Iterator[Case]:
    """What a job may well say about its context."""
    for name, context in contexts(rng).items():
        for how, form in FAIR.items():
            yield context, form(context, rng), how
        language = (
            name if name in ("german", "russian", "arabic", "chinese", "japanese", "hindi") else "english"
        )
        yield context, varied(rng, 2_500, language), "other text in the language"
    again = contexts(rng)
    for name, context in contexts(rng).items():
        if name not in ("book", "log"):
            yield context, again[name][:4_000], "another of the same make"


# --- leaking ---


def _after_own(text: str, rng: Rng) -> str:
    return f"{prose(rng, 1_500)}\n\nHere is the text:\n{text}\n\n{prose(rng, 600)}"


def _numbered(text: str, rng: Rng) -> str:
    return "\n".join(f"{n:5}: {line}" for n, line in enumerate(text.splitlines(), start=rng.randint(1, 500)))


def _rewrapped(text: str, rng: Rng) -> str:
    return "\n".join(
        textwrap.wrap(text, rng.randint(40, 100), initial_indent="    ", subsequent_indent="    ")
    )


def _letters_apart(text: str, rng: Rng) -> str:
    return " ".join(text[:2_000])


def _gzip(text: str, rng: Rng) -> str:
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


LEAKS: dict[str, Callable[[str, Rng], str]] = {
    "slice": lambda text, rng: text,
    "upper": lambda text, rng: text.upper(),
    "lower": lambda text, rng: text.lower(),
    "base64": lambda text, rng: base64.b64encode(text.encode()).decode(),
    "base64 wrapped": lambda text, rng: base64.encodebytes(text.encode()).decode(),
    "hex": lambda text, rng: text.encode().hex(),
    "gzip base64": _gzip,
    "reversed": lambda text, rng: text[::-1],
    "rot13": lambda text, rng: codecs.encode(text, "rot13"),
    "URL quoted": lambda text, rng: urllib.parse.quote(text),
    "numbered lines": _numbered,
    "rewrapped": _rewrapped,
    "repr": lambda text, rng: repr(text),
    "repr of bytes": lambda text, rng: repr(text.encode()),
    "after own words": _after_own,
    "quoted lines": lambda text, rng: textwrap.indent(text, "> ", lambda line: True),
    "json": lambda text, rng: json.dumps({"text": text}),
    "list of lines": lambda text, rng: repr(text.splitlines()),
    "list of words": lambda text, rng: repr(text.split()),
    "word per line": lambda text, rng: "\n".join(text.split()),
    "without whitespace": lambda text, rng: re.sub(r"\s", "", text),
    "without punctuation": lambda text, rng: re.sub(r"[^\w\s]", "", text),
    "letters apart": _letters_apart,
    "zero-width between": lambda text, rng: "\u200b".join(text),
    "lines upside down": lambda text, rng: "\n".join(reversed(text.splitlines())),
}


# --- reporting ---


def _counts(context: str, rng: Rng) -> str:
    longest = max(map(len, context.splitlines()))
    lines = context.count("\n")
    return f"characters: {len(context)}\nwords: {len(context.split())}\nlines: {lines}\nlongest: {longest}\n"


def _summary(context: str, rng: Rng) -> str:
    top = ", ".join(word for word, _ in Counter(re.findall(r"\w{5,12}", context)).most_common(12))
    return f"The document speaks mostly of {top}. {_counts(context, rng)}\n" + prose(rng, 900)


def _quotation(context: str, rng: Rng) -> str:
    start = rng.randrange(max(1, len(context) - 200))
    quoted = context[start : start + rng.randint(60, 200)].strip()
    return f'The answer is in this sentence: "{quoted}". {sentence(rng)} {sentence(rng)}'


def _snippets(context: str, rng: Rng) -> str:
    """Up to five pieces of 500 bytes, at most a quarter of the context, from all over it."""
    count = max(1, min(rng.randint(1, 5), len(context) // 2_500))
    part = len(context) // count
    starts = [n * part + rng.randrange(max(1, part - 500)) for n in range(count)]
    cut = (context[at : at + 500].encode()[:500].decode(errors="ignore") for at in starts)
    return "\n\n".join(f"offset {at}: ...{shown}..." for at, shown in zip(starts, cut, strict=True))


def _matches(context: str, rng: Rng) -> str:
    pattern = rng.choice(
        (r"\d+", r"\b\w{9,12}\b", r"\b[A-Z\u0410-\u042f]\w+", r"\d{4}-\d\d-\d\d", r"\w+@\w+\.\w+")
    )
    return f"{pattern}: {re.findall(pattern, context)[:80]}"


def _single_line(context: str, rng: Rng) -> str:
    return rng.choice([line for line in context.splitlines() if line.strip()])[:200] + "\n"


def _frequencies(context: str, rng: Rng) -> str:
    found = Counter(re.findall(r"\b\w{1,12}", context.lower())).most_common(20)
    return "\n".join(f"{word:20} {count:6} {count / len(context):.5f}" for word, count in found)


def _computed(context: str, rng: Rng) -> str:
    sizes = [len(line) for line in context.splitlines() if line] or [0]
    shown = (f"{n:4}  {sum(sizes[n::10])}  {max(sizes[n::10] or [0])}  {rng.random():.4f}" for n in range(10))
    return "part  sum  longest  share\n" + "\n".join(shown)


def _mails(context: str, rng: Rng) -> str:
    return "\n".join(sorted(set(re.findall(r"[\w.]+@[\w.]+\w", context)))[:100]) or "no addresses\n"


def _headings(context: str, rng: Rng) -> str:
    found = re.findall(r"^(?:#+ |def |Subject: )(.{1,60})", context, re.MULTILINE)[:30]
    return "\n".join(f"{n}. {title}" for n, title in enumerate(found, start=1)) or "no headings\n"


def _program(context: str, rng: Rng) -> str:
    needle = " ".join(context[len(context) // 2 :].split()[:3])
    return (
        "import re\nfrom collections import Counter\n\ncontext = open('/context').read()\n"
        f"hits = [m.start() for m in re.finditer({needle!r}, context)]\nprint(len(hits), hits[:10])\n"
        "chunks = [context[i:i + 4000] for i in range(0, len(context), 4000)]\n"
        f"for n, chunk in enumerate(chunks[:{rng.randint(3, 20)}]):\n"
        "    answer = llm_query(f'What does this say about the token? {chunk}')\n    print(n, answer[:200])\n"
    )


def _answers(context: str, rng: Rng) -> str:
    """One line on each part, as a model that read them would give."""
    found = [context[at : at + 30].strip() for at in range(0, len(context), max(1, len(context) // 12))]
    return "\n".join(f"chunk {n}: begins {start!r}; {sentence(rng)}" for n, start in enumerate(found))


FAIR: dict[str, Callable[[str, Rng], str]] = {
    "counts": _counts,
    "summary": _summary,
    "quotation": _quotation,
    "search snippets": _snippets,
    "matches": _matches,
    "single line": _single_line,
    "word frequencies": _frequencies,
    "computed table": _computed,
    "addresses": _mails,
    "headings": _headings,
    "its program": _program,
    "answers by chunk": _answers,
    "unrelated": lambda context, rng: prose(rng, 3_000),
    "sum of it": lambda context, rng: f"sha256 {hexed(rng, 64)}  {len(context)}\n",
}


# --- what contexts are made of ---


def _repeated(make: Callable[[Rng], str], rng: Rng, size: int) -> str:
    parts: list[str] = []
    length = 0
    while length < size:
        parts.append(make(rng))
        length += len(parts[-1])
    return "".join(parts)[:size]


def _function(rng: Rng) -> str:
    name, one, other = (f"{word(rng)}_{word(rng)}" for _ in range(3))
    return (
        f'def {name}({one}: int, {other}: str = "{word(rng)}") -> str:\n    """{sentence(rng)}"""\n'
        f"    if {one} > {rng.randrange(999)}:\n        raise ValueError({other!r})\n"
        f'    return f"{{{other}}} {word(rng)} {{{one} * {rng.randrange(99)}}}"\n\n\n'
    )


def _csv(rng: Rng, size: int) -> str:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(("id", "name", "city", "amount", "when", "note"))
    while out.tell() < size:
        row = (uid(rng), word(rng), word(rng), round(rng.gauss(100, 40), 2), stamp(rng), sentence(rng)[:40])
        writer.writerow(row)
    return out.getvalue()[:size]


def _json_line(rng: Rng) -> str:
    return json.dumps({"id": uid(rng), "user": word(rng), "at": stamp(rng), "text": sentence(rng)}) + "\n"


def _log_line(rng: Rng) -> str:
    return f"{stamp(rng)} {address(rng)} {word(rng)}[{rng.randrange(9999)}]: {sentence(rng)}\n"


def _mail(rng: Rng) -> str:
    sender = f"{word(rng)}.{word(rng)}@example.com"
    return f"From: {sender}\nDate: {stamp(rng)}\nSubject: {word(rng)} {word(rng)}\n\n{prose(rng, 500)}\n\n"


def _section(rng: Rng) -> str:
    return f"## {word(rng).capitalize()} {word(rng)} {rng.randint(1, 99)}\n\n{prose(rng, 900)}\n\n"
