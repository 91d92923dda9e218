"""The checklist's lines about what a fleet keeps its jobs in: Redis, and the blob store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from cellblock.blobs import check_blobs, open_blobs
from cellblock.errors import BlobLost, BlobsUnavailable, NotConfigured, SchemaMismatch, StoreUnavailable
from cellblock.ledger import Keys, connect
from cellblock.ledger.server import check_schema, concerns
from cellblock_config import Settings
from cellblock_workers.doctor.checks import Check


def store_checks(settings: Settings) -> Iterator[Check]:
    """Look at the stores that are configured; in the blob store a few bytes are kept."""
    if settings.redis.url is not None:
        yield _redis(settings)
        yield _blobs(settings)


def _redis(settings: Settings) -> Check:
    """What a worker would find there."""
    with closing(connect(settings)) as redis:
        try:
            check_schema(redis, Keys(settings.redis.key_prefix), claim=False)
            found = concerns(redis, memory_bytes=settings.ledger.memory_bytes)
        except StoreUnavailable as error:
            return Check("redis", "problem", "not in reach", str(error))
        except SchemaMismatch as error:
            return Check("redis", "problem", "another version's", str(error))
    if found:
        remedy = "; ".join(f"{one.remedy}: {one.risk}" for one in found)
        return Check("redis", "warning", ", ".join(f"{one.setting} {one.found}" for one in found), remedy)
    return Check("redis", "ok", "CELLBLOCK_REDIS_URL answers; appendonly, noeviction, maxmemory")


def _blobs(settings: Settings) -> Check:
    try:
        blobs = open_blobs(settings.blobs)
        if blobs is None:
            return Check(
                "blob store",
                "warning",
                "none: long payloads and results stay in Redis",
                "set CELLBLOCK_BLOBS_URL, here and where jobs are submitted, for example s3://bucket/prefix",
            )
        check_blobs(blobs)
    except (NotConfigured, BlobsUnavailable, BlobLost) as error:
        return Check("blob store", "problem", "CELLBLOCK_BLOBS_URL cannot be used", str(error))
    return Check("blob store", "ok", "CELLBLOCK_BLOBS_URL keeps and gives back")
