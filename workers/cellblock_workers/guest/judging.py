"""The judge: runs a problem's tests against a function that lives in another sandbox.

A job of its own in a sandbox of its own. It never sees the judged code; of it come replies to calls
(calls.py), which the worker passes on. The worker asks, one JSON message at a time:

  in   ["check", name, setup, functions, tests]     what is judged from here on, by name
       ["rehearse", name]          which calls will the tests make?
       ["judge", name, calls, replies, seconds]     the replies to the first calls are here
       ["reply", text] · ["gone"]  to a call the judge asked for; or nobody answers any more
  out  ["calls", call, ...]
       ["call", call]              one more call has to be made, in the sandbox of the judged code
       ["deviates", number]        the tests call something else than was rehearsed
       ["verdict", word, type, message]    passed, failed, timed_out, needs_inline (the tests'), not_plain
                                   (the function's) or gone
"""

from __future__ import annotations

import ast
import builtins
import io
import json
import os
import signal
import sys
import types
from typing import Any, Callable

from .calls import NotPlain, as_text, from_plain, message_of, read_call, send_reply, to_plain

REHEARSED_CALLS = 256
REHEARSED_BYTES = 256 * 1024
REHEARSAL_S = 1.0


class JudgeStops(BaseException):
    """Ends the tests, whatever they catch, with a word and who says so."""

    def __init__(self, *said: Any) -> None:
        super().__init__(*said)
        self.said = said


class Anything:
    """What a rehearsed call gives: it takes part in whatever tests do with a result."""

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


class Unheard(io.TextIOBase):
    """Where the tests print."""

    def write(self, text: str) -> int:
        return len(text)


class WithoutAsserts(ast.NodeTransformer):
    """Tests whose assertions are made and believed."""

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        return ast.copy_location(ast.Expr(node.test), node)


class CheckText:
    """One problem's tests, compiled."""

    def __init__(self, setup: str, functions: list[str], tests: str) -> None:
        self.setup = compile(setup, "setup.py", "exec", dont_inherit=True)
        self.text = tests
        self.tests = compile(tests, "tests.py", "exec", dont_inherit=True)
        self.functions = functions

    def rehearse(self, call: Callable[..., Any]) -> None:
        """Run the tests as if every assertion held."""
        believed = ast.fix_missing_locations(WithoutAsserts().visit(ast.parse(self.text)))
        self.run(call, compile(believed, "tests.py", "exec", dont_inherit=True))

    def run(self, call: Callable[..., Any], tests: types.CodeType | None = None) -> None:
        """Run the tests with ``call(name, args, kwargs)`` behind each judged function."""
        import random  # the judge's alone: under gVisor every process of every job would hold it too

        random.seed(0)
        sys.setrecursionlimit(1000)
        judged = {name: judged_function(name, call) for name in self.functions}
        names: dict[str, Any] = {"__name__": "tests", **judged}
        exec(self.setup, names)
        names.update(judged)  # what a setup has of that name is a stub
        exec(tests or self.tests, names)


