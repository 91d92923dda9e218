"""Hands the next jobs to workers: several jobs in two or three round trips."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from pydantic import ValidationError

from cellblock.admission.resolve import Manifest
from cellblock.contract.job_status import JobState
from cellblock.contract.outcomes import Outcome
from cellblock.errors import StoreUnavailable, UnknownJob
from cellblock.ledger.connection import store_errors
from cellblock.ledger.ends_without_worker import ORPHANED, UNREADABLE
from cellblock.ledger.keys import JobOwner
from cellblock.ledger.reads import Reads
from cellblock.ledger.replies import ClaimReply, ClaimWord, FinishReply, PickReply, PickWord
from cellblock.ledger.script_calls import BrokenReply, ScriptCall
from cellblock.ledger.store import Store
from cellblock.ledger.transitions import Transitions, ms, plan_ttl_s

_log = logging.getLogger(__name__)

#: The most picked jobs that one call loses to faster claims before it gives up.
_RACES_MAX = 100


@dataclass(frozen=True, slots=True)
class Claim:
    """One worker's right to run one attempt. ``fence`` is the attempt's number."""

    job_id: str
    fence: int
    worker: str
    manifest: Manifest
    admitted: float
    started: float
    charged_micros: int = 0  #: used by earlier attempts
    lent_micros: int = 0  #: held by its nested runs
    plan_ttl_s: int = 0  #: how long its plan keeps its result; 0 without a plan

    @property
    def owner(self) -> JobOwner:
        """The owner of the job."""
        return JobOwner(self.manifest.tenant, self.manifest.parent or "")


@dataclass(frozen=True, slots=True)
class Dropped:
    """A delivered message with nothing to do: the worker acknowledges it and drops it.

    ``why``: the state of its job (unknown, running, terminal, delayed, parked, late), or contended.
    """

    why: str


@dataclass(frozen=True, slots=True)
class Picked:
    """A job that could be claimed a moment ago."""

    job_id: str
    owner: JobOwner


#: Another worker was faster, or the job cannot run and is not picked again.
_NotClaimed = Literal[ClaimWord.AGAIN, ClaimWord.PASSED] | StoreUnavailable


class Claims:
    """Hands jobs to workers. Raises :class:`StoreUnavailable`. Thread-safe."""

    def __init__(self, store: Store, reads: Reads, transitions: Transitions) -> None:
        self._store = store
        self._redis, self._keys, self._scripts = store.redis, store.keys, store.scripts
        self._reads = reads
        self._transitions = transitions

    def claim_next(self, *, message: str, worker: str, operation: str) -> Claim | Dropped:
        """Claims the next job: its one running attempt, with a fresh fence and lease.

        ``message``: the job whose message was delivered. A message only says that some job waits; the claim
        takes the first job of the tenant whose turn it is.
        """
        (claimed,) = self.claim_next_many(messages=[message], worker=worker, operation=operation)
        return claimed

    def claim_next_many(
        self, *, messages: Sequence[str], worker: str, operation: str
    ) -> list[Claim | Dropped]:
        """Claims one job per delivered message, as :meth:`claim_next` does one after the other.

        Where the tenant whose turn it is has fewer jobs or slots than turns, the next tenant's turns come
        earlier. Raises :class:`StoreUnavailable` where not a single job was claimed.
        """
        claims: list[Claim] = []
        races_lost, refused = 0, False
        while len(claims) < len(messages) and races_lost < _RACES_MAX and not refused:
            try:
                picked = self._pick(len(messages) - len(claims))
                if not picked:
                    return [
                        *claims,
                        *(Dropped(self._why_not(message)) for message in messages[len(claims) :]),
                    ]
                answers = self._claim_each(picked, worker, operation)
            except StoreUnavailable as error:
                answers = [error]
            claims += [answer for answer in answers if isinstance(answer, Claim)]
            races_lost += answers.count(ClaimWord.AGAIN)
            for answer in answers:
                if isinstance(answer, StoreUnavailable):
                    if not claims:
                        raise answer
                    refused = True  # the claimed jobs have to run; the sweep finds the others
        # Each lost race means that another claim succeeded; if it did not, the sweep sends messages again.
        return [*claims, *(Dropped("contended") for _ in messages[len(claims) :])]

    def _pick(self, count: int) -> list[Picked]:
        """The next jobs; fewer where a lane has fewer jobs than turns, an empty list where no job waits."""
        keys = self._keys
        picked = self._scripts.call(
            PickReply,
            {
                "lane_turns": keys.lane_turns,
                "lane_heads": keys.lane_heads,
                "plan_shares": keys.plan_shares,
            },
            {"count": count},
        )
        if picked.word is PickWord.NONE:
            return []
        turns = Counter(lane for lane, _ in picked.turns)
        again = [lane for lane in turns if turns[lane] > 1]
        lines = dict(zip(again, self._lines(again, turns), strict=True))
        return [
            Picked(job_id, JobOwner.of_lane(lane))
            for lane, head in picked.turns
            if (job_id := head if lane not in lines else next(lines[lane], ""))
        ]

    def _lines(self, lanes: Sequence[str], turns: Counter[str]) -> list[Iterator[str]]:
        """For each lane its first jobs, one for each of its turns."""
        if not lanes:
            return []
        with store_errors("reading whose jobs are next"):
            pipe = self._redis.pipeline(transaction=False)
            for lane in lanes:
                pipe.zrange(self._keys.ready(lane), 0, turns[lane] - 1)
            return [iter(cast(list[str], line)) for line in pipe.execute()]

    def _claim_each(self, picked: Sequence[Picked], worker: str, operation: str) -> list[Claim | _NotClaimed]:
        settings = self._store.settings
        calls = [
            ScriptCall(
                self._keys.of_job(one.job_id, one.owner),
                {
                    "job_id": one.job_id,
                    "worker": worker,
                    "op": operation,
                    "lease_ms": ms(settings.lease_s),
                    "job_ttl_s": settings.job_ttl_s,
                    "lane": one.owner.lane,
                    "slots": settings.tenant_slots,
                },
                get=self._keys.spec(one.job_id),
            )
            for one in picked
        ]
        return [
            self._claimed(one, worker, operation, answer)
            for one, answer in zip(picked, self._scripts.call_each(ClaimReply, calls), strict=True)
        ]

    def _claimed(
        self,
        picked: Picked,
        worker: str,
        operation: str,
        answer: tuple[ClaimReply, bytes | None] | StoreUnavailable,
    ) -> Claim | _NotClaimed:
        if isinstance(answer, BrokenReply):
            return self._left(picked, answer)
        if isinstance(answer, StoreUnavailable):
            return answer
        reply, stored = answer
        try:
            if reply.word is ClaimWord.ORPHAN:
                self._transitions.cancel(picked.job_id, ORPHANED)
                return ClaimWord.PASSED
            if reply.word is not ClaimWord.CLAIMED:
                return reply.word
            try:
                manifest = Manifest.model_validate_json(stored or b"")
            except ValidationError:
                self._reject_unreadable(picked, reply.fence, operation)
                return ClaimWord.PASSED
        except StoreUnavailable as error:
            return error
        except (UnknownJob, KeyError, ValueError) as error:
            return self._left(picked, error)
        return Claim(
            picked.job_id,
            reply.fence,
            worker,
            manifest,
            admitted=reply.admitted_ms / 1000,
            started=reply.started_ms / 1000,
            charged_micros=reply.charged_micros,
            lent_micros=reply.lent_micros,
            plan_ttl_s=reply.plan_ttl_s,
        )

    def _left(self, picked: Picked, why: Exception) -> Literal[ClaimWord.PASSED]:
        """Leaves a broken record: this code cannot repair it, and the jobs that were claimed with it have to
        run."""
        _log.error("the record of job %s is not whole (%s): its lease runs out", picked.job_id, why)
        return ClaimWord.PASSED

    def _why_not(self, job_id: str) -> str:
        """Why the job of a message cannot be claimed, when no other job can be either."""
        try:
            state = self._reads.status(job_id).state
        except UnknownJob:
            return "unknown"
        if state.terminal:
            return "terminal"
        if state is not JobState.QUEUED:
            return state.value
        return "late" if self._reads.due_in_s(job_id) is None else "delayed"

    def _reject_unreadable(self, picked: Picked, fence: int, operation: str) -> None:
        """Ends a job whose stored manifest is unreadable: no worker could run it, now or later."""
        record = self._reads.record(picked.job_id)
        result = UNREADABLE.result(picked.job_id, record)
        self._transitions.move(
            FinishReply,
            picked.job_id,
            picked.owner,
            {
                "fence": fence,
                "op": operation,
                "state": JobState.REJECTED,
                "outcome": Outcome.REJECTED,
                "result": result,
                "blob": "",
                "blob_bytes": 0,
                "charge": 0,
                "counter": "failures",
                "retries": 0,
                "backoff_ms": 0,
                "backoff_max_ms": 0,
                "spread_percent": 100,
                "cancelled_result": b"",
            },
            plan_ttl_s=plan_ttl_s(record),
            message=UNREADABLE.error.summary(),
        )
