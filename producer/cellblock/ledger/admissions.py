"""Admits jobs to the ledger: one, or several in one round trip."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from pydantic import ValidationError

from cellblock.admission.claim_check import Uploads, names_of
from cellblock.admission.gates import NO_GATES, Gates
from cellblock.admission.idempotency import IdempotencyKey
from cellblock.admission.nesting import no_parent, too_poor
from cellblock.admission.resolve import Manifest
from cellblock.blobs import digest_of
from cellblock.errors import (
    AcceptanceUnknown,
    BlobsUnavailable,
    CellblockError,
    RateLimited,
    StoreUnavailable,
)
from cellblock.ledger.connection import NoAnswer, get_bytes, store_errors, until_answered
from cellblock.ledger.ends_without_worker import NOT_UPLOADED
from cellblock.ledger.keys import JobOwner
from cellblock.ledger.pressure import OF_BYTES, no_room
from cellblock.ledger.reads import Reads, conflict
from cellblock.ledger.replies import AdmitReply, AdmitWord, CancelWord, UploadedReply
from cellblock.ledger.script_calls import BrokenReply, ScriptCall
from cellblock.ledger.server import check_schema
from cellblock.ledger.store import Store
from cellblock.ledger.transitions import Transitions, ms

#: The most sent in one round trip: Redis answers no other client while it reads and runs it.
_TRIP_JOBS, _TRIP_BYTES = 64, 1024 * 1024
#: A job waits this long for its long parts; if its caller was lost meanwhile, it is cancelled then.
_UPLOAD_S = 600.0
_Answer = tuple[AdmitReply, bytes | None] | StoreUnavailable


@dataclass(frozen=True, slots=True)
class Candidate:
    """A job that asks to be admitted.

    ``gates``: the limits of the tenant's plan, booked all together or not at all. Without gates the tenant
    has no plan from now on, unless the job comes from the holder of an API key (``keyed``). ``uploads``: its
    parts for the blob store; once it is admitted, :meth:`Admissions.upload` puts them there.
    """

    job_id: str
    manifest: Manifest
    idempotency: IdempotencyKey | None = None
    gates: Gates | None = None
    keyed: bool = False
    uploads: Uploads = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Admission:
    """An accepted job; ``fresh`` is false if it was accepted before under the same id or key.

    ``wake``: jobs of its tenant that can be claimed now: the caller has to send their messages. Empty if the
    tenant has no slot left, or if the job was accepted before.
    """

    job_id: str
    fresh: bool
    wake: tuple[str, ...] = ()


class Admissions:
    """Admits jobs. Raises :class:`StoreUnavailable`. Thread-safe."""

    def __init__(self, store: Store, reads: Reads, transitions: Transitions) -> None:
        self._store = store
        self._redis, self._keys, self._scripts = store.redis, store.keys, store.scripts
        self._reads = reads
        self._transitions = transitions
        self._schema_checked = False

    def admit(
        self,
        job_id: str,
        manifest: Manifest,
        idempotency: IdempotencyKey | None = None,
        gates: Gates | None = None,
        *,
        keyed: bool = False,
    ) -> Admission:
        """Stores the job as queued. Calling again with the same id or key changes nothing.

        The arguments are those of :class:`Candidate`. Raises :class:`InvalidJob` when the key was used for a
        different job, :class:`RateLimited` when too many jobs wait or come or hold too many bytes,
        :class:`BudgetExceeded`, :class:`StoreFull`, :class:`SchemaMismatch` on a store of another version.
        """
        candidate = Candidate(job_id, manifest, idempotency=idempotency, gates=gates, keyed=keyed)
        (admitted,) = self.admit_many([candidate])
        if isinstance(admitted, CellblockError):
            raise admitted
        return admitted

    def admit_many(self, candidates: Sequence[Candidate]) -> list[Admission | CellblockError]:
        """For each candidate its admission, or the error that :meth:`admit` would raise for it alone.

        A job whose answer is :class:`AcceptanceUnknown` might have been admitted. Raises
        :class:`SchemaMismatch`.
        """
        calls = [self._call(candidate) for candidate in candidates]
        answers: list[_Answer] = []
        for trip in _trips(calls):
            try:
                self._check_schema()
                sent = candidates[len(answers) : len(answers) + len(trip)]
                try:
                    # A job that was admitted by the first sending is known by its id, and admitted once.
                    told = until_answered(partial(self._scripts.call_each, AdmitReply, trip))
                    # One that was sent again by itself, as Redis had lost the script, can go unanswered.
                    answers += [
                        _unknown(candidate, answer) if isinstance(answer, NoAnswer) else answer
                        for candidate, answer in zip(sent, told, strict=True)
                    ]
                except NoAnswer as error:
                    answers += [_unknown(candidate, error) for candidate in sent]
                    raise
            except StoreUnavailable as error:  # the store would refuse the others too
                answers += [error] * (len(calls) - len(answers))
                break
        return [
            self._admitted(candidate, answer) for candidate, answer in zip(candidates, answers, strict=True)
        ]

    def upload(self, candidate: Candidate) -> tuple[str, ...]:
        """Puts the parts of an admitted job into the blob store. Returns the jobs that can be claimed now.

        Before this nothing of a job is there, so that a job that is refused leaves nothing behind. Raises
        :class:`BlobsUnavailable` if a part could not be stored; the job is cancelled then, and its key free.
        Raises :class:`AcceptanceUnknown` where the store does not answer afterwards.
        """
        blobs, manifest = self._store.blobs, candidate.manifest
        if blobs is None or not candidate.uploads:
            return ()
        try:
            for name, data in candidate.uploads.items():
                blobs.put(data, name)
        except BlobsUnavailable:
            # Another caller under the same key may have put them meanwhile: then the job goes on.
            cancel = partial(
                self._transitions.cancel,
                candidate.job_id,
                NOT_UPLOADED,
                frees_key=True,
                only_uploading=True,
            )
            try:
                if until_answered(cancel).word is CancelWord.UPLOADED:
                    return ()
            except StoreUnavailable as error:
                raise _unknown(candidate, error) from error
            raise
        try:
            return self._make_ready(candidate.job_id, manifest)
        except StoreUnavailable as error:  # the job is accepted
            raise _unknown(candidate, error) from error

    def awaits_parts(self, job_id: str) -> bool:
        """Whether a job waits for its caller to put its parts into the blob store."""
        if self._store.blobs is None:
            return False
        with store_errors("looking for the parts of a job"):
            return bool(self._redis.hexists(self._keys.job(job_id), "uploading"))

    def complete(self, job_id: str, uploads: Uploads) -> tuple[str, ...]:
        """Does what the caller who submitted a job did not: puts its parts into the blob store.

        Args:
            job_id: The job, whose caller may have been lost, or may be at it.
            uploads: The parts of the same job, as another submission has them.

        Returns:
            The jobs that can be claimed now; none if its parts are others, as those of a confidential job.

        Raises:
            BlobsUnavailable: A part could not be stored.
        """
        with store_errors("reading a job"):
            spec = get_bytes(self._redis, self._keys.spec(job_id))
        try:
            manifest = Manifest.model_validate_json(spec or b"")
        except ValidationError:  # it has ended, or a worker says what is wrong with it
            return ()
        blobs = self._store.blobs
        found = {digest_of(name): data for name, data in uploads.items()}
        names = names_of(manifest)
        if blobs is None or not all(digest_of(name) in found for name in names):
            return ()
        for name in names:
            blobs.put(found[digest_of(name)], name)
        return self._make_ready(job_id, manifest)

    def _make_ready(self, job_id: str, manifest: Manifest) -> tuple[str, ...]:
        owner = JobOwner(manifest.tenant, manifest.parent or "")
        make_ready = partial(
            self._scripts.call,
            UploadedReply,
            self._keys.of_job(job_id, owner),
            {
                "job_id": job_id,
                "lane": owner.lane,
                "slots": self._store.settings.tenant_slots,
                "blobs": " ".join(names_of(manifest)),
                "blob_bytes": _blob_bytes(manifest),
            },
        )
        return until_answered(make_ready).wake

    def _check_schema(self) -> None:
        """Checks the schema once. The first job of a new store claims it for this version."""
        if not self._schema_checked:
            check_schema(self._redis, self._keys)
            self._schema_checked = True

    def _admitted(self, candidate: Candidate, answer: _Answer) -> Admission | CellblockError:
        if isinstance(answer, BrokenReply):
            return _unknown(candidate, answer)
        if isinstance(answer, StoreUnavailable):
            return answer
        reply, _ = answer
        try:
            taken = reply.word in {AdmitWord.KNOWN, AdmitWord.CONFLICT} and reply.job_id != candidate.job_id
            if taken and not self._reads.exists(reply.job_id):
                call = self._call(
                    candidate, forgotten=reply.job_id
                )  # a key that has outlived its job is free
                reply = self._scripts.call(AdmitReply, call.keys, call.arguments)
        except NoAnswer as error:
            return _unknown(candidate, error)
        except StoreUnavailable as error:
            return error
        if reply.word is AdmitWord.CONFLICT and candidate.idempotency is not None:
            return conflict(candidate.idempotency, reply.job_id)
        if reply.word not in {AdmitWord.ADMITTED, AdmitWord.KNOWN}:
            return self._refusal(candidate, reply)
        if reply.job_id != candidate.job_id:
            return Admission(reply.job_id, fresh=False)
        # A resent admission finds the job of its own first sending: that job counts as fresh.
        wake = reply.wake if reply.word is AdmitWord.ADMITTED else (reply.job_id,)
        return Admission(reply.job_id, fresh=True, wake=wake)

    def _refusal(self, candidate: Candidate, reply: AdmitReply) -> CellblockError:
        """The error for a candidate that the script did not admit."""
        manifest, gates, refused = candidate.manifest, candidate.gates, reply.refused
        if reply.word is AdmitWord.ORPHAN:
            return no_parent(manifest.parent or "", manifest.tenant)
        if reply.word is AdmitWord.POOR:
            return too_poor(reply.left_micros)
        if reply.word is AdmitWord.NO_ROOM:
            return no_room(used_bytes=reply.used_bytes, limit_bytes=reply.limit_bytes)
        if refused is not None and refused.limit in OF_BYTES:
            return OF_BYTES[refused.limit](
                manifest.tenant,
                allowed=refused.allowed,
                used=refused.used,
                retry_after_ms=refused.retry_after_ms,
                requested=refused.share,
            )
        if refused is not None and gates is not None:
            return gates.refusal(
                manifest.tenant,
                refused.limit,
                allowed=refused.allowed,
                used=refused.used,
                retry_after_ms=refused.retry_after_ms,
                spent=refused.share,
            )
        return RateLimited(
            f"{reply.waiting} jobs are waiting and the queue holds {self._store.settings.queue_depth} "
            "(CELLBLOCK_LEDGER_QUEUE_DEPTH); try again later",
            retry_after_s=1.0,
        )

    def _call(self, candidate: Candidate, forgotten: str = "") -> ScriptCall:
        job_id, manifest = candidate.job_id, candidate.manifest
        idempotency, gates = candidate.idempotency, candidate.gates
        idempotency_key = self._keys.idempotency(manifest.tenant, idempotency.name if idempotency else "")
        owner = JobOwner(manifest.tenant, manifest.parent or "")
        return ScriptCall(
            {
                **self._keys.of_job(job_id, owner),
                "idempotency": idempotency_key,
                "rate": self._keys.rate(manifest.tenant),
            },
            {
                "job_id": job_id,
                "digest": idempotency.digest if idempotency else "",
                "manifest": manifest.model_dump_json(),
                "tenant": manifest.tenant,
                "level": manifest.level,
                "priority": manifest.priority,
                "trace_id": manifest.trace_id,
                "submitted": f"{manifest.submitted:.6f}",
                "image": manifest.image,
                "queue_depth": self._store.settings.queue_depth,
                "job_ttl_s": self._store.settings.job_ttl_s,
                "expires_ms": ms(manifest.expires_s),
                "idempotent": idempotency is not None,
                "idempotency": idempotency.name if idempotency else "",
                "forgotten": forgotten,
                "parent": owner.parent,
                "lane": owner.lane,
                "slots": self._store.settings.tenant_slots,
                "blobs": " ".join(names_of(manifest)),
                "blob_bytes": _blob_bytes(manifest),
                "upload_ms": ms(min(_UPLOAD_S, manifest.expires_s)) if candidate.uploads else 0,
                "tenant_percent": self._store.settings.tenant_percent,
                "memory_bytes": self._store.settings.memory_bytes,
                "measures": not self._store.embedded,
                **(gates.arguments() if gates is not None else NO_GATES),
                "keyed": candidate.keyed,
            },
        )


def _blob_bytes(manifest: Manifest) -> int:
    return sum(ref.size_bytes for ref in manifest.blobs.values())


def _unknown(candidate: Candidate, error: StoreUnavailable) -> AcceptanceUnknown:
    unknown = AcceptanceUnknown(candidate.job_id, str(error), idempotent=candidate.idempotency is not None)
    unknown.__cause__ = error
    return unknown


def _trips(calls: Sequence[ScriptCall]) -> Iterator[list[ScriptCall]]:
    """Splits calls into parts that are each sent in one round trip."""
    trip: list[ScriptCall] = []
    size_bytes = 0
    for call in calls:
        if trip and (len(trip) >= _TRIP_JOBS or size_bytes + call.size_bytes > _TRIP_BYTES):
            yield trip
            trip, size_bytes = [], 0
        trip.append(call)
        size_bytes += call.size_bytes
    if trip:
        yield trip
