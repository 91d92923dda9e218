"""Filters a job's value: JSON text by text, while a table leaves whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator

from cellblock.contract.values import TableValue
from cellblock.egress import files
from cellblock.egress.filtering import Redaction, notice, redact
from cellblock.egress.redaction_counts import RedactionCounter, size_of
from cellblock.egress.withholding import TOO_LONG

_PARTS_MOST = 2000
#: The first bytes of zstd's and lz4's frames, with which Arrow compresses buffers; our guest never does.
_FRAMES = (b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18")
_STREAM = "value"


def value_text(value: object) -> str:
    """All readable text of a value; empty for a table that :func:`filter_value` withholds."""
    if not isinstance(value, TableValue):
        return json.dumps(value, ensure_ascii=False)
    texts = files.read(value.ipc, files.UnpackBudget())
    return "" if isinstance(texts, str) else "\n".join(texts)


def filter_value(value: object, counter: RedactionCounter) -> tuple[object, str | None]:
    """The value that may leave, or None and the reason why it must not."""
    if isinstance(value, TableValue):
        why = _table_withheld(value, counter)
        return (value, None) if why is None else (None, f"the value is {why}")
    found = counter.find(value_text(value))
    if not found:
        joined = "".join(_strings(value))  # pieces of one text are separate in JSON
        found = [] if joined == value else counter.find(joined)
        return (value, None) if not found else (None, f"the value is {counter.withheld(_STREAM, found)}")
    parts = _Parts(counter)
    filtered = parts.filtered(value)
    if not parts.too_many and not counter.find(value_text(filtered)):
        if counter.growth.fits(size_of(value_text(value)), size_of(value_text(filtered))):
            parts.count()
            return filtered, None
        counter.too_long(_STREAM)
        return None, f"the value is {TOO_LONG}"
    return None, f"the value is {counter.withheld(_STREAM, found)}"


def _table_withheld(table: TableValue, counter: RedactionCounter) -> str | None:
    if any(sign in table.ipc for sign in _FRAMES):
        return "withheld: its buffers are compressed"
    fragments: list[str] | None = [] if counter.settings.registered else None
    texts = files.read(table.ipc, files.UnpackBudget(), fragments)
    if isinstance(texts, str):
        return f"withheld: {texts}"
    found = counter.find("\n".join(texts)) or counter.registered("\n".join(fragments or ()))
    return counter.withheld(_STREAM, found) if found else None


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


class _Parts:
    """Filters every text of a value, together with the name of its field."""

    def __init__(self, counter: RedactionCounter) -> None:
        self._counter = counter
        self._own = RedactionCounter(counter.settings)  # counted only if the filtered value leaves
        self._left = _PARTS_MOST

    @property
    def too_many(self) -> bool:
        """Whether it had too many parts to filter one by one, so that the filtered value is incomplete."""
        return self._left < 0

    def count(self) -> None:
        """Counts the redactions as those of the job's value."""
        for one in self._own.counts():
            self._counter.add(one.stream, [Redaction(one.kind, 0, 0, count=one.count)])

    def filtered(self, value: object, name: str = "") -> object:
        """The value with notices in place of secrets."""
        self._left -= 1
        if self.too_many:
            return None
        if isinstance(value, str):
            return self._text(value, name)
        if isinstance(value, list):
            return [self.filtered(part, name) for part in value]
        if isinstance(value, dict):
            return {key: self.filtered(part, key) for key, part in value.items()}
        return value

    def _text(self, value: str, name: str) -> str:
        report = redact(value, self._own.find(value))
        self._own.add(_STREAM, report.redactions)
        kept = report.text
        prefix = f"{json.dumps(name, ensure_ascii=False)}: "
        named = prefix + json.dumps(kept, ensure_ascii=False)
        for finding in self._own.find(named) if name else ():
            if finding.end > len(prefix):
                self._own.add(_STREAM, [Redaction(finding.kind, 0, len(value))])
                return notice(finding.kind)
        return kept
