"""Brings a client's jobs into the ledger: decides on them, admits them and wakes workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from cellblock.admission.costs import Estimate
from cellblock.admission.idempotency import IdempotencyKey
from cellblock.admission.intake import Intake, check_key
from cellblock.admission.nesting import Parent
from cellblock.admission.policy.decision import Principal
from cellblock.contract.job_ids import new_job_id
from cellblock.contract.job_spec import JobSpec
from cellblock.errors import CellblockError, InvalidJob, PolicyDenied, RateLimited
from cellblock.ledger import Admission, Candidate, Ledger
from cellblock.ledger.connection import NoAnswer, until_answered
from cellblock.queue import Publisher

#: Jobs admitted together where they have parts for the blob store.
_PORTION_JOBS = 64


class Submission:
    """Submits jobs in the name of a principal. Thread-safe."""

    def __init__(self, ledger: Ledger, publisher: Publisher, intake: Callable[[], Intake]) -> None:
        """``intake``: called only when a job is submitted or estimated: a wrong file of plans must not stop
        callers from cancelling or asking."""
        self._ledger = ledger
        self._publisher = publisher
        self._intake = intake

    def submit(self, specs: Iterable[JobSpec], principal: Principal) -> list[str | CellblockError]:
        """Returns for each spec the id of its job, or the error that refused it."""
        found: list[str | CellblockError | Candidate] = []
        for spec in specs:
            away = found[-1] if found and isinstance(found[-1], NoAnswer) else None  # as for the one before
            found.append(away or self._begun(spec, principal))
        candidates = [(at, one) for at, one in enumerate(found) if isinstance(one, Candidate)]
        # With long parts in portions: an admitted job waits for its own, and not for those of a whole batch.
        portion = _PORTION_JOBS if any(one.uploads for _, one in candidates) else max(1, len(candidates))
        for start in range(0, len(candidates), portion):
            part = candidates[start : start + portion]
            for (at, _), answer in zip(part, self._submitted([one for _, one in part]), strict=True):
                found[at] = answer
        return [one for one in found if not isinstance(one, Candidate)]

    def _submitted(self, candidates: Sequence[Candidate]) -> list[str | CellblockError]:
        answers: list[str | CellblockError] = []
        wake: list[str] = []
        for candidate, admitted in zip(
            candidates, self._ledger.admissions.admit_many(candidates), strict=True
        ):
            answer = self._answered(candidate, admitted)
            if isinstance(admitted, Admission):
                wake += admitted.wake
                if admitted.fresh:
                    try:
                        wake += self._ledger.admissions.upload(candidate)
                    except CellblockError as error:
                        answer = error
            answers.append(answer)
        self._publisher.wake(wake)
        return answers

    def estimate(self, spec: JobSpec, principal: Principal) -> Estimate:
        """The most this job can cost; it is not submitted. Asks no policy."""
        spec = _asked_by(spec, principal)
        return self._intake().estimate(spec, principal, self._parent(spec))

    def _begun(self, spec: JobSpec, principal: Principal) -> str | CellblockError | Candidate:
        """The candidate for the ledger, or the id of the job accepted before, or the error of a refusal."""
        try:
            spec = _asked_by(spec, principal)
            idempotency = IdempotencyKey.of(spec)
            if (known := self._accepted(spec, idempotency)) is not None:
                return self._completed(known, spec, principal)
            try:
                return self._candidate(spec, principal, idempotency)
            except PolicyDenied:
                # The same job might just have been accepted from elsewhere, and have taken the limit itself.
                if (known := self._accepted(spec, idempotency)) is not None:
                    return known
                raise
        except CellblockError as error:
            return error

    def _completed(self, job_id: str, spec: JobSpec, principal: Principal) -> str:
        """Stores the long parts of a job that was accepted before, if its first caller was lost over that."""
        admissions = self._ledger.admissions
        if until_answered(partial(admissions.awaits_parts, job_id)):
            try:
                prepared = self._intake().prepare(job_id, spec, principal, self._parent(spec))
            except CellblockError:  # refused by now: without its parts the job is cancelled soon
                return job_id
            self._publisher.wake(admissions.complete(job_id, prepared.uploads))
        return job_id

    def _candidate(
        self, spec: JobSpec, principal: Principal, idempotency: IdempotencyKey | None
    ) -> Candidate:
        parent = self._parent(spec)
        job_id = new_job_id(parent.manifest.tenant if parent is not None else spec.tenant)
        prepared = self._intake().prepare(job_id, spec, principal, parent)
        keyed = principal.key_id is not None
        return Candidate(
            job_id,
            prepared.manifest,
            idempotency=idempotency,
            gates=prepared.gates,
            keyed=keyed,
            uploads=prepared.uploads,
        )

    def _answered(self, candidate: Candidate, answer: Admission | CellblockError) -> str | CellblockError:
        if isinstance(answer, Admission):
            return answer.job_id
        if not isinstance(answer, PolicyDenied | RateLimited) or candidate.idempotency is None:
            return answer
        try:  # as above
            return self._ledger.reads.accepted(candidate.manifest.tenant, candidate.idempotency) or answer
        except CellblockError as error:
            return error

    def _accepted(self, spec: JobSpec, idempotency: IdempotencyKey | None) -> str | None:
        """The id of the job accepted under this key. Asked first: its plan might refuse it by now."""
        if idempotency is None:
            return None
        tenant: str | None = spec.tenant
        if spec.parent is not None and "tenant" not in spec.model_fields_set:
            tenant = self._ledger.reads.tenant(spec.parent)
        if tenant is None:
            return None
        return until_answered(partial(self._ledger.reads.accepted, tenant, idempotency))

    def _parent(self, spec: JobSpec) -> Parent | None:
        if spec.parent is None:
            return None
        return self._ledger.parent(spec.parent, spec.tenant if "tenant" in spec.model_fields_set else None)


def _asked_by(spec: JobSpec, principal: Principal) -> JobSpec:
    """The job with its principal's tenant. Raises :class:`InvalidJob`, :class:`PolicyDenied`."""
    if not isinstance(spec, JobSpec):
        raise InvalidJob("job", f"is a {type(spec).__name__}; write JobSpec(code=...)")
    if principal.key_id is None:
        return spec
    if principal.tenant is not None and "tenant" not in spec.model_fields_set:
        spec = spec.model_copy(update={"tenant": principal.tenant})
    check_key(principal, spec)
    return spec
