"""Calls of a judged function from outside its sandbox: plain values go in, plain values come out.

Only exact builtins cross: int, float, str, bytes, bool, None, complex, list, tuple, dict, set, frozenset. A
subclass of one arrives as the plain value that it holds. A function that needs or returns anything else
cannot be judged from outside, and the reply says so. Arguments that were changed in place are sent back.

As JSON: numbers, strings, true, false and null stand for themselves, every array is [tag, ...]:
  ["l" | "t" | "s" | "f", item, ...]   list, tuple, set, frozenset
  ["d", key, value, ...]    ["c", real, imaginary]    ["b", bytes as Latin-1]    ["i", hexadecimal]

  call   [name, tuple of arguments, dict of keyword arguments]
  reply  ["value", result, arguments or null]     null: they are as they were
         ["raised", type, message, arguments or null]
         ["not plain", what]                      the result cannot cross

  call   [name]                what does the program have under this name?
  reply  ["callable"]          a function: it can be called. Else as above, null for arguments
"""

from __future__ import annotations

import json
import os
import struct
import sys
from typing import Any, Callable

from .messages import HEADER
from .output import write_printed
from .pipes import write_all

CALL_BYTES = 1024 * 1024
CALL_DEPTH = 64
REPLY_LENGTH = struct.Struct(">I")
to_json = json.JSONEncoder(separators=(",", ":")).encode
#: Python refuses to read longer integers as decimals.
DECIMAL_BITS = 10_000
SCALARS = (str, int, float, bool, type(None))
ITEM_TAGS = ((list, "l"), (tuple, "t"), (set, "s"), (frozenset, "f"))
ITEM_TYPES: dict[str, Callable[[Any], Any]] = {"l": list, "t": tuple, "s": set, "f": frozenset}


class NotPlain(Exception):
    """A value of a kind that cannot cross; the message names it."""


def to_plain(value: Any, depth: int = 0) -> Any:
    """The form in which a value crosses. Raises :class:`NotPlain`."""
    kind = type(value)
    if kind is str or kind is bool or value is None or kind is float:
        return value
    if isinstance(value, int):
        return int.__int__(value) if value.bit_length() <= DECIMAL_BITS else ["i", format(value, "x")]
    if depth > CALL_DEPTH:
        raise NotPlain("a value nested deeper than {}".format(CALL_DEPTH))
    for base, tag in ITEM_TAGS:
        if isinstance(value, base):
            items = [to_plain(item, depth + 1) for item in base.__iter__(value)]  # type: ignore[arg-type]
            if tag in "sf":  # equal sets have the same text
                items.sort(key=json.dumps)
            return [tag, *items]
    if isinstance(value, dict):
        flat: list[Any] = ["d"]
        for key, item in dict.items(value):
            flat += (to_plain(key, depth + 1), to_plain(item, depth + 1))
        return flat
    return _to_rare(value)


def _to_rare(value: Any) -> Any:
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, complex):
        return ["c", complex.real.__get__(value), complex.imag.__get__(value)]
    if isinstance(value, bytes):
        return ["b", bytes(memoryview(value)).decode("latin-1")]
    raise NotPlain("a value of type {}".format(type(value).__name__))


def from_plain(found: Any) -> Any:
    """The value that a form stands for. Raises ValueError if it stands for none."""
    if type(found) is not list:
        if type(found) in SCALARS:
            return found
        raise ValueError("not a plain value")
    tag, rest = (found[0], found[1:]) if found else ("", [])
    try:
        if tag in ITEM_TYPES:
            return ITEM_TYPES[tag](map(from_plain, rest))
        if tag == "d" and len(rest) % 2 == 0:
            return dict(zip(map(from_plain, rest[::2]), map(from_plain, rest[1::2])))
        if tag == "c" and len(rest) == 2:
            return complex(*rest)
        if tag == "b" and len(rest) == 1:
            return rest[0].encode("latin-1")
        if tag == "i" and len(rest) == 1:
            return int(rest[0], 16)
    except (TypeError, AttributeError, UnicodeEncodeError) as error:  # unhashable, or not of the tag's type
        raise ValueError("not a plain value") from error
    raise ValueError("not a plain value")


