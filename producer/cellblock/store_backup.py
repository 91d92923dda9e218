"""Copies the store to a folder, and fills an empty store from such a copy.

Redis makes the copy as for a replica, so the copy shows one moment and jobs go on meanwhile. To fill a store,
a temporary Redis in a private folder loads the copy, and every key is copied from there.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from redis import Redis
from redis.client import Pipeline
from redis.exceptions import NoPermissionError, RedisError

from cellblock.backup_folder import file_to_read, folder_to_read, folder_to_write, new_file
from cellblock.errors import NotConfigured, SchemaMismatch, StoreUnavailable
from cellblock.ledger.connection import address_of, connect, store_errors
from cellblock.ledger.keys import Keys, literal
from cellblock.ledger.server import RESTORING, SCHEMA
from cellblock_config import Settings

_COPY, _NOTE = "store.rdb", "backup.json"
_PAGE = 500
_LOADS_S = 300.0
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Backup:
    """The contents of a backup folder. ``at``: when the copy began (Unix seconds)."""

    at: float
    schema: int
    key_prefix: str
    db: int
    size_bytes: int
    sha256: str


def back_up(settings: Settings, folder: Path) -> Backup:
    """Copies the store into this folder, which is made if it is missing and must not hold another copy.

    Redis copies the whole server, also keys that are not the fleet's.

    Raises :class:`NotConfigured`, also for a folder that is not ours alone, :class:`StoreUnavailable`,
    :class:`SchemaMismatch`.
    """
    if os.path.lexists(folder / _NOTE):
        raise NotConfigured(f"{folder} holds a backup already: name another folder")
    with closing(connect(settings)) as redis:
        schema = _schema_of(redis, Keys(settings.redis.key_prefix), "the store")
    at, part = time.time(), f"{_COPY}.part"
    with folder_to_write(folder) as opened:
        with suppress(FileNotFoundError):  # left by a backup that was interrupted
            os.unlink(part, dir_fd=opened)
        with new_file(part, opened) as copy:
            _copy(settings, copy.fileno())
            backup = Backup(
                at=at,
                schema=schema,
                key_prefix=settings.redis.key_prefix,
                db=address_of(settings).db,
                size_bytes=os.fstat(copy.fileno()).st_size,
                sha256=hashlib.file_digest(copy, "sha256").hexdigest(),
            )
        os.rename(part, _COPY, src_dir_fd=opened, dst_dir_fd=opened)
        with new_file(_NOTE, opened) as note:
            note.write(json.dumps(asdict(backup), indent=2).encode() + b"\n")
    return backup


def _copy(settings: Settings, copy: int) -> None:
    """Copies by redis-cli, which acts as a replica; the password goes through its environment."""
    program = shutil.which("redis-cli")
    if program is None:
        raise NotConfigured("a backup needs redis-cli: apt-get install redis-tools")
    with closing(connect(settings)) as redis, store_errors("looking for the server"):
        redis.ping()
        # A sentinel might have named the server: the connection knows the real address.
        connection = redis.connection_pool.get_connection()
        host, port = str(connection.host), int(connection.port)
        redis.connection_pool.release(connection)
    address = address_of(settings)
    command = [program, "-h", host, "-p", str(port), "--no-auth-warning"]
    command += ["--rdb", f"/proc/self/fd/{copy}"]  # the file that is open, whatever has its name by now
    if address.username:
        command += ["--user", address.username]
    if address.tls:
        command.append("--tls")
        for flag, file in (
            ("--cacert", settings.redis.tls_ca),
            ("--cert", settings.redis.tls_cert),
            ("--key", settings.redis.tls_key),
        ):
            command += [flag, str(file)] if file is not None else []
    environment = {**os.environ, **({"REDISCLI_AUTH": address.password} if address.password else {})}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, pass_fds=[copy]
    )
    if done.returncode != 0 or os.fstat(copy).st_size == 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise StoreUnavailable(
            f"redis-cli made no copy: {said[-1] if said else done.returncode}; "
            "its user needs +sync +psync +replconf, as cellblock-backup has (cellblock store-users new)"
        )


def restore(settings: Settings, folder: Path, progress: Progress = lambda count: None) -> tuple[Backup, int]:
    """Fills the configured store, which must be empty, from the copy in this folder.

    Refuses a copy to which others may write. Returns the backup, and the number of keys. The reaper finds
    jobs that ran at that time, and they run again; everything after the copy is lost. All processes refuse
    the store until it is complete; an interrupted restore can be run again. Raises :class:`NotConfigured`,
    :class:`StoreUnavailable`, :class:`SchemaMismatch`.
    """
    with tempfile.TemporaryDirectory(prefix="cellblock-restore-") as name:
        private = Path(name)
        backup = _fetched(folder, private)
        with closing(_raw(settings)) as target, _loaded(private, backup.db) as source:
            return backup, _fill(settings, backup, source=source, target=target, progress=progress)


def _fill(settings: Settings, backup: Backup, *, source: Redis, target: Redis, progress: Progress) -> int:
    """Fills the store, unless it holds anything. Returns the number of keys."""
    source_keys, keys = Keys(backup.key_prefix), Keys(settings.redis.key_prefix)
    schema = _schema_of(source, source_keys, "the backup")
    with store_errors("looking whether the store is empty"):
        mark = f"{RESTORING} {backup.sha256}".encode()
        if target.get(keys.schema) != mark and _holds_any(target, keys):
            raise NotConfigured(
                f"the store holds keys under {keys.prefix} already: restore into an empty Redis, or give "
                "it another CELLBLOCK_REDIS_KEY_PREFIX"
            )
        target.set(keys.schema, mark)
    count = _carry(source=source, target=target, source_keys=source_keys, keys=keys, progress=progress)
    with store_errors("ending the restore"):
        target.set(keys.schema, schema)
    return count


def _holds_any(redis: Redis, keys: Keys) -> bool:
    return next(redis.scan_iter(match=f"{literal(keys.prefix)}:*", count=_PAGE), None) is not None


def _fetched(folder: Path, private: Path) -> Backup:
    """Copies the store's copy into a folder that only we can enter, and checks it there.

    Raises :class:`NotConfigured`, also where others may write to the backup.
    """
    with folder_to_read(folder) as opened:
        try:
            with file_to_read(_NOTE, opened, folder) as note:
                backup = Backup(**json.load(note))
        except (OSError, ValueError, TypeError):
            raise NotConfigured(f"{folder} holds no backup: {_NOTE} is missing or cannot be read") from None
        try:
            with file_to_read(_COPY, opened, folder) as source, (private / _COPY).open("x+b") as copy:
                shutil.copyfileobj(source, copy)
                copy.seek(0)
                sha256 = hashlib.file_digest(copy, "sha256").hexdigest()
        except OSError as error:
            raise NotConfigured(f"{folder / _COPY} cannot be copied: {error.strerror}") from None
    if sha256 != backup.sha256:
        raise NotConfigured(f"{folder / _COPY} is not what was backed up: its SHA-256 is another")
    return backup


def _carry(source: Redis, target: Redis, source_keys: Keys, keys: Keys, progress: Progress) -> int:
    """Copies every key with its value and remaining life, except the schema and the store's identity: two
    stores with one identity would remove each other's blobs. Returns the number of keys."""
    before, after = source_keys.prefix.encode(), keys.prefix.encode()
    left_out = {source_keys.schema.encode(), source_keys.store.encode()}
    count, cursor = 0, 0
    while True:
        with store_errors("carrying keys over"):
            cursor, names = cast(tuple[int, list[bytes]], source.scan(cursor, count=_PAGE))
            ours = [name for name in names if name.startswith(before + b":") and name not in left_out]
            pipe = source.pipeline(transaction=False)
            for name in ours:
                pipe.dump(name)
                pipe.pttl(name)
            found = pipe.execute()
            put = target.pipeline(transaction=False)
            for name, value, life_ms in zip(ours, found[::2], found[1::2], strict=True):
                if value is not None:
                    put.restore(after + name[len(before) :], max(0, life_ms), value, replace=True)
            _put(put)
        count += len(ours)
        progress(count)
        if cursor == 0:
            return count


