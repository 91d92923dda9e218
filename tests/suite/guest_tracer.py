"""Notes which lines a guest runs, and in which order. Runs in front of it, in tests alone (guest_texts.py).

coverage.py cannot see a guest: its texts come without files and run in an interpreter without packages. So
this does, on Python 3.8+ with nothing but the standard library. One byte of a file stands for each arc, and
every process maps that file into its memory: forks go on noting, nobody needs a descriptor or a right for it,
and what is killed loses nothing.

Tracing makes a program up to twenty times as slow. So the tracer stops after some events of code that is not
the guest's, and in a loop that goes on for long. The guest calls :meth:`Recorder.resume` where other code of
its own runs again.
"""

from __future__ import annotations

import builtins
import mmap
import sys
from collections.abc import Callable
from opcode import opmap
from types import FrameType
from typing import Any

Trace = Any  # a function that Python calls for the next event of a frame
#: Among a text's variables: what its functions begin with.
RESUME = "resume_noting"
#: Each line has a row: a byte for each kind of arc and each distance to its other end, before or behind.
SPAN = 512
JUMP, ENTRY, EXIT = range(3)
ROW = 2 * SPAN * 3
#: How many events of other code in a row, or lines of one call, are traced before tracing stops.
PATIENCE = 3000
#: How often a function makes it go on again.
OFTEN = 300
_GENERATOR = 0x20  # a flag of its code


class Recorder:
    """Notes the arcs of all frames whose file has a place: where its lines begin in the table of lines."""

    def __init__(self, arcs: mmap.mmap, patience: int) -> None:
        self.arcs = arcs
        self.most_patience = self.patience = patience
        self.stops = 0
        self.places: dict[str, int] = {}
        self.resumed: dict[Any, int] = {}

    def record(self, text: dict[str, Any], place: int, frame: FrameType) -> None:
        """Note this text's arcs, from where this frame of it is."""
        self.places[frame.f_code.co_filename], text[RESUME] = place, self.resume
        for name in ("exec", "eval"):
            text[name] = self.resuming(getattr(builtins, name))
        frame.f_trace = self.follow(frame, place, place + frame.f_lineno)
        self.begin()

    def begin(self) -> None:
        """Note the arcs of what is called from now on."""
        self.patience = self.most_patience
        sys.settrace(self.enter)

    def resume(self) -> None:
        """A function of the guest's begins, or an import is done; maybe nothing is noted any more."""
        if sys.gettrace() is None:
            frame = sys._getframe(1)
            times = self.resumed[frame.f_code] = self.resumed.get(frame.f_code, 0) + 1
            if times > OFTEN:
                return
            place = self.places[frame.f_code.co_filename]
            frame.f_trace = self.follow(frame, place, place + frame.f_lineno if frame.f_trace else None)
            self.begin()

    def resuming(self, call: Callable[..., object]) -> Callable[..., object]:
        """The same call. Noting goes on when it returns; its callers have missed no arc."""

        def called(*given: object) -> object:
            if len(given) == 1:  # it means its caller's names, not those of this function
                caller = sys._getframe(1)
                given = (*given, caller.f_globals, caller.f_locals)
            stops = self.stops
            try:
                return call(*given)
            finally:
                self.stops = stops
                if sys.gettrace() is None:
                    self.begin()

        return called

    def enter(self, frame: FrameType, event: str, given: Any) -> Trace:
        """A function begins, or a generator goes on."""
        if frame.f_code is _RESUME:
            return None
        place = self.places.get(frame.f_code.co_filename)
        if place is None:
            return self.endure(frame, event, given)
        self.patience = self.most_patience
        return self.follow(frame, place, place + frame.f_lineno if goes_on(frame) else None)

    def endure(self, frame: FrameType, event: str, given: Any) -> Trace:
        """Something is run that is not to be noted."""
        self.patience -= 1
        if self.patience < 0:
            self.stop()
        return self.endure

    def stop(self) -> None:
        """Note nothing until the guest says so."""
        if sys.gettrace() == self.enter:  # a job may have set one of its own
            self.stops += 1
            sys.settrace(None)

    def follow(self, frame: FrameType, place: int, before: int | None) -> Trace:
        """What notes the arcs of one frame. ``before``: the line it is in, where it has begun before."""
        first, stops, steps = place + frame.f_code.co_firstlineno, self.stops, 0

        def step(frame: FrameType, event: str, given: Any) -> Trace:
            nonlocal before, stops, steps
            self.patience, steps = self.most_patience, steps + 1
            if event == "line":
                line = place + frame.f_lineno
                if before is None:
                    self.note(line, ENTRY, first)
                else:  # from itself, where nobody knows from where
                    self.note(line, JUMP, before if stops == self.stops else line)
                before, stops = line, self.stops
                if steps > self.most_patience:
                    self.stop()
            elif event == "return" and before is not None and stops == self.stops and is_end(frame):
                self.note(before, EXIT, first)
            return step

        return step

    def note(self, line: int, kind: int, other: int) -> None:
        """Note one arc. One that is too long goes to the row of no line: the report can then refuse it."""
        distance = other - line
        if -SPAN <= distance < SPAN:
            self.arcs[line * ROW + (2 * kind + 1) * SPAN + distance] = 1
        else:
            self.arcs[0] = 1


_RESUME = Recorder.resume.__code__


def goes_on(frame: FrameType) -> bool:
    """Whether this frame has begun before, and has yielded."""
    code = frame.f_code
    if not code.co_flags & _GENERATOR:
        return False
    return frame.f_lasti >= 0 if sys.version_info < (3, 11) else code.co_code[frame.f_lasti + 1] != 0


def is_end(frame: FrameType) -> bool:
    """Whether this return is a function's end. A whole text's reaches too far to be noted."""
    code = frame.f_code
    yields = code.co_flags & _GENERATOR and code.co_code[frame.f_lasti] == opmap["YIELD_VALUE"]
    return code.co_name != "<module>" and not yields


def open_recorder(file: Any, patience: int = PATIENCE) -> Recorder:
    """A recorder on this file, which is a path or an open descriptor."""
    with open(file, "r+b") as opened:  # noqa: PTH123 - no Path is a descriptor
        return Recorder(mmap.mmap(opened.fileno(), 0), patience)
