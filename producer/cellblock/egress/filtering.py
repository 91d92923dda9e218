"""The filter for every text that leaves a job, also usable on the command line.

It takes out secrets, random runs, hidden reasoning and control characters, and blocks copies of a context.
It is pure: a text and settings in, a report out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cellblock.egress import entropy, reasoning, secrets
from cellblock.egress.context import LEAST_BYTES, ContextSource
from cellblock.egress.controls import KIND as CONTROL_KIND
from cellblock.egress.controls import clean
from cellblock.egress.secrets import Finding
from cellblock.egress.values.prefixed import KIND as PREFIXED_KIND
from cellblock.egress.views import ReadingBudget, views
from cellblock.errors import NotConfigured
from cellblock_config.egress import EgressSettings

ENTROPY_KIND = "high_entropy"
ECHO_KIND = "context_echo"
#: The text in place of output that repeats the context.
ECHO_MESSAGE = "Do not print raw context. Summarize it."

#: Kinds for findings without a more exact kind.
_GENERAL = {ENTROPY_KIND, PREFIXED_KIND}

Context = str | bytes | Path | ContextSource


@dataclass(frozen=True, slots=True)
class Redaction:
    """One stretch of the text that was taken out.

    ``start`` and ``end`` are its place in the original text. ``how``: the steps that made it readable
    (``("base64", "reversed")``); empty if it was readable as it stood.
    """

    kind: str
    start: int
    end: int
    how: tuple[str, ...] = ()
    count: int = 1


@dataclass(frozen=True, slots=True)
class FilterReport:
    """The text that may leave. ``blocked``: it repeats the context, and ``text`` is a message instead."""

    text: str
    redactions: tuple[Redaction, ...] = ()
    blocked: bool = False

    @property
    def counts(self) -> dict[str, int]:
        """The number of redactions of each kind."""
        counted: Counter[str] = Counter()
        for redaction in self.redactions:
            counted[redaction.kind] += redaction.count
        return dict(sorted(counted.items()))


def filter_text(
    text: str, *, context: Context | None = None, settings: EgressSettings | None = None
) -> FilterReport:
    """Takes out of a text everything that must not leave.

    ``context``: the data that the text must not repeat: a text, bytes, the path of a file of any size, or a
    :class:`ContextSource` of one, which is indexed once for any number of texts. Raises
    :class:`NotConfigured` for a context without the extra ``egress``. Time and memory are proportional to
    the length of the text, whatever it holds.
    """
    settings = settings or default_settings()
    report = redact(text, find(text, settings))
    if context is not None and is_echo([report.text], context, settings):
        return FilterReport(f"[{ECHO_MESSAGE}]", (Redaction(ECHO_KIND, 0, len(text)),), blocked=True)
    return report


def find(text: str, settings: EgressSettings, budget: ReadingBudget | None = None) -> list[Finding]:
    """The stretches to take out, in order; they can overlap. ``budget``: shared by all texts of a job."""
    found = secrets.find(text, settings.registered, budget)
    if settings.entropy_chars:
        found += [
            Finding(start, end, ENTROPY_KIND)
            for start, end in entropy.find(
                text, least_bits=settings.entropy_bits, least_chars=settings.entropy_chars
            )
        ]
    found += [Finding(*span, reasoning.KIND) for span in reasoning.find(text, settings.hidden_fields)]
    return sorted(found)


def is_echo(texts: Iterable[str], context: Context, settings: EgressSettings) -> bool:
    """Whether any reading of any of these texts repeats the context."""
    if not settings.echo_bytes:
        return False
    long = [text for text in texts if 2 * len(text.encode("utf-8", "replace")) >= LEAST_BYTES]
    if not long:
        return False
    try:
        from cellblock.egress.echo import index_of
    except ImportError as error:
        raise NotConfigured(
            f"comparing with a context needs {error.name}: pip install 'cellblock[egress]'"
        ) from None
    index = index_of(ContextSource.of(context), memory_bytes=settings.echo_memory_bytes)
    readings = (view.text for text in long for view in views(text))
    return index.is_echoed(readings, chunk_bytes=settings.echo_bytes, similarity=settings.echo_similarity)


@cache
def default_settings() -> EgressSettings:
    """The default settings; nothing is read from the environment."""
    return EgressSettings()


def _merged(found: Iterable[Finding]) -> Iterator[Finding]:
    """Merges overlapping findings, under the kind of the first one that is exact."""
    held: Finding | None = None
    for finding in found:
        if held is None or finding.start >= held.end:
            if held is not None:
                yield held
            held = finding
        else:
            first = min(
                (held, finding), key=lambda one: (one.kind in _GENERAL, len(one.how), one.start, -one.end)
            )
            held = Finding(held.start, max(held.end, finding.end), first.kind, first.how)
    if held is not None:
        yield held


def redact(
    text: str, found: Iterable[Finding], start: int = 0, end: int | None = None, *, controls: bool = True
) -> FilterReport:
    """``text[start:end]`` with a notice in the place of every finding, and control characters cleaned.

    ``found``: findings of the whole text, in its order.
    """
    end = len(text) if end is None else end
    pieces: list[str] = []
    redactions: list[Redaction] = []
    done, cleaned = start, 0

    def keep(until: int) -> None:
        nonlocal cleaned
        kept, count = clean(text[done:until]) if controls else (text[done:until], 0)
        pieces.append(kept)
        cleaned += count

    for finding in _merged(found):
        if finding.end <= start or finding.start >= end:
            continue
        keep(max(start, finding.start))
        pieces.append(notice(finding.kind))
        redactions.append(Redaction(finding.kind, finding.start, finding.end, finding.how))
        done = finding.end
    if done < end:
        keep(end)
    if cleaned:
        redactions.append(Redaction(CONTROL_KIND, start, end, count=cleaned))
    return FilterReport("".join(pieces), tuple(redactions))


def notice(kind: str) -> str:
    """The notice that replaces a redaction of this kind."""
    return entropy.NOTICE if kind == ENTROPY_KIND else f"[REDACTED: {kind}]"
