"""The worker's side of a judge: tests in a sandbox of their own, replies from another carried over."""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from cellblock.contract.evaluations import FunctionCheck, PytestCheck
from cellblock_workers.worker.evaluation.bill import OverCap
from cellblock_workers.worker.evaluation.call_session import CallSession

#: Beyond the time the tests have: for what is read and written around them.
_AROUND_S = 2.0
#: To import what the tests need, which is a second's work: on a host that is busy with twenty others as well.
_LEARN_S = 30.0
#: what an honest judge predicts at most (guest/judging.py), and what is kept of all checks of a job.
_PREDICTED_CALLS, _PREDICTED_CHARACTERS = 256, 256 * 1024
_KEPT_CHARACTERS = 4 * 1024 * 1024
#: Calls of one verdict.
_CALLS_MOST = 100_000
#: Of each text that a judge says.
_TEXT_CHARACTERS = 2000

Word = Literal["passed", "failed", "timed_out", "needs_inline", "not_plain", "gone"]


class JudgeFailed(Exception):
    """The judge ended, or said what no judge says: not the judged program's fault."""


class BrokeWhileJudging(JudgeFailed):
    """It ended while it judged: the program's answers may have done that."""


class Overdue(Exception):
    """The judge was busy for longer than its tests may be, and could not be interrupted."""


class Unusable(Exception):
    """The tests do not compile."""


class Deviates(Exception):
    """The tests call something else than was predicted; ``number`` calls went as predicted."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@dataclass(frozen=True, slots=True)
class Judgement:
    """A word, and of what failed the exception's type and message."""

    word: Word
    type: str
    message: str


_Answer = (
    tuple[Literal["learnt"]]
    | tuple[Literal["unusable"], str, str]
    | tuple[Literal["call"], str]
    | tuple[Literal["deviates"], int]
    | tuple[Literal["verdict"], Word, str, str]
)
_ANSWER: TypeAdapter[_Answer] = TypeAdapter(_Answer)
_CALLS: TypeAdapter[list[str]] = TypeAdapter(list[str])


class PredictedCalls:
    """Which calls the tests of a check make first: of one job's checks, for a judge may lie about all."""

    def __init__(self) -> None:
        self._calls: OrderedDict[str, Sequence[str]] = OrderedDict()
        self._characters = 0

    def get(self, name: str) -> Sequence[str] | None:
        """None: nobody knows yet."""
        return self._calls.get(name)

    def put(self, name: str, calls: Sequence[str]) -> None:
        """From now on. The oldest go when all together are too long."""
        self._forget(self._calls.pop(name, ()))
        self._calls[name] = calls
        self._characters += sum(map(len, calls))
        while self._characters > _KEPT_CHARACTERS:
            self._forget(self._calls.popitem(last=False)[1])

    def _forget(self, calls: Sequence[str]) -> None:
        self._characters -= sum(map(len, calls))


