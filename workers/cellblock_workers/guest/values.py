"""Inputs into the job's globals, and the job's value out of them: JSON and Arrow, never pickle.

Runs in the job process. What it sends is only the job's claim; the host trusts none of it.
"""

from __future__ import annotations

import io
import json
import sys
from typing import Any

NESTING_LIMIT = 100
#: Taken before the job begins, which may replace what is in the module.
written_value = json.JSONEncoder(allow_nan=False, ensure_ascii=False).encode
PLAIN = (type(None), bool, int, float, str)


class Inexpressible(Exception):
    """A value that cannot leave the sandbox in any form; the message names the place and why."""


def decode_input(name: str, kind: str, data: bytes) -> Any:
    """One input as the job will see it: plain values, a pyarrow Table or a pandas DataFrame."""
    if kind == "json":
        return json.loads(data)
    try:
        import pyarrow  # type: ignore[import-not-found,import-untyped,unused-ignore]

        if kind == "dataframe":
            import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore] # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"input {name!r} is a {kind}, which needs {error.name} in the image; "
            "use an image that has it, such as datascience"
        ) from None
    table = pyarrow.ipc.open_stream(data).read_all()
    return table.to_pandas() if kind == "dataframe" else table


def encode_value(value: Any, limit_bytes: int) -> bytes:
    """The bytes of a value: ``j`` and JSON, ``t`` and an Arrow stream, or ``e`` and why there is no value.

    Empty for None: a program that computes no value has none.
    """
    if value is None:
        return b""
    try:
        kind, data = (
            (b"t", table_stream(value, limit_bytes))
            if is_table(value)
            else (b"j", plain_json(value, limit_bytes))
        )
        if len(data) > limit_bytes:
            raise Inexpressible(f"the value takes {len(data)} bytes; at most {limit_bytes} may leave")
    except Inexpressible as why:
        return b"e" + str(why)[:2000].encode("utf-8", "replace")
    except Exception as error:  # a table that Arrow cannot hold, a broken __class__: the job's own fault
        return b"e" + f"{type(error).__name__}: {error}"[:2000].encode("utf-8", "replace")
    return kind + data


def is_table(value: Any) -> bool:
    """Whether it is a pandas DataFrame or a pyarrow Table. Imports neither."""
    return any(
        isinstance(value, getattr(sys.modules[module], name, ()))
        for module, name in (("pandas", "DataFrame"), ("pyarrow", "Table"))
        if module in sys.modules
    )


def table_stream(value: Any, limit_bytes: int) -> bytes:
    """The Arrow IPC stream of a table."""
    try:
        import pyarrow
    except ImportError:
        raise Inexpressible(
            "the value is a DataFrame, and this image has no pyarrow to send it with"
        ) from None
    table = value if isinstance(value, pyarrow.Table) else pyarrow.Table.from_pandas(value)
    if table.nbytes > limit_bytes:
        raise Inexpressible(f"the value takes {table.nbytes} bytes; at most {limit_bytes} may leave")
    sink = io.BytesIO()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def plain_json(value: Any, limit_bytes: int) -> bytes:
    """JSON of None, bool, int, float, str, lists, tuples and dicts with str keys, exactly these types."""
    try:
        return written_value(Plain(limit_bytes).copy(value, "value", 0)).encode()
    except UnicodeEncodeError:
        raise Inexpressible("the value holds text with a lone surrogate, which is not Unicode") from None
    except ValueError as error:  # an int of more digits than the interpreter writes
        raise Inexpressible(f"the value cannot be written as JSON: {error}") from None


class Plain:
    """Copies a value while it is plain, and stops at the first part that is not."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.left = limit_bytes  # every part takes a byte at least

    def copy(self, value: Any, place: str, depth: int) -> Any:
        kind = type(value)
        self.left -= len(value) if kind is str else 1
        if self.left < 0:
            raise Inexpressible(
                f"the value takes more than {self.limit_bytes} bytes, which is all that may leave"
            )
        if depth > NESTING_LIMIT:
            raise Inexpressible(f"the value is nested deeper than {NESTING_LIMIT} levels, or contains itself")
        if kind is float and (value != value or value in (float("inf"), float("-inf"))):
            raise Inexpressible(f"{place} is {value}, which JSON has no word for")
        if kind in PLAIN:
            return value
        if kind in (list, tuple):
            return [self.copy(part, f"{place}[{n}]", depth + 1) for n, part in enumerate(value)]
        if kind is dict:
            return {
                self.key(key, place): self.copy(part, f"{place}[{key!r}]", depth + 1)
                for key, part in value.items()
            }
        if kind.__module__ == "numpy" and getattr(value, "shape", None) == ():
            return self.copy(value.item(), place, depth + 1)
        raise Inexpressible(
            f"{place[:200]} is a {kind.__module__}.{kind.__qualname__}, which is neither JSON nor a table"
        )

    def key(self, key: Any, place: str) -> str:
        if type(key) is not str:
            raise Inexpressible(f"{place[:200]} has the key {key!r:.80}; JSON keys are str")
        self.left -= len(key)
        return key
