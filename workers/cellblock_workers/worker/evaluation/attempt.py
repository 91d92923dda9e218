"""One attempt at an evaluation: every trial in a sandbox of its own, judged from another."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import reduce

from cellblock.admission.resolve import Manifest
from cellblock.contract.evaluations import Evaluation, Trial, TrialResult, TrialVerdict, channel_of, sandboxes
from cellblock.contract.outcomes import JobError, Outcome, Usage
from cellblock.contract.results import JobResult
from cellblock.egress import Outgoing
from cellblock_config import Settings
from cellblock_workers.filtering.failures import FilterFailed, Stopped
from cellblock_workers.filtering.outgoing_filter import OutgoingFilter
from cellblock_workers.launcher.client import (
    LauncherClient,
    LevelNotOffered,
    SandboxNotStarting,
    SandboxRefused,
)
from cellblock_workers.lease import Lease
from cellblock_workers.log import get_logger
from cellblock_workers.worker.evaluation.bill import Bill, OverCap
from cellblock_workers.worker.evaluation.examination import End, Examiner, add_usage
from cellblock_workers.worker.evaluation.judge import BrokeWhileJudging, JudgeFailed, Unusable
from cellblock_workers.worker.evaluation.sandboxes import Cancelled, EvaluationSandboxes
from cellblock_workers.worker.execution import attempt_result, refused_result
from cellblock_workers.worker.outcome import RunOutcome
from cellblock_workers.worker.tenant_messages import without_host_paths

_log = get_logger(__name__)

#: The bounds on what is kept of a trial's output: there may be 100,000 trials.
_EXCERPT = {"output_limit_bytes": 2000, "output_head_bytes": 500, "output_tail_bytes": 1500}
#: A judge may be needed for as long as its trials take, plus this many seconds of work around each.
_AROUND_TRIAL_S = 10.0
#: After this long the attempt gives back the trials that it has not begun: one worker's hour of hanging
#: programs is then many workers' minutes.
_TIME_SLICE_S = 10.0
#: How often a trial that failed through our fault is tried here, before the client tries it elsewhere.
_TRIES = 2
_WORDS = {
    "passed": TrialVerdict.PASSED,
    "failed": TrialVerdict.FAILED,
    "timed_out": TrialVerdict.TIMED_OUT,
    "needs_inline": TrialVerdict.NEEDS_INLINE,
    "not_plain": TrialVerdict.NEEDS_INLINE,
}


class Evaluator:
    """Runs one claimed evaluation. Holds one sandbox for its judge and one at a time for its trials."""

    def __init__(
        self,
        lease: Lease,
        manifest: Manifest,
        evaluation: Evaluation,
        launcher: LauncherClient,
        settings: Settings,
        outgoing: OutgoingFilter,
    ) -> None:
        self._lease = lease
        self._outgoing = outgoing
        self._manifest = manifest
        self._evaluation = evaluation
        self._settings = settings.model_copy(update={"egress": settings.egress.model_copy(update=_EXCERPT)})
        judge_s = (manifest.limits.timeout_s + _AROUND_TRIAL_S) * evaluation.runs * 2
        self._bill = Bill(lease)
        self._sandboxes = EvaluationSandboxes(
            lease=lease,
            manifest=manifest,
            launcher=launcher,
            settings=self._settings,
            bill=self._bill,
            judge_s=judge_s,
        )
        self._unusable: dict[int, JobError] = {}  # by the number of a check
        self._examiner = Examiner(
            sandboxes=self._sandboxes,
            manifest=manifest,
            mode=evaluation.verdict,
            bill=self._bill,
            trial_max_s=settings.sandbox.trial_max_s,
        )

    def run(self) -> JobResult:
        """Runs the trials one after the other, for one time slice. The result leaves out those it did not
        reach.

        Raises :class:`SandboxUnavailable` and :class:`Drained` (give the job back), :class:`LeaseLost`.
        """
        results: list[TrialResult] = []
        passed: set[int] = set()
        run = RunOutcome(Outcome.OK, 0)
        trials = self._evaluation.trials
        try:
            self._sandboxes.wanted = sum(sandboxes(self._evaluation.checks[trial.check]) for trial in trials)
            over = time.monotonic() + _TIME_SLICE_S
            for number, trial in enumerate(trials, start=1):
                if trial.check not in passed:
                    results.append(self._trial(trial))
                    if self._evaluation.stop_early and results[-1].verdict is TrialVerdict.PASSED:
                        passed.add(trial.check)
                self._sandboxes.wanted -= sandboxes(self._evaluation.checks[trial.check])
                if number < len(trials):
                    self._bill.check_cap()
                if time.monotonic() > over:
                    break
        except (LevelNotOffered, SandboxNotStarting) as refusal:
            return refused_result(self._lease.claim, refusal)
        except Cancelled:
            error = JobError(type="Cancelled", message="Cancelled while it ran")
            run = RunOutcome(Outcome.CANCELLED, error=error)
        except OverCap:
            error = self._cost_cap()
            run = RunOutcome(Outcome.COST_CAP, error=error)
        finally:
            self._sandboxes.close()
        rest: list[TrialResult] = []
        if run.outcome is not Outcome.OK:
            begun, self._sandboxes.in_series = {one.id for one in results}, False
            rest = [self._unjudged(trial, "it was not begun") for trial in trials if trial.id not in begun]
        claim = self._lease.claim
        return attempt_result(claim, run, self._sandboxes.sandbox).model_copy(
            update={
                "trials": (*results, *rest),
                "usage": reduce(add_usage, (one.usage for one in results), self._bill.beside),
                "cost_micros": self._bill.cost_micros,
            }
        )

    def _trial(self, trial: Trial) -> TrialResult:
        self._sandboxes.in_series = False
        if trial.check in self._unusable:
            return self._without_run(trial, TrialVerdict.UNUSABLE, self._unusable[trial.check])
        check, why = self._evaluation.checks[trial.check], ""
        failed = {"by itself": 0, "by its answers": 0}
        while max(failed.values()) < _TRIES:
            self._sandboxes.alone = any(failed.values())  # so that no fault of a series is taken for its own
            self._sandboxes.in_series = False
            try:
                end = self._examiner.examine(trial, check)
            except Unusable as unusable:
                self._sandboxes.dismiss()  # it may still be busy with these tests
                self._unusable[trial.check] = JobError(type="UnusableTests", message=str(unusable)[:2000])
                return self._without_run(trial, TrialVerdict.UNUSABLE, self._unusable[trial.check])
            except (LevelNotOffered, SandboxNotStarting):
                raise
            except OverCap:
                if len(self._evaluation.trials) > 1:
                    raise  # the other trials may have used it up: by itself this one is judged
                error = self._cost_cap()
                return self._without_run(trial, TrialVerdict.FAILED, error, Outcome.COST_CAP)
            except (JudgeFailed, SandboxRefused) as failure:
                self._sandboxes.check_lease()
                self._sandboxes.dismiss()
                why = str(failure)
                failed["by its answers" if isinstance(failure, BrokeWhileJudging) else "by itself"] += 1
                _log.warning("trial_begun_again", job_id=self._lease.claim.job_id, reason=why)
                continue
            if end.run.outcome is not Outcome.SANDBOX_ERROR:
                return self._result(trial, end)
            failed["by itself"] += 1
            why = end.run.error.message if end.run.error else "the sandbox failed"
        if failed["by its answers"] == _TRIES:  # every judge broke under the answers of this one program
            error = JobError(type="BrokeJudge", message="its answers end the judge")
            return self._without_run(trial, TrialVerdict.FAILED, error)
        return self._unjudged(trial, why)

    def _unjudged(self, trial: Trial, why: str) -> TrialResult:
        told = without_host_paths(why)
        if told != why:
            _log.error("fault_told_without_paths", job_id=self._lease.claim.job_id, reason=why)
        error = JobError(type="Unjudged", message=told[:2000])
        return self._without_run(trial, TrialVerdict.UNJUDGED, error, Outcome.SANDBOX_ERROR)

    def _cost_cap(self) -> JobError:
        charge = self._lease.claim.manifest.charge
        return JobError(
            type="CostCap", message=charge.reached() if charge is not None else "Cost cap reached"
        )

    def _without_run(
        self, trial: Trial, verdict: TrialVerdict, error: JobError, outcome: Outcome = Outcome.OK
    ) -> TrialResult:
        """The result of a trial whose verdict rests on no run of its own."""
        if verdict is TrialVerdict.UNUSABLE:  # the price of a run; its tests' CPU time is billed apart
            self._bill.add(Usage())
        channel = channel_of(self._evaluation.checks[trial.check], self._evaluation.verdict)
        said = self._filtered(Outgoing(error=error))
        return TrialResult(
            id=trial.id,
            verdict=verdict,
            channel=channel,
            outcome=outcome,
            error=said.error,
            in_series=self._sandboxes.in_series,
        )

    def _filtered(self, said: Outgoing) -> Outgoing:
        """The part of ``said`` that may leave. Raises what :meth:`EvaluationSandboxes.watch` raises."""
        try:
            looked = self._outgoing.look(
                said,
                tenant=self._manifest.tenant,
                lease=self._lease,
                afford_s=self._bill.affordable_cpu_s(),
                output=self._settings.egress,
            )
        except Stopped as stopped:
            self._bill.add_filtering(stopped.cpu_s)
            self._sandboxes.watch(stopped.reason)
            raise
        except Exception as fault:  # fail closed: what could not be filtered stays here
            _log.exception("filter_failed", job_id=self._lease.claim.job_id)
            self._bill.add_filtering(fault.cpu_s if isinstance(fault, FilterFailed) else 0.0)
            what = f"its output could not be filtered ({type(fault).__name__}), so none of it is here"
            return Outgoing(error=JobError(type="Unfiltered", message=what))
        self._bill.add_filtering(looked.cpu_s)
        return looked.said

    def _result(self, trial: Trial, end: End) -> TrialResult:
        word, sandbox = self._word(end), self._sandboxes.sandbox
        if word is TrialVerdict.PASSED:
            said = Outgoing()
        else:
            error = JobError(type=end.judgement.type, message=end.judgement.message)
            if end.judgement.word == "gone":
                error = end.run.error or JobError(
                    type="Exited", message="the program ended before its functions had answered"
                )
            said = self._filtered(replace(end.said, error=error))
        return TrialResult(
            id=trial.id,
            verdict=word,
            channel=channel_of(self._evaluation.checks[trial.check], self._evaluation.verdict),
            outcome=Outcome.OK if word is TrialVerdict.PASSED else end.run.outcome,
            error=said.error,
            stdout=said.stdout.text,
            stderr=said.stderr.text,
            isolation=sandbox.isolation if sandbox else None,
            in_series=self._sandboxes.in_series,
            usage=end.usage,
        )

    def _word(self, end: End) -> TrialVerdict:
        if end.judgement.word != "gone":
            return _WORDS[end.judgement.word]
        if end.run.outcome in {Outcome.WALL_TIMEOUT, Outcome.CPU_TIMEOUT}:
            return TrialVerdict.TIMED_OUT
        return TrialVerdict.FAILED
