"""One attempt at an evaluation: every trial in a sandbox of its own, judged from another."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import structlog

from cellblock.admission import Manifest, ResolvedLimits
from cellblock.egress import Outgoing, filter_outgoing
from cellblock.models import JobError, JobResult, Outcome, Usage
from cellblock.trials import Evaluation, FunctionCheck, Trial, TrialResult, TrialVerdict, VerdictMode
from cellblock_config import Settings
from cellblock_workers.launcher.client import LauncherClient, Lent, LevelNotOffered, SandboxRefused
from cellblock_workers.launcher.protocol import Reply
from cellblock_workers.worker.delivery import answering_job
from cellblock_workers.worker.dialogue import Dialogue
from cellblock_workers.worker.execution import (
    Drained,
    LeaseLost,
    attempt_result,
    cost_of,
    rejected_result,
    usage_of,
)
from cellblock_workers.worker.judge import (
    BrokeWhileJudging,
    Deviates,
    Judge,
    JudgeFailed,
    Judgement,
    Overdue,
    Rehearsals,
    Unusable,
    bound_to,
)
from cellblock_workers.worker.lease import Lease
from cellblock_workers.worker.session import Stop
from cellblock_workers.worker.verdict import Verdict, judge

_log = structlog.get_logger(__name__)

#: Of what a trial prints so much is shown: there may be 100,000 of them.
_EXCERPT = {"output_limit_bytes": 2000, "output_head_bytes": 500, "output_tail_bytes": 1500}
_ANSWERS_BYTES = 8 * 1024 * 1024
_JUDGE_SAYS_BYTES = 2**40
#: So many sandboxes are started under one guest, where that is possible.
SERIES = 16
#: What is our fault is tried so often here, before the client tries it elsewhere.
_TRIES = 2
_WORDS = {
    "passed": TrialVerdict.PASSED,
    "failed": TrialVerdict.FAILED,
    "timed_out": TrialVerdict.TIMED_OUT,
    "needs_inline": TrialVerdict.NEEDS_INLINE,
    "not_plain": TrialVerdict.NEEDS_INLINE,
}


class Cancelled(Exception):
    """Somebody asked for the end of the whole evaluation."""


class OverCap(Exception):
    """It has cost all it may."""


@dataclass(frozen=True, slots=True)
class _End:
    """What is known of one trial's run when it is over."""

    judgement: Judgement
    verdict: Verdict
    said: Outgoing
    usage: Usage


@dataclass(slots=True)
class _Place:
    """A borrowed series of sandboxes, or a single one."""

    lent: Lent
    used: int = 0
    over: bool = False
    known: Reply = field(default_factory=Reply)  #: what a series had used when the kernel was last asked


