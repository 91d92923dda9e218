"""``cellblock worker`` and ``cellblock up``: which processes make a host, and with which rights."""

from __future__ import annotations

import errno
import json
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from cellblock.errors import NotConfigured
from cellblock.ledger import Keys, Ledger
from cellblock.ledger.connection import connect, store_errors
from cellblock.ledger.server import check_schema
from cellblock_config import Settings, load_settings
from cellblock_config.levels import MIB
from cellblock_workers.first_job import FirstJob
from cellblock_workers.host_services import (
    archiver_service,
    host_services,
    host_variables,
    monitor_service,
)
from cellblock_workers.log import get_logger
from cellblock_workers.monitor.address import unusable_address
from cellblock_workers.own_folder import own_folder
from cellblock_workers.own_stores import make_blob_folder, stores_of_its_own, with_redis
from cellblock_workers.private_redis import port_of, private_redis, reserve_port
from cellblock_workers.process_environment import keep_to_itself
from cellblock_workers.store_trial import archive_problem, blobs_problem
from cellblock_workers.supervisor import Service, Supervisor
from cellblock_workers.telemetry import configure_logging
from cellblock_workers.worker.liveness import check_liveness
from cellblock_workers.worker.memory_need import reckon

_log = get_logger(__name__)
_AS_CONFIGURED = "as configured"


def run_worker() -> int:
    """Runs a worker, with a launcher beside it unless ``CELLBLOCK_LAUNCHER_SOCKET`` names one."""
    keep_to_itself()
    settings = load_settings()
    configure_logging(settings.telemetry)
    if settings.redis.url is None:
        raise NotConfigured("a worker needs a Redis: set CELLBLOCK_REDIS_URL, or try: cellblock up")
    with own_folder() as folder:
        return Supervisor(host_services(settings, folder, host_variables())).run()


def run_check(*, silent_s: float | None = None, json_output: bool = False) -> int:
    """Prints whether this host's workers consume. Returns 0 or 1. Raises :class:`StoreUnavailable`.

    It also prints how much a worker may have to hold. That changes no exit code: it is a ceiling, not its
    use.
    """
    settings = load_settings()
    with closing(connect(settings)) as redis:
        check_schema(redis, Keys(settings.redis.key_prefix), claim=False)
        liveness = check_liveness(
            Ledger(redis, settings), socket.gethostname(), silent_s or settings.worker.silent_s
        )
    memory = None if settings.worker.memory_check == "off" else reckon(settings)
    if json_output:
        told = {**asdict(liveness), "memory": None if memory is None else asdict(memory)}
        print(json.dumps(told))  # noqa: T201 - the command's one line of output
    else:
        paused = [
            f"{name}: {one.get('reason')}" for name, one in liveness.workers.items() if one.get("reason")
        ]
        said = liveness.reason or f"{len(liveness.workers)} workers, {liveness.waiting} jobs wait"
        said += f" (paused: {', '.join(paused)})" if paused and not liveness.reason else ""
        print(f"{'ok' if liveness.ok else 'not ok'}: {said}")  # noqa: T201
        if liveness.archive is not None:
            print(f"archive: {liveness.archive}")  # noqa: T201
        if memory is not None:
            print(  # noqa: T201
                f"memory: {memory.shortage}"
                if memory.shortage
                else f"memory: a worker may have to hold {memory.need_bytes // MIB} MiB, and may have "
                f"{memory.available_bytes // MIB} MiB, by {memory.available_by}"
            )
    return 0 if liveness.ok else 1


def run_up(*, json_output: bool = False) -> int:
    """Runs a whole fleet on this machine: launcher, worker, archiver, Flower, and what is not configured of
    Redis, blob store and archive."""
    keep_to_itself()
    _check_flower()
    settings = _quiet(load_settings())
    configure_logging(settings.telemetry)
    with (
        own_folder() as folder,
        reserve_port() as redis_port,
        reserve_port() as monitor_port,
    ):
        stores, own = _stores(settings, folder, port_of(redis_port))
        monitor = _Monitor.of(settings, otherwise_port=port_of(monitor_port))
        level = {"CELLBLOCK_TELEMETRY_LOG_LEVEL": settings.telemetry.log_level}
        variables = {**host_variables(), **level, **own, **monitor.variables()}
        archived = settings.archive.url is not None or "CELLBLOCK_ARCHIVE_URL" in own
        services = [
            *stores,
            *host_services(settings, folder, variables),
            *([archiver_service(variables)] if archived else []),
            monitor_service(variables, partial(_wait_for_port, monitor.address, monitor.port)),
        ]
        first = FirstJob(
            with_redis(settings, own), lambda: _stores_problem(settings, variables), archived=archived
        )
        where = _addresses(own, monitor)
        return _run_proven(services, first, lambda: _announce(where, json_output))


def _stores(settings: Settings, folder: Path, port: int) -> tuple[list[Service], dict[str, str]]:
    """The services of stores that are not configured, and the variables that name these stores.

    Where a Redis is configured the others are its fleet's too, or there are none.
    """
    if settings.redis.url is None:
        redis, url = private_redis(folder, port)
        services, own = [redis], {"CELLBLOCK_REDIS_URL": url, **stores_of_its_own(settings, folder)}
    else:
        services, own = [], {}
        _check_redis(settings)
    make_blob_folder(settings)
    return services, own


