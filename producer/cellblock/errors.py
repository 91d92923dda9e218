"""The exceptions that cellblock raises to its users, by who must act.

::

    CellblockError
    ├── CallerError                 the caller changes the request
    │   ├── InvalidJob              a field is wrong; names field, value and bound
    │   ├── PolicyDenied            the plan does not allow it; names field, asked and allowed
    │   ├── CannotOpen              this key does not open the sealed job or result
    │   ├── UnknownJob              no such job, or its result has expired
    │   ├── RateLimited             come back after ``retry_after_s``
    │   │   └── BudgetExceeded      the day's money is used
    │   └── ResultTimeout           the wait ended before the job did
    └── OperatorError               the operator of the fleet acts
        ├── NotConfigured           a needed setting or extra is missing
        ├── PolicyError             policies that cannot be read; names file and reason
        ├── PolicyUnavailable       no policy could decide whether a job may run, so it is refused
        ├── StoreUnavailable        Redis cannot be reached or refuses
        │   ├── AcceptanceUnknown   the answer to a submission was lost; ``job_id`` might be accepted
        │   ├── StoreFull           it has no room now; come back after ``retry_after_s``
        │   └── BlobsUnavailable    the blob store cannot be reached or refuses
        ├── ArchiveUnavailable      the archive's database cannot be reached or refuses
        ├── BlobLost                a blob is not there, or is not what was put there; names its digest
        ├── SchemaMismatch          Redis holds what another version of cellblock wrote
        └── SandboxUnavailable      no isolation works on this host now

What untrusted code does is never an exception: it is an :class:`~cellblock.contract.outcomes.Outcome`.
"""

from __future__ import annotations

from pydantic import ValidationError

from cellblock_config.names import problem_of

#: Fields of a job whose content must not be in a message: a tenant's code, data or secrets.
_NEVER_SHOWN = {
    *("code", "files", "entrypoint", "args", "stdin", "env", "inputs", "artifacts"),
    *("evaluation", "reduced_context", "summary", "embeddings", "roles", "metadata"),
}


class CellblockError(Exception):
    """The base of all exceptions that cellblock raises."""


class CallerError(CellblockError):
    """The request has to change before it can succeed."""


class InvalidJob(CallerError, ValueError):
    """A job, or another request, that cannot be accepted; raised before anything is stored.

    ``field`` is the JobSpec field, or the argument; ``problem`` says what is wrong with which value and what
    the bound is.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem

    @classmethod
    def from_validation(cls, error: ValidationError) -> InvalidJob:
        """The error for the first wrong field: what is wrong, and the value if it is short enough to show."""
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        inner = first.get("ctx", {}).get("error")
        if isinstance(inner, InvalidJob):  # a model within the model has named it already
            return cls(f"{field}.{inner.field}".strip("."), inner.problem)
        field = "metadata" if field.startswith("metadata.") else field or "job"  # its keys are content too
        problem = problem_of(first)
        given = repr(first.get("input"))
        if first["type"] == "extra_forbidden":
            problem = "unknown field"
        elif first["type"] == "missing":
            problem = "required, and missing"
        elif len(given) <= 80 and field.partition(".")[0] not in _NEVER_SHOWN:
            problem = f"{problem} (got {given})"
        return cls(field, problem)


class PolicyDenied(CallerError, PermissionError):
    """A job that its tenant's plan does not allow; raised before anything is stored.

    ``field`` is the JobSpec field, the plan's limit or the policy's action that forbids it; ``problem`` says
    what was asked and what is allowed.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class CannotOpen(CallerError):
    """The key at hand does not open a confidential job or its result."""


class UnknownJob(CallerError, LookupError):
    """The store knows no job of this id: never accepted, or expired."""


class RateLimited(CallerError):
    """Too much is waiting already, or its plan's limit is used; ``retry_after_s`` says when to come back.

    ``limit`` is the limit's name in the file of plans, ``allowed`` its value and ``used`` the present use,
    money in micros. All three are None if the fleet's queue is full.
    """

    def __init__(
        self,
        message: str,
        *,
        retry_after_s: float,
        limit: str | None = None,
        allowed: int | None = None,
        used: int | None = None,
    ) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.limit = limit
        self.allowed = allowed
        self.used = used


class BudgetExceeded(RateLimited):
    """The tenant's budget of the day is spent or held; a day is a day in UTC.

    ``retry_after_s`` is a few seconds while held money can come back, else the time to the next day.
    """


class ResultTimeout(CallerError, TimeoutError):
    """The caller stopped waiting; the job goes on and its result can still be fetched."""


class OperatorError(CellblockError):
    """The operator of the fleet has to act; the job itself can be fine."""


class NotConfigured(OperatorError):
    """A setting or an extra that this call needs is missing; the message names it."""


class PolicyError(OperatorError, ValueError):
    """Policies that cannot be used; the message names file and reason."""


class PolicyUnavailable(OperatorError):
    """The policy decision point gave no answer: nothing was stored."""


class StoreUnavailable(OperatorError):
    """Redis cannot be reached, or answered with an error.

    Nothing was written by half. Where the answer was lost, a change might have been made as a whole.
    """


class AcceptanceUnknown(StoreUnavailable):
    """No answer to a submission came: the job might have been accepted, as a whole, or not.

    Once Redis answers, ``Client.status(job_id)`` says which: :class:`UnknownJob` means that it was not
    accepted. ``Client.cancel(job_id)`` stops it. With an ``idempotency_key`` it is safe to submit it again.
    """

    def __init__(self, job_id: str, problem: str, *, idempotent: bool) -> None:
        again = "; with its idempotency_key it is safe to submit it again" if idempotent else ""
        super().__init__(
            f"job {job_id} might have been accepted: {problem}. Once Redis answers, ask for the status of "
            f"this id (unknown: it was not accepted), or cancel it{again}"
        )
        self.job_id = job_id


class StoreFull(StoreUnavailable):
    """The store has no room for a new job; accepted jobs go on. ``retry_after_s``: when to come back."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class BlobsUnavailable(StoreUnavailable):
    """The blob store cannot be reached, or refuses. At a submission nothing was admitted."""


class ArchiveUnavailable(OperatorError):
    """The archive cannot be reached, or refuses; jobs go on, and jobs still in Redis are found there."""


class BlobLost(OperatorError):
    """A blob is missing or altered. ``digest`` is its SHA-256."""

    def __init__(self, digest: str, problem: str) -> None:
        super().__init__(f"blob {digest}: {problem}")
        self.digest = digest


class SchemaMismatch(OperatorError):
    """The store was written by another version of cellblock; the message names both versions."""


class SandboxUnavailable(OperatorError):
    """No isolation that the level allows works on this host at this moment."""
