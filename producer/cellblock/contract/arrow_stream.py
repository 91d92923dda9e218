"""Checks an Arrow stream by its own headers before a library unpacks it, and so detects bombs.

Stops a job's table of a few bytes from becoming gigabytes in the process of its reader: buffers that would
have to be decompressed, and more rows than the bytes could hold. Our guest writes neither.
"""

from __future__ import annotations

import struct
from typing import Any

# Positions of fields in Arrow's flatbuffer tables (Message.fbs), and the two kinds of message with buffers.
_HEADER_TYPE, _HEADER = 1, 2
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
_DICTIONARY_DATA = 1
_LENGTH, _NODES, _COMPRESSION = 0, 1, 3
_NODE_BYTES = 16  # struct FieldNode: length and null count, 64 bits each


def check_stream(pyarrow: Any, ipc: bytes) -> None:
    """Raises ValueError for a stream that grows when it is read, and for bytes that are not a stream."""
    for message in pyarrow.ipc.MessageReader.open_stream(ipc):
        try:
            _check_message(message.metadata.to_pybytes(), 8 * len(ipc))
        except (struct.error, OverflowError) as error:
            raise ValueError(f"a message with a broken header ({error})") from None


def _check_message(metadata: bytes, rows_most: int) -> None:
    root = _follow(metadata, 0)
    kind = _field(metadata, root, _HEADER_TYPE)
    place = _field(metadata, root, _HEADER)
    if kind is None or place is None or metadata[kind] not in {_DICTIONARY_BATCH, _RECORD_BATCH}:
        return
    batch: int | None = _follow(metadata, place)
    if metadata[kind] == _DICTIONARY_BATCH:
        inner = _field(metadata, _follow(metadata, place), _DICTIONARY_DATA)
        batch = None if inner is None else _follow(metadata, inner)
    if batch is None:
        return
    if _field(metadata, batch, _COMPRESSION) is not None:
        raise ValueError("its buffers are compressed, which a job's tables never are")
    length = _field(metadata, batch, _LENGTH)
    claims = [struct.unpack_from("<q", metadata, length)[0]] if length is not None else []
    nodes = _field(metadata, batch, _NODES)
    if nodes is not None:
        vector = _follow(metadata, nodes)
        count = struct.unpack_from("<I", metadata, vector)[0]
        claims += [
            struct.unpack_from("<q", metadata, vector + 4 + _NODE_BYTES * number)[0]
            for number in range(count)
        ]
    for rows in claims:
        if not 0 <= rows <= rows_most:
            raise ValueError(f"it claims {rows} rows, which its bytes cannot hold")


def check_expansion(pyarrow: Any, table: Any) -> None:
    """Raises ValueError for a table in which one value can stand in many places: pandas copies it to each."""
    for field in table.schema:
        # At the top a dictionary becomes a categorical, which holds each value once.
        kind = field.type.value_type if pyarrow.types.is_dictionary(field.type) else field.type
        if (shared := _shared(pyarrow, kind)) is not None:
            raise ValueError(
                f"the column {field.name!r} has {shared} in it, which pandas would copy; use to_table"
            )


def _shared(pyarrow: Any, kind: Any) -> str | None:
    types = pyarrow.types
    tests = ("is_dictionary", "is_run_end_encoded", "is_string_view", "is_binary_view", "is_list_view")
    for test in (*tests, "is_large_list_view"):
        if hasattr(types, test) and getattr(types, test)(kind):
            return str(kind)
    children = (kind.field(number).type for number in range(kind.num_fields))
    return next((found for child in children if (found := _shared(pyarrow, child)) is not None), None)


def _follow(data: bytes, place: int) -> int:
    """The position that the offset stored at ``place`` points to."""
    return place + int(struct.unpack_from("<I", data, place)[0])


def _field(data: bytes, table: int, index: int) -> int | None:
    """The position of a table's field; None if the table does not have it."""
    entries = table - int(struct.unpack_from("<i", data, table)[0])
    if entries < 0:
        raise struct.error("a table before the beginning")
    size = int(struct.unpack_from("<H", data, entries)[0])
    if 4 + 2 * index >= size:
        return None
    offset = int(struct.unpack_from("<H", data, entries + 4 + 2 * index)[0])
    return table + offset if offset else None
