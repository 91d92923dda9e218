"""How one program is examined: from outside by calls, from outside by what it prints, or inline."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from cellblock.admission.resolve import Manifest
from cellblock.contract.evaluations import (
    Check,
    FunctionCheck,
    PytestCheck,
    StdioCase,
    StdioCheck,
    Trial,
    VerdictMode,
)
from cellblock.contract.outcomes import JobError, Outcome, Usage
from cellblock.egress import Outgoing
from cellblock_workers.worker.evaluation.bill import Bill, OverCap
from cellblock_workers.worker.evaluation.call_session import CallSession
from cellblock_workers.worker.evaluation.judge import (
    Deviates,
    JudgeFailed,
    Judgement,
    Overdue,
    PredictedCalls,
    Unusable,
    bound_to,
)
from cellblock_workers.worker.evaluation.output_comparison import difference
from cellblock_workers.worker.evaluation.sandboxes import EvaluationSandbox, EvaluationSandboxes
from cellblock_workers.worker.evaluation.stdio_run import StdioRun
from cellblock_workers.worker.execution import usage_of
from cellblock_workers.worker.job_frames import answering_job, program_job
from cellblock_workers.worker.outcome import RunOutcome, decide_outcome
from cellblock_workers.worker.session import Transcript

_ANSWERS_BYTES = 8 * 1024 * 1024
#: A checker that raises one of these does not compile (without a traceback of its own) or lacks a module.
_NO_PYTHON, _LACKING = {"SyntaxError", "IndentationError", "TabError"}, {"ImportError", "ModuleNotFoundError"}
_INPUT, _PRINTED, _EXPECTED = "input.txt", "printed.txt", "expected.txt"


@dataclass(frozen=True, slots=True)
class End:
    """What is known of a trial's run, or of all its runs, when it is over."""

    judgement: Judgement
    run: RunOutcome
    said: Outgoing
    usage: Usage