@dataclass(frozen=True, slots=True)
class _Monitor:
    """Where Flower is, and its login. ``configured``: whether the password is the operator's own."""

    address: str
    port: int
    user: str
    password: str = field(repr=False)
    configured: bool

    @classmethod
    def of(cls, settings: Settings, *, otherwise_port: int) -> _Monitor:
        """By these settings; the password is a new one where none is configured."""
        given = settings.monitor.password
        return cls(
            address=settings.monitor.address,
            port=_monitor_port(settings, otherwise=otherwise_port),
            user=settings.monitor.user,
            password=given.get_secret_value() if given else secrets.token_urlsafe(12),
            configured=given is not None,
        )

    def variables(self) -> dict[str, str]:
        """What Flower has to be told."""
        return {"CELLBLOCK_MONITOR_PASSWORD": self.password, "CELLBLOCK_MONITOR_PORT": str(self.port)}


def _addresses(own: Mapping[str, str], monitor: _Monitor) -> dict[str, str]:
    """What is told of a fleet that is up, by name. Addresses that are configured may hold passwords."""
    stores = {
        name: own[variable]
        for name in ("blobs_url", "archive_url")
        if (variable := f"CELLBLOCK_{name}".upper()) in own
    }
    return {
        "redis_url": own.get("CELLBLOCK_REDIS_URL", _AS_CONFIGURED),
        "flower_url": f"http://{monitor.address}:{monitor.port}",
        "flower_user": monitor.user,
        "flower_password": _AS_CONFIGURED if monitor.configured else monitor.password,
        **stores,
    }


def _run_proven(services: list[Service], first: FirstJob, announce: Callable[[], None]) -> int:
    """Runs the services, and announces them once a first job has run. Raises :class:`NotConfigured` if it
    does not."""
    failures: list[str] = []
    is_up = threading.Event()

    def prove() -> None:
        try:
            failure = first.failure(lambda: supervisor.ends)
        except Exception as error:  # a defect of ours: no operator waits for it in vain
            _log.exception("first_job_crashed")
            failure = f"the first job could not be watched ({type(error).__name__})"
        if failure is not None:
            failures.append(failure)
            supervisor.refuse()
        elif not supervisor.ends:
            is_up.set()
            announce()

    thread = threading.Thread(target=prove, name="first-job", daemon=True)

    def begin_proof() -> None:
        _tell("running a first job")
        thread.start()

    supervisor = Supervisor(services, on_ready=begin_proof, tell=_tell)
    code = supervisor.run()
    if code and not failures and not is_up.is_set():  # a service refused to start, or ended
        failures.append(first.problem() or "a service ended; its lines above say why")
    if failures:
        raise NotConfigured(f"cellblock is not up: {failures[0]}")
    return code


def _quiet(settings: Settings) -> Settings:
    """Settings that log no more than warnings, unless a level is set: a person reads what ``up`` prints."""
    if "log_level" in settings.telemetry.model_fields_set:
        return settings
    quiet = settings.telemetry.model_copy(update={"log_level": "warning"})
    return settings.model_copy(update={"telemetry": quiet})


def _tell(progress: str) -> None:
    """Says on stderr what ``up`` is doing."""
    with suppress(OSError):  # its terminal was closed: it stops all the same
        print(f"cellblock: {progress} …", file=sys.stderr, flush=True)  # noqa: T201


def _check_flower() -> None:
    try:
        import flower  # noqa: F401 - its own process uses it
    except ModuleNotFoundError:
        raise NotConfigured(
            "this needs the package flower: pip install 'cellblock[monitor]' (cellblock worker does without)"
        ) from None


def _stores_problem(settings: Settings, variables: Mapping[str, str]) -> str | None:
    return blobs_problem(settings, variables) or archive_problem(variables)


def _monitor_port(settings: Settings, *, otherwise: int) -> int:
    """The configured port; if none was configured and the default is taken, ``otherwise``."""
    address, port = settings.monitor.address, settings.monitor.port
    try:
        with closing(socket.socket()) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, port))
            return int(probe.getsockname()[1])
    except OSError as error:
        if "port" in settings.monitor.model_fields_set or error.errno != errno.EADDRINUSE:
            raise unusable_address(settings.monitor, error) from None
        return otherwise


def _wait_for_port(address: str, port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 15
    while True:
        try:
            socket.create_connection((address, port), timeout=1).close()
            return
        except OSError:
            if process.poll() is not None:
                raise NotConfigured("Flower ended at once; its lines above say why") from None
            if time.monotonic() > deadline:
                raise NotConfigured(f"Flower did not listen on {address}:{port} within 15 s") from None
            time.sleep(0.05)


def _check_redis(settings: Settings) -> None:
    """Reports a Redis that does not answer at once: a person waits. Raises :class:`StoreUnavailable`."""
    with closing(connect(settings)) as redis, store_errors("looking for it"):
        redis.ping()


def _announce(where: dict[str, str], json_output: bool) -> None:
    if json_output:
        print(json.dumps(where), flush=True)  # noqa: T201 - the command's one line of output
        return
    configured = where["redis_url"] == _AS_CONFIGURED
    lines = [
        "cellblock is up. In another terminal:",
        *([] if configured else [f"  export CELLBLOCK_REDIS_URL={where['redis_url']}"]),
        *(
            f"  export CELLBLOCK_{name}={where[name.lower()]}"
            for name in ("BLOBS_URL", "ARCHIVE_URL")
            if name.lower() in where
        ),
        "  echo 'print(6*7)' | cellblock run -",
        f"Flower: {where['flower_url']}  user {where['flower_user']}  password {where['flower_password']}",
        "Ctrl-C stops everything."
        if configured
        else "Ctrl-C stops everything, and removes its jobs, results and archive.",
    ]
    print("\n".join(lines), flush=True)  # noqa: T201