class Evaluator:
    """Runs one claimed evaluation. Holds one sandbox for its judge and one at a time for its trials."""

    def __init__(
        self,
        lease: Lease,
        manifest: Manifest,
        evaluation: Evaluation,
        launcher: LauncherClient,
        settings: Settings,
        rehearsals: Rehearsals,
    ) -> None:
        self._lease = lease
        self._manifest = manifest
        self._evaluation = evaluation
        self._launcher = launcher
        self._settings = settings.model_copy(update={"egress": settings.egress.model_copy(update=_EXCERPT)})
        self._rehearsals = rehearsals
        self._judging: tuple[Judge, Lent] | None = None
        self._series: _Place | None = None
        self._lent: Lent | None = None
        self._left = len(evaluation.trials)
        self._alone = False
        self._cost_micros = 0

    def run(self) -> JobResult:
        """Every trial, one after the other.

        Raises :class:`SandboxUnavailable` and :class:`Drained` (give the job back), :class:`LeaseLost`.
        """
        results: list[TrialResult] = []
        verdict = Verdict(Outcome.OK, 0)
        try:
            for trial in self._evaluation.trials:
                results.append(self._trial(trial))
                self._left -= 1
                if self._left and self._over_cap():
                    raise OverCap
        except LevelNotOffered as refusal:
            return rejected_result(self._lease.claim, "LevelNotOffered", str(refusal))
        except Cancelled:
            error = JobError(type="Cancelled", message="Cancelled while it ran")
            verdict = Verdict(Outcome.CANCELLED, error=error)
        except OverCap:
            error = JobError(type="CostCap", message="It has cost all it may")
            verdict = Verdict(Outcome.COST_CAP, error=error)
        finally:
            self._dismiss()
            if self._series is not None:
                self._give_up(self._series.lent)
        rest = [
            _unjudged(trial, self._evaluation.verdict, "it was not begun")
            for trial in self._evaluation.trials
        ]
        usage = Usage(
            wall_ms=sum(one.usage.wall_ms for one in results),
            cpu_ms=sum(one.usage.cpu_ms for one in results),
            peak_memory_bytes=max((one.usage.peak_memory_bytes for one in results), default=0),
            output_bytes=sum(one.usage.output_bytes for one in results),
        )
        claim = self._lease.claim
        return attempt_result(claim, verdict, self._lent).model_copy(
            update={
                "trials": (*results, *rest[len(results) :]),
                "usage": usage,
                "cost_micros": None if claim.manifest.charge is None else self._cost_micros,
            }
        )

    @property
    def _limits(self) -> ResolvedLimits:
        return self._manifest.limits

    def _trial(self, trial: Trial) -> TrialResult:
        check, why, broke = self._evaluation.checks[trial.check], "", 0
        for number in range(_TRIES):
            self._alone = number > 0  # what happened in a series is told from what a program did by itself
            try:
                end = (
                    self._inline(trial, check)
                    if self._evaluation.verdict == "inline"
                    else self._split(trial, check)
                )
            except Unusable as error:
                self._dismiss()  # it may be busy with them still
                return _unjudged(trial, self._evaluation.verdict, f"its tests cannot be used: {error}")
            except LevelNotOffered:
                raise
            except (JudgeFailed, SandboxRefused) as error:
                self._heed(self._lease.stopped)
                self._dismiss()
                why, broke = str(error), broke + isinstance(error, BrokeWhileJudging)
                _log.warning("trial_begun_again", job_id=self._lease.claim.job_id, reason=why)
                continue
            charge = self._lease.claim.manifest.charge
            self._cost_micros += cost_of(charge, end.usage) if charge is not None else 0
            if end.verdict.outcome is not Outcome.SANDBOX_ERROR:
                return self._result(trial, end)
            why = end.verdict.error.message if end.verdict.error else "the sandbox failed"
        if broke == _TRIES:  # two judges, one after the other, under the answers of this one program
            why = "what it answers ends whoever judges it"
            failed = {"verdict": TrialVerdict.FAILED, "outcome": Outcome.OK}
            return _unjudged(trial, self._evaluation.verdict, why).model_copy(update=failed)
        return _unjudged(trial, self._evaluation.verdict, why)

    def _over_cap(self) -> bool:
        charge = self._lease.claim.manifest.charge
        used_micros = self._cost_micros + self._lease.claim.charged_micros
        return charge is not None and used_micros >= charge.cap_micros

    def _split(self, trial: Trial, check: FunctionCheck) -> _End:
        name = hashlib.sha256(check.model_dump_json().encode()).hexdigest()
        examiner = self._judge()
        examiner.learn(name, check)
        calls = self._rehearsals.get(name)
        if calls is None:
            calls = examiner.rehearse(name)
            self._rehearsals.put(name, calls)
        try:
            return self._examined(trial, examiner, name, calls)
        except Deviates as deviation:
            # A program may have seen calls that will not be made, and remember them: all from the beginning.
            calls = calls[: deviation.number]
            self._rehearsals.put(name, calls)
        try:
            return self._examined(trial, examiner, name, calls)
        except Deviates:  # it answers otherwise each time: no call is made before its time
            return self._examined(trial, examiner, name, [])

    def _examined(self, trial: Trial, examiner: Judge, name: str, calls: Sequence[str]) -> _End:
        job = answering_job("candidate", self._manifest, self._limits, _ANSWERS_BYTES, trial.source)
        with self._place(job) as (place, candidate):
            replies = candidate.ask([call.encode() for call in calls], len(calls))
            self._heed(candidate.stop)

            def ask(call: bytes) -> bytes | None:
                answers = candidate.ask([call], 1)
                self._heed(candidate.stop)
                return answers[0] if answers else None

            try:
                judgement = examiner.judge(name, calls, replies, self._limits.timeout_s, ask)
            except Overdue:
                message = "the tests took longer than they may, and could not be interrupted"
                judgement = Judgement("timed_out", "TimedOut", message)
            if judgement.word == "timed_out":  # what was interrupted may be half done
                self._dismiss()
            return self._ended(place, candidate, judgement)

    def _inline(self, trial: Trial, check: FunctionCheck) -> _End:
        nonce = secrets.token_hex(16)
        job = answering_job(
            "inline", self._manifest, self._limits, _ANSWERS_BYTES, trial.source, [check.setup, check.tests]
        )
        with self._place(job) as (place, program):
            answers = program.ask([json.dumps(nonce).encode()], 1)
            self._heed(program.stop)
            judgement = bound_to(nonce, answers[0]) if answers else Judgement("gone", "", "")
            return self._ended(place, program, judgement)

    def _ended(self, place: _Place, dialogue: Dialogue, judgement: Judgement) -> _End:
        """Take the sandbox down, and say what it came to."""
        ended = dialogue.ended
        kernel = self._last_word(place, dialogue)
        conversation = dialogue.conversation()
        verdict = judge(conversation, kernel, self._limits) if ended else Verdict(Outcome.OK, 0)
        if dialogue.garbled:
            error = JobError(type="Garbled", message="the program wrote where its replies go")
            verdict = Verdict(Outcome.OK, error=error)
        said = Outgoing(stdout=conversation.stdout, stderr=conversation.stderr)
        return _End(judgement, verdict, said, usage_of(conversation, kernel))

    def _result(self, trial: Trial, end: _End) -> TrialResult:
        word = self._word(end)
        if word is TrialVerdict.PASSED:
            said = Outgoing()
        else:
            error = JobError(type=end.judgement.type, message=end.judgement.message)
            if end.judgement.word == "gone":
                error = end.verdict.error or JobError(
                    type="Exited", message="the program ended before its functions had answered"
                )
            try:
                said = filter_outgoing(replace(end.said, error=error), self._settings.egress)
            except Exception as fault:  # fail closed: what could not be looked at stays here
                _log.exception("filter_failed", job_id=self._lease.claim.job_id)
                what = f"its output could not be filtered ({type(fault).__name__}), so none of it is here"
                said = Outgoing(error=JobError(type="Unfiltered", message=what))
        return TrialResult(
            id=trial.id,
            verdict=word,
            channel=self._evaluation.verdict,
            outcome=Outcome.OK if word is TrialVerdict.PASSED else end.verdict.outcome,
            error=said.error,
            stdout=said.stdout.text,
            stderr=said.stderr.text,
            isolation=self._lent.isolation if self._lent else None,
            usage=end.usage,
        )

    def _word(self, end: _End) -> TrialVerdict:
        if end.judgement.word != "gone":
            return _WORDS[end.judgement.word]
        if end.verdict.outcome in {Outcome.WALL_TIMEOUT, Outcome.CPU_TIMEOUT}:
            return TrialVerdict.TIMED_OUT
        return TrialVerdict.FAILED

    def _heed(self, stop: Stop | None) -> None:
        """Whether somebody wants the whole attempt to end."""
        if stop == "lost":
            raise LeaseLost(self._lease.claim.job_id)
        if stop == "drain":
            raise Drained(self._lease.claim.job_id)
        if stop == "cancel":
            raise Cancelled

    def _judge(self) -> Judge:
        """The judge at work, or a new one."""
        if self._judging is None:
            lent = self._acquire()
            # It outlives its trials; each of its answers has a time of its own.
            forever_s = (self._limits.timeout_s + 10) * self._evaluation.runs * 2
            limits = self._limits.model_copy(update={"timeout_s": forever_s, "cpu_s": forever_s})
            dialogue = Dialogue(lent, self._launcher.connection(), self._lease, self._settings)
            dialogue.open(answering_job("judge", self._manifest, limits, _JUDGE_SAYS_BYTES), limits)
            self._judging = Judge(dialogue), lent
        return self._judging[0]

    def _dismiss(self) -> None:
        if self._judging is not None:
            (_, lent), self._judging = self._judging, None
            self._give_up(lent)

    def _give_up(self, lent: Lent) -> None:
        self._launcher.kill(lent)
        self._lease.returned(lent.id)

    @contextmanager
    def _place(self, job: bytes) -> Iterator[tuple[_Place, Dialogue]]:
        """A sandbox that nobody was in before, the job on its way to it; nobody will be in it again."""
        if self._alone and self._series is not None:
            self._give_up(self._series.lent)
            self._series = None
        place = self._series if self._series is not None else _Place(self._acquire(self._wanted()))
        announced, self._series, self._lent = place.used > 0, None, place.lent
        place.used += 1
        dialogue = Dialogue(
            place.lent, self._launcher.connection(), self._lease, self._settings, announced=announced
        )
        try:
            dialogue.open(job, self._limits)
            yield place, dialogue
            if place.over:
                place.lent.close()
                self._lease.returned(place.lent.id)
            else:
                self._series = place
        except BaseException:
            self._give_up(place.lent)
            raise

    def _wanted(self) -> int:
        """How long a series to ask for: of a few lengths only, for the launcher knows each by itself."""
        if self._alone:
            return 0
        return next((length for length in (SERIES, SERIES // 2, SERIES // 4) if self._left > length // 2), 0)

    def _last_word(self, place: _Place, dialogue: Dialogue) -> Reply:
        """What the kernel knows of a trial that is over: of one in a series, what has been added by it."""
        if not place.lent.series:
            place.over = True
            return self._launcher.give_back(place.lent, ended=dialogue.cut_off)
        place.over = not dialogue.enough(self._settings.sandbox.kill_grace_s)
        priced = self._lease.claim.manifest.charge is not None
        known, added = place.known, Reply()
        if not place.over and (priced or dialogue.killed):
            place.known = self._launcher.usage(place.lent)
            added = Reply(
                oom_kills=(place.known.oom_kills or 0) - (known.oom_kills or 0),
                cpu_ms=(place.known.cpu_ms or 0) - (known.cpu_ms or 0) if priced else None,
            )
        if place.over or place.used == place.lent.series:
            place.over = True
            self._launcher.give_back(place.lent, ended=False)
        return added

    def _acquire(self, series: int = 0) -> Lent:
        job, asked = self._lease.claim, self._manifest
        profile = (asked.level, asked.image, asked.limits, None)
        lent = self._launcher.acquire(job.job_id, job.fence, *profile, self._lease.sandbox_s, series)
        self._lease.borrowed(lent.id)
        return lent


def _unjudged(trial: Trial, channel: VerdictMode, why: str) -> TrialResult:
    return TrialResult(
        id=trial.id,
        verdict=TrialVerdict.UNJUDGED,
        channel=channel,
        outcome=Outcome.SANDBOX_ERROR,
        error=JobError(type="Unjudged", message=why[:2000]),
    )