class Examiner:
    """Examines one trial after the other in sandboxes of an evaluation."""

    def __init__(
        self,
        sandboxes: EvaluationSandboxes,
        manifest: Manifest,
        mode: VerdictMode,
        bill: Bill,
        trial_max_s: float,
    ) -> None:
        """``trial_max_s``: how long all cases of a trial may take together, in seconds."""
        self._sandboxes = sandboxes
        self._manifest = manifest
        self._mode = mode
        self._bill = bill
        self._trial_max_s = trial_max_s
        self._predicted = PredictedCalls()
        self._tried: set[str] = set()  #: checkers that can run

    def examine(self, trial: Trial, check: Check) -> End:
        """Runs the trial to its verdict.

        Raises :class:`Unusable`, :class:`JudgeFailed`, :class:`SandboxRefused`, :class:`OverCap`, and what
        :meth:`EvaluationSandboxes.watch` raises.
        """
        if isinstance(check, StdioCheck):
            return self._by_prints(trial, check)
        end = self._by_calls(trial, check) if self._mode == "split" else self._inline(trial, check)
        return _within_cap(end)

    def _by_calls(self, trial: Trial, check: FunctionCheck | PytestCheck) -> End:
        name = _name_of(check)
        job = self._job("candidate", trial.source, check)
        if isinstance(check, PytestCheck):  # which calls they make depends on which tests pytest finds
            self._sandboxes.judge().learn(name, check)
            return self._called(job, check, name, [])
        calls = self._predicted.get(name)
        if calls is None:
            calls = self._sandboxes.judge().predict_calls(name, check)
            self._predicted.put(name, calls)
        try:
            return self._called(job, check, name, calls)
        except Deviates as deviation:
            # The program may have seen calls that will not be made, and remember them: begin again.
            calls = calls[: deviation.number]
            self._predicted.put(name, calls)
        try:
            return self._called(job, check, name, calls)
        except Deviates:  # it answers differently each time: predict no call
            return self._called(job, check, name, [])

    def _called(self, job: bytes, check: FunctionCheck | PytestCheck, name: str, calls: Sequence[str]) -> End:
        sandboxes = self._sandboxes
        judge = sandboxes.judge()
        if sandboxes.alone:  # else a judge that ends here may have ended before it came to the program
            judge.learn(name, check)
        with sandboxes.enter(job, CallSession) as (borrowed, candidate):
            replies = candidate.ask([call.encode() for call in calls], len(calls))
            sandboxes.watch(candidate.trial.stop)

            def ask(call: bytes) -> bytes | None:
                answers = candidate.ask([call], 1)
                sandboxes.watch(candidate.trial.stop)
                return answers[0] if answers else None

            try:
                judgement = judge.judge(
                    name=name,
                    check=check,
                    calls=calls,
                    replies=replies,
                    timeout_s=sandboxes.limits.timeout_s,
                    ask=ask,
                )
            except Overdue:
                message = "the tests took longer than they may, and could not be interrupted"
                judgement = Judgement("timed_out", "TimedOut", message)
            if judgement.word == "timed_out":  # an interrupted judge may be in an undefined state
                sandboxes.dismiss()
            return self._ended(borrowed, candidate, judgement)

    def _inline(self, trial: Trial, check: FunctionCheck | PytestCheck) -> End:
        self._sandboxes.judge().learn(
            _name_of(check), check
        )  # tests that no program can pass are not a program's failure
        nonce = secrets.token_hex(16)
        with self._sandboxes.enter(self._job("inline", trial.source, check), CallSession) as (
            borrowed,
            program,
        ):
            answers = program.ask([json.dumps(nonce).encode()], 1)
            self._sandboxes.watch(program.trial.stop)
            judgement = bound_to(nonce, answers[0]) if answers else Judgement("gone", "", "")
            return self._ended(borrowed, program, judgement)

    def _job(
        self, role: Literal["candidate", "inline"], source: str, check: FunctionCheck | PytestCheck
    ) -> bytes:
        """The program's frames. They contain no word of its tests, unless the tests run in its own
        sandbox."""
        inline = role == "inline"
        make = partial(
            answering_job,
            manifest=self._manifest,
            limits=self._sandboxes.limits,
            answers_bytes=_ANSWERS_BYTES,
        )
        if isinstance(check, FunctionCheck):
            return make(role, source=source, texts=[check.setup, check.tests] if inline else ())
        tests = check.tests if inline else ()
        files = {f"{check.module}.py": source.encode()}
        files |= {one.name: one.text.encode() for one in (*check.files, *tests)}
        return make("tested" if inline else role, texts=[one.name for one in tests], files=files)

    def _by_prints(self, trial: Trial, check: StdioCheck) -> End:
        """Runs one case after the other, each in a sandbox of its own, until the program fails one."""
        if check.checker is not None:
            self._try_out(check.checker, check.cases[0])
        over = time.monotonic() + self._trial_max_s
        end, printed = self._case(trial.source, check.cases[0])
        for number, case in enumerate(check.cases, start=1):
            if number > 1:
                if time.monotonic() > over:
                    return _located(self._too_long(end), f"case {number} of {len(check.cases)}")
                self._bill.check_cap()
                before, (end, printed) = end.usage, self._case(trial.source, case)
                end = replace(end, usage=add_usage(before, end.usage))
            if end.judgement.word == "passed":
                end = self._compared(check, case, printed, end)
            if end.judgement.word != "passed":
                return _located(end, f"case {number} of {len(check.cases)}")
        return end

    def _too_long(self, end: End) -> End:
        allowed = f"{self._trial_max_s:g} s (sandbox.trial_max_s)"
        why = f"the cases before it took {allowed}, all the time that a trial has"
        return replace(end, judgement=Judgement("timed_out", "TimedOut", why))

    def _case(self, source: str, case: StdioCase) -> tuple[End, bytes]:
        """One run of the judged program: "passed" when it ended well, whatever it printed."""
        limits = self._sandboxes.limits
        end, printed = self._run(program_job(self._manifest, limits, source, stdin=case.stdin.encode()))
        if end.run.outcome is Outcome.OK:
            end = replace(end, judgement=Judgement("passed", "", ""))
        return end, printed

    def _compared(self, check: StdioCheck, case: StdioCase, printed: bytes, end: End) -> End:
        """The same end, or a failed one that says what is wrong with the output."""
        if check.checker is None:
            wrong = difference(check, case.stdout, printed)
        else:
            checked = self._checked(check.checker, case, printed)
            end = replace(end, usage=add_usage(end.usage, checked.usage))
            said = checked.said.stderr.text.strip() or checked.said.stdout.text.strip()
            outcome = checked.run.outcome
            word = "says no" if outcome is Outcome.EXIT else f"ended with {outcome.value}"
            wrong = (
                None if outcome is Outcome.OK else f"the checker {word}{': ' + said[-300:] if said else ''}"
            )
        return end if wrong is None else replace(end, judgement=Judgement("failed", "WrongAnswer", wrong))

    def _try_out(self, checker: str, case: StdioCase) -> None:
        """Sees that the checker can run, before any program's output is involved. Raises
        :class:`Unusable`."""
        if checker in self._tried:
            return
        error = self._checked(checker, case, case.stdout.encode()).run.error
        if error is not None:
            uncompiled = error.type in _NO_PYTHON and "Traceback (most recent" not in error.traceback
            if uncompiled or error.type in _LACKING:
                raise Unusable(f"the checker cannot run: {error.type}: {error.message}")
        self._tried.add(checker)

    def _checked(self, checker: str, case: StdioCase, printed: bytes) -> End:
        """One run of the problem's checker, in a sandbox without a program. Raises :class:`JudgeFailed`."""
        files = {_INPUT: case.stdin.encode(), _PRINTED: printed, _EXPECTED: case.stdout.encode()}
        job = program_job(self._manifest, self._sandboxes.limits, checker, files=files, args=tuple(files))
        end = self._run(job)[0]
        if end.run.outcome is Outcome.SANDBOX_ERROR:
            raise JudgeFailed("the checker's sandbox failed")
        return end

    def _run(self, job: bytes) -> tuple[End, bytes]:
        """One run of a program to its end, with all it printed."""
        with self._sandboxes.enter(job, StdioRun) as (borrowed, program):
            program.finish()
            self._sandboxes.watch(program.trial.stop)
            end = self._ended(borrowed, program, Judgement("gone", "", ""))
        return _within_cap(end), program.printed

    def _ended(
        self, borrowed: EvaluationSandbox, session: CallSession | StdioRun, judgement: Judgement
    ) -> End:
        """Takes the sandbox down, charges the run and decides its outcome."""
        ended = session.ended
        kernel = self._sandboxes.final_usage(borrowed, session.trial)
        transcript = session.trial.transcript()
        run = (
            decide_outcome(transcript, kernel, self._sandboxes.limits) if ended else RunOutcome(Outcome.OK, 0)
        )
        if session.garbled:
            error = JobError(type="Garbled", message="the program wrote where its replies go")
            run = RunOutcome(Outcome.OK, error=error)
        usage = usage_of(transcript, kernel)
        if run.outcome is Outcome.COST_CAP:
            self._bill.add_lost(usage)
        else:
            self._bill.add(usage)
        return End(judgement, run, _said(transcript), usage)


