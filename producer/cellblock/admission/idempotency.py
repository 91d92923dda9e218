"""Idempotency keys: a job that a caller submits again under the same key is accepted only once."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Self

from cellblock.contract.job_spec import JobSpec

_WRITTEN = {"code", "files", "entrypoint", "args", "stdin", "env", "inputs", "artifacts", "reduced_context"}


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """A caller's key, and the hash of the request that was submitted under it.

    The hash covers the JobSpec (for a confidential job without its author's text), not plan, price or policy:
    a change of those in between does not make it a different job.
    """

    name: str
    digest: str

    @classmethod
    def of(cls, spec: JobSpec) -> Self | None:
        """The key of this job; None without one. The tenant is not hashed: each has keys of its own."""
        if spec.idempotency_key is None:
            return None
        apart = {"idempotency_key", "tenant", "traceparent"}
        # A reader could find a guessable text by its hash, so a confidential job's text is left out.
        asked = spec.model_dump(exclude=apart | _WRITTEN if spec.confidential else apart)
        text = json.dumps(asked, sort_keys=True, default=bytes.hex)
        return cls(spec.idempotency_key, hashlib.sha256(text.encode()).hexdigest())
