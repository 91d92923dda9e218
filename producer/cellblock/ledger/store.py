"""The only owner of state changes: a typed face over the Lua transitions.

Each transition is one script under scripts/, run on the server's clock and idempotent, by an operation id or
by the state it finds, so a call resent after a lost reply changes nothing. What reapers call is in upkeep.py.
ARCHITECTURE.md draws the states.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

from pydantic import ValidationError

from cellblock.admission import Manifest
from cellblock.claim_check import names_of
from cellblock.errors import CellblockError, RateLimited, UnknownJob
from cellblock.gates import NO_GATES, Gates
from cellblock.idempotency import IdempotencyKey
from cellblock.ledger import closing
from cellblock.ledger.closing import closing_result
from cellblock.ledger.connection import connect, store_errors
from cellblock.ledger.keys import Owner, Stay
from cellblock.ledger.pressure import LARGE_BYTES, no_room, too_many_bytes
from cellblock.ledger.reads import conflict
from cellblock.ledger.results import deposited, stored
from cellblock.ledger.retention import Retention
from cellblock.ledger.server import check_schema
from cellblock.ledger.transitions import Transition, ms, plan_ttl_s, spread
from cellblock.models import JobError, JobResult, JobState, Outcome
from cellblock.nesting import Parent, no_parent, too_poor

__all__ = [
    "Admission",
    "Claim",
    "Dropped",
    "Held",
    "Ledger",
    "Pulse",
    "Transition",
    "connect",
]

Held = Literal["held", "cancel", "lost"]


class Pulse(NamedTuple):
    """What a beat learned of one attempt. ``lent_micros``: what its nested runs have of its money now."""

    word: Held
    lent_micros: int = 0


#: Long results go one at a time: while Redis reads one, it is there twice.
_LONG_RESULT = threading.Lock()
#: How often a claim picks again when others are faster.
_RACES_MAX = 100


@dataclass(frozen=True, slots=True)
class Admission:
    """An accepted job; ``fresh`` is false when it had been accepted before under the same key.

    ``wake``: jobs of its tenant that can be claimed now, to be published; none while others run for it.
    """

    job_id: str
    fresh: bool
    wake: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Claim:
    """One worker's right to run one attempt. ``fence`` is the attempt's number."""

    job_id: str
    fence: int
    worker: str
    manifest: Manifest
    admitted: float
    started: float
    charged_micros: int = 0  #: what earlier attempts used
    lent_micros: int = 0  #: what nested runs have of its money
    plan_ttl_s: int = 0  #: how long its plan keeps its result; 0 without a plan

    @property
    def owner(self) -> Owner:
        """Whose job it is."""
        return Owner(self.manifest.tenant, self.manifest.parent or "")


@dataclass(frozen=True, slots=True)
class Dropped:
    """A delivery with nothing to do: the message is acknowledged and forgotten.

    ``why``: what its job is: unknown, running, terminal, delayed, parked, late; or contended.
    """

    why: str


class Ledger(Retention):
    """All transitions of jobs, and what can be asked of them. Thread-safe.

    Every method raises :class:`StoreUnavailable` when Redis is out of reach.
    """

    _schema_checked = False

    def admit(
        self,
        job_id: str,
        manifest: Manifest,
        idempotency: IdempotencyKey | None = None,
        gates: Gates | None = None,
        *,
        keyed: bool = False,
    ) -> Admission:
        """Store the job and make it wait. Calling again with the same id or key changes nothing.

        ``gates``: what the tenant's plan allows, taken all together or not at all; without them the tenant is
        on none from now on, unless the job comes from the holder of an API key (``keyed``). Raises
        :class:`InvalidJob` when the key was used for a different job, :class:`RateLimited` when too many
        jobs wait or come or hold too many bytes, :class:`BudgetExceeded`, :class:`StoreFull`,
        :class:`SchemaMismatch` on a store of another version.
        """
        if not self._schema_checked:  # once: a store that is new becomes this version's with its first job
            check_schema(self._redis, self.keys)
            self._schema_checked = True
        reply, value, *more = self._admit(job_id, manifest, idempotency, gates, keyed=keyed)
        if reply in {"known", "conflict"} and value != job_id and not self._exists(value):
            reply, value, *more = self._admit(
                job_id, manifest, idempotency, gates, keyed=keyed, forgotten=value
            )
        if reply == "conflict" and idempotency is not None:
            raise conflict(idempotency, value)
        if reply not in {"admitted", "known"}:
            raise self._refusal(manifest, gates, reply, value, *more)
        if value != job_id:
            return Admission(value, fresh=False)
        # A resent admission finds its own first sending: that job is as fresh as can be.
        return Admission(value, fresh=True, wake=tuple(more) if reply == "admitted" else (value,))

    def _refusal(
        self, manifest: Manifest, gates: Gates | None, reply: str, value: str, *more: str
    ) -> CellblockError:
        """Why the script admitted nothing."""
        if reply == "orphan":
            return no_parent(manifest.parent or "", manifest.tenant)
        if reply == "poor":
            return too_poor(int(value))
        if reply == "no room":
            return no_room(int(value), int(more[0]))
        if reply == "refused" and value == "bytes_held":
            return too_many_bytes(manifest.tenant, *map(int, more))
        if reply == "refused" and gates is not None:
            return gates.refusal(manifest.tenant, value, *map(int, more))
        return RateLimited(
            f"{value} jobs are waiting and the queue holds {self._settings.queue_depth} "
            "(CELLBLOCK_LEDGER_QUEUE_DEPTH); try again later",
            retry_after_s=1.0,
        )

    def _admit(
        self,
        job_id: str,
        manifest: Manifest,
        idempotency: IdempotencyKey | None,
        gates: Gates | None,
        *,
        keyed: bool,
        forgotten: str = "",
    ) -> list[str]:
        idempotency_key = self.keys.idempotency(manifest.tenant, idempotency.name if idempotency else "")
        owner = Owner(manifest.tenant, manifest.parent or "")
        return self._scripts.run(
            "admit",
            [*self.keys.of_job(job_id, owner), idempotency_key, self.keys.rate(manifest.tenant)],
            [
                job_id,
                idempotency.digest if idempotency else "",
                manifest.model_dump_json(),
                manifest.tenant,
                manifest.level,
                manifest.priority,
                manifest.trace_id,
                f"{manifest.submitted:.6f}",
                self._settings.queue_depth,
                self._settings.job_ttl_s,
                ms(manifest.expires_s),
                1 if idempotency else 0,
                idempotency.name if idempotency else "",
                forgotten,
                owner.parent,
                owner.lane,
                self._settings.tenant_slots,
                " ".join(names_of(manifest)),
                self._settings.tenant_percent,
                self._settings.memory_bytes,
                int(self._measures),
                *(gates.arguments() if gates is not None else NO_GATES),
                int(keyed),
            ],
        )

    def parent(self, job_id: str, tenant: str | None = None) -> Parent:
        """A running job, of this tenant if one is given, for a run nested in it.

        Raises :class:`PolicyDenied`.
        """
        with store_errors("reading a parent"):
            pipe = self._redis.pipeline(transaction=False)
            pipe.hgetall(self.keys.job(job_id))
            pipe.get(self.keys.spec(job_id))
            record, stored = cast(tuple[dict[str, str], str | None], tuple(pipe.execute()))
            now_ms = self._now_ms()
        if record.get("state") != JobState.RUNNING or tenant not in {None, record["tenant"]}:
            raise no_parent(job_id, tenant)
        try:
            manifest = Manifest.model_validate_json(stored or "")
        except ValidationError:
            raise no_parent(job_id, tenant) from None
        return Parent(
            job_id,
            manifest,
            ran_s=(now_ms - int(record["started_ms"])) / 1000,
            held_micros=int(record.get("reserved", 0)) - int(record.get("charged", 0)),
            # Until its worker hears what it lent, it may go on spending.
            unheard_s=2 * self._settings.beat_s,
        )

    def claim(self, message: str, worker: str, operation: str) -> Claim | Dropped:
        """Become the one running attempt of the job that is next, with a fresh fence and lease.

        ``message``: the job whose message was delivered. It says that something waits; what runs is the first
        job of the tenant whose turn it is.
        """
        lost = 0
        while lost < _RACES_MAX:
            picked, *found = self._scripts.run(
                "pick", [self.keys.turns, self.keys.heads, self.keys.shares], []
            )
            if picked == "none":
                return Dropped(self._why_not(message))
            lane, job_id = found
            claimed = self._claim(job_id, Owner.of_lane(lane), worker, operation)
            if not isinstance(claimed, str):
                return claimed
            lost += claimed == "again"
        return Dropped("contended")  # each time another claim has succeeded; the sweep is the second net

    def _claim(
        self, job_id: str, owner: Owner, worker: str, operation: str
    ) -> Claim | Literal["again", "passed"]:
        """``again``: somebody else was faster. ``passed``: it cannot run, and is not picked again."""
        settings = self._settings
        args = [
            job_id,
            worker,
            operation,
            ms(settings.lease_s),
            settings.job_ttl_s,
            owner.lane,
            settings.tenant_slots,
        ]
        (word, *values), stored = self._scripts.run_and_get(
            "claim", self.keys.of_job(job_id, owner), args, self.keys.spec(job_id)
        )
        if word == "orphan":
            self._cancel(job_id, closing.ORPHANED)
            word = "passed"
        if word in {"again", "passed"}:
            return cast(Literal["again", "passed"], word)
        fence, admitted_ms, started_ms, charged, lent, ttl_s = values
        try:
            manifest = Manifest.model_validate_json(stored or "")
        except ValidationError:
            self._reject_unreadable(job_id, owner, fence, operation)
            return "passed"
        return Claim(
            job_id,
            int(fence),
            worker,
            manifest,
            int(admitted_ms) / 1000,
            int(started_ms) / 1000,
            charged_micros=int(charged),
            lent_micros=int(lent),
            plan_ttl_s=int(ttl_s),
        )

    def _why_not(self, job_id: str) -> str:
        """Why a message's job is not there to claim, when no other is either."""
        try:
            state = self.status(job_id).state
        except UnknownJob:
            return "unknown"
        if state.terminal:
            return "terminal"
        if state is not JobState.QUEUED:
            return state.value
        return "late" if self.due_in_s(job_id) is None else "delayed"

    def _reject_unreadable(self, job_id: str, owner: Owner, fence: str, operation: str) -> None:
        """End a job whose stored manifest is none. Nobody could run it: trying again changes nothing."""
        record = self._record(job_id)
        result = closing_result(job_id, record, Outcome.REJECTED, closing.UNREADABLE)
        ending = [JobState.REJECTED, Outcome.REJECTED, result, "", 0, "failures", 0, 0, 0, 100, ""]
        ttl_s = plan_ttl_s(record)
        self._transition("finish", job_id, owner, [fence, operation, *ending], plan_ttl_s=ttl_s)

    def beat(
        self, worker: str, held: Sequence[tuple[str, int]], status: Mapping[str, object]
    ) -> dict[tuple[str, int], Pulse]:
        """Renew every lease this worker still owns, and say that the worker lives."""
        flat = [part for pair in held for part in pair]
        words = self._scripts.run(
            "beat",
            [
                self.keys.worker(worker),
                self.keys.leases,
                self.keys.workers,
                *(self.keys.job(job_id) for job_id, _ in held),
            ],
            [worker, ms(self._settings.lease_s), ms(3 * self._settings.beat_s), json.dumps(status), *flat],
        )
        pulses = (Pulse(cast(Held, word), int(lent)) for word, lent in map(str.split, words))
        return dict(zip(held, pulses, strict=True))

    def retire(self, worker: str) -> None:
        """This worker has ended: it is not among the live ones from now on."""
        with store_errors("signing a worker off"):
            pipe = self._redis.pipeline(transaction=False)  # which a full store would refuse
            pipe.delete(self.keys.worker(worker))
            pipe.zrem(self.keys.workers, worker)
            pipe.execute()

    def finish(
        self, claim: Claim, result: JobResult, operation: str, *, long_bytes: int | None = None
    ) -> Transition:
        """``finished``: the job has ended with this result. ``retried``: it failed and will run again.

        ``stale``: the attempt owns nothing any more, and nothing was written. ``no room``: nor was it for a
        result so long that the store has no room for it now.

        ``long_bytes``: a longer result goes to the blob store; None: none does. Raises
        :class:`BlobsUnavailable`.
        """
        text, blob = stored(result), ""
        if self._blobs is not None and long_bytes is not None and len(text) > long_bytes:
            text, blob = deposited(text, self._blobs)
        if len(text) <= LARGE_BYTES:
            return self._finish(claim, result, operation, text, blob)
        with _LONG_RESULT:
            if not self.has_room(claim.manifest.tenant, len(text)):
                return Transition(claim.job_id, "no room")  # without sending it
            return self._finish(claim, result, operation, text, blob)

    def _finish(self, claim: Claim, result: JobResult, operation: str, text: str, blob: str) -> Transition:
        ours = result.outcome is Outcome.SANDBOX_ERROR
        retries = self._settings.fault_retries if ours else claim.manifest.retries
        if result.outcome in {Outcome.OK, Outcome.CANCELLED, Outcome.REJECTED, Outcome.COST_CAP}:
            retries = 0
        return self._transition(
            "finish",
            claim.job_id,
            claim.owner,
            [
                claim.fence,
                operation,
                JobState.after(result.outcome),
                result.outcome,
                text,
                blob,
                result.cost_micros or 0,
                "faults" if ours else "failures",
                retries,
                ms(self._settings.retry_backoff_s),
                ms(self._settings.retry_backoff_max_s),
                spread(),
                self._cancelled_result(claim.job_id) if ours else "",
            ],
            plan_ttl_s=claim.plan_ttl_s,
        )

    def _cancelled_result(self, job_id: str) -> str:
        try:
            return closing_result(job_id, self._record(job_id), Outcome.CANCELLED, closing.CANCELLED)
        except UnknownJob:  # the script finds no job either, and says so
            return ""

    def release(self, claim: Claim, operation: str, *, ran: bool = True) -> Transition:
        """Give the job back uncounted: ``released``, ``cancelled`` if that had been asked, or ``stale``.

        ``ran``: whether its code had begun; one that never starts anywhere still meets its deadline.
        """
        args = [claim.fence, operation, int(ran), self._cancelled_result(claim.job_id)]
        return self._transition("release", claim.job_id, claim.owner, args, plan_ttl_s=claim.plan_ttl_s)

    def cancel(self, job_id: str) -> Transition:
        """``cancelled``: a waiting job has ended now. ``requested``: its worker will stop a running one.

        ``terminal``: it had ended. Idempotent. Raises :class:`UnknownJob`.
        """
        done = self._cancel(job_id, closing.CANCELLED)
        if done.word == "unknown":
            raise UnknownJob(f"no job {job_id}: never accepted here, or its result has expired")
        return done

    def _cancel(self, job_id: str, why: JobError) -> Transition:
        record = self._record(job_id)
        result = closing_result(job_id, record, Outcome.CANCELLED, why)
        owner, args = Owner.of_record(record), [result, self.keys.control]
        return self._transition("cancel", job_id, owner, args, plan_ttl_s=plan_ttl_s(record))

    def retry_dead(self, job_id: str, operation: str) -> Transition:
        """Let a dead letter run again: ``retried``, ``alive`` if it is none, ``gone`` if its payload is.

        It costs its tenant nothing more: the fault was ours.
        Raises :class:`UnknownJob`.
        """
        owner = Owner.of_record(self._record(job_id))
        settings = self._settings
        args = [
            job_id,
            operation,
            owner.lane,
            settings.tenant_slots,
            settings.job_ttl_s,
        ]
        stay = Stay.under(settings, 0)
        word, *wake = self._scripts.run("retry", self.keys.of_job(job_id, owner, stay), args)
        return Transition(job_id, word, tuple(wake))
