"""How full the store is, and the effects (docs/adr/0018). In percent of its memory:

====  ==============================================================================================
 60   a tenant is admitted jobs while it holds less than what is free below 85 %: so however many others
      fill the store, there is room for one more
 75   ended jobs leave before their time: of the tenants that hold most, fetched ones before others
 85   no job is admitted; a long result of a tenant that holds more than a fifth waits in its worker, and
      of several tenants those above an even part lose young results too; claims, messages, other
      results, events and cancellations go on
 95   results longer than 32 KiB wait in their workers, and ended jobs leave however young they are
====  ==============================================================================================

The first and the last two, and the size, are also in scripts/prelude/constants.lua. A store without a limit
(``maxmemory``, or ``ledger.memory_bytes``) is never full.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cellblock.errors import InvalidJob, RateLimited, StoreFull

SHARED_ABOVE = 60
LEAVE_ABOVE = 75
ADMITS_BELOW = 85
TAKES_LARGE_BELOW = 95
LARGE_BYTES = 32 * 1024
#: Ended jobs leave until the store is at most this full: one round makes room for some seconds.
LEAVE_DOWN_TO = 70
#: Percent of a tenant's own limit. At WHOLE the tenant is refused; then its ended jobs leave until it holds
#: DOWN_TO, but jobs that the archive does not have only until it holds TAKES_UNARCHIVED_TO; or until the
#: refused job has room, if that is less.
TENANT_DOWN_TO, TENANT_TAKES_UNARCHIVED_TO, TENANT_WHOLE = 80, 95, 100
_RETRY_AFTER_S = 1.0
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Pressure:
    """The bytes that the store uses, and its limit; a limit of 0 means no limit."""

    used_bytes: int = 0
    limit_bytes: int = 0

    @property
    def percent(self) -> float:
        """The used part of the limit in percent; 0 without a limit."""
        return 100 * self.used_bytes / self.limit_bytes if self.limit_bytes else 0.0

    def above(self, percent: int, *, more: int = 0) -> int:
        """The bytes used, plus ``more``, beyond this part of the limit; 0 if they are not beyond it."""
        used = self.used_bytes + more
        return max(0, used - self.limit_bytes * percent // 100) if self.limit_bytes else 0

    def less(self, freed_bytes: int) -> Pressure:
        """What it is once these bytes are free."""
        return Pressure(max(0, self.used_bytes - freed_bytes), self.limit_bytes)

    def below(self, percent: int) -> int:
        """The bytes that are free below this part of the limit; negative if it is exceeded."""
        return self.limit_bytes * percent // 100 - self.used_bytes


def no_room(*, used_bytes: int, limit_bytes: int) -> StoreFull:
    """The error for a job that the store has no room for now."""
    percent = Pressure(used_bytes, limit_bytes).percent
    return StoreFull(
        f"the store uses {percent:.0f} % of its {limit_bytes / _MIB:.0f} MiB, and takes jobs below "
        f"{ADMITS_BELOW} %: jobs that have ended leave by themselves, so try again; where this lasts, give "
        "Redis more maxmemory, or keep results for a shorter time (CELLBLOCK_LEDGER_RESULT_TTL_S)",
        retry_after_s=_RETRY_AFTER_S,
    )


def too_many_stored(
    tenant: str, *, allowed: int, used: int, retry_after_ms: int, requested: int
) -> RateLimited | InvalidJob:
    """The error for a job whose tenant has too many bytes in the blob store."""
    if requested > allowed:
        return InvalidJob(
            "job",
            f"has {requested} bytes for the blob store, and the plan of tenant {tenant!r} allows {allowed} "
            "(bytes_stored): it can never be admitted",
        )
    return RateLimited(
        f"bytes_stored: tenant {tenant!r} has {used} of {allowed} bytes in the blob store, and this job "
        f"brings {requested}: its jobs have to end or leave first, and what they had there counts until it "
        f"is removed, seconds later; try again in {retry_after_ms / 1000:g} s",
        retry_after_s=retry_after_ms / 1000,
        limit="bytes_stored",
        allowed=allowed,
        used=used,
    )


def too_large_a_share(
    tenant: str, *, allowed: int, used: int, retry_after_ms: int, requested: int
) -> RateLimited:
    """The error for a job whose tenant holds more of a store that is filling than what is free of it."""
    return RateLimited(
        f"store_share: the store is filling, with {allowed} bytes free below {ADMITS_BELOW} %, and tenant "
        f"{tenant!r} holds {used} already: the rest is for others. This job takes {requested}; jobs of the "
        "tenant have to end or leave first, or give Redis more maxmemory; try again in "
        f"{retry_after_ms / 1000:g} s",
        retry_after_s=retry_after_ms / 1000,
        limit="store_share",
        allowed=allowed,
        used=used,
    )


def too_many_bytes(
    tenant: str, *, allowed: int, used: int, retry_after_ms: int, requested: int
) -> RateLimited | InvalidJob:
    """The error for a job whose tenant holds too many bytes of the store."""
    if requested > allowed:
        return InvalidJob(
            "job",
            f"takes {requested} bytes of the store, and tenant {tenant!r} may hold {allowed}: it can never "
            "be admitted (bytes_held of its plan, or CELLBLOCK_LEDGER_TENANT_PERCENT of the store's memory)",
        )
    remedy = "jobs of it have to end or leave first"
    return RateLimited(
        f"bytes_held: tenant {tenant!r} holds {used} of {allowed} bytes of the store, and this job takes "
        f"{requested}: {remedy} (bytes_held of its plan, or CELLBLOCK_LEDGER_TENANT_PERCENT of the store's "
        f"memory); try again in {retry_after_ms / 1000:g} s",
        retry_after_s=retry_after_ms / 1000,
        limit="bytes_held",
        allowed=allowed,
        used=used,
    )


#: The error for a refusal by the bytes of a tenant, by the name of the limit.
OF_BYTES: Mapping[str, Callable[..., RateLimited | InvalidJob]] = {
    "bytes_held": too_many_bytes,
    "bytes_stored": too_many_stored,
    "store_share": too_large_a_share,
}
