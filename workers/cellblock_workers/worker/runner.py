"""From a delivered job id to a stored result: the one path, whether Celery or an embedded run drives it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, repeat

from cellblock.admission.claim_check import fetched
from cellblock.admission.sealing import open_manifest, seal_result
from cellblock.admission.signing import Verifier
from cellblock.blobs import Blobs
from cellblock.contract.results import JobResult
from cellblock.errors import (
    BlobLost,
    BlobsUnavailable,
    CannotOpen,
    NotConfigured,
    SandboxUnavailable,
    StoreUnavailable,
)
from cellblock.ledger import Claim, Dropped, Ledger, Transition
from cellblock.ledger.crowded_tenants import ResultTooLong
from cellblock.ledger.replies import FinishWord, W
from cellblock_config import Settings
from cellblock_workers.filtering.outgoing_filter import OutgoingFilter
from cellblock_workers.launcher.client import LauncherClient, LevelUnavailable
from cellblock_workers.lease import Heart, Lease
from cellblock_workers.log import get_logger
from cellblock_workers.worker.claiming import Claiming
from cellblock_workers.worker.evaluation.attempt import Evaluator
from cellblock_workers.worker.execution import Drained, LeaseLost, execute, fault_result, rejected_result
from cellblock_workers.worker.shortened_results import (
    BEYOND_LIMITS,
    NO_PLACE_TO_WAIT,
    NO_ROOM,
    Cut,
    shortened,
)
from cellblock_workers.worker.waiting_results import WaitingResults

_log = get_logger(__name__)

_LEVEL_HOLD_S = 5.0
#: Pauses between tries to tell the ledger how an attempt ended, in seconds; the last one repeats. And how
#: long to go on after the lease: until then the first tick after an outage may still keep the attempt in
#: force.
_SAY_AGAIN_S = (0.1, 0.3, 1.0, 2.0)
_SAY_BEYOND_S = 5.0
#: How long every long result waits for room in the store, in seconds: a round of upkeep, in which older ones
#: of its tenant leave. How long it waits after that if it has a place, and how often it is offered.
_ROUND_S = 2.0
_ROOM_S = 30.0
_ROOM_AGAIN_S = 0.2


class JobRunner:
    """Claims, runs and finishes jobs. Thread-safe: each calling thread has its own launcher connection."""

    def __init__(
        self,
        ledger: Ledger,
        launcher: LauncherClient,
        heart: Heart,
        settings: Settings,
        *,
        worker: str,
        on_wake: Callable[[Sequence[str]], object],
        on_unavailable: Callable[[str], None],
        blobs: Blobs | None = None,
        outgoing: OutgoingFilter | None = None,
    ) -> None:
        """``outgoing``: a filter that was started already."""
        self._ledger = ledger
        self._launcher = launcher
        self._heart = heart
        self._settings = settings
        self._verifier = Verifier(settings.signing)
        self._on_wake = on_wake
        self._on_unavailable = on_unavailable
        self._outgoing = outgoing or OutgoingFilter(settings.egress)
        self._blobs = blobs
        self._claiming = Claiming(ledger.claims, worker)
        self._waiting_results = WaitingResults(settings.worker.concurrency)

    def start(self) -> None:
        """Gets ready for the first job. Returns at once, and no job depends on it."""
        self._outgoing.start()

    def close(self) -> None:
        """Ends the filter's processes. Called when no job runs any more."""
        self._outgoing.close()

    def run(self, message: str) -> str | None:
        """Runs the next job, for one message. Returns its id; None if there was no job to claim.

        Never raises for anything a job does.
        """
        asked, claim = self._claiming.claim(message)
        if isinstance(claim, Dropped):
            _log.info("delivery_dropped", job_id=message, why=claim.why)
            return None
        with self._heart.hold(claim, asked) as lease:
            self._attempt(claim, lease)
        return claim.job_id

    def _attempt(self, claim: Claim, lease: Lease) -> None:
        log = _log.bind(job_id=claim.job_id, fence=claim.fence, trace_id=claim.manifest.trace_id)
        try:
            result = self._refusal(claim) or self._run(claim, lease)
        except LeaseLost:
            # Lost by our own clock, while the store was away: if no one has reaped the job yet, nothing was
            # lost.
            log.warning("lease_lost")
            self._release(claim, lease)
            return
        except Drained:
            log.info("job_given_back", reason="this worker ends")
            self._release(claim, lease)
            return
        except (LevelUnavailable, NotConfigured, BlobsUnavailable) as error:
            # Other jobs go on here. The job is held for a moment, or this worker would claim it again at
            # once.
            log.warning("job_given_back", reason=str(error))
            lease.wait(_LEVEL_HOLD_S)
            self._release(claim, lease)
            return
        except SandboxUnavailable as error:
            log.warning("job_given_back", reason=str(error))
            self._on_unavailable(str(error))
            self._release(claim, lease)
            return
        except Exception as error:  # our defect: the job still ends, and says whose fault it was
            log.exception("attempt_crashed")
            result = fault_result(claim, f"internal error: {type(error).__name__}")
        done = self._finish(claim, result)
        if done.word is FinishWord.STALE:
            log.warning("finish_refused", outcome=result.outcome)
            return
        log.info(
            "job_finished" if done.word is FinishWord.FINISHED else "job_will_be_retried",
            outcome=result.outcome,
            isolation=result.isolation,
            wall_ms=result.usage.wall_ms,
        )
        self._on_wake(done.wake)

    def _run(self, claim: Claim, lease: Lease) -> JobResult:
        try:
            whole = fetched(claim.manifest, self._blobs)
            manifest = open_manifest(claim.job_id, whole, self._settings.sealing)
        except (CannotOpen, BlobLost) as error:  # a dead letter keeps its payload: keys may be changing
            return fault_result(claim, str(error))
        if manifest.evaluation is not None:
            return Evaluator(
                lease=lease,
                manifest=manifest,
                evaluation=manifest.evaluation,
                launcher=self._launcher,
                settings=self._settings,
                outgoing=self._outgoing,
            ).run()
        result = execute(
            lease=lease,
            manifest=manifest,
            launcher=self._launcher,
            settings=self._settings,
            outgoing=self._outgoing,
        )
        try:
            return result if manifest.seal_to is None else seal_result(result, manifest.seal_to)
        except NotConfigured as error:  # the job has run: given back, it would run again and again
            return fault_result(claim, str(error))

    def _refusal(self, claim: Claim) -> JobResult | None:
        """The result of a job whose signature is refused: no unsigned code must come near a sandbox. Else
        None."""
        refusal = self._verifier.refusal(claim.job_id, claim.manifest)
        return rejected_result(claim, refusal.kind, refusal.why) if refusal else None

    def _release(self, claim: Claim, lease: Lease) -> None:
        operation = secrets.token_hex(8)
        try:
            done = self._patiently(
                lambda: self._ledger.release(claim, operation, ran=lease.ran), claim.job_id
            )
        except StoreUnavailable as error:
            # The lease runs out and the reaper requeues; that costs one loss.
            _log.warning("release_failed", job_id=claim.job_id, error=str(error))
            return
        self._on_wake(done.wake)

    def _finish(self, claim: Claim, result: JobResult) -> Transition[FinishWord]:
        """Tells the ledger. A result that cannot be taken whole goes without its long parts."""
        say_end = partial(self._say_end, claim, operation=secrets.token_hex(8))
        offer = partial(self._patiently, partial(say_end, result, may_retry=True), claim.job_id)
        try:
            done, cut = self._wait_for_room(claim, offer)
        except ResultTooLong as error:
            done, cut = None, BEYOND_LIMITS[error.limit]
        if done is not None and done.word is not FinishWord.NO_ROOM:
            return done
        _log.error("result_cut_short", job_id=claim.job_id, reason=cut.why)
        short = shortened(result, cut)
        may_retry = short.outcome is result.outcome
        return self._patiently(partial(say_end, short, may_retry=may_retry), claim.job_id)

    def _wait_for_room(
        self, claim: Claim, offer: Callable[[], Transition[FinishWord]]
    ) -> tuple[Transition[FinishWord], Cut]:
        """Offers a result until the store has room for it, or its time is over: longer if it gets a place to
        wait, for a worker whose threads all wait runs nothing. Returns the answer, and why it is cut if that
        is still "no room"."""
        done = _until_taken(offer, _ROUND_S)
        if done.word is not FinishWord.NO_ROOM:
            return done, NO_ROOM
        with self._waiting_results.place(claim.manifest.tenant) as may_wait:
            if not may_wait:
                return done, NO_PLACE_TO_WAIT
            _log.warning("result_waits_for_room", job_id=claim.job_id)
            return _until_taken(offer, _ROOM_S), NO_ROOM

    def _say_end(
        self, claim: Claim, result: JobResult, *, operation: str, may_retry: bool
    ) -> Transition[FinishWord]:
        """Sends a long result to the blob store, if its readers have one; if that fails it stays in Redis."""
        if claim.manifest.long_results:
            try:
                least_bytes = self._settings.blobs.least_bytes
                return self._ledger.finish(
                    claim, result, operation, long_bytes=least_bytes, may_retry=may_retry
                )
            except BlobsUnavailable as error:
                _log.warning("result_kept_in_redis", job_id=claim.job_id, reason=str(error))
        return self._ledger.finish(claim, result, operation, may_retry=may_retry)

    def _patiently(self, say: Callable[[], Transition[W]], job_id: str) -> Transition[W]:
        ends = time.monotonic() + self._settings.ledger.lease_s + _SAY_BEYOND_S
        for pause_s in chain(_SAY_AGAIN_S, repeat(_SAY_AGAIN_S[-1])):
            try:
                return say()
            except StoreUnavailable as error:
                if time.monotonic() > ends:
                    raise
                _log.warning("store_asked_again", job_id=job_id, error=str(error))
            time.sleep(pause_s)
        raise AssertionError("the pauses never end")


def _until_taken(offer: Callable[[], Transition[FinishWord]], wait_s: float) -> Transition[FinishWord]:
    """The answer to an end that is offered again while the store has no room for it, for this long."""
    over = time.monotonic() + wait_s
    while (done := offer()).word is FinishWord.NO_ROOM and time.monotonic() < over:
        time.sleep(_ROOM_AGAIN_S)
    return done
