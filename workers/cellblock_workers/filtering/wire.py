"""What a worker and its filter processes send each other: JSON, and bytes behind it, lengths first.

Never pickle: a filter process works on data that a tenant chose, so the worker believes only types and sizes
in its answer. JSON escapes everything that is not ASCII, so that any text can be sent, lone surrogates too.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from typing import Any

Message = dict[str, Any]

HEAD = struct.Struct(">II")  #: the lengths of the JSON and of all bytes behind it
_MOST_BYTES = 2**31


class Malformed(Exception):
    """The other side sent a message that no honest side sends."""


def packed(message: Message, blobs: Sequence[bytes] = ()) -> list[bytes]:
    """The message in pieces, to be sent one after the other; no blob is copied."""
    text = json.dumps({**message, "blobs": [len(blob) for blob in blobs]}, separators=(",", ":")).encode()
    return [HEAD.pack(len(text), sum(map(len, blobs))), text, *blobs]


def lengths(head: bytes, most_bytes: int = _MOST_BYTES) -> tuple[int, int]:
    """The lengths of a message's JSON and of its bytes, from its head. Raises :class:`Malformed`."""
    text_bytes, blob_bytes = HEAD.unpack(head)
    if text_bytes + blob_bytes > most_bytes:
        raise Malformed(f"a message of {text_bytes + blob_bytes} bytes, and {most_bytes} may come")
    return text_bytes, blob_bytes


def unpacked(text: bytes, blob_bytes: int) -> tuple[Message, list[int]]:
    """The message, and the length of each of its blobs. Raises :class:`Malformed`."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        raise Malformed("no JSON") from None
    if not isinstance(message, dict):
        raise Malformed("no message")
    sizes = items(message, "blobs", int)
    if min(sizes, default=0) < 0 or sum(sizes) != blob_bytes:
        raise Malformed("lengths that do not add up")
    del message["blobs"]
    return message, sizes


def read(
    receive: Callable[[int], bytes], most_bytes: int = _MOST_BYTES
) -> tuple[Message, list[bytes]] | None:
    """The next message; None at the end. ``receive`` gives exactly the requested bytes, or fewer at the
    end."""
    head = receive(HEAD.size)
    if len(head) < HEAD.size:
        return None
    text_bytes, blob_bytes = lengths(head)
    message, sizes = unpacked(receive(text_bytes), blob_bytes)
    return message, [receive(size) for size in sizes]


def items(message: Message, name: str, kind: type) -> list[Any]:
    """The list of this name, all of one type. Raises :class:`Malformed`."""
    found = message.get(name)
    if not isinstance(found, list) or not all(type(one) is kind for one in found):
        raise Malformed(f"{name} is not a list of {kind.__name__}")
    return found


def item(message: Message, name: str, kind: type) -> Any:
    """The field of this name, of this type. Raises :class:`Malformed`."""
    found = message.get(name)
    if type(found) is not kind:
        raise Malformed(f"{name} is no {kind.__name__}")
    return found