def _name_of(check: FunctionCheck | PytestCheck) -> str:
    """The name of a check for the judge and among predictions: a SHA-256, in hex."""
    return hashlib.sha256(check.model_dump_json().encode()).hexdigest()


def add_usage(one: Usage, other: Usage) -> Usage:
    """The sum of what two runs used; for memory the higher peak."""
    return Usage(
        wall_ms=one.wall_ms + other.wall_ms,
        cpu_ms=one.cpu_ms + other.cpu_ms,
        peak_memory_bytes=max(one.peak_memory_bytes, other.peak_memory_bytes),
        output_bytes=one.output_bytes + other.output_bytes,
        filter_cpu_ms=one.filter_cpu_ms + other.filter_cpu_ms,
        start_cpu_ms=one.start_cpu_ms + other.start_cpu_ms,
    )


def _within_cap(end: End) -> End:
    """Returns ``end``. Raises :class:`OverCap` if the run was stopped at its cost cap."""
    if end.run.outcome is Outcome.COST_CAP:
        raise OverCap
    return end


def _said(transcript: Transcript) -> Outgoing:
    return Outgoing(stdout=transcript.stdout, stderr=transcript.stderr)


def _located(end: End, where: str) -> End:
    """The same end, with ``where`` in front of its message."""
    said, error = end.judgement, end.run.error
    if said.word != "gone":
        return replace(end, judgement=replace(said, message=f"{where}: {said.message}"))
    if error is not None:
        error = error.model_copy(update={"message": f"{where}: {error.message}"})
    return replace(end, run=replace(end.run, error=error))