def as_text(message: Any) -> bytes:
    """A message as it crosses. Raises :class:`NotPlain` if it is too long."""
    try:
        text = to_json(message).encode()
    except RecursionError:
        raise NotPlain("a value nested too deeply") from None
    if len(text) > CALL_BYTES:
        raise NotPlain("values of {} bytes; {} may cross at once".format(len(text), CALL_BYTES))
    return text


def send_reply(fd: int, text: bytes) -> None:
    """Sends one reply, whole."""
    write_all(fd, REPLY_LENGTH.pack(len(text)) + text)


class Caller:
    """In the job's process: answers calls with what the program has defined."""

    def __init__(self, names: dict[str, Any], inward: int, outward: int) -> None:
        self.names = names
        self.inward = inward
        self.outward = outward

    def serve(self) -> None:
        """Answers one call after the other, until the guest closes the pipe."""
        while True:
            call = read_call(self.inward)
            if call is None:
                return
            reply = self.answer(call)
            write_printed(sys.__stdout__)  # before the reply, which may end the job
            send_reply(self.outward, reply)

    def answer(self, call: bytes) -> bytes:
        """The reply to one call."""
        name, *rest = json.loads(call)
        if not rest:
            return self.found(name)
        args, kwargs = rest
        given, named = from_plain(args), from_plain(kwargs)
        before = None if is_flat(args) and is_flat(kwargs) else json.dumps([args, kwargs])
        try:
            try:
                reply: list[Any] = ["value", self.names[name](*given, **named)]
            except NotPlain:
                raise
            except KeyError as error:
                missing = name not in self.names
                said = "name {!r} is not defined".format(name) if missing else message_of(error)
                reply = ["raised", "NameError" if missing else "KeyError", said]
            except Exception as error:
                reply = ["raised", type(error).__name__[:200], message_of(error)]
            if reply[0] == "value":
                reply[1] = to_plain(reply[1])
            after = None if before is None else [to_plain(given), to_plain(named)]
            reply.append(after if after is not None and json.dumps(after) != before else None)
            return as_text(reply)
        except (NotPlain, RecursionError, ValueError) as error:
            return as_text(["not plain", message_of(error)])

    def found(self, name: str) -> bytes:
        """The reply to a message that asks for a name."""
        if name not in self.names:
            missing = "module {!r} has no attribute {!r}".format(self.names.get("__name__"), name)
            return as_text(["raised", "AttributeError", missing, None])
        value = self.names[name]
        try:
            if isinstance(value, type):
                raise NotPlain("a class")
            return as_text(["callable"] if callable(value) else ["value", to_plain(value), None])
        except (NotPlain, RecursionError, ValueError) as error:
            return as_text(["not plain", message_of(error)])


def is_flat(plain: list[Any]) -> bool:
    """Whether none of these arguments could be changed in place."""
    return not any(type(one) is list and one[0] not in ("c", "b", "i") for one in plain[1:])


def message_of(error: BaseException) -> str:
    """The text of an exception, even if its ``__str__`` fails."""
    try:
        return str(error)[:2000]
    except Exception:
        return "<the exception's __str__ failed>"


def failed_line(error: BaseException, tests: str) -> str:
    """The line of the tests that raised this."""
    trace, number = error.__traceback__, 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "tests.py":
            number = trace.tb_lineno
        trace = trace.tb_next
    lines = tests.splitlines()
    return lines[number - 1].strip() if 0 < number <= len(lines) else ""


def read_call(fd: int) -> bytes | None:
    """The next message that the guest delivers; None at the end."""
    head = read_exactly(fd, HEADER.size)
    if head is None:
        return None
    return read_exactly(fd, HEADER.unpack(head)[1])


def read_exactly(fd: int, length: int) -> bytes | None:
    pieces = []
    while length:
        piece = os.read(fd, length)
        if not piece:
            return None
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)