class Judge:
    """Tests of several checks, run one after the other in one sandbox that sees no judged code."""

    def __init__(self, session: CallSession) -> None:
        """``session``: with a sandbox whose job has the role of a judge."""
        self._dialogue = session
        self._learnt: set[str] = set()

    def learn(self, name: str, check: FunctionCheck | PytestCheck) -> None:
        """Before there is a program whose time it would take. Raises :class:`Unusable`."""
        if name not in self._learnt:
            self._exchange(name, check, None, 0.0)

    def predict_calls(self, name: str, check: FunctionCheck) -> list[str]:
        """Which calls the tests will make first, as far as can be known before any reply.

        ``name``: what the check is called here, for good. Raises :class:`Unusable`.
        """
        try:
            text = self._exchange(name, check, ["predict", name], _LEARN_S)
        except Overdue:
            raise JudgeFailed("the tests could not be interrupted") from None
        try:
            word, *calls = json.loads(text)
            if word != "calls":
                raise ValueError
            found = _CALLS.validate_python(calls, strict=True)
        except (ValueError, TypeError, ValidationError):
            raise JudgeFailed("the judge answered nonsense") from None
        few = len(found) <= _PREDICTED_CALLS and sum(map(len, found)) <= _PREDICTED_CHARACTERS
        return found if few else []

    def judge(
        self,
        name: str,
        check: FunctionCheck | PytestCheck,
        calls: Sequence[str],
        replies: Sequence[bytes],
        timeout_s: float,
        ask: Callable[[bytes], bytes | None],
    ) -> Judgement:
        """Run the tests. ``replies``: to the first of ``calls``; ``ask`` has one more call made, and gives
        None when nobody answers any more. The judge has ``timeout_s`` for all of it, however often it asks.

        Raises :class:`Unusable`, :class:`Deviates`, :class:`Overdue`.
        """
        texts = [reply.decode("utf-8", "replace") for reply in replies]
        message: Sequence[object] = ["judge", name, list(calls), texts, timeout_s]
        over = time.monotonic() + timeout_s + _AROUND_S
        for _ in range(_CALLS_MOST):
            answer = self._judged(name, check, message, over - time.monotonic())
            if answer[0] != "call":
                return _judgement(answer, len(calls))
            reply = ask(str(answer[1]).encode())
            message = ["gone"] if reply is None else ["reply", reply.decode("utf-8", "replace")]
        raise Overdue

    def _judged(
        self, name: str, check: FunctionCheck | PytestCheck, message: Sequence[object], patience_s: float
    ) -> _Answer:
        try:
            return _understood(self._exchange(name, check, message, patience_s))
        except JudgeFailed as failure:
            if name not in self._learnt:
                raise  # it never came to the program
            raise BrokeWhileJudging(str(failure)) from None

    def _exchange(
        self,
        name: str,
        check: FunctionCheck | PytestCheck,
        message: Sequence[object] | None,
        patience_s: float,
    ) -> bytes:
        """The reply to this message, before which the judge learns a check that it does not know: in one go,
        as every message wakes two processes."""
        new = name not in self._learnt
        said = (_told(name, check) if new else None, message)
        messages = [json.dumps(one).encode() for one in said if one is not None]
        replies = self._dialogue.ask(messages, len(messages), patience_s + (_LEARN_S if new else 0))
        if new and replies:
            self._learn(name, replies[0])
        if len(replies) == len(messages):
            return replies[-1]
        if self._dialogue.stop == "cost":
            raise OverCap
        if self._dialogue.stop != "deadline":
            raise JudgeFailed(f"the judge ended ({self._dialogue.stop or 'by itself'})")
        if name not in self._learnt:
            raise Unusable(f"its setup takes longer than {_LEARN_S:g} s")
        raise Overdue

    def _learn(self, name: str, reply: bytes) -> None:
        answer = _understood(reply)
        if answer[0] == "unusable":
            raise Unusable(f"{answer[1]}: {answer[2]}")
        self._learnt.add(name)


def _told(name: str, check: FunctionCheck | PytestCheck) -> list[object]:
    """What a judge hears of a check (guest/judging.py)."""
    if isinstance(check, FunctionCheck):
        return ["check", name, check.setup, list(check.functions), check.tests]
    files, tests = ([(one.name, one.text) for one in some] for some in (check.files, check.tests))
    return ["files", name, check.module, files, tests]


def _judgement(answer: _Answer, predicted: int) -> Judgement:
    """What it comes to. Raises :class:`Deviates` for one that can: by a call that it had predicted."""
    if answer[0] == "deviates" and 0 <= answer[1] < predicted:
        raise Deviates(answer[1])
    if answer[0] != "verdict":
        raise JudgeFailed("the judge answered nonsense")
    _, word, kind, message = answer
    return Judgement(word, kind[:_TEXT_CHARACTERS], message[:_TEXT_CHARACTERS])


def _understood(reply: bytes) -> _Answer:
    try:
        return _ANSWER.validate_json(reply)
    except ValidationError:
        raise JudgeFailed("the judge answered nonsense") from None


def bound_to(nonce: str, answer: bytes) -> Judgement:
    """An inline verdict, if it names the nonce that came only after the tests had been run. Every word of it
    is the program's."""
    try:
        given, word, kind, message = json.loads(answer)
    except (ValueError, TypeError, RecursionError):
        given = word = kind = message = None
    if given != nonce or word not in ("passed", "failed"):
        return Judgement("failed", "Forged", "a verdict without this run's nonce")
    kind, message = (_text(said) for said in (kind, message))
    return Judgement("passed" if word == "passed" else "failed", kind, message)


def _text(said: object) -> str:
    return str(said)[:_TEXT_CHARACTERS].encode("utf-8", "replace").decode()
