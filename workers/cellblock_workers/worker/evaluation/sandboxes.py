"""The sandboxes of one evaluation: one for its judge, and one at a time for its trials."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from cellblock.admission.resolve import Manifest, ResolvedLimits
from cellblock.contract.outcomes import Usage
from cellblock.errors import SandboxUnavailable
from cellblock_config import Settings
from cellblock_config.levels import SERIES_MOST
from cellblock_workers.launcher.client import BorrowedSandbox, LauncherClient, SandboxRefused
from cellblock_workers.launcher.evidence import Evidence
from cellblock_workers.lease import Lease
from cellblock_workers.worker.evaluation.bill import Bill
from cellblock_workers.worker.evaluation.call_session import CallSession
from cellblock_workers.worker.evaluation.judge import Judge
from cellblock_workers.worker.evaluation.stdio_run import StdioRun
from cellblock_workers.worker.evaluation.trial_session import TrialSession
from cellblock_workers.worker.execution import Drained, LeaseLost, usage_of
from cellblock_workers.worker.job_frames import answering_job
from cellblock_workers.worker.session import Session, Stop

#: How many sandboxes to start under one guest, where that is possible. Only a few lengths are used, because
#: the launcher keeps a pool for each.
SERIES = (SERIES_MOST, 16, 8, 4)
#: Each waiting sandbox holds about 1 MB of the memory that a job may have, a sixteenth of the limit at most;
#: where it holds more, the launcher makes fewer.
_MEMORY_FOR_EACH_BYTES = 16 * 1024 * 1024
_JUDGE_SAYS_BYTES = 2**40

Kind = TypeVar("Kind", CallSession, StdioRun)


class Cancelled(Exception):
    """A caller asked for the end of the whole evaluation."""


@dataclass(slots=True)
class EvaluationSandbox:
    """A borrowed series of sandboxes, or a single one."""

    sandbox: BorrowedSandbox
    used: int = 0
    over: bool = False
    #: What a series had used when the kernel was last asked.
    known: Evidence = field(default_factory=Evidence)


@dataclass(frozen=True, slots=True)
class _Judging:
    judge: Judge
    session: CallSession
    sandbox: BorrowedSandbox


class EvaluationSandboxes:
    """Borrows sandboxes and gives them back. Only the judge's is entered more than once.

    ``wanted``: how many more will probably be needed; ``alone``: whether the next ones are single ones.
    """

    def __init__(
        self,
        lease: Lease,
        manifest: Manifest,
        launcher: LauncherClient,
        settings: Settings,
        bill: Bill,
        judge_s: float,
    ) -> None:
        """``judge_s``: how long a judge may live, in seconds; each of its answers has a limit of its own."""
        self._lease = lease
        self._manifest = manifest
        self._launcher = launcher
        self._settings = settings
        self._bill = bill
        self._judge_s = judge_s
        self.wanted = 0
        self.alone = False
        self._judging: _Judging | None = None
        self._series: EvaluationSandbox | None = None
        self._series_most = SERIES_MOST
        self.sandbox: BorrowedSandbox | None = None  #: the one that was entered last
        self.in_series = False  #: whether one of a series was entered since this was last reset

    @property
    def limits(self) -> ResolvedLimits:
        """The limits of each trial."""
        return self._manifest.limits

    def watch(self, stop: Stop | None) -> None:
        """Sees whether the whole attempt has to end.

        Raises :class:`LeaseLost`, :class:`Drained` or :class:`Cancelled` if so.
        """
        if stop == "lost":
            raise LeaseLost(self._lease.claim.job_id)
        if stop == "drain":
            raise Drained(self._lease.claim.job_id)
        if stop == "cancel":
            raise Cancelled

    def check_lease(self) -> None:
        """The same for a moment when no session was there to notice a stop."""
        self.watch(self._lease.stopped)

    def judge(self) -> Judge:
        """The judge at work, or a new one."""
        if self._judging is None:
            sandbox = self._acquire()
            limits = self.limits.model_copy(update={"timeout_s": self._judge_s, "cpu_s": self._judge_s})
            session: CallSession
            meter = self._bill.judging_meter(
                lambda: self._launcher.usage(sandbox), lambda: session.trial.waited_ms
            )
            session = CallSession(
                partial(
                    Session,
                    borrowed=sandbox,
                    launcher=self._launcher.connection(),
                    lease=self._lease,
                    settings=self._settings,
                    meter=meter,
                )
            )
            session.trial.open(answering_job("judge", self._manifest, limits, _JUDGE_SAYS_BYTES), limits)
            self._judging = _Judging(Judge(session), session, sandbox)
        return self._judging.judge

    def dismiss(self) -> None:
        """Gives the judge's sandbox back: it may be half-way through something, or broken."""
        if self._judging is None:
            return
        session, sandbox = self._judging.session, self._judging.sandbox
        self._judging = None
        try:
            used = self._launcher.give_back(sandbox, ended=False)
        except (SandboxUnavailable, SandboxRefused):
            self._give_up(sandbox)
            return
        self._lease.returned(sandbox.id)
        self._bill.add_judging(
            Usage(
                wall_ms=session.trial.waited_ms,
                cpu_ms=used.cpu_ms or 0,
                peak_memory_bytes=used.peak_memory_bytes or 0,
            )
        )

    def close(self) -> None:
        """Gives back everything that is borrowed."""
        self.dismiss()
        if self._series is not None:
            self._give_up(self._series.sandbox)
            self._series = None

    @contextmanager
    def enter(self, job: bytes, kind: type[Kind]) -> Iterator[tuple[EvaluationSandbox, Kind]]:
        """A sandbox that no job was in before, with the job on its way; no other job will enter it."""
        if self.alone and self._series is not None:
            self._give_up(self._series.sandbox)
            self._series = None
        borrowed = (
            self._series if self._series is not None else EvaluationSandbox(self._acquire(self._length()))
        )
        announced, self._series, self.sandbox = borrowed.used > 0, None, borrowed.sandbox
        borrowed.used += 1
        self.in_series |= bool(borrowed.sandbox.series)
        meter = self._bill.meter(lambda: self._used(borrowed))
        session = kind(
            partial(
                Session,
                borrowed=borrowed.sandbox,
                launcher=self._launcher.connection(),
                lease=self._lease,
                settings=self._settings,
                meter=meter,
                announced=announced,
            )
        )
        try:
            session.trial.open(job, self.limits)
            yield borrowed, session
            if borrowed.over:
                borrowed.sandbox.close()
                self._lease.returned(borrowed.sandbox.id)
            else:
                self._series = borrowed
        except BaseException:
            with suppress(SandboxUnavailable, SandboxRefused):  # the latter: it has been billed
                self._bill.add_lost(usage_of(session.trial.transcript(), self._used(borrowed)))
            self._give_up(borrowed.sandbox)
            raise

    def _used(self, borrowed: EvaluationSandbox) -> Evidence:
        """What the kernel knows of the current run; within a series, only what the run has added."""
        used = self._launcher.usage(borrowed.sandbox)
        if not borrowed.sandbox.series:
            return used
        return Evidence(cpu_ms=(used.cpu_ms or 0) - (borrowed.known.cpu_ms or 0))

    def final_usage(self, borrowed: EvaluationSandbox, trial: TrialSession) -> Evidence:
        """What the kernel knows of a run that is over; within a series, only what the run has added."""
        if not borrowed.sandbox.series:
            borrowed.over = True
            return self._launcher.give_back(borrowed.sandbox, ended=trial.cut_off)
        borrowed.over = not trial.enough(self._settings.sandbox.kill_grace_s)
        if trial.cut_off:  # under gVisor a program at the memory limit ends all that wait: risk fewer
            self._series_most = max(SERIES[-1], self._series_most // 2)
        priced = self._lease.claim.manifest.charge is not None
        known, added = borrowed.known, Evidence()
        if priced or trial.killed:  # one that had to be stopped has used most of all
            borrowed.known = self._launcher.usage(borrowed.sandbox)
            oom_kills = (borrowed.known.oom_kills or 0) - (known.oom_kills or 0)
            if trial.cut_off:  # all of them ended, and whose memory it was is not known: it is tried alone
                oom_kills = 0
            cpu_ms = (borrowed.known.cpu_ms or 0) - (known.cpu_ms or 0)
            added = Evidence(oom_kills=oom_kills, cpu_ms=cpu_ms if priced else None)
        if borrowed.over or borrowed.used == borrowed.sandbox.series:
            borrowed.over = True
            self._launcher.give_back(borrowed.sandbox, ended=False)
        return added

    def _length(self) -> int:
        """How long a series to ask for: 0 for a single sandbox."""
        if self.alone:
            return 0
        memory = self.limits.memory_bytes // _MEMORY_FOR_EACH_BYTES
        most = min(2 * self.wanted - 1, memory, self._series_most)
        return next((length for length in SERIES if length <= most), 0)

    def _acquire(self, series: int = 0) -> BorrowedSandbox:
        job, asked = self._lease.claim, self._manifest
        sandbox = self._launcher.acquire(
            job_id=job.job_id,
            fence=job.fence,
            level=asked.level,
            image=asked.image,
            limits=asked.limits,
            lease_s=self._lease.sandbox_s,
            series=series,
            tenant=asked.tenant,
        )
        self._lease.borrowed(sandbox.id)
        self._bill.add_start(sandbox.start_cpu_ms)
        return sandbox

    def _give_up(self, sandbox: BorrowedSandbox) -> None:
        self._launcher.kill(sandbox)
        self._lease.returned(sandbox.id)
