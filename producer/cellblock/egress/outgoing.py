"""All that one job says, filtered together: streams, value, error, traceback and files.

What a worker has of a job goes in, what may be stored comes out, with a count of every redaction by kind and
stream. Pure, like filter_text, whose parts it is made of.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from cellblock.egress.artifacts import ArtifactFilter
from cellblock.egress.context import ContextSource
from cellblock.egress.filtering import ECHO_KIND, ENTROPY_KIND, Context, Redaction, is_echo, notice, redact
from cellblock.egress.governor import Governed, Governor, Stretch
from cellblock.egress.returned import filter_value, value_text
from cellblock.egress.tally import Tally
from cellblock.models import Artifact, JobError, RedactionCount, SkippedArtifact
from cellblock_config.egress import EgressSettings

Evidence = dict[str, bool | int | float | str]

#: Of the end of one text and the beginning of another so much is read as one.
_HALF_CHARS = 4096
_EMPTY = Governed("", 0)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What one job wants to say, or after :func:`filter_outgoing` what of it may be heard."""

    stdout: Governed = _EMPTY
    stderr: Governed = _EMPTY
    value: object = None
    value_kind: Literal["json", "table"] | None = None
    value_error: str | None = None
    error: JobError | None = None
    #: Our own findings, which may quote what a sandbox sent.
    evidence: Evidence = field(default_factory=dict)
    artifacts: tuple[Artifact, ...] = ()
    artifacts_skipped: tuple[SkippedArtifact, ...] = ()
    redactions: tuple[RedactionCount, ...] = ()
    #: It repeats the context: nothing of it is left.
    blocked: bool = False


def filter_outgoing(said: Outgoing, settings: EgressSettings, context: Context | None = None) -> Outgoing:
    """What of it may leave. Where anything that is left repeats the context, nothing does: ``blocked``."""
    source = None if context is None else ContextSource.of(context)  # one for all: it is indexed once
    tally = Tally(settings)
    files = ArtifactFilter(tally, source)
    artifacts, withheld = files.filtered(said.artifacts)
    value, value_error = (None, None) if said.value_kind is None else filter_value(said.value, tally)
    stdout, stderr = _without_halves(
        "stdout", _stream("stdout", said.stdout, tally), _stream("stderr", said.stderr, tally), tally
    )
    kept = replace(
        said,
        stdout=stdout,
        stderr=stderr,
        value=value,
        value_kind=None if value_error else said.value_kind,
        value_error=value_error or (said.value_error and tally.text("value", said.value_error)),
        error=_error(said.error, tally),
        evidence={
            name: tally.text("error", found) if isinstance(found, str) else found
            for name, found in said.evidence.items()
        },
        artifacts=artifacts,
        artifacts_skipped=(*files.skipped(said.artifacts_skipped), *withheld),
        redactions=tally.counts(),
    )
    if files.echo or (source is not None and is_echo(_words(kept), source, settings)):
        return _blocked(said)
    return kept


def _blocked(said: Outgoing) -> Outgoing:
    count = RedactionCount(kind=ECHO_KIND, stream="all", count=1)
    numbers: Evidence = {name: found for name, found in said.evidence.items() if not isinstance(found, str)}
    return Outgoing(evidence=numbers, redactions=(count,), blocked=True)


def _words(said: Outgoing) -> Iterator[str]:
    """Each text alone, and all as one: half in stdout and half in stderr is a copy as well."""
    error = said.error or JobError(type="", message="")
    texts = [
        said.stdout.text,
        said.stderr.text,
        "" if said.value_kind is None else value_text(said.value),
        said.value_error or "",
        f"{error.type}\n{error.message}\n{error.traceback}",
        "\n".join(found for found in said.evidence.values() if isinstance(found, str)),
        "\n".join(file.path for file in said.artifacts),
        "\n".join(f"{one.path}\n{one.reason}" for one in said.artifacts_skipped),
    ]
    yield from texts
    yield "\n".join(texts)


def _error(error: JobError | None, tally: Tally) -> JobError | None:
    if error is None:
        return None
    return JobError(**{name: tally.text("error", getattr(error, name)) for name in JobError.model_fields})


def _stream(name: str, governed: Governed, tally: Tally) -> Governed:
    """Filtered with what stood beyond the cut, and then cut where it was cut."""
    shown: list[Governed] = []
    for stretch in governed.stretches or (Stretch(governed.text, 0, len(governed.text)),):
        report = redact(stretch.text, tally.find(stretch.text), stretch.start, stretch.end)
        tally.add(name, report.redactions)
        shown.append(Governed(report.text, 0))
    if len(shown) == 2:
        shown = list(_without_halves(name, shown[0], shown[1], tally))
    text = governed.marker.join(part.text for part in shown)
    return _within_bounds(Governed(text, governed.dropped_bytes), len(_bytes(governed.text)), tally.settings)


def _without_halves(
    stream: str, first: Governed, second: Governed, tally: Tally
) -> tuple[Governed, Governed]:
    """Two texts without the secret that the one begins and the other ends, whichever comes first."""
    for turned in (False, True):
        before, after = (second, first) if turned else (first, second)
        head, tail = before.text.rstrip(), after.text.lstrip()
        for finding in tally.find(head[-_HALF_CHARS:] + tail[:_HALF_CHARS]) if head and tail else ():
            border = min(len(head), _HALF_CHARS)
            if finding.start < border < finding.end and finding.kind != ENTROPY_KIND:
                tally.add(stream, [Redaction(finding.kind, finding.start, finding.end)])
                sign = notice(finding.kind)
                before = replace(before, text=head[: len(head) - border + finding.start] + sign)
                after = replace(after, text=sign + tail[finding.end - border :])
                first, second = (after, before) if turned else (before, after)
                break
    return first, second


def _within_bounds(kept: Governed, before_bytes: int, settings: EgressSettings) -> Governed:
    """Notices and escapes can be longer than what they stand for: where by much, it is cut once more."""
    data = _bytes(kept.text)
    if len(data) <= max(settings.output_limit_bytes, before_bytes) * 5 // 4:
        return kept
    governor = Governor(settings)
    governor.feed(data)
    again = governor.close()
    return Governed(again.text, kept.dropped_bytes + again.dropped_bytes)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")
