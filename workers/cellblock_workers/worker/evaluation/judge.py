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

#: Seconds beyond the time the tests have: for what is read and written around them.
_AROUND_S = 2.0
#: Seconds to import what the tests need: that takes one, and more on a host that is busy with twenty others.
_LEARN_S = 30.0
#: What an honest judge predicts at most for a check (guest/judging.py), and what is kept for all of a job's.
_PREDICTED_CALLS, _PREDICTED_CHARACTERS = 256, 256 * 1024
_KEPT_CHARACTERS = 4 * 1024 * 1024
#: Calls of one verdict, at most.
_CALLS_MOST = 100_000
#: The length of each text that a judge says, at most.
_TEXT_CHARACTERS = 2000

Word = Literal["passed", "failed", "timed_out", "needs_inline", "not_plain", "gone"]


class JudgeFailed(Exception):
    """The judge ended, or answered nonsense: not the judged program's fault."""


class BrokeWhileJudging(JudgeFailed):
    """The judge ended while it judged: the program's answers may have caused that."""


class Overdue(Exception):
    """The judge was busy for longer than its tests may run, and could not be interrupted."""


class Unusable(Exception):
    """The tests do not compile, or their setup fails: no program can be judged by them."""


class Deviates(Exception):
    """The tests make another call than predicted; the first ``number`` calls went as predicted."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict's word; after a failure the exception's type and message."""

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
    """The calls that the tests of each check make first. Kept for one job only: a judge may lie about
    them."""

    def __init__(self) -> None:
        self._calls: OrderedDict[str, Sequence[str]] = OrderedDict()
        self._characters = 0

    def get(self, name: str) -> Sequence[str] | None:
        """The predicted calls; None if none are known yet."""
        return self._calls.get(name)

    def put(self, name: str, calls: Sequence[str]) -> None:
        """Remembers the calls of a check. The oldest checks go when all together are too long."""
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
        self._session = session
        self._learnt: set[str] = set()

    def learn(self, name: str, check: FunctionCheck | PytestCheck) -> None:
        """Sends the check to the judge, before a program's time runs. Raises :class:`Unusable`."""
        if name not in self._learnt:
            self._exchange(name, check, None, 0.0)

    def predict_calls(self, name: str, check: FunctionCheck) -> list[str]:
        """The calls that the tests will make first, as far as they can be known before any reply.

        ``name``: the permanent name of the check here. Raises :class:`Unusable`.
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
        """Runs the tests. ``replies``: to the first of ``calls``. ``ask`` makes one more call, and returns
        None when the program does not answer any more. The judge has ``timeout_s`` for everything, with all
        its calls.

        Raises :class:`Unusable`, :class:`Deviates`, :class:`Overdue`.
        """
        texts = [reply.decode("utf-8", "replace") for reply in replies]
        asked = {"name": name, "calls": list(calls), "replies": texts, "seconds": timeout_s}
        message: Sequence[object] = ["judge", asked]
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
        """The reply to this message. A check that the judge does not know goes with it, in one go: every
        message wakes two processes."""
        new = name not in self._learnt
        said = (_told(name, check) if new else None, message)
        messages = [json.dumps(one).encode() for one in said if one is not None]
        replies = self._session.ask(messages, len(messages), patience_s + (_LEARN_S if new else 0))
        if new and replies:
            self._learn(name, replies[0])
        if len(replies) == len(messages):
            return replies[-1]
        if self._session.trial.stop == "cost":
            raise OverCap
        if self._session.trial.stop != "deadline":
            raise JudgeFailed(f"the judge ended ({self._session.trial.stop or 'by itself'})")
        if name not in self._learnt:
            raise Unusable(f"its setup takes longer than {_LEARN_S:g} s")
        raise Overdue

    def _learn(self, name: str, reply: bytes) -> None:
        answer = _understood(reply)
        if answer[0] == "unusable":
            raise Unusable(f"{answer[1]}: {answer[2]}")
        self._learnt.add(name)


def _told(name: str, check: FunctionCheck | PytestCheck) -> list[object]:
    """The message that describes a check to a judge (guest/judging.py)."""
    if isinstance(check, FunctionCheck):
        text = {"setup": check.setup, "functions": list(check.functions), "tests": check.tests}
        return ["check", name, text]
    files, tests = ([(one.name, one.text) for one in some] for some in (check.files, check.tests))
    return ["files", name, {"module": check.module, "files": files, "tests": tests}]


def _judgement(answer: _Answer, predicted: int) -> Judgement:
    """The verdict. Raises :class:`Deviates` if a predicted call differs, :class:`JudgeFailed` for
    nonsense."""
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
    """An inline verdict, if it names the nonce that the program got only after the tests had run. Every word
    of it is the program's."""
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
