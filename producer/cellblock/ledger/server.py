"""The ledger's demands on its Redis: one schema, and settings that keep acknowledged writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from redis import Redis

from cellblock.errors import SchemaMismatch
from cellblock.ledger.connection import store_errors
from cellblock.ledger.keys import Keys

#: Increased whenever keys or fields change so that older workers would misread them.
SCHEMA = 7
_UNNUMBERED = 1  #: the schema of versions that did not write a number
#: Stands in place of the schema, with the digest of the copy, until a restore is complete.
RESTORING = "restoring"
_VERSION_LEAST = (7, 0)


@dataclass(frozen=True, slots=True)
class Concern:
    """A setting of the server that can lose acknowledged writes. ``remedy``: the line for redis.conf."""

    setting: str
    found: str
    remedy: str
    risk: str


def check_schema(redis: Redis, keys: Keys, *, claim: bool = True) -> None:
    """Claims a fresh store for this version, or refuses another version's. Without ``claim`` it never writes.

    Raises :class:`SchemaMismatch`, :class:`StoreUnavailable`.
    """
    with store_errors("reading the schema version"):
        found = cast(str | None, redis.get(keys.schema))
        if found is None:  # no write otherwise: a full store refuses even writes that change nothing
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
    """The server's settings that differ from the documents and config/redis.conf.

    ``memory_bytes``: the memory that our settings give the store. Raises :class:`StoreUnavailable`.
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
                "scripts might not run when it is full",
            )
        )
    return found