def judged_function(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """What the tests call."""

    def judged(*args: Any, **kwargs: Any) -> Any:
        return call(name, args, kwargs)

    judged.__name__ = judged.__qualname__ = name
    return judged


class Judge:
    """Answers the worker until it hangs up."""

    def __init__(self, inward: int, outward: int) -> None:
        self.inward = inward
        self.outward = outward
        self.checks: dict[str, CheckText] = {}

    def serve(self) -> None:
        signal.signal(signal.SIGALRM, self.out_of_time)
        while True:
            message = self.receive()
            if message[0] == "check":
                self.send(self.learn(*message[1:]))
            elif message[0] == "rehearse":
                self.send(["calls", *self.rehearse(self.checks[message[1]])])
            elif message[0] == "judge":
                self.send_cut(self.judge(*message[1:]))

    def receive(self) -> list[Any]:
        text = read_call(self.inward)
        if text is None:
            os._exit(0)
        message: list[Any] = json.loads(text)
        return message

    def send(self, message: list[Any]) -> None:
        send_reply(self.outward, as_text(message))

    def out_of_time(self, *_: object) -> None:
        raise JudgeStops("verdict", "timed_out", "TimedOut", "the tests took longer than they may")

    def learn(self, name: str, setup: str, functions: list[str], tests: str) -> list[Any]:
        try:
            self.checks[name] = check = CheckText(setup, functions, tests)
            # What it imports is there from now on: the alarm of a rehearsal may not come in the midst of it.
            exec(check.setup, {"__name__": "tests", **dict.fromkeys(functions, Anything())})
        except Exception as error:
            return ["unusable", sayable(type(error).__name__), sayable(message_of(error))]
        return ["learnt"]

    def rehearse(self, check: CheckText) -> list[str]:
        """The calls the tests make when every assertion holds, as far as that can be known."""
        calls: list[str] = []

        def record(name: str, args: Any, kwargs: Any) -> Any:
            text = call_text(name, args, kwargs)
            if len(calls) == REHEARSED_CALLS or sum(map(len, calls)) + len(text) > REHEARSED_BYTES:
                raise JudgeStops
            calls.append(text)
            return Anything()

        signal.setitimer(signal.ITIMER_REAL, REHEARSAL_S)
        try:
            check.rehearse(record)
        except BaseException:  # as far as it went: the tests themselves will say what is wrong
            return calls
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return calls

    def judge(self, name: str, calls: list[str], replies: list[str], seconds: float) -> list[Any]:
        made, stop = 0, None

        def call(function: str, args: Any, kwargs: Any) -> Any:
            nonlocal stop
            try:
                return reply_to(function, args, kwargs)
            except JudgeStops as said:  # whatever the tests catch, it stays said
                stop = stop or said
                raise stop from None

        def reply_to(function: str, args: Any, kwargs: Any) -> Any:
            nonlocal made
            number, made = made, made + 1
            text = call_text(function, args, kwargs)
            if number < len(calls) and text != calls[number]:
                raise JudgeStops("deviates", number)
            if number < len(replies):
                reply = replies[number]
            elif number < len(calls):
                raise JudgeStops("verdict", "gone", "", "")
            else:
                reply = self.ask(text)
            return taken(reply, args, kwargs)

        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            self.checks[name].run(call)
        except JudgeStops as said:
            stop = stop or said
        except BaseException as error:
            if stop is None:
                return ["verdict", "failed", type(error).__name__, message_of(error)]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return list(stop.said) if stop is not None else ["verdict", "passed", "", ""]

    def send_cut(self, message: list[Any]) -> None:
        """A verdict quotes the judged program, which may have chosen its words to be too much."""
        word, *said = message
        self.send([word, *(sayable(one) if isinstance(one, str) else one for one in said)])

    def ask(self, text: str) -> str:
        """Have one more call made."""
        try:
            self.send(["call", text])
        except NotPlain as why:
            raise JudgeStops("verdict", "needs_inline", "NotPlain", str(why)) from None
        message = self.receive()
        if message[0] != "reply":
            raise JudgeStops("verdict", "gone", "", "")
        return str(message[1])


def sayable(text: str) -> str:
    """As much of it as is wanted, in characters that every reader takes."""
    return text[:2000].encode("utf-8", "backslashreplace").decode()


def call_text(name: str, args: Any, kwargs: Any) -> str:
    """A call on its way to the judged code. Ends the tests where it is no plain one."""
    try:
        return as_text([name, to_plain(args), to_plain(kwargs)]).decode()
    except NotPlain as why:
        message = "the tests pass {} to {}, which cannot cross".format(why, name)
        raise JudgeStops("verdict", "needs_inline", "NotPlain", message) from None


def taken(reply: str, args: Any, kwargs: Any) -> Any:
    """What a reply comes to in the tests: a result or an exception, and arguments as they were left."""
    try:
        word, *rest = json.loads(reply)
        if word == "not plain":
            raise JudgeStops("verdict", "not_plain", "NotPlain", "the function gives {}".format(rest[0]))
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
    """Make arguments, and what they hold, what the judged function has left of them."""
    if isinstance(before, list) and isinstance(after, list):
        before[:] = [kept(*pair) for pair in zip(before, after)] + after[len(before) :]
    elif isinstance(before, (dict, set)) and type(before) is type(after):
        before.clear()
        before.update(after)
    elif isinstance(before, (tuple, list)) and isinstance(after, (tuple, list)):
        for one, other in zip(before, after):
            put_back(one, other)


def kept(before: Any, after: Any) -> Any:
    """The same object as before where it can be made what it is now."""
    if type(before) is type(after) and isinstance(before, (list, dict, set)):
        put_back(before, after)
        return before
    return after


def exception_of(kind: str, message: str) -> Exception:
    """An exception of this name: Python's own where there is one."""
    if kind in ("StopIteration", "StopAsyncIteration"):  # to whoever iterates it means: no more of them
        return RuntimeError("{}: {}".format(kind, message))
    found = getattr(builtins, kind, None)
    if isinstance(found, type) and issubclass(found, Exception):
        try:
            made: Exception = found(message)
            return made
        except TypeError:  # it wants more than a message
            pass
    named: type[Exception] = type(kind if kind.isidentifier() else "Exception", (Exception,), {})
    return named(message)
