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
from cellblock.egress.filtering import ECHO_KIND, ENTROPY_KIND, Redaction, find, is_echo, notice, redact
from cellblock.egress.governor import Governed, Governor
from cellblock.egress.secrets import Finding
from cellblock.models import Artifact, JobError, RedactionCount, SkippedArtifact
from cellblock.values import TableValue
from cellblock_config.egress import EgressSettings

if TYPE_CHECKING:
    from cellblock.egress.echo import ContextIndex
    from cellblock.egress.filtering import Context

Evidence = dict[str, bool | int | float | str]

_LEAVES_MOST = 2000
#: Of the end of one stream and the beginning of another so much is read as one.
_HALF_CHARS = 4096
#: Of each file so much is compared together with the others'.
_SHORT_CHARS = 4096
#: How zstd's and lz4's frames begin, which Arrow compresses its buffers with.
_FRAMES = (b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18")
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
    counts = _Counts()
    files_out = _Files(settings, counts, context)
    if context is not None and is_echo(_words(said), context, settings):
        return _blocked(said)
    artifacts, skipped = files_out.filtered(said.artifacts)
    if files_out.echo:
        return _blocked(said)
    value, value_error = _value(said, settings, counts)
    stdout, stderr = (_stream(name, getattr(said, name), settings, counts) for name in ("stdout", "stderr"))
    stdout, stderr = _without_halves(stdout, stderr, settings, counts)
    return replace(
        said,
        stdout=stdout,
        stderr=stderr,
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


def _blocked(said: Outgoing) -> Outgoing:
    count = RedactionCount(kind=ECHO_KIND, stream="all", count=1)
    return Outgoing(evidence=_without_words(said.evidence), redactions=(count,), blocked=True)


def _without_words(evidence: Evidence) -> Evidence:
    return {name: found for name, found in evidence.items() if not isinstance(found, str)}


def _words(said: Outgoing) -> Iterator[str]:
    """Each text alone, and all as one: half in stdout and half in stderr is a copy as well."""
    error = said.error or JobError(type="", message="")
    texts = [
        said.stdout.text,
        said.stderr.text,
        _value_text(said),
        said.value_error or "",
        f"{error.type}\n{error.message}\n{error.traceback}",
        "\n".join(found for found in said.evidence.values() if isinstance(found, str)),
        "\n".join(file.path for file in said.artifacts),
        "\n".join(f"{one.path}\n{one.reason}" for one in said.artifacts_skipped),
    ]
    yield from texts
    yield "\n".join(texts)


def _value_text(said: Outgoing) -> str:
    if isinstance(said.value, TableValue):
        texts = _texts(said.value.ipc, files.Budget())
        return "" if isinstance(texts, str) else "\n".join(texts)  # an opaque one is withheld below
    return "" if said.value_kind is None else json.dumps(said.value, ensure_ascii=False)


def _text(stream: str, text: str | None, settings: EgressSettings, counts: _Counts) -> str | None:
    if not text:
        return text
    report = redact(text, find(text, settings))
    counts.add(stream, report.redactions)
    return report.text


def _without_halves(
    stdout: Governed, stderr: Governed, settings: EgressSettings, counts: _Counts
) -> tuple[Governed, Governed]:
    """The two streams without what the one begins and the other ends."""
    texts = {"stdout": stdout.text, "stderr": stderr.text}
    for first, second in (("stdout", "stderr"), ("stderr", "stdout")):
        head, tail = texts[first].rstrip()[-_HALF_CHARS:], texts[second].lstrip()[:_HALF_CHARS]
        for finding in find(head + tail, settings) if head and tail else ():
            if finding.start < len(head) < finding.end and finding.kind != ENTROPY_KIND:
                counts.add(first, [Redaction(finding.kind, 0, 0)])
                kept, lead = texts[first].rstrip(), texts[second].lstrip()
                texts[first] = kept[: len(kept) - (len(head) - finding.start)] + notice(finding.kind)
                texts[second] = notice(finding.kind) + lead[finding.end - len(head) :]
                break
    return replace(stdout, text=texts["stdout"]), replace(stderr, text=texts["stderr"])


def _stream(name: str, governed: Governed, settings: EgressSettings, counts: _Counts) -> Governed:
    """Filtered with what stood beyond the cut, and then cut where it was cut."""
    shown: list[str] = []
    for stretch in governed.stretches:
        report = redact(stretch.text, find(stretch.text, settings), stretch.start, stretch.end)
        counts.add(name, report.redactions)
        shown.append(report.text)
    if len(shown) == 2:  # what is left of one secret on both sides of the cut
        head, tail = _without_halves(Governed(shown[0], 0), Governed(shown[1], 0), settings, counts)
        shown = [head.text, tail.text]
    return _within_bounds(Governed(governed.marker.join(shown), governed.dropped_bytes), settings)


def _within_bounds(kept: Governed, settings: EgressSettings) -> Governed:
    """Notices and escapes can be longer than what they stand for: where by much, it is cut once more."""
    size = len(kept.text.encode("utf-8", "replace"))
    if size <= settings.output_limit_bytes * 5 // 4 + len(kept.marker):
        return kept
    governor = Governor(settings)
    governor.feed(kept.text.encode("utf-8", "replace"))
    again = governor.close()
    return Governed(again.text, kept.dropped_bytes + again.dropped_bytes)


def _error(error: JobError | None, settings: EgressSettings, counts: _Counts) -> JobError | None:
    if error is None:
        return None
    parts = {name: _text("error", getattr(error, name), settings, counts) for name in JobError.model_fields}
    return JobError(**{name: part or "" for name, part in parts.items()})


def _value(said: Outgoing, settings: EgressSettings, counts: _Counts) -> tuple[object, str | None]:
    """The value without its secrets, or the reason why there is none now."""
    if said.value_kind is None:
        return None, None
    if isinstance(said.value, TableValue) and (why := _opaque(said.value)) is not None:
        return None, f"the value is withheld: {why}"
    whole = _value_text(said)
    found = find(whole, settings)
    if not found and not isinstance(said.value, TableValue):
        whole = "".join(_strings(said.value))  # what is cut in pieces stands apart in JSON
        found = [] if whole == said.value else find(whole, settings)
        if found:
            counts.add("value", redact(whole, found).redactions)
            return None, _withheld("the value", found)
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
    return None, _withheld("the value", found)


def _withheld(what: str, found: Iterable[Finding]) -> str:
    kinds = ", ".join(sorted({finding.kind for finding in found}))
    return (
        f"{what} is withheld: it holds what may not leave ({kinds})"
        if what
        else (f"withheld: it holds what may not leave ({kinds})")
    )


def _opaque(table: TableValue) -> str | None:
    """Why a table cannot be looked into; our guest compresses none."""
    if any(sign in table.ipc for sign in _FRAMES):
        return "its buffers are compressed"
    texts = _texts(table.ipc, files.Budget())
    return texts if isinstance(texts, str) else None


def _strings(value: object) -> Iterator[str]:
    """Every text of a value, in its order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for part in value:
            yield from _strings(part)
    elif isinstance(value, dict):
        for key, part in value.items():
            yield key
            yield from _strings(part)


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


def _texts(data: bytes, budget: files.Budget) -> list[str] | str:
    """What can be read in a file, or why nothing can."""
    try:
        return list(files.texts_in(data, budget))
    except files.Opaque as why:
        return str(why)


class _Files:
    """A job's files, one after the other: each may be large."""

    def __init__(
        self, settings: EgressSettings, counts: _Counts, context: Context | ContextIndex | None
    ) -> None:
        self._settings = settings
        self._counts = counts
        self._context = context
        self._budget = files.Budget()
        self._short: list[str] = []
        self.echo = False

    def filtered(
        self, artifacts: tuple[Artifact, ...]
    ) -> tuple[tuple[Artifact, ...], tuple[SkippedArtifact, ...]]:
        """Those that may leave, and why the others may not."""
        done = [self._filtered(file) for file in artifacts]
        self._compare("\n".join(self._short))
        return (
            tuple(file for file in done if isinstance(file, Artifact)),
            tuple(file for file in done if isinstance(file, SkippedArtifact)),
        )

    def _compare(self, text: str) -> None:
        if self._context is not None and not self.echo:
            self.echo = is_echo([text], self._context, self._settings)

    def _filtered(self, file: Artifact) -> Artifact | SkippedArtifact:
        path = _text("artifacts", file.path, self._settings, self._counts) or ""
        texts = _texts(file.data, self._budget)
        if isinstance(texts, str):
            return SkippedArtifact(path=path, reason=f"withheld: {texts}")
        whole = "\n".join(texts)
        self._compare(whole)
        self._short.append(whole[:_SHORT_CHARS])
        found = find(whole, self._settings)
        plain = files.as_text(file.data) if found else None
        if path != file.path:
            return SkippedArtifact(path=path, reason="withheld: its name holds what may not leave")
        if not found:
            return file
        if plain is not None and plain == whole:
            report = redact(plain, found, controls=False)
            self._counts.add("artifacts", report.redactions)
            return Artifact(path=path, data=report.text.encode())
        self._counts.add("artifacts", [Redaction(one.kind, one.start, one.end, one.how) for one in found])
        return SkippedArtifact(path=path, reason=_withheld("", found))
