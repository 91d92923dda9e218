"""Job ids: 32 hexadecimal digits. The first three are the bucket of the job's tenant.

A fleet of several stores finds a job's store by its id alone, without any request (docs/adr/0019). The
buckets and the hash are fixed for ever; which store has which bucket can change.
"""

from __future__ import annotations

import hashlib
import secrets

BUCKETS = 4096
_DIGITS, _BUCKET_DIGITS = 32, 3


def bucket_of(tenant: str) -> int:
    """The bucket of a tenant: 0 to 4095."""
    digest = hashlib.blake2b(tenant.encode(), digest_size=2).digest()
    return int.from_bytes(digest) >> 4


def new_job_id(tenant: str) -> str:
    """A fresh id for a job of this tenant: 116 of its bits are random."""
    return f"{bucket_of(tenant):03x}{secrets.token_hex(_DIGITS // 2)[: _DIGITS - _BUCKET_DIGITS]}"


def bucket_in(job_id: str) -> int:
    """The bucket that an id names. Raises :class:`ValueError` for a text that is not an id."""
    if len(job_id) != _DIGITS:
        raise ValueError(f"{job_id!r:.80} is not a job id")
    return int(job_id[:_BUCKET_DIGITS], 16)
