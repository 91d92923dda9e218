"""The processes of a host, and with which user and variables each is started."""

from __future__ import annotations

import json
import os
import pwd
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import celery
from dotenv import dotenv_values

import cellblock_workers
from cellblock.admission.signing import Verifier
from cellblock.errors import NotConfigured
from cellblock_config import Settings
from cellblock_config.launcher import ARCHIVER_USER_ID, MONITOR_USER_ID, WORKER_USER_ID
from cellblock_workers.launcher import spawn
from cellblock_workers.log import get_logger
from cellblock_workers.process_environment import (
    ARCHIVER,
    LAUNCHER,
    MONITOR,
    WORKER,
    environment_of,
)
from cellblock_workers.supervisor import REFUSED, Service, group_of

_log = get_logger(__name__)
PYTHON = sys.executable
_SENTRY_USER = 65_534  # fixed in runsc
#: Flower holds nothing that could be lost, and does not always end when TERM meets its start.
_FLOWER_STOP_S = 5.0


@dataclass(frozen=True, slots=True)
class Account:
    """The user of a service: the account of config/host/systemd if it exists, else a number without one."""

    service: str
    name: str
    user_id: int


WORKER_ACCOUNT = Account("worker", "cellblock", WORKER_USER_ID)
ARCHIVER_ACCOUNT = Account("archiver", "cellblock-archiver", ARCHIVER_USER_ID)
MONITOR_ACCOUNT = Account("flower", "cellblock-monitor", MONITOR_USER_ID)


def host_services(settings: Settings, folder: Path, variables: Mapping[str, str]) -> list[Service]:
    """Launcher and worker of one host, split by privilege.

    ``variables``: of which each process is told those it needs. Raises :class:`NotConfigured`.
    """
    Verifier(settings.signing)  # a key that cannot be used here is reported at once, by the command itself
    user = service_user(WORKER_ACCOUNT, settings.worker.user)
    services = []
    worker_environment = environment_of(WORKER, variables) | _archive_without_login(settings, variables)
    if "socket" not in settings.launcher.model_fields_set:
        path = folder / "launcher.sock"
        worker_environment["CELLBLOCK_LAUNCHER_SOCKET"] = str(path)
        allowed = {user} if user else set()
        launcher_environment = {
            **environment_of(LAUNCHER, variables),
            "CELLBLOCK_LAUNCHER_SOCKET": str(path),
            "CELLBLOCK_LAUNCHER_ALLOWED_UIDS": json.dumps(
                sorted(allowed | set(settings.launcher.allowed_uids))
            ),
        }
        if "owner" not in settings.launcher.model_fields_set:
            launcher_environment["CELLBLOCK_LAUNCHER_OWNER"] = f"{socket.gethostname()[:48]}-{os.getpid()}"
        services.append(
            Service(
                "launcher",
                spawn.COMMAND,
                launcher_environment,
                ready=lambda process: spawn.wait_for_socket(path, process),
            )
        )
    worker = [PYTHON, "-P", "-m", "cellblock_workers.worker.main"]
    services.append(Service("worker", worker, worker_environment, user, refusals=(REFUSED,), patient=True))
    return services


def _archive_without_login(settings: Settings, variables: Mapping[str, str]) -> dict[str, str]:
    """A worker only needs to know whether there is an archive, and never opens it."""
    url = variables.get("CELLBLOCK_ARCHIVE_URL") or (
        settings.archive.url.get_secret_value() if settings.archive.url is not None else ""
    )
    return {"CELLBLOCK_ARCHIVE_URL": f"{urlsplit(url).scheme}:////" if url else ""}


def archiver_service(variables: Mapping[str, str]) -> Service:
    """The archiver of a host. No worker's user can read what it writes."""
    command = [PYTHON, "-P", "-m", "cellblock_workers.archiver"]
    environment, user = environment_of(ARCHIVER, variables), service_user(ARCHIVER_ACCOUNT)
    return Service("archiver", command, environment, user, refusals=(REFUSED,), patient=True)


def monitor_service(
    variables: Mapping[str, str], ready: Callable[[subprocess.Popen[bytes]], None]
) -> Service:
    """The Flower of a host."""
    command = [PYTHON, "-P", "-m", "cellblock_workers.monitor.main"]
    environment, user = environment_of(MONITOR, variables), service_user(MONITOR_ACCOUNT)
    return Service("flower", command, environment, user, stop_s=_FLOWER_STOP_S, ready=ready)


def host_variables() -> dict[str, str]:
    """The variables of this process, and what only the working directory's ``.env`` sets.

    It is read here once: a service's user might not be able to read it.
    """
    dotenv = dotenv_values(".env") if Path(".env").is_file() else {}
    settings = {
        name: value
        for name, value in dotenv.items()
        if name.startswith("CELLBLOCK_") and value is not None and name not in os.environ
    }
    return {**os.environ, **settings}


def service_user(account: Account, configured: str | None = None) -> int | None:
    """The user that a service runs as: not root, if possible; None to keep this one.

    ``configured``: the worker's, by name (CELLBLOCK_WORKER_USER).
    """
    if os.geteuid() != 0:
        return None
    name = configured or account.name
    try:
        user = pwd.getpwnam(name).pw_uid
    except KeyError:
        if configured is not None:
            raise NotConfigured(f"CELLBLOCK_WORKER_USER={name}: this host has no such user") from None
        name, user = f"uid {account.user_id}", account.user_id
    if user == _SENTRY_USER:  # a process may kill another of its user, and list its descriptors
        raise NotConfigured(f"CELLBLOCK_WORKER_USER={name}: gVisor's sandboxes are {name}'s processes too")
    if (unreadable := _unreadable(user)) is None:
        return user
    if configured is not None:
        raise NotConfigured(f"CELLBLOCK_WORKER_USER={name} cannot read {unreadable}")
    _log.warning(
        f"{account.service}_keeps_root",
        reason=f"{name} cannot read {unreadable}",
        remedy="install into a folder every user can read"
        + (", or set CELLBLOCK_WORKER_USER" if account is WORKER_ACCOUNT else ""),
    )
    return None


def _unreadable(user: int) -> str | None:
    """A file of this installation that this user cannot read; None if it can read all that were tried."""
    for module in (os, celery, cellblock_workers):
        readable = subprocess.run(
            ["/usr/bin/test", "-r", str(module.__file__)],
            user=user,
            group=group_of(user),
            extra_groups=[],
            check=False,
        )
        if readable.returncode != 0:
            return str(module.__file__)
    return None
