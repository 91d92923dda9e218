"""A job's output on the wire: on its way to the filter, and the part that comes back."""

from __future__ import annotations

import json
from typing import Any

from cellblock.contract.outcomes import JobError
from cellblock.contract.results import Artifact, RedactionCount, SkippedArtifact
from cellblock.contract.values import TableValue
from cellblock.egress.governor import Governed, Stretch
from cellblock.egress.outgoing import Outgoing
from cellblock.egress.withholding import GROWTH_BYTES
from cellblock_workers.filtering.wire import Malformed, Message, item, items

_COUNT_MOST = 2**53
#: What leaves may be longer than what came: by the growth of all parts, by the counts, and a reason for each
#: file.
_LONGER_BYTES, _LONGER_BYTES_PER_FILE = 2 * GROWTH_BYTES, 200
_REDACTIONS_MOST = 4096


def size_of(said: Outgoing) -> int:
    """The number of bytes to filter, without the value's."""
    texts = [stretch.text for one in (said.stdout, said.stderr) for stretch in _stretches(one)]
    error = said.error or JobError(type="", message="")
    texts += [error.type, error.message, error.traceback, said.value_error or ""]
    texts += [found for found in said.evidence.values() if isinstance(found, str)]
    texts += [part for one in said.artifacts_skipped for part in (one.path, one.reason)]
    texts += [one.path for one in said.artifacts]
    return sum(map(_bytes_of, texts)) + sum(len(one.data) for one in said.artifacts)


def _bytes_of(text: str) -> int:
    return len(text) if text.isascii() else 4 * len(text)