def _put(pipe: Pipeline) -> None:
    try:
        pipe.execute()
    except NoPermissionError:
        raise StoreUnavailable(
            "Redis refuses to restore keys: its user needs +restore +scan +get +set, as cellblock-backup has "
            "(cellblock store-users new)"
        ) from None


@contextmanager
def _loaded(private: Path, db: int) -> Iterator[Redis]:
    """A temporary Redis that has loaded the copy in this folder; it ends with the block."""
    program = shutil.which("redis-server")
    if program is None:
        raise NotConfigured("to restore needs redis-server on this host: apt-get install redis-server")
    place = f"{private}/redis.sock"
    options = ["--port", "0", "--unixsocket", place, "--unixsocketperm", "700", "--dir", str(private)]
    options += ["--dbfilename", _COPY, "--save", "", "--appendonly", "no", "--loglevel", "warning"]
    process = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL)
    try:
        redis = Redis(unix_socket_path=place, db=db)
        _wait(redis, process)
        with closing(redis):
            yield redis
    finally:
        process.terminate()
        process.wait()


def _wait(redis: Redis, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _LOADS_S
    while True:
        try:
            redis.ping()
            return
        except RedisError:
            if process.poll() is not None or time.monotonic() > until:
                raise NotConfigured("redis-server cannot load the copy: is it of a newer one?") from None
            time.sleep(0.05)


def _raw(settings: Settings) -> Redis:
    """A connection to the store that returns values as bytes."""
    redis = connect(settings)
    redis.connection_pool.connection_kwargs["decode_responses"] = False
    return redis


def _schema_of(redis: Redis, keys: Keys, whose: str) -> int:
    with store_errors("reading the schema version"):
        found = redis.get(keys.schema)
    text = found.decode() if isinstance(found, bytes) else found
    if text != str(SCHEMA):
        has = "no schema" if text is None else f"schema {text}"
        raise SchemaMismatch(
            f"{whose} has {has} under {keys.prefix}, and this version of cellblock speaks {SCHEMA}"
        )
    return SCHEMA
