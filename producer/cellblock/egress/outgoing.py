"""All that one job says, filtered together: streams, value, error, traceback and files.

What a worker has of a job goes in, what may be stored comes out, with a count of every redaction by kind and
stream. Pure, like filter_text, which it is made of.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from cellblock.egress import files
from cellblock.egress.filtering import ECHO_KIND, Redaction, find, is_echo, notice, redact
from cellblock.egress.governor import Governed
from cellblock.models import Artifact, JobError, RedactionCount, SkippedArtifact
from cellblock.values import TableValue
from cellblock_config.egress import EgressSettings

if TYPE_CHECKING:
    from cellblock.egress.echo import ContextIndex
    from cellblock.egress.filtering import Context

Evidence = dict[str, bool | int | float | str]

_LEAVES_MOST = 2000
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


class _Counts:
    """Redactions by kind and stream."""

    def __init__(self) -> None:
        self._counted: Counter[tuple[str, str]] = Counter()

    def add(self, stream: str, redactions: Iterable[Redaction]) -> None:
        for redaction in redactions:
            self._counted[redaction.kind, stream] += redaction.count

    def all(self) -> tuple[RedactionCount, ...]:
        return tuple(
            RedactionCount(kind=kind, stream=stream, count=count)
            for (kind, stream), count in sorted(self._counted.items())
        )


def filter_outgoing(
    said: Outgoing, settings: EgressSettings, context: Context | ContextIndex | None = None
) -> Outgoing:
    """What of it may leave. Where anything repeats the context, nothing does, and ``blocked`` says so."""
    opened = {file.path: _texts(file.data) for file in said.artifacts}
    if context is not None and is_echo(_everything(said, opened), context, settings):
        count = RedactionCount(kind=ECHO_KIND, stream="all", count=1)
        return Outgoing(evidence=_without_words(said.evidence), redactions=(count,), blocked=True)
    counts = _Counts()
    value, value_error = _value(said, settings, counts)
    artifacts, skipped = _artifacts(said.artifacts, opened, settings, counts)
    return replace(
        said,
        stdout=_stream("stdout", said.stdout, settings, counts),
        stderr=_stream("stderr", said.stderr, settings, counts),
        value=value,
        value_kind=None if value_error else said.value_kind,
        value_error=value_error or _text("value", said.value_error, settings, counts),
        error=_error(said.error, settings, counts),
        evidence={
            name: _text("error", found, settings, counts) or "" if isinstance(found, str) else found
            for name, found in said.evidence.items()
        },
        artifacts=artifacts,
        artifacts_skipped=(
            *(
                SkippedArtifact(
                    path=_text("artifacts", one.path, settings, counts) or "",
                    reason=_text("artifacts", one.reason, settings, counts) or "",
                )
                for one in said.artifacts_skipped
            ),
            *skipped,
        ),
        redactions=counts.all(),
    )


def _without_words(evidence: Evidence) -> Evidence:
    return {name: found for name, found in evidence.items() if not isinstance(found, str)}


def _everything(said: Outgoing, opened: dict[str, list[str] | str]) -> Iterator[str]:
    """Each text alone, and the short ones as one: half in stdout and half in stderr is a copy as well."""
    value = _value_text(said)
    error = f"{said.error.message}\n{said.error.traceback}" if said.error else ""
    yield from (said.stdout.text, said.stderr.text, value, error)
    yield "\n".join((said.stdout.text, said.stderr.text, value, error))
    for texts in opened.values():
        if isinstance(texts, list):
            yield "\n".join(texts)


def _value_text(said: Outgoing) -> str:
    if isinstance(said.value, TableValue):
        try:
            return "\n".join(files.texts_in(said.value.ipc))
        except files.Opaque:  # a table that poses as an archive is withheld below
            return ""
    return "" if said.value_kind is None else json.dumps(said.value, ensure_ascii=False)


def _text(stream: str, text: str | None, settings: EgressSettings, counts: _Counts) -> str | None:
    if not text:
        return text
    report = redact(text, find(text, settings))
    counts.add(stream, report.redactions)
    return report.text


def _stream(name: str, governed: Governed, settings: EgressSettings, counts: _Counts) -> Governed:
    """Filtered with what stood beyond the cut, and then cut where it was cut."""
    shown: list[str] = []
    for stretch in governed.stretches:
        report = redact(stretch.text, find(stretch.text, settings), stretch.start, stretch.end)
        counts.add(name, report.redactions)
        shown.append(report.text)
    return Governed(governed.marker.join(shown), governed.dropped_bytes)


def _error(error: JobError | None, settings: EgressSettings, counts: _Counts) -> JobError | None:
    if error is None:
        return None
    parts = {name: _text("error", getattr(error, name), settings, counts) for name in JobError.model_fields}
    return JobError(**{name: part or "" for name, part in parts.items()})


def _value(said: Outgoing, settings: EgressSettings, counts: _Counts) -> tuple[object, str | None]:
    """The value without its secrets, or the reason why there is none now."""
    if said.value_kind is None:
        return None, None
    if isinstance(said.value, TableValue) and isinstance(texts := _texts(said.value.ipc), str):
        return None, f"the value is withheld: {texts}"
    whole = _value_text(said)
    found = find(whole, settings)
    if not found:
        return said.value, None
    leaves = _Leaves(settings, counts)
    value = None if isinstance(said.value, TableValue) else leaves.filtered(said.value)
    if (
        value is not None
        and not leaves.too_many
        and not find(json.dumps(value, ensure_ascii=False), settings)
    ):
        return value, None
    counts.add("value", redact(whole, found).redactions)
    kinds = ", ".join(sorted({finding.kind for finding in found}))
    return None, f"the value is withheld: it holds what may not leave ({kinds})"


class _Leaves:
    """A value of which every text has been filtered, knowing the name it is given to."""

    def __init__(self, settings: EgressSettings, counts: _Counts) -> None:
        self._settings = settings
        self._counts = counts
        self._left = _LEAVES_MOST

    @property
    def too_many(self) -> bool:
        """Whether it had more parts than are looked at one by one, so that what came of it is not whole."""
        return self._left < 0

    def filtered(self, value: object, name: str = "") -> object:
        """The same with notices in the place of secrets."""
        self._left -= 1
        if self.too_many:
            return None
        if isinstance(value, str):
            return self._leaf(value, name)
        if isinstance(value, list):
            return [self.filtered(part, name) for part in value]
        if isinstance(value, dict):
            return {key: self.filtered(part, key) for key, part in value.items()}
        return value

    def _leaf(self, value: str, name: str) -> str:
        report = redact(value, find(value, self._settings))
        self._counts.add("value", report.redactions)
        prefix = f"{json.dumps(name, ensure_ascii=False)}: "
        named = prefix + json.dumps(report.text, ensure_ascii=False)
        for finding in find(named, self._settings) if name else ():
            if finding.end > len(prefix):
                self._counts.add("value", [Redaction(finding.kind, 0, len(value))])
                return notice(finding.kind)
        return report.text


def _texts(data: bytes) -> list[str] | str:
    """What can be read in a file, or why nothing can."""
    try:
        return list(files.texts_in(data))
    except files.Opaque as why:
        return str(why)


def _artifacts(
    artifacts: tuple[Artifact, ...],
    opened: dict[str, list[str] | str],
    settings: EgressSettings,
    counts: _Counts,
) -> tuple[tuple[Artifact, ...], list[SkippedArtifact]]:
    kept: list[Artifact] = []
    skipped: list[SkippedArtifact] = []
    for file in artifacts:
        path = _text("artifacts", file.path, settings, counts) or ""
        texts = opened[file.path]
        found = [] if isinstance(texts, str) else find("\n".join(texts), settings)
        plain = files.as_text(file.data) if found else None
        if isinstance(texts, str):
            skipped.append(SkippedArtifact(path=path, reason=f"withheld: {texts}"))
        elif path != file.path:
            skipped.append(SkippedArtifact(path=path, reason="withheld: its name holds what may not leave"))
        elif not found:
            kept.append(file)
        elif plain is not None and texts == [plain]:
            report = redact(plain, found, controls=False)
            counts.add("artifacts", report.redactions)
            kept.append(Artifact(path=path, data=report.text.encode()))
        else:
            counts.add("artifacts", [Redaction(one.kind, one.start, one.end, one.how) for one in found])
            kinds = ", ".join(sorted({finding.kind for finding in found}))
            skipped.append(
                SkippedArtifact(path=path, reason=f"withheld: it holds what may not leave ({kinds})")
            )
    return tuple(kept), skipped