def stored_size(said: Outgoing) -> int:
    """The number of bytes that this takes in the store."""
    value = said.value
    blobs = [one.data for one in said.artifacts] + ([value.ipc] if isinstance(value, TableValue) else [])
    error = said.error or JobError(type="", message="")
    texts = [
        *(said.stdout.text, said.stderr.text, error.type, error.message, error.traceback),
        None if isinstance(value, TableValue) else value,
        said.value_error,
        said.evidence,
        [one.path for one in said.artifacts],
        [[one.path, one.reason] for one in said.artifacts_skipped],
        [[one.kind, one.stream, one.count] for one in said.redactions],
    ]
    text = json.dumps(texts, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode("utf-8", "replace")) + sum(4 * -(-len(blob) // 3) for blob in blobs)


def to_wire(said: Outgoing) -> tuple[Message, list[bytes]]:
    """A job's output, as a message and the bytes behind it."""
    blobs = [one.data for one in said.artifacts]
    if isinstance(said.value, TableValue):
        blobs.append(said.value.ipc)
    message = {
        "stdout": _governed(said.stdout),
        "stderr": _governed(said.stderr),
        "value": None if isinstance(said.value, TableValue) else said.value,
        "value_kind": said.value_kind,
        "value_error": said.value_error,
        "error": said.error and [said.error.type, said.error.message, said.error.traceback],
        "evidence": said.evidence,
        "artifacts": [one.path for one in said.artifacts],
        "skipped": [[one.path, one.reason] for one in said.artifacts_skipped],
    }
    return message, blobs


def from_wire(message: Message, blobs: list[bytes]) -> Outgoing:
    """The output that :func:`to_wire` was given."""
    paths = items(message, "artifacts", str)
    kind, error = message["value_kind"], message["error"]
    return Outgoing(
        stdout=_read_governed(message["stdout"]),
        stderr=_read_governed(message["stderr"]),
        value=TableValue(blobs[len(paths)]) if kind == "table" else message["value"],
        value_kind=kind,
        value_error=message["value_error"],
        error=None if error is None else _error(error),
        evidence=message["evidence"],
        artifacts=tuple(
            Artifact(path=path, data=data) for path, data in zip(paths, blobs[: len(paths)], strict=True)
        ),
        artifacts_skipped=_skipped(message),
    )


def answer_to_wire(said: Outgoing, kept: Outgoing) -> tuple[Message, list[bytes]]:
    """The part of ``said`` that may leave. Files and values that leave unchanged are named, not sent
    again."""
    came = {id(one): number for number, one in enumerate(said.artifacts)}
    changed, files = [], []
    numbers = {one.path: number for number, one in enumerate(said.artifacts)}
    for one in kept.artifacts:
        if id(one) in came:
            files.append([came[id(one)], False])
        else:
            files.append([numbers[one.path], True])
            changed.append(one.data)
    same = kept.value is said.value
    message = {
        "stdout": [kept.stdout.text, kept.stdout.dropped_bytes],
        "stderr": [kept.stderr.text, kept.stderr.dropped_bytes],
        "same_value": same,
        "value": None if same else kept.value,
        "value_kind": kept.value_kind,
        "value_error": kept.value_error,
        "error": kept.error and [kept.error.type, kept.error.message, kept.error.traceback],
        "evidence": kept.evidence,
        "artifacts": files,
        "skipped": [[one.path, one.reason] for one in kept.artifacts_skipped],
        "redactions": [[one.kind, one.stream, one.count] for one in kept.redactions],
        "blocked": kept.blocked,
    }
    return message, changed


def answer_from_wire(said: Outgoing, message: Message, blobs: list[bytes]) -> Outgoing:
    """What may leave, as a process says that has worked on it. Raises :class:`Malformed`."""
    kind, error = message.get("value_kind"), message.get("error")
    same = item(message, "same_value", bool)
    value = said.value if same else message.get("value")
    if kind not in {None, said.value_kind} or (kind == "table" and not same):
        raise Malformed("a value of another kind")
    kept = Outgoing(
        stdout=Governed(*_pair(message, "stdout")),
        stderr=Governed(*_pair(message, "stderr")),
        value=None if kind is None else value,
        value_kind=kind,
        value_error=_text_or_none(message, "value_error"),
        error=None if error is None else _error(error),
        evidence=_evidence(item(message, "evidence", dict), said),
        artifacts=_artifacts(said, items(message, "artifacts", list), blobs),
        artifacts_skipped=_skipped(message),
        redactions=_redactions(message),
        blocked=item(message, "blocked", bool),
    )
    names = len(said.artifacts) + len(said.artifacts_skipped)
    if stored_size(kept) > stored_size(said) + _LONGER_BYTES + names * _LONGER_BYTES_PER_FILE:
        raise Malformed("more than notices explain")
    return kept


def _artifacts(said: Outgoing, files: list[list[Any]], blobs: list[bytes]) -> tuple[Artifact, ...]:
    kept, rest = [], iter(blobs)
    for one in files:
        if [type(part) for part in one] != [int, bool] or not 0 <= one[0] < len(said.artifacts):
            raise Malformed("not a file")
        file = said.artifacts[one[0]]
        kept.append(Artifact(path=file.path, data=next(rest, b"")) if one[1] else file)
    if len(kept) > len(said.artifacts) or sum(one[1] for one in files) != len(blobs):
        raise Malformed("other files than there were")
    return tuple(kept)


def _skipped(message: Message) -> tuple[SkippedArtifact, ...]:
    return tuple(SkippedArtifact(path=path, reason=why) for path, why in _texts(message, "skipped", 2))


def _texts(message: Message, name: str, length: int) -> list[list[str]]:
    found = items(message, name, list)
    if not all(len(one) == length and all(type(part) is str for part in one) for one in found):
        raise Malformed(f"{name} is something else")
    return found


def _redactions(message: Message) -> tuple[RedactionCount, ...]:
    found = items(message, "redactions", list)
    if len(found) > _REDACTIONS_MOST:
        raise Malformed("more redactions than there are kinds")
    for one in found:
        if [type(part) for part in one] != [str, str, int] or not 0 <= one[2] < _COUNT_MOST:
            raise Malformed("not a redaction")
    return tuple(RedactionCount(kind=kind, stream=stream, count=count) for kind, stream, count in found)


def _evidence(found: dict[str, Any], said: Outgoing) -> dict[str, bool | int | float | str]:
    if not all(
        name in said.evidence and type(said.evidence[name]) is type(one) for name, one in found.items()
    ):
        raise Malformed("other evidence than there was")
    return found


def _error(found: object) -> JobError:
    if not isinstance(found, list) or [type(part) for part in found] != [str, str, str]:
        raise Malformed("not an error")
    return JobError(type=found[0], message=found[1], traceback=found[2])


def _pair(message: Message, name: str) -> tuple[str, int]:
    found = item(message, name, list)
    if [type(part) for part in found] != [str, int]:
        raise Malformed(f"{name} is no stream")
    return found[0], found[1]


def _text_or_none(message: Message, name: str) -> str | None:
    return None if message.get(name) is None else str(item(message, name, str))


def _stretches(one: Governed) -> tuple[Stretch, ...]:
    return one.stretches or (Stretch(one.text, 0, len(one.text)),)


def _governed(one: Governed) -> list[Any]:
    whole = _stretches(one) == (Stretch(one.text, 0, len(one.text)),)
    stretches = None if whole else [[part.text, part.start, part.end] for part in one.stretches]
    return [one.text, one.dropped_bytes, stretches]


def _read_governed(found: list[Any]) -> Governed:
    text, dropped_bytes, stretches = found
    parts = tuple(Stretch(text=part, start=start, end=end) for part, start, end in stretches or ())
    return Governed(text, dropped_bytes, stretches=parts)
