"""Idempotency keys: what a caller submits again under its key is the job that it submitted first."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Self

from cellblock.contract.models import JobSpec

_WRITTEN = {"code", "files", "entrypoint", "args", "stdin", "env", "inputs", "artifacts", "reduced_context"}


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """A caller's key, and the hash of what was submitted under it.

    It is of what was asked (of a confidential job without what its author wrote): a plan, a price or a policy
    that changed in between makes it no other job.
    """

    name: str
    digest: str

    @classmethod
    def of(cls, spec: JobSpec) -> Self | None:
        """That of this job, if it has one. The tenant is not hashed: each has keys of its own."""
        if spec.idempotency_key is None:
            return None
        apart = {"idempotency_key", "tenant", "traceparent"}
        # A hash of what few people may write tells which of it was written.
        asked = spec.model_dump(exclude=apart | _WRITTEN if spec.confidential else apart)
        text = json.dumps(asked, sort_keys=True, default=bytes.hex)
        return cls(spec.idempotency_key, hashlib.sha256(text.encode()).hexdigest())
