"""The filter every text passes on its way out, of a job or on the command line.

It takes out secrets, random runs, hidden reasoning and control characters, and blocks copies of a context.
Pure: a text and settings in, a report out.
"""

# ruff: noqa: E501

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
#: What a caller is told instead of output that repeats the context (requirement R7).
ECHO_MESSAGE = "Do not print raw context. Summarize it."

#: Said of what nothing more exact was found for.
_GENERAL = {ENTROPY_KIND, PREFIXED_KIND}

Context = str | bytes | Path | ContextSource


@dataclass(frozen=True, slots=True)
class Redaction:
    """One stretch of the text that was taken out.

    ``start`` and ``end`` are its place in the text as it came. ``how``: the steps by which it could be read
    (``("base64", "reversed")``); none for what stood there as it is.
    """

    kind: str
    start: int
    end: int
    how: tuple[str, ...] = ()
    count: int = 1


@dataclass(frozen=True, slots=True)
class FilterReport:
    """What may leave. ``blocked``: the text repeats the context, and ``text`` says so in its place."""

    text: str
    redactions: tuple[Redaction, ...] = ()
    blocked: bool = False

    @property
    def counts(self) -> dict[str, int]:
        """How many redactions there are of each kind."""
        counted: Counter[str] = Counter()
        for redaction in self.redactions:
            counted[redaction.kind] += redaction.count
        return dict(sorted(counted.items()))


def filter_text(
    text: str, *, context: Context | None = None, settings: EgressSettings | None = None
) -> FilterReport:
    """Take out of a text what may not leave.

    ``context`` is what the text may not repeat: a text, bytes, the path of a file of any size, or a
    :class:`ContextSource` made of one, which is indexed once for any number of texts. Raises
    :class:`NotConfigured` for a context without the extra ``egress``. Time and memory are in proportion to
    the text, whatever it holds.
    """
    settings = settings or default_settings()
    report = redact(text, find(text, settings))
    if context is not None and is_echo([report.text], context, settings):
        return FilterReport(f"[{ECHO_MESSAGE}]", (Redaction(ECHO_KIND, 0, len(text)),), blocked=True)
    return report


def find(text: str, settings: EgressSettings, budget: ReadingBudget | None = None) -> list[Finding]:
    """What has to go, in the order of the text; places may overlap. ``budget`` is what a job's readings share."""
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
    """The settings of nobody in particular: nothing is read from the environment."""
    return EgressSettings()


def _merged(found: Iterable[Finding]) -> Iterator[Finding]:
    """Overlapping findings as one, named after the first of them that was known exactly."""
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

    ``found`` is in the order of the text, of which all may have been searched.
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
    """What stands in the place of a redaction."""
    return entropy.NOTICE if kind == ENTROPY_KIND else f"[REDACTED: {kind}]"
