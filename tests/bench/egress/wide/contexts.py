"""Copies of a context in forms that echoes.py does not have, and uses of it that are nobody's leak."""

from __future__ import annotations

import csv
import io
import json
import random
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator

from bench.egress.echoes import contexts
from bench.egress.prose import prose, sentence

Rng = random.Random
Case = tuple[str, str, str]  #: context, output, how it was made
SLICE = (1_500, 8_000)
OTHER_DIGITS = (
    "\u0660\u0661\u0662\u0663\u0664\u0665\u0666\u0667\u0668\u0669",
    "\uff10\uff11\uff12\uff13\uff14\uff15\uff16\uff17\uff18\uff19",
)
SENTENCE = re.compile(r"[^.!?\u3002\u0964\n]{20,}[.!?\u3002\u0964\n]")


def leaks(rng: Rng) -> Iterator[Case]:
    """A long piece of each context in every form that it takes."""
    for context in contexts(rng).values():
        size = min(len(context), rng.randint(*SLICE))
        start = rng.randint(0, len(context) - size)
        for how, form in LEAKS.items():
            if output := form(context[start : start + size], rng):
                yield context, output, how


def fair(rng: Rng) -> Iterator[Case]:
    for context in contexts(rng).values():
        for how, form in FAIR.items():
            if output := form(context, rng):
                yield context, output, how


def _sentences(text: str) -> list[str]:
    return [one.strip() for one in SENTENCE.findall(text)] or text.splitlines()


def _reordered(text: str, rng: Rng) -> str:
    found = _sentences(text)
    rng.shuffle(found)
    return " ".join(found)


def _interleaved(text: str, rng: Rng) -> str:
    return "\n".join(f"{one}\n  (note: {sentence(rng)})" for one in _sentences(text))


def _digits(text: str, rng: Rng) -> str:
    return text.translate(str.maketrans("0123456789", rng.choice(OTHER_DIGITS)))


def _indented(text: str, rng: Rng) -> str:
    return "\n".join("\t" * rng.randint(0, 4) + line.strip() for line in text.splitlines())


def _json_escaped(text: str, rng: Rng) -> str:
    return json.dumps(json.dumps({"chunk": 1, "body": text}))


def _csv_as_json(text: str, rng: Rng) -> str:
    rows = [row for row in csv.reader(io.StringIO(text)) if len(row) > 2]
    if len(rows) < 5:
        return ""
    return "\n".join(json.dumps(dict(zip("abcdefgh", row, strict=False))) for row in rows)


def _json_as_text(text: str, rng: Rng) -> str:
    found = []
    for line in text.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    rows = (
        "; ".join(f"{key} is {value}" for key, value in one.items()) for one in found if isinstance(one, dict)
    )
    return "\n".join(rows)


def _quoted_chunks(text: str, rng: Rng) -> str:
    parts = textwrap.wrap(text, rng.randint(150, 400))
    return "\n".join(f"Passage {n} reads: \u201c{part}\u201d" for n, part in enumerate(parts, start=1))


def _sixty_percent(text: str, rng: Rng) -> str:
    kept = [one for one in _sentences(text) if rng.random() < 0.6]
    return f"Summary. {sentence(rng)} " + " ".join(kept)


def _every_other_word_marked(text: str, rng: Rng) -> str:
    return " ".join(f"*{word}*" if n % 2 else word for n, word in enumerate(text.split()))


def _translated_frame(text: str, rng: Rng) -> str:
    return f"<div class='page'><p>{'</p><p>'.join(_sentences(text))}</p></div>"


def _columns(text: str, rng: Rng) -> str:
    rows = textwrap.wrap(text, 38)
    half = (len(rows) + 1) // 2
    return "\n".join(
        f"{left:40}{right}" for left, right in zip(rows[:half], [*rows[half:], ""], strict=False)
    )


def _diff(text: str, rng: Rng) -> str:
    return "--- a/context\n+++ b/context\n" + "\n".join(f"+{line}" for line in text.splitlines())


def _logged(text: str, rng: Rng) -> str:
    rows = textwrap.wrap(text, 90)
    return "\n".join(
        f"2026-03-11 10:{n // 60 % 60:02}:{n % 60:02} INFO reader line={row!r}" for n, row in enumerate(rows)
    )


LEAKS: dict[str, Callable[[str, Rng], str]] = {
    "sentences reordered": _reordered,
    "own words between": _interleaved,
    "other digits": _digits,
    "other indentation": _indented,
    "JSON twice": _json_escaped,
    "CSV as JSON": _csv_as_json,
    "JSON as text": _json_as_text,
    "quoted in chunks": _quoted_chunks,
    "60 percent quoted": _sixty_percent,
    "every other word marked": _every_other_word_marked,
    "HTML paragraphs": _translated_frame,
    "two columns": _columns,
    "as a diff": _diff,
    "as a log": _logged,
    "title case": lambda text, rng: text.title(),
    "vowels doubled": lambda text, rng: re.sub(r"([aeiou])", r"\1\1", text),
    "underscores for spaces": lambda text, rng: re.sub(r"\s+", "_", text),
}


def _two_sentences(context: str, rng: Rng) -> str:
    found = _sentences(context)
    first, second = rng.choice(found)[:220], rng.choice(found)[:220]
    return f'The text says "{first}" and later "{second}". {sentence(rng)} {prose(rng, 400)}'


def _statistics(context: str, rng: Rng) -> str:
    sizes = [len(line) for line in context.splitlines()] or [0]
    quarters = [sorted(sizes)[int(share * (len(sizes) - 1))] for share in (0, 0.25, 0.5, 0.75, 1)]
    return f"count {len(sizes)}\nmean {sum(sizes) / len(sizes):.3f}\nquartiles {quarters}\n"


def _column_names(context: str, rng: Rng) -> str:
    first = context.splitlines()[0][:120]
    return (
        f"columns: {re.split('[,;]', first)}\nrows: {context.count(chr(10))}\ndtypes: object(3), int64(2)\n"
    )


def _short_snippet(context: str, rng: Rng) -> str:
    start = rng.randrange(max(1, len(context) - 300))
    return f"preview: {context[start : start + rng.randint(80, 250)]!r}... ({len(context)} characters)\n"


def _hits(context: str, rng: Rng) -> str:
    word = rng.choice(re.findall(r"\w{4,10}", context) or ["none"])
    found = [match.start() for match in re.finditer(re.escape(word), context)]
    return f"{len(found)} hits for {word!r} at {found[:60]}\n"


def _match_list(context: str, rng: Rng) -> str:
    found = re.findall(rng.choice((r"\b\d{2,4}\b", r"\b\w{6}\b", r"\b[A-Z]\w{3,8}\b")), context)
    return "\n".join(f"{word}\t{count}" for word, count in Counter(found).most_common(60))


def _answer(context: str, rng: Rng) -> str:
    words = rng.sample(sorted(set(re.findall(r"\w{5,12}", context))), k=5)
    return f"Answer: {words[0]}. It follows from what is said of {', '.join(words[1:])}.\n{prose(rng, 800)}"


FAIR: dict[str, Callable[[str, Rng], str]] = {
    "two sentences": _two_sentences,
    "statistics": _statistics,
    "column names": _column_names,
    "short snippet": _short_snippet,
    "hits": _hits,
    "match list": _match_list,
    "answer": _answer,
}
