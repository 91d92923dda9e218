"""Replies of judged code are read only as far as they were asked for."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from typing import Any, cast

import pytest

from cellblock_workers.worker.evaluation.call_session import REPLY_BYTES, CallSession
from cellblock_workers.worker.session import Session

MIB = 1024 * 1024


class Fed:
    """Stands in for the session with a guest: its values come from the test, and nothing else happens."""

    ending = None
    over = False
    drained = True

    def __init__(self, *, take_value: Callable[[bytes], None]) -> None:
        self.take_value = take_value
        self.pieces: list[bytes] = []

    def send(self, frames: bytes) -> None:
        """Drops the calls: the pieces answer them, whatever they were."""

    def listen(self, enough: Callable[[], bool]) -> None:
        """Hands over the pieces, as long as the caller wants more."""
        while self.pieces and not enough():
            self.take_value(self.pieces.pop(0))


def opened() -> tuple[CallSession, Fed]:
    made: list[Fed] = []

    def make(**given: Any) -> Session:
        made.append(Fed(**given))
        return cast(Session, made[0])

    return CallSession(make), made[0]


def reply(text: bytes) -> bytes:
    return struct.pack(">I", len(text)) + text


def test_replies_come_in_pieces_and_in_order() -> None:
    calls, session = opened()
    whole = reply(b"one") + reply(b"") + reply(b"three")
    session.pieces = [whole[at : at + 1] for at in range(len(whole))]
    assert calls.ask([b"a", b"b"], 2) == [b"one", b""]
    assert calls.ask([b"c"], 1) == [b"three"]
    assert not calls.ended


@pytest.mark.parametrize(
    "pieces",
    [[struct.pack(">I", REPLY_BYTES + 1)], [reply(b"one") + reply(b"unasked")]],
    ids=["too long", "not asked for"],
)
def test_a_program_that_says_more_than_it_was_asked_is_not_heard_any_more(pieces: list[bytes]) -> None:
    calls, session = opened()
    session.pieces = list(pieces)
    calls.ask([b"a"], 1)
    assert calls.garbled
    assert calls.ended
    assert calls.ask([b"b"], 1) == []


def test_what_comes_after_garbage_is_not_held() -> None:
    """A series goes on listening until its guest has ended the program, which may write all that time."""
    calls, session = opened()
    session.pieces = [b"\xff" * 8]
    calls.ask([b"a"], 1)
    assert calls.garbled
    piece = bytes(MIB)
    tracemalloc.start()
    try:
        for _ in range(64):
            session.take_value(piece)
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    finally:
        tracemalloc.stop()
