"""The only owner of state changes: its parts, and the transitions of running jobs.

Each transition is one script under scripts/. It runs on the server's clock and is idempotent, by an operation
id or by the state it finds, so a call resent after a lost reply changes nothing. The methods for leaders are
in upkeep.py and retention.py.
ARCHITECTURE.md draws the states.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import cast

from pydantic import ValidationError
from redis import Redis

from cellblock.admission.nesting import Parent, no_parent
from cellblock.admission.resolve import Manifest
from cellblock.archive import Archive
from cellblock.blobs import Blobs
from cellblock.contract.job_status import JobState
from cellblock.contract.outcomes import NEVER_RETRIED, OUR_FAULT
from cellblock.contract.results import JobResult
from cellblock.errors import UnknownJob
from cellblock.ledger.admissions import Admissions
from cellblock.ledger.archiving import Archiving
from cellblock.ledger.claims import Claim, Claims
from cellblock.ledger.connection import get_bytes, store_errors
from cellblock.ledger.ends_without_worker import CANCELLED
from cellblock.ledger.figures import Figures
from cellblock.ledger.freed_blobs import FreedBlobs
from cellblock.ledger.keys import JobOwner, Stay
from cellblock.ledger.pressure import LARGE_BYTES
from cellblock.ledger.reads import Reads, unknown_job
from cellblock.ledger.replies import (
    BeatReply,
    CancelWord,
    FetchedReply,
    FinishReply,
    FinishWord,
    Pulse,
    ReleaseReply,
    ReleaseWord,
    RetryReply,
    RetryWord,
)
from cellblock.ledger.retention import Retention
from cellblock.ledger.store import Store
from cellblock.ledger.stored_results import deposited, stored
from cellblock.ledger.transitions import Transition, Transitions, ms, spread
from cellblock.ledger.upkeep import Upkeep
from cellblock_config import Settings

#: Long results are sent one at a time: while Redis reads a result, it holds it twice.
_LONG_RESULT = threading.Lock()


class Ledger:
    """All changes of jobs, and all questions about them. Thread-safe.

    Every method, also of its parts, raises :class:`StoreUnavailable` when Redis is out of reach.
    """

    def __init__(
        self,
        redis: Redis,
        settings: Settings,
        *,
        embedded: bool = False,
        blobs: Blobs | None = None,
        archive: Archive | None = None,
    ) -> None:
        """``blobs``: the store of long results. ``archive``: the store of jobs that have left Redis."""
        store = self._store = Store.of(redis, settings, embedded=embedded, blobs=blobs, archive=archive)
        self.keys = store.keys
        self._redis, self._scripts = store.redis, store.scripts
        self.archiving = Archiving(store)
        self.reads = Reads(store, self.archiving)
        self.figures = Figures(store, self.archiving)
        self._transitions = Transitions(store, self.reads)
        self.admissions = Admissions(store, self.reads, self._transitions)
        self.claims = Claims(store, self.reads, self._transitions)
        self.upkeep = Upkeep(
            store,
            reads=self.reads,
            figures=self.figures,
            transitions=self._transitions,
            archiving=self.archiving,
        )
        self.retention = Retention(store, self.figures, self.archiving)
        self.freed_blobs = FreedBlobs(store)

    def parent(self, job_id: str, tenant: str | None = None) -> Parent:
        """The parent for a nested run: a running job, of this tenant if one is given.

        Raises :class:`PolicyDenied` where no such job runs.
        """
        with store_errors("reading a parent"):
            pipe = self._redis.pipeline(transaction=False)
            pipe.hgetall(self.keys.job(job_id))
            get_bytes(pipe, self.keys.spec(job_id))
            record, spec = cast(tuple[dict[str, str], bytes | None], tuple(pipe.execute()))
            now_ms = self._store.now_ms()
        if record.get("state") != JobState.RUNNING or tenant not in {None, record["tenant"]}:
            raise no_parent(job_id, tenant)
        try:
            manifest = Manifest.model_validate_json(spec or b"")
        except ValidationError:
            raise no_parent(job_id, tenant) from None
        return Parent(
            job_id,
            manifest,
            ran_s=(now_ms - int(record["started_ms"])) / 1000,
            reserved_micros=int(record.get("reserved", 0)) - int(record.get("charged", 0)),
            # It can go on spending until its worker hears of the loan.
            unheard_s=2 * self._store.settings.beat_s,
        )

    def beat(
        self, worker: str, held: Sequence[tuple[str, int]], status: Mapping[str, object]
    ) -> dict[tuple[str, int], Pulse]:
        """Renews every lease this worker still owns, and stores its status. Returns a pulse per attempt."""
        beat = self._scripts.call(
            BeatReply,
            {
                "worker": self.keys.worker(worker),
                "leases": self.keys.leases,
                "workers": self.keys.workers,
                "jobs": [self.keys.job(job_id) for job_id, _ in held],
            },
            {
                "worker": worker,
                "lease_ms": ms(self._store.settings.lease_s),
                "worker_ttl_ms": ms(3 * self._store.settings.beat_s),
                "status": json.dumps(status),
                "attempts": [str(part) for pair in held for part in pair],
            },
        )
        return dict(zip(held, beat.pulses, strict=True))

    def retire(self, worker: str) -> None:
        """Removes a worker that ends from the live ones."""
        with store_errors("signing a worker off"):
            pipe = self._redis.pipeline(transaction=False)  # a full store would refuse a transaction
            pipe.delete(self.keys.worker(worker))
            pipe.zrem(self.keys.workers, worker)
            pipe.execute()

    def finish(
        self,
        claim: Claim,
        result: JobResult,
        operation: str,
        *,
        long_bytes: int | None = None,
        may_retry: bool = True,
    ) -> Transition[FinishWord]:
        """``finished``: the job has ended with this result. ``retried``: it failed and will run again.

        ``stale``: the attempt does not own the job any more, and nothing was written. ``no room``: the result
        is too long for the store now, and nothing was written.

        ``long_bytes``: longer results go to the blob store; None: every result stays in Redis. Raises
        :class:`BlobsUnavailable`, and :class:`ResultTooLong` for one that is longer than all that its tenant
        may have. ``may_retry``: whether it may run again where its own retries allow it.
        """
        data, blob, blob_bytes = stored(result), "", 0
        tenant, crowded_tenants = claim.manifest.tenant, self.retention.crowded_tenants
        blobs = self._store.blobs if long_bytes is not None and len(data) > long_bytes else None
        if len(data) > LARGE_BYTES:
            crowded_tenants.check_length(tenant, len(data), as_blob=blobs is not None)
        if blobs is not None:
            blob_bytes = len(data)
            data, blob = deposited(data, blobs, f"{claim.job_id} {claim.fence}")
        end = partial(
            self._finish,
            claim=claim,
            result=result,
            operation=operation,
            data=data,
            blob=blob,
            blob_bytes=blob_bytes,
            may_retry=may_retry,
        )
        if len(data) <= LARGE_BYTES:
            return end()
        with _LONG_RESULT:
            if not crowded_tenants.has_room(tenant, claim.job_id, len(data)):
                return Transition(claim.job_id, FinishWord.NO_ROOM)  # without sending it
            return end()

    def _finish(
        self,
        *,
        claim: Claim,
        result: JobResult,
        operation: str,
        data: bytes,
        blob: str,
        blob_bytes: int,
        may_retry: bool,
    ) -> Transition[FinishWord]:
        ours = result.outcome in OUR_FAULT
        retries = self._store.settings.fault_retries if ours else claim.manifest.retries
        if result.outcome in NEVER_RETRIED or not may_retry:
            retries = 0
        return self._transitions.move(
            FinishReply,
            claim.job_id,
            claim.owner,
            {
                "fence": claim.fence,
                "op": operation,
                "state": JobState.after(result.outcome),
                "outcome": result.outcome,
                "result": data,
                "blob": blob,
                "blob_bytes": blob_bytes,
                "charge": result.cost_micros or 0,
                "counter": "faults" if ours else "failures",
                "retries": retries,
                "backoff_ms": ms(self._store.settings.retry_backoff_s),
                "backoff_max_ms": ms(self._store.settings.retry_backoff_max_s),
                "spread_percent": spread(),
                "cancelled_result": self._cancelled_result(claim.job_id) if ours else b"",
            },
            plan_ttl_s=claim.plan_ttl_s,
            message=_message(claim, result),
        )

    def _cancelled_result(self, job_id: str) -> bytes:
        try:
            return CANCELLED.result(job_id, self.reads.record(job_id))
        except UnknownJob:  # the script will not find the job either, and returns stale
            return b""

    def note_fetched(self, job_id: str) -> None:
        """Notes that a caller has got this job's result: it may leave a full store before others."""
        self._scripts.call(FetchedReply, {"job": self.keys.job(job_id)}, {"job_id": job_id})

    def release(self, claim: Claim, operation: str, *, ran: bool = True) -> Transition[ReleaseWord]:
        """Gives the job back without counting a loss: ``released``, ``cancelled`` if asked for, ``stale``.

        ``ran``: whether its code had begun. If not, it keeps its deadline: it cannot be given back for ever.
        """
        return self._transitions.move(
            ReleaseReply,
            claim.job_id,
            claim.owner,
            {
                "fence": claim.fence,
                "op": operation,
                "ran": ran,
                "cancelled_result": self._cancelled_result(claim.job_id),
            },
            plan_ttl_s=claim.plan_ttl_s,
        )

    def cancel(self, job_id: str) -> Transition[CancelWord]:
        """``cancelled``: the job waited, and has ended now. ``requested``: its worker will stop it.

        ``terminal``: it had ended before. Idempotent. Raises :class:`UnknownJob`.
        """
        done = self._transitions.cancel(job_id, CANCELLED)
        if done.word is CancelWord.UNKNOWN:
            raise unknown_job(job_id)
        return done

    def retry_dead(self, job_id: str, operation: str) -> Transition[RetryWord]:
        """Lets a dead letter run again: ``retried``; ``alive``: not a dead letter; ``gone``: no payload.

        It costs its tenant nothing more: the fault was ours.
        Raises :class:`UnknownJob`.
        """
        owner = JobOwner.of_record(self.reads.record(job_id))
        settings = self._store.settings
        retried = self._scripts.call(
            RetryReply,
            self.keys.of_job(job_id, owner, Stay.under(settings, 0)),
            {
                "job_id": job_id,
                "op": operation,
                "lane": owner.lane,
                "slots": settings.tenant_slots,
                "job_ttl_s": settings.job_ttl_s,
            },
        )
        return Transition(job_id, retried.word, retried.wake)


def _message(claim: Claim, result: JobResult) -> str:
    """The error that the event of a job's end shows to every reader of events: "" for a confidential job."""
    confidential = claim.manifest.seal_to is not None
    return "" if result.error is None or confidential else result.error.summary()
