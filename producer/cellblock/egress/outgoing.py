"""Filters all output of one job together: streams, value, error, traceback and files.

The output as the worker has it goes in; the output that may be stored comes out, with a count of redactions
by kind and stream. It is pure, like filter_text, and uses the same parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from cellblock.contract.outcomes import JobError
from cellblock.contract.results import Artifact, RedactionCount, SkippedArtifact
from cellblock.egress.artifacts import ArtifactFilter
from cellblock.egress.context import ContextSource
from cellblock.egress.filtering import ECHO_KIND, ENTROPY_KIND, Context, Redaction, is_echo, notice, redact
from cellblock.egress.governor import Governed, Governor, Stretch
from cellblock.egress.redaction_counts import RedactionCounter, size_of
from cellblock.egress.value_filter import filter_value, value_text
from cellblock.egress.withholding import KIND as UNFILTERED_KIND
from cellblock.egress.withholding import Guard, OutOfBounds, Unbounded, piece
from cellblock.egress.withholding import notice as withheld_notice
from cellblock.egress.withholding import reason as withheld_reason
from cellblock_config.egress import EgressSettings

Evidence = dict[str, bool | int | float | str]

#: The end of one text and the beginning of another, each of this length, are also searched as one text.
_HALF_CHARS = 4096
_EMPTY = Governed("", 0)
_UNBOUNDED = Unbounded()


@dataclass(frozen=True, slots=True)
class Outgoing:
    """The output of one job; after :func:`filter_outgoing`, the part that may leave."""

    stdout: Governed = _EMPTY
    stderr: Governed = _EMPTY
    value: object = None
    value_kind: Literal["json", "table"] | None = None
    value_error: str | None = None
    error: JobError | None = None
    #: Our own findings, which can quote a sandbox.
    evidence: Evidence = field(default_factory=dict)
    artifacts: tuple[Artifact, ...] = ()
    artifacts_skipped: tuple[SkippedArtifact, ...] = ()
    redactions: tuple[RedactionCount, ...] = ()
    #: Whether the output repeats the context, so that all of it is withheld.
    blocked: bool = False


def filter_outgoing(
    said: Outgoing,
    settings: EgressSettings,
    context: Context | None = None,
    guard: Guard = _UNBOUNDED,
) -> Outgoing:
    """Returns the output that may leave. If the rest still repeats the context, all of it is ``blocked``.

    ``guard`` bounds the work for each piece: a piece that needs more is withheld, and a notice replaces it.
    """
    source = None if context is None else ContextSource.of(context)  # one for all texts: it is indexed once
    counter = RedactionCounter(settings)
    files = ArtifactFilter(counter, source, guard)
    kept = _texts(said, counter, guard)  # before the files: texts are short, and say how the job ended
    skipped = files.skipped(said.artifacts_skipped)
    artifacts, withheld = files.filtered(said.artifacts)
    kept = replace(
        kept, artifacts=artifacts, artifacts_skipped=(*skipped, *withheld), redactions=counter.counts()
    )

    if source is None:
        return kept

    def repeats() -> bool:
        files.compare_together()
        return files.echo or is_echo(_words(kept), source, settings)

    try:
        return _blocked(said) if guard.run_last(repeats) else kept
    except OutOfBounds as why:
        return withhold_all(said, why)


def withhold_all(said: Outgoing, why: OutOfBounds) -> Outgoing:
    """Withholds all output, with the reason in each place."""
    counter = RedactionCounter(EgressSettings())
    kept = _Withheld(counter).all_of(said)
    return replace(kept(why), redactions=counter.counts())


def _texts(said: Outgoing, counter: RedactionCounter, guard: Guard) -> Outgoing:
    """Filters everything except the files."""
    instead = _Withheld(counter)
    no_stdout, no_stderr = instead.stream("stdout", said.stdout), instead.stream("stderr", said.stderr)
    stdout = piece(guard, lambda: _stream("stdout", said.stdout, counter), no_stdout)
    stderr = piece(guard, lambda: _stream("stderr", said.stderr, counter), no_stderr)
    stdout, stderr = piece(
        guard,
        lambda: _without_halves("stdout", stdout, stderr, counter),
        lambda why: (no_stdout(why), no_stderr(why)),
    )
    value, value_error = None, None
    if said.value_kind is not None:
        value, value_error = piece(guard, lambda: filter_value(said.value, counter), instead.value)
    return replace(
        said,
        stdout=stdout,
        stderr=stderr,
        value=value,
        value_kind=None if value_error else said.value_kind,
        value_error=value_error
        or (
            said.value_error
            and piece(guard, lambda: counter.text("value", said.value_error or ""), instead.text("value"))
        ),
        error=piece(guard, lambda: _error(said.error, counter), instead.error),
        evidence=piece(guard, lambda: _evidence(said.evidence, counter), lambda why: _numbers(said.evidence)),
    )


class _Withheld:
    """Makes replacements for pieces that went beyond their bounds, and counts each."""

    def __init__(self, counter: RedactionCounter) -> None:
        self._counter = counter

    def stream(self, name: str, governed: Governed) -> Callable[[OutOfBounds], Governed]:
        """Makes the replacement of a stream."""
        return lambda why: Governed(self.text(name)(why), governed.dropped_bytes)

    def text(self, name: str) -> Callable[[OutOfBounds], str]:
        """Makes the replacement of a text."""

        def instead(why: OutOfBounds) -> str:
            self._counter.add(name, [Redaction(UNFILTERED_KIND, 0, 0)])
            return withheld_notice(why)

        return instead

    def value(self, why: OutOfBounds) -> tuple[None, str]:
        """The replacement of the value."""
        self._counter.add("value", [Redaction(UNFILTERED_KIND, 0, 0)])
        return None, f"the value is {withheld_reason(why)}"

    def error(self, why: OutOfBounds) -> JobError:
        """The replacement of the exception that the job raised."""
        return JobError(type="Withheld", message=self.text("error")(why))

    def all_of(self, said: Outgoing) -> Callable[[OutOfBounds], Outgoing]:
        """Makes the replacement of all output; empty parts stay empty."""

        def instead(why: OutOfBounds) -> Outgoing:
            streams = {
                name: self.stream(name, given)(why) if given.text else given
                for name, given in (("stdout", said.stdout), ("stderr", said.stderr))
            }
            files = [*said.artifacts, *said.artifacts_skipped]
            if files:
                self._counter.add("artifacts", [Redaction(UNFILTERED_KIND, 0, 0, count=len(files))])
            names = f"all {len(files)} files are {withheld_reason(why)}"
            return Outgoing(
                stdout=streams["stdout"],
                stderr=streams["stderr"],
                value_error=self.value(why)[1] if said.value_kind or said.value_error else None,
                error=said.error and self.error(why),
                evidence=_numbers(said.evidence),
                artifacts_skipped=(SkippedArtifact(path="?", reason=names),) if files else (),
            )

        return instead


def _evidence(found: Evidence, counter: RedactionCounter) -> Evidence:
    return {
        name: counter.text("error", value) if isinstance(value, str) else value
        for name, value in found.items()
    }


def _numbers(found: Evidence) -> Evidence:
    return {name: value for name, value in found.items() if not isinstance(value, str)}


def _blocked(said: Outgoing) -> Outgoing:
    count = RedactionCount(kind=ECHO_KIND, stream="all", count=1)
    return Outgoing(evidence=_numbers(said.evidence), redactions=(count,), blocked=True)


def _words(said: Outgoing) -> Iterator[str]:
    """Each text alone, and all as one: a copy can be half in stdout and half in stderr."""
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


def _error(error: JobError | None, counter: RedactionCounter) -> JobError | None:
    if error is None:
        return None
    return JobError(**{name: counter.text("error", getattr(error, name)) for name in JobError.model_fields})


def _stream(name: str, governed: Governed, counter: RedactionCounter) -> Governed:
    """Filters a stream together with the text beyond its cut, and then cuts it there again."""
    shown: list[Governed] = []
    for stretch in governed.stretches or (Stretch(governed.text, 0, len(governed.text)),):
        report = redact(stretch.text, counter.find(stretch.text), stretch.start, stretch.end)
        counter.add(name, report.redactions)
        shown.append(Governed(report.text, 0))
    if len(shown) == 2:
        shown = list(_without_halves(name, shown[0], shown[1], counter))
    text = governed.marker.join(part.text for part in shown)
    before_bytes = size_of(governed.text)
    kept = _within_bounds(Governed(text, governed.dropped_bytes), before_bytes, counter.settings)
    return (
        kept
        if counter.growth.fits(before_bytes, size_of(kept.text))
        else replace(kept, text=counter.too_long(name))
    )


def _without_halves(
    stream: str, first: Governed, second: Governed, counter: RedactionCounter
) -> tuple[Governed, Governed]:
    """Two texts without a secret that begins in one and ends in the other, in either order."""
    for turned in (False, True):
        before, after = (second, first) if turned else (first, second)
        head, tail = before.text.rstrip(), after.text.lstrip()
        for finding in counter.find(head[-_HALF_CHARS:] + tail[:_HALF_CHARS]) if head and tail else ():
            border = min(len(head), _HALF_CHARS)
            if finding.start < border < finding.end and finding.kind != ENTROPY_KIND:
                counter.add(stream, [Redaction(finding.kind, finding.start, finding.end)])
                sign = notice(finding.kind)
                before = replace(before, text=head[: len(head) - border + finding.start] + sign)
                after = replace(after, text=sign + tail[finding.end - border :])
                first, second = (after, before) if turned else (before, after)
                break
    return first, second


def _within_bounds(kept: Governed, before_bytes: int, settings: EgressSettings) -> Governed:
    """Cuts a stream again if notices and escapes made it much longer than it was."""
    data = kept.text.encode("utf-8", "replace")
    if len(data) <= max(settings.output_limit_bytes, before_bytes) * 5 // 4:
        return kept
    governor = Governor(settings)
    governor.feed(data)
    again = governor.close()
    return Governed(again.text, kept.dropped_bytes + again.dropped_bytes)
