"""The processes of a host, and with which user and secrets each is started."""

from __future__ import annotations

import json
import os
import pwd
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import celery
from dotenv import dotenv_values

import cellblock_workers
from cellblock.admission.signing import Verifier
from cellblock.errors import NotConfigured
from cellblock_config import Settings
from cellblock_config.launcher import WORKER_USER_ID
from cellblock_workers.launcher import spawn
from cellblock_workers.log import get_logger
from cellblock_workers.supervisor import REFUSED, Service, group_of

_log = get_logger(__name__)
PYTHON = sys.executable
#: The user a worker runs as: the account of config/host/systemd if it exists, else a number without one.
_ACCOUNT, _NUMBER = "cellblock", WORKER_USER_ID
_SENTRY_USER = 65_534  # fixed in runsc


def host_services(
    settings: Settings, folder: Path, environment: dict[str, str] | None = None
) -> list[Service]:
    """Launcher and worker of one host, split by privilege. Raises :class:`NotConfigured`."""
    Verifier(settings.signing)  # a key that cannot be used here is reported at once, by the command itself
    environment = dict(environment or from_dotenv())
    user = worker_user(settings)
    services = []
    if "socket" not in settings.launcher.model_fields_set:
        path = folder / "launcher.sock"
        environment["CELLBLOCK_LAUNCHER_SOCKET"] = str(path)
        allowed = {user} if user else set()
        launcher_environment = {
            **environment,
            **spawn.NO_SECRETS,
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
    # The key that opens results belongs to their readers, and Flower's password to its users.
    environment |= {"CELLBLOCK_SEALING_PRIVATE_KEY": "", "CELLBLOCK_MONITOR_PASSWORD": ""}
    environment |= _archive_without_login(settings, environment)
    services.append(Service("worker", worker, environment, user, refusals=(REFUSED,), patient=True))
    return services


def _archive_without_login(settings: Settings, environment: Mapping[str, str]) -> dict[str, str]:
    """A worker only needs to know whether there is an archive, and never opens it."""
    url = environment.get("CELLBLOCK_ARCHIVE_URL") or (
        settings.archive.url.get_secret_value() if settings.archive.url is not None else ""
    )
    return {"CELLBLOCK_ARCHIVE_URL": f"{urlsplit(url).scheme}:////" if url else ""}


def archiver_service(settings: Settings, environment: dict[str, str]) -> Service:
    """The archiver of a host."""
    command = [PYTHON, "-P", "-m", "cellblock_workers.archiver"]
    others = {**environment, "CELLBLOCK_SEALING_PRIVATE_KEY": "", "CELLBLOCK_MONITOR_PASSWORD": ""}
    return Service("archiver", command, others, worker_user(settings), refusals=(REFUSED,), patient=True)


def from_dotenv() -> dict[str, str]:
    """The working directory's ``.env``, read here once: the worker's user might not be able to read it."""
    found = dotenv_values(".env") if Path(".env").is_file() else {}
    return {
        name: value
        for name, value in found.items()
        if name.startswith("CELLBLOCK_") and value is not None and name not in os.environ
    }


def worker_user(settings: Settings) -> int | None:
    """The user that the worker runs as: not root, if possible; None to keep this one."""
    if os.geteuid() != 0:
        return None
    name = settings.worker.user or _ACCOUNT
    try:
        user = pwd.getpwnam(name).pw_uid
    except KeyError:
        if settings.worker.user is not None:
            raise NotConfigured(f"CELLBLOCK_WORKER_USER={name}: this host has no such user") from None
        name, user = f"uid {_NUMBER}", _NUMBER
    if user == _SENTRY_USER:  # a process may kill another of its user, and list its descriptors
        raise NotConfigured(f"CELLBLOCK_WORKER_USER={name}: gVisor's sandboxes are {name}'s processes too")
    for module in (os, celery, cellblock_workers):
        readable = subprocess.run(
            ["/usr/bin/test", "-r", str(module.__file__)],
            user=user,
            group=group_of(user),
            extra_groups=[],
            check=False,
        )
        if readable.returncode != 0:
            if settings.worker.user is not None:
                raise NotConfigured(f"CELLBLOCK_WORKER_USER={name} cannot read {module.__file__}")
            _log.warning(
                "worker_keeps_root",
                reason=f"{name} cannot read {module.__file__}",
                remedy="install into a folder every user can read, or set CELLBLOCK_WORKER_USER",
            )
            return None
    return user
