"""The judge: runs a problem's tests against a function that lives in another sandbox.

It is a job of its own in a sandbox of its own. It never sees the judged code, only replies to calls
(calls.py), which the worker passes on. The worker asks, one JSON message at a time:

  in   ["check", name, {setup, functions, tests}]   a check, and its name from here on
       ["files", name, {module, files, tests}]      the same for tests of pytest's (suites.py)
       ["predict", name]          which calls will the tests make?
       ["judge", {name, calls, replies, seconds}]   the replies to the first calls are here
       ["reply", text] · ["gone"]  to a call that the judge asked for; "gone": the program has ended
  out  ["learnt"] · ["unusable", type, message]    what came of a check
       ["calls", call, ...]       the predicted calls
       ["call", call]              one more call has to be made, in the sandbox of the judged code
       ["deviates", number]        the tests make another call than was predicted
       ["verdict", word, type, message]    passed, failed, timed_out, needs_inline (the tests'), not_plain
                                   (the function's) or gone
"""

from __future__ import annotations

import ast
import io
import json
import os
import signal
import sys
import types
from typing import Any

from .calls import NotPlain, as_text, failed_line, message_of, read_call, send_reply
from .program import Anything, JudgedProgram, JudgeStops, call_text, judged_function, sayable
from .suites import Suite

PREDICTED_CALLS = 256
PREDICTED_BYTES = 256 * 1024
PREDICTION_S = 1.0
#: After the time is up, JudgeStops is raised again and again: tests may catch anything once.
AGAIN_S = 0.25


class Unheard(io.TextIOBase):
    """A stream for the tests' output, which is dropped."""

    def write(self, text: str) -> int:
        return len(text)


class WithoutAsserts(ast.NodeTransformer):
    """Turns every assertion into its expression, so that it is evaluated and always holds."""

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        return ast.copy_location(ast.Expr(node.test), node)


class CheckText:
    """One problem's tests, compiled."""

    def __init__(self, setup: str, functions: list[str], tests: str) -> None:
        self.setup = compile(setup, "setup.py", "exec", dont_inherit=True)
        self.text = tests
        self.tests = compile(tests, "tests.py", "exec", dont_inherit=True)
        self.functions = functions

    def learn(self) -> None:
        """Imports what the setup imports: a prediction's alarm must not interrupt an import."""
        exec(self.setup, {"__name__": "tests", **dict.fromkeys(self.functions, Anything())})

    def record_calls(self, recorder: CallRecorder) -> None:
        """Runs the tests as if every assertion held."""
        believed = ast.fix_missing_locations(WithoutAsserts().visit(ast.parse(self.text)))
        self.run(recorder, compile(believed, "tests.py", "exec", dont_inherit=True))

    def run(self, program: JudgedProgram | CallRecorder, tests: types.CodeType | None = None) -> None:
        """Runs the tests on the program's functions. Raises what they raise."""
        import random  # only the judge needs it: under gVisor every process of every job would hold it too

        random.seed(0)
        sys.setrecursionlimit(1000)
        judged = {name: judged_function(name, program.call) for name in self.functions}
        names: dict[str, Any] = {"__name__": "tests", **judged}
        exec(self.setup, names)
        names.update(judged)  # what a setup has under that name is a stub
        exec(tests or self.tests, names)


class CallRecorder:
    """Stands for the program and records its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def call(self, name: str, args: Any, kwargs: Any) -> Any:
        text = call_text(name, args, kwargs)
        if len(self.calls) == PREDICTED_CALLS or sum(map(len, self.calls)) + len(text) > PREDICTED_BYTES:
            raise JudgeStops
        self.calls.append(text)
        return Anything()


class JudgeProgram:
    """Answers the worker until it hangs up."""

    def __init__(self, inward: int, outward: int) -> None:
        self.inward = inward
        self.outward = outward
        self.checks: dict[str, CheckText | Suite] = {}
        self.program: JudgedProgram | None = None

    def serve(self) -> None:
        signal.signal(signal.SIGALRM, self.out_of_time)
        while True:
            message = self.receive()
            if message[0] in ("check", "files"):
                self.send(self.learn(*message))
            elif message[0] == "predict":
                self.send(["calls", *self.predict_calls(self.checks[message[1]])])
            elif message[0] == "judge":
                self.send_cut(self.judge(**message[1]))

    def receive(self) -> list[Any]:
        text = read_call(self.inward)
        if text is None:
            os._exit(0)
        message: list[Any] = json.loads(text)
        return message

    def send(self, message: list[Any]) -> None:
        send_reply(self.outward, as_text(message))

    def out_of_time(self, *_: object) -> None:
        stop = JudgeStops("verdict", "timed_out", "TimedOut", "the tests took longer than they may")
        if self.program is not None:
            self.program.stop = stop  # replaces any other: this judge may be half-way, and has to go
        raise stop

    def learn(self, kind: str, name: str, given: dict[str, Any]) -> list[Any]:
        try:
            check = CheckText(**given) if kind == "check" else Suite(name=name, **given)
            check.learn()
        except Exception as error:
            return ["unusable", sayable(type(error).__name__), sayable(message_of(error))]
        self.checks[name] = check
        return ["learnt"]

    def predict_calls(self, check: Any) -> list[str]:
        """The calls that the tests make when every assertion holds, as far as that can be known."""
        recorder = CallRecorder()
        signal.setitimer(signal.ITIMER_REAL, PREDICTION_S)
        try:
            check.record_calls(recorder)
        except BaseException:  # as far as it went: the tests themselves will say what is wrong
            return recorder.calls
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return recorder.calls

    def judge(self, name: str, calls: list[str], replies: list[str], seconds: float) -> list[Any]:
        program = self.program = JudgedProgram(calls, replies, self.ask)
        said = ["verdict", "passed", "", ""]
        signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)
        try:
            wrong = self.checks[name].run(program)
            if wrong is not None:
                said = ["verdict", "failed", *wrong]
        except BaseException as error:
            said = ["verdict", "failed", type(error).__name__, self.message(name, error)]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        stop = program.close()
        return list(stop.said) if stop is not None else said

    def message(self, name: str, error: BaseException) -> str:
        """The message of an exception; for an assertion without one, its line."""
        check = self.checks[name]
        return message_of(error) or (failed_line(error, check.text) if isinstance(check, CheckText) else "")

    def send_cut(self, message: list[Any]) -> None:
        """Sends a verdict with its texts cut: it quotes the judged program, which may have made them too
        long."""
        word, *said = message
        self.send([word, *(sayable(one) if isinstance(one, str) else one for one in said)])

    def ask(self, text: str) -> str:
        """Has one more call made. Returns the reply. Raises :class:`JudgeStops`."""
        try:
            self.send(["call", text])
        except NotPlain as why:
            raise JudgeStops("verdict", "needs_inline", "NotPlain", str(why)) from None
        message = self.receive()
        if message[0] != "reply":
            raise JudgeStops("verdict", "gone", "", "")
        return str(message[1])
