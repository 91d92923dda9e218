"""The checklist's lines about the stores of a fleet's jobs: Redis, the archive, and the blob store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import cast

from redis import Redis

from cellblock.archive import open_archive
from cellblock.archive.encryption import REMEDY, unencrypted_host
from cellblock.archive.errors import another_archive
from cellblock.blobs import check_blobs, of_another, open_blobs
from cellblock.errors import (
    ArchiveUnavailable,
    BlobLost,
    NotConfigured,
    SchemaMismatch,
    StoreUnavailable,
)
from cellblock.ledger import Keys, Ledger, connect
from cellblock.ledger.archiving import Archiving
from cellblock.ledger.server import check_schema, concerns
from cellblock.ledger.store import Store
from cellblock_config import Settings
from cellblock_workers.doctor.checks import Check
from cellblock_workers.host_services import host_variables
from cellblock_workers.store_trial import archive_problem, blobs_problem


def store_checks(settings: Settings) -> Iterator[Check]:
    """Checks the stores that are configured. Keeps a few bytes in the blob store."""
    if settings.redis.url is not None:
        yield _redis(settings)
        yield _blobs(settings)
        yield _archive(settings)


def _redis(settings: Settings) -> Check:
    """What a worker would find there."""
    with closing(connect(settings)) as redis:
        try:
            check_schema(redis, Keys(settings.redis.key_prefix), claim=False)
            found = concerns(redis, memory_bytes=_memory_bytes(redis, settings))
        except StoreUnavailable as error:
            return Check("redis", "problem", "not in reach", str(error))
        except SchemaMismatch as error:
            return Check("redis", "problem", "another version's", str(error))
    if found:
        remedy = "; ".join(f"{one.remedy}: {one.risk}" for one in found)
        return Check("redis", "warning", ", ".join(f"{one.setting} {one.found}" for one in found), remedy)
    return Check("redis", "ok", "CELLBLOCK_REDIS_URL answers; appendonly, noeviction, maxmemory")


def _memory_bytes(redis: Redis, settings: Settings) -> int:
    """The limit that a worker has measured for this store; if none has yet, the configured one."""
    measured = cast(str | None, redis.hget(Keys(settings.redis.key_prefix).pressure, "limit_bytes"))
    return settings.ledger.memory_bytes if measured is None else int(measured)


def _archive(settings: Settings) -> Check:
    url = settings.archive.url.get_secret_value() if settings.archive.url is not None else ""
    if url.strip("/").endswith(":"):  # a worker's: that there is one, which it never opens
        return _archiver(settings)
    if url.startswith("sqlite:") and (why := archive_problem(_told(CELLBLOCK_ARCHIVE_URL=url))) is not None:
        return Check("archive", "problem", "CELLBLOCK_ARCHIVE_URL cannot be used", why)
    try:
        archive = open_archive(settings.archive)
        if archive is None:
            return Check(
                "archive",
                "warning",
                "none: jobs are forgotten when they leave Redis",
                "set CELLBLOCK_ARCHIVE_URL and run cellblock archiver",
            )
        with closing(archive), closing(connect(settings)) as redis:
            written_to = Archiving(Store.of(redis, settings)).written_to()
            if written_to not in {None, archive.identity()}:
                said = str(another_archive())
                return Check("archive", "problem", "CELLBLOCK_ARCHIVE_URL is another archive's", said)
    except (NotConfigured, ArchiveUnavailable, SchemaMismatch, StoreUnavailable) as error:
        return Check("archive", "problem", "CELLBLOCK_ARCHIVE_URL cannot be used", str(error))
    if (host := unencrypted_host(settings.archive)) is not None:
        return Check("archive", "warning", f"what is archived goes to {host} in the clear", REMEDY)
    return _archiver(settings)


def _archiver(settings: Settings) -> Check:
    try:
        with closing(connect(settings)) as redis:
            state = Archiving(Store.of(redis, settings)).state()
    except StoreUnavailable as error:
        return Check("archive", "problem", "CELLBLOCK_ARCHIVE_URL cannot be used", str(error))
    if state is None:
        return Check("archive", "warning", "no archiver has ever run", "run cellblock archiver")
    if state.problem is not None:
        return Check("archive", "warning", f"{state.late_s:g} s behind", state.problem)
    return Check("archive", "ok", "an archiver writes it")


def _told(**more: str) -> dict[str, str]:
    """What root can write says nothing of a service: a local store is tried as its user, if we are root."""
    return {**host_variables(), **more}


def _blobs(settings: Settings) -> Check:
    url = settings.blobs.url.get_secret_value() if settings.blobs.url is not None else ""
    if (
        url.startswith("file:")
        and (why := blobs_problem(settings, _told(CELLBLOCK_BLOBS_URL=url))) is not None
    ):
        return Check("blob store", "problem", "CELLBLOCK_BLOBS_URL cannot be used", why)
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
        owner = blobs.owner()
        with closing(connect(settings)) as redis:
            store = Ledger(redis, settings).upkeep.known_as()
    except (NotConfigured, StoreUnavailable, BlobLost) as error:
        return Check("blob store", "problem", "CELLBLOCK_BLOBS_URL cannot be used", str(error))
    if owner is not None and owner != store:
        said = of_another(owner, store or "a new one")
        return Check("blob store", "problem", "CELLBLOCK_BLOBS_URL is another store's", said)
    return Check("blob store", "ok", "CELLBLOCK_BLOBS_URL keeps and gives back")
