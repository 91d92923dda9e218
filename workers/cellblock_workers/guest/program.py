"""The judged program as tests in another sandbox see it: something to call, and to look names up in.

Every reply is only the program's claim, and can hold nothing but plain values (calls.py).
"""

from __future__ import annotations

import builtins
import json
import threading
from typing import Any, Callable

from .calls import NotPlain, as_text, from_plain, to_plain

CALLABLE = '["callable"]'


class JudgeStops(BaseException):
    """Ends the tests, whatever they catch. Holds the judge's message."""

    def __init__(self, *said: Any) -> None:
        super().__init__(*said)
        self.said = said


class Anything:
    """The result of a predicted call: it takes part in everything that tests do with a result."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self

    def _true(self, *args: Any) -> bool:
        return True

    def _itself(self, *args: Any) -> Any:
        return self

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __bool__ = _true
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __rmod__ = _itself
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __pow__ = __rpow__ = _itself
    __and__ = __or__ = __xor__ = __neg__ = __pos__ = __abs__ = __round__ = __getitem__ = _itself

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __hash__(self) -> int:
        return 0

    def __int__(self) -> int:
        return 0

    __index__ = __int__

    def __float__(self) -> float:
        return 0.0


class JudgedProgram:
    """What the tests of one trial reach.

    One message is on its way at a time, from any of their threads. Once something has stopped the tests, each
    further call stops them again, whatever they catch.
    """

    def __init__(self, calls: list[str], replies: list[str], ask: Callable[[str], str]) -> None:
        """``replies``: to the first of ``calls``; ``ask`` makes one more call."""
        self.calls = calls
        self.replies = replies
        self.ask = ask
        self.made = 0
        self.stop: JudgeStops | None = None
        self.turn = threading.RLock()

    def call(self, name: str, args: Any, kwargs: Any) -> Any:
        """The result of a function of the program."""
        return self.heeding(lambda: taken(self.reply_to(call_text(name, args, kwargs)), args, kwargs))

    def look_up(self, module: str, name: str) -> Any:
        """What the program has under this name: a value, or something that calls its function."""

        def found() -> Any:
            reply = self.reply_to(as_text([name]).decode())
            if reply == CALLABLE:
                return judged_function(name, self.call)
            return taken(reply, (), {}, "the tests use {}.{},".format(module, name))

        return self.heeding(found)

    def need_inline(self, why: str) -> Any:
        """Stops the tests: this cannot be judged from outside."""

        def stop() -> Any:
            raise JudgeStops("verdict", "needs_inline", "NotPlain", why)

        return self.heeding(stop)

    def heeding(self, act: Callable[[], Any]) -> Any:
        with self.turn:
            if self.stop is None:
                try:
                    return act()
                except JudgeStops as said:
                    self.stop = self.stop or said
            raise JudgeStops(*self.stop.said) from None

    def reply_to(self, text: str) -> str:
        number, self.made = self.made, self.made + 1
        if number < len(self.calls) and text != self.calls[number]:
            raise JudgeStops("deviates", number)
        if number < len(self.replies):
            return self.replies[number]
        if number < len(self.calls):
            raise JudgeStops("verdict", "gone", "", "")
        return self.ask(text)

    def close(self) -> JudgeStops | None:
        """What has stopped the tests, if anything. A thread of theirs that asks later gets no answer."""
        with self.turn:
            stopped, self.stop = self.stop, self.stop or JudgeStops("verdict", "gone", "", "")
            return stopped


def judged_function(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """The function that the tests call."""

    def judged(*args: Any, **kwargs: Any) -> Any:
        return call(name, args, kwargs)

    judged.__name__ = judged.__qualname__ = name
    return judged


def sayable(text: str) -> str:
    """The first 2,000 characters of the text, in a form that every reader takes."""
    return text[:2000].encode("utf-8", "backslashreplace").decode()


def call_text(name: str, args: Any, kwargs: Any) -> str:
    """A call on its way to the judged code. Stops the tests if it is not plain."""
    try:
        return as_text([name, to_plain(args), to_plain(kwargs)]).decode()
    except NotPlain as why:
        message = "the tests pass {} to {}, which cannot cross".format(why, name)
        raise JudgeStops("verdict", "needs_inline", "NotPlain", message) from None


def taken(reply: str, args: Any, kwargs: Any, subject: str = "the function gives") -> Any:
    """The result or exception of a reply, in the tests; also puts arguments back as they were left."""
    try:
        word, *rest = json.loads(reply)
        if word == "not plain":
            raise JudgeStops("verdict", "not_plain", "NotPlain", "{} {}".format(subject, rest[0]))
        if rest[-1] is not None:
            for before, after in zip((args, list(kwargs.values())), map(from_plain, rest[-1])):
                put_back(before, list(after.values()) if isinstance(after, dict) else after)
        if word == "value":
            return from_plain(rest[0])
        if word != "raised":
            raise ValueError("not a reply")
        kind, message = str(rest[0]), str(rest[1])
    except (ValueError, TypeError, IndexError, KeyError, RecursionError, MemoryError):
        raise JudgeStops("verdict", "failed", "Garbled", "what came back is no plain value") from None
    raise exception_of(kind, message)


def put_back(before: Any, after: Any) -> None:
    """Changes arguments, and what they hold, to what the judged function has left of them."""
    if isinstance(before, list) and isinstance(after, list):
        before[:] = [kept(*pair) for pair in zip(before, after)] + after[len(before) :]
    elif isinstance(before, (dict, set)) and type(before) is type(after):
        before.clear()
        before.update(after)
    elif isinstance(before, (tuple, list)) and isinstance(after, (tuple, list)):
        for one, other in zip(before, after):
            put_back(one, other)


def kept(before: Any, after: Any) -> Any:
    """The object from before, changed to its new content; a new object if that cannot be done."""
    if type(before) is type(after) and isinstance(before, (list, dict, set)):
        put_back(before, after)
        return before
    return after


def exception_of(kind: str, message: str) -> Exception:
    """An exception of this name: Python's own if there is one."""
    if kind in ("StopIteration", "StopAsyncIteration"):  # for an iterating caller it would mean the end
        return RuntimeError("{}: {}".format(kind, message))
    found = getattr(builtins, kind, None)
    if isinstance(found, type) and issubclass(found, Exception):
        try:
            made: Exception = found(message)
            return made
        except TypeError:  # its constructor takes more than a message
            pass
    named: type[Exception] = type(kind if kind.isidentifier() else "Exception", (Exception,), {})
    return named(message)
