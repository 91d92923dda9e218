"""The inputs of a job and its value: JSON for plain values, Arrow for tables, never pickle.

A value is the job's own claim. This module reads it within bounds and never executes it; a table stays
unread bytes until its owner asks for it.
"""

from __future__ import annotations

import base64
import importlib
import json
import math
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from cellblock.contract.arrow_stream import check_expansion, check_stream
from cellblock.errors import InvalidJob, NotConfigured

DEPTH_LIMIT = 100


class InputValue(BaseModel):
    """One input, encoded as bytes."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        ser_json_bytes="base64",
        val_json_bytes="base64",
        hide_input_in_errors=True,
    )

    kind: Literal["json", "table", "dataframe"]
    data: bytes


class TableValue:
    """A table that a job returned: an Arrow IPC stream, decoded only on request.

    ``ipc`` are its bytes. The job wrote them: do not pass them to a reader that trusts its input. The two
    methods of this class check them first.
    """

    def __init__(self, ipc: bytes) -> None:
        self.ipc = ipc

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableValue) and other.ipc == self.ipc

    def __hash__(self) -> int:
        return hash(self.ipc)

    def __repr__(self) -> str:
        return f"TableValue(<{len(self.ipc)} bytes of Arrow>)"

    def to_table(self) -> Any:
        """The table as a ``pyarrow.Table``, with every offset and length checked.

        Raises ValueError when the bytes are not a table or would grow when read, :class:`NotConfigured`
        without the extra ``arrow``.
        """
        pyarrow = _arrow("reading a table")
        try:
            check_stream(pyarrow, self.ipc)
            table = pyarrow.ipc.open_stream(self.ipc).read_all()
            table.validate(full=True)
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise ValueError(f"the job's value is not a valid Arrow stream: {error}") from None
        return table

    def to_pandas(self) -> Any:
        """The table as a ``pandas.DataFrame``. Raises what :meth:`to_table` raises, and ValueError for a
        table in which one value stands in many places."""
        pyarrow = _arrow("reading a table", "pandas")
        table = self.to_table()
        check_expansion(pyarrow, table)
        return table.to_pandas()


def encode_input(name: str, value: object) -> InputValue:
    """Encodes a plain value, a ``pyarrow.Table`` or a ``pandas.DataFrame``. Raises :class:`InvalidJob`."""
    if isinstance(value, InputValue):
        return value
    kind = f"{type(value).__module__.partition('.')[0]}.{type(value).__name__}"
    if kind in {"pandas.DataFrame", "pyarrow.Table"}:
        pyarrow = _arrow(f"the input {name!r}, a {kind},")
        try:
            table: Any = value
            if kind == "pandas.DataFrame":
                table = pyarrow.Table.from_pandas(value)
        except (pyarrow.ArrowException, ValueError) as error:
            raise InvalidJob(name, f"this DataFrame has no form in Arrow: {error}") from None
        sink = pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        data = sink.getvalue().to_pybytes()
        return InputValue(kind="dataframe" if kind == "pandas.DataFrame" else "table", data=data)
    _check_plain(value, name, 0)
    try:
        return InputValue(kind="json", data=json.dumps(value, allow_nan=False, ensure_ascii=False).encode())
    except UnicodeEncodeError:
        raise InvalidJob(name, "holds text with a lone surrogate, which is not Unicode") from None
    except ValueError as error:
        raise InvalidJob(name, f"cannot be written as JSON: {error}") from None


def _check_plain(value: object, place: str, depth: int) -> None:
    """Accepts only values that JSON holds exactly, so that the job gets what the caller gave."""
    if depth > DEPTH_LIMIT:
        raise InvalidJob(place[:200], f"is nested deeper than {DEPTH_LIMIT} levels, or contains itself")
    kind = type(value)
    if kind is float and not math.isfinite(value):  # type: ignore[arg-type]
        raise InvalidJob(place[:200], f"is {value}, which JSON has no word for")
    if value is None or kind in {bool, int, float, str}:
        return
    if isinstance(value, list) and kind is list:
        for number, part in enumerate(value):
            _check_plain(part, f"{place}[{number}]", depth + 1)
    elif isinstance(value, dict) and kind is dict:
        for key, part in value.items():
            if type(key) is not str:
                raise InvalidJob(place[:200], f"has the key {key!r:.80}; JSON keys are str")
            _check_plain(part, f"{place}[{key!r}]", depth + 1)
    else:
        raise InvalidJob(
            place[:200],
            f"is a {kind.__module__}.{kind.__qualname__}; give None, bool, int, float, str, a list or dict "
            "of these, a pyarrow.Table or a pandas.DataFrame",
        )


def read_json_value(data: bytes) -> object:
    """A job's JSON value as plain Python. Raises ValueError unless it is strict JSON of finite numbers and
    Unicode text, at most 100 levels deep."""
    try:
        value = json.loads(data, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError(f"is nested deeper than {DEPTH_LIMIT} levels") from None
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    _check_read(value, 0)
    return value


def _no_constant(name: str) -> object:
    raise ValueError(f"holds {name}, which JSON has no word for")


def _check_read(value: object, depth: int) -> None:
    if depth > DEPTH_LIMIT:
        raise ValueError(f"is nested deeper than {DEPTH_LIMIT} levels")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("holds a number too large to be one")
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, list):
        for part in value:
            _check_read(part, depth + 1)
    elif isinstance(value, dict):
        for key, part in value.items():
            _check_text(key)
            _check_read(part, depth + 1)


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("holds text with a lone surrogate, which is not Unicode") from None


def table_from_base64(text: str) -> TableValue:
    """The table in a stored result, from its base64. Raises ValueError."""
    return TableValue(base64.b64decode(text, validate=True))


def _arrow(what: str, *also: str) -> Any:
    """Imports pyarrow, and only when a table is used. Raises :class:`NotConfigured` without the extra."""
    try:
        for name in ("pyarrow.ipc", *also):
            importlib.import_module(name)
        return importlib.import_module("pyarrow")
    except ImportError as error:
        raise NotConfigured(f"{what} needs {error.name}: pip install 'cellblock[arrow]'") from None
