"""What the ledger needs of its Redis: one schema, and settings that keep what was acknowledged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from redis import Redis

from cellblock.errors import SchemaMismatch
from cellblock.ledger.connection import store_errors
from cellblock.ledger.keys import Keys

#: Raised whenever keys or fields change so that older workers would misread them.
SCHEMA = 5
_UNNUMBERED = 1  #: of versions that wrote none
#: In its place, with the digest of the copy: not all is there yet.
RESTORING = "restoring"
_VERSION_LEAST = (7, 0)


@dataclass(frozen=True, slots=True)
class Concern:
    """A setting of the server that can lose what was promised. ``remedy``: the line for redis.conf."""

    setting: str
    found: str
    remedy: str
    risk: str


def check_schema(redis: Redis, keys: Keys, *, claim: bool = True) -> None:
    """Claim a fresh store for this version, or refuse another's. Without ``claim`` nothing is written.

    Raises :class:`SchemaMismatch`, :class:`StoreUnavailable`.
    """
    with store_errors("reading the schema version"):
        found = cast(str | None, redis.get(keys.schema))
        if found is None:  # nothing is written otherwise: a full store refuses even what changes nothing
            found = str(_UNNUMBERED if redis.exists(keys.events) else SCHEMA)
            if claim:
                redis.set(keys.schema, found, nx=True)
                found = cast(str, redis.get(keys.schema))
    if found.startswith(RESTORING):
        raise SchemaMismatch(
            f"the store under {keys.prefix} is being filled from a backup, or that was interrupted: wait, "
            "or run cellblock store restore again"
        )
    if found != str(SCHEMA):
        raise SchemaMismatch(
            f"the store holds schema {found} under {keys.prefix}, and this version of cellblock speaks "
            f"{SCHEMA}: run the version that wrote it, or give this one another CELLBLOCK_REDIS_KEY_PREFIX"
        )


def concerns(redis: Redis, *, memory_bytes: int = 0) -> list[Concern]:
    """Where the server is not set as docs and config/redis.conf say.

    ``memory_bytes``: what the settings say it may use. Raises :class:`StoreUnavailable`.
    """
    with store_errors("reading the server's settings"):
        info = redis.info()
    found = []
    if (policy := info.get("maxmemory_policy")) != "noeviction":
        found.append(
            Concern(
                "maxmemory-policy",
                str(policy),
                "maxmemory-policy noeviction",
                "a full server would throw jobs away instead of refusing new ones",
            )
        )
    if not info.get("maxmemory") and not memory_bytes:
        found.append(
            Concern(
                "maxmemory",
                "0",
                "maxmemory 512mb (or set CELLBLOCK_LEDGER_MEMORY_BYTES, in bytes, for the whole fleet)",
                "nothing is refused until the host has no memory left",
            )
        )
    if not info.get("aof_enabled"):
        found.append(
            Concern(
                "appendonly",
                "no",
                "appendonly yes",
                "a restart forgets every job accepted since the last dump",
            )
        )
    version = tuple(int(part) for part in str(info.get("redis_version", "0.0")).split(".")[:2])
    if version < _VERSION_LEAST:
        found.append(
            Concern(
                "version",
                str(info.get("redis_version")),
                "Redis 7.0 or newer",
                "scripts may not run when it is full",
            )
        )
    return found
