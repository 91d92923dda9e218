"""gVisor and runc through the Docker daemon.

Every control of a sandbox made this way stands in :meth:`DockerBackend._host_config`.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.types import DriverConfig, LogConfig, Mount, Ulimit
from requests.exceptions import RequestException

from cellblock_config import Isolation, Settings
from cellblock_workers.launcher.backend import (
    BackendUnavailable,
    NotOnThisHost,
    Profile,
    StartFailed,
)
from cellblock_workers.launcher.canary import CANARY, check_canary
from cellblock_workers.launcher.contexts import MOUNT_POINT
from cellblock_workers.launcher.docker.sandbox import DockerSandbox
from cellblock_workers.launcher.etc_files import write_etc
from cellblock_workers.launcher.guest_program import guest_program
from cellblock_workers.launcher.guest_readiness import await_guest
from cellblock_workers.launcher.limits import (
    CAPABILITIES,
    MASKED,
    OWN_PIDS,
    RLIMITS,
    SHM_INODES,
    START_CPUS,
    TERMINAL_OPTIONS,
    TMP_INODES,
    sentry_pids,
    tmpfs_options,
)
from cellblock_workers.launcher.ownership import Ownership
from cellblock_workers.launcher.seccomp import strict_profile
from cellblock_workers.launcher.user_ids import UserIds, id_ranges
from cellblock_workers.log import get_logger

_log = get_logger(__name__)

RUNTIMES = {"gvisor": "runsc", "runc": "runc"}

# The daemon's own devpts has no bound but the host's.
_TERMINALS = Mount(
    "/dev/pts",
    None,
    "volume",
    no_copy=True,
    driver_config=DriverConfig(
        "local",
        {"type": "devpts", "device": "devpts", "o": ",".join(TERMINAL_OPTIONS)},
    ),
)
_NOBODYS_UID = 10_000  #: the uid in a probe, which has no job
#: The age at which a names folder without a container counts as left behind, in seconds.
_LEFT_BEHIND_S = 600.0
# Docker switches IPv6 off without a network; in every other way of making one the loopback has both
# addresses.
_LOOPBACK_SIX, _SIX = {"net.ipv6.conf.lo.disable_ipv6": "0"}, Path("/proc/sys/net/ipv6")
# Besides what tells of the host in /proc: with other ways there is no such mount.
_MASKED = (*MASKED, "/sys", "/dev/mqueue")


class DockerBackend:
    """Starts sandboxes of one isolation. Thread-safe."""

    name = "docker"
    sweeps = "docker"

    def __init__(self, isolation: Isolation, settings: Settings, ownership: Ownership) -> None:
        self.isolation = isolation
        self._settings = settings
        self._ownership = ownership
        self._local = threading.local()
        self._warned = False
        self._sees_cgroups = False  # the first container shows
        self._answered = False  # after the first answer a missing socket means a daemon to wait for
        self._seccomp = json.dumps(strict_profile(isolation))
        self._etc = settings.launcher.state / "docker" / "etc"
        self._shares_files = True  # the first container shows
        ids = id_ranges(settings.launcher.first_user_id)["docker"]
        self._uids = UserIds(settings.launcher.state / "ids", ids)

    def probe(self) -> None:
        """Runs the canary under this runtime and believes only its exit code."""
        runtime = RUNTIMES[self.isolation]
        with self._daemon_errors():
            runtimes = self._api.info().get("Runtimes", {})
            self._answered = True
            if runtime not in runtimes:
                raise NotOnThisHost(
                    f"{self.isolation}: the Docker daemon does not list the runtime {runtime}; "
                    "register it in daemon.json (config/host/daemon.json shows how) and reload the daemon"
                )
            profile = Profile(
                level="standard",
                image=self._settings.sandbox.default_image,
                memory_bytes=256 * 1024 * 1024,
                cpus=1.0,
                pids=20,
            )
            self._ownership.register(sandbox_id := f"probe-{secrets.token_hex(8)}")
            try:
                # Done alone, so that it is known whether the daemon sees our files before others need to
                # know.
                container = self._create(sandbox_id, profile, ["-c", CANARY], _NOBODYS_UID)
                try:
                    self._api.start(container)
                    code = int(self._api.wait(container, timeout=30)["StatusCode"])
                finally:
                    self._api.remove_container(container, force=True, v=True)
            finally:
                self._remove_names(sandbox_id)
                self._ownership.forget(sandbox_id)
        check_canary(self.isolation, code)

    def start(self, profile: Profile) -> DockerSandbox:
        """Creates, attaches and starts a container. Needs no answer from the guest, which announces
        itself."""
        sandbox_id = secrets.token_hex(8)
        self._ownership.register(sandbox_id)
        container, fast = None, self._sees_cgroups
        cpus = max(profile.cpus, START_CPUS) if fast else profile.cpus
        try:
            with self._daemon_errors():
                uid = self._uids.take(sandbox_id)
                options = {
                    "uid": uid,
                    # The sentry's processes are not the job's, and the cgroup cannot tell them apart.
                    "rlimits": {"NPROC": profile.pids} if self.isolation == "gvisor" else {},
                    "preload": self._settings.sandbox.preloaded(profile.image),
                }
                container = self._create(sandbox_id, replace(profile, cpus=cpus), guest_program(options), uid)
                stream = self._attach(container)
                self._api.start(container)
                await_guest(stream, self.isolation, self._settings.sandbox.start_timeout_s)
        except BackendUnavailable:
            with suppress(BackendUnavailable):
                if container is not None:
                    self._remove(container)
                self._forget_names(sandbox_id)
            self._ownership.forget(sandbox_id)  # the sweep removes what is left of it
            raise
        sandbox = DockerSandbox(
            id=sandbox_id,
            profile=profile,
            isolation=self.isolation,
            backend=self.name,
            stream=stream,
            daemon=self,
            container=container,
            starts_fast=fast,
        )
        self._sees_cgroups = sandbox.sees_cgroup()
        # gVisor's sockets are the sentry's own memory.
        if self.isolation != "gvisor" and not sandbox.bound_sockets() and not self._warned:
            self._warned = True
            _log.warning(
                "sockets_not_bounded", reason="the container's cgroup is not below /sys/fs/cgroup here"
            )
        return sandbox

    def close(self) -> None:
        """Does nothing: nothing is kept between sandboxes."""

    def sweep(self) -> int:
        """Removes the containers of owners that are gone."""
        removed = 0
        with self._daemon_errors():
            found = self._api.containers(all=True, filters={"label": Ownership.LABEL_SANDBOX})
        for container in found:
            if self._ownership.is_orphan(container["Labels"]):
                try:
                    removed += self._remove(container["Id"])
                    self._forget_names(container["Labels"][Ownership.LABEL_SANDBOX])
                except BackendUnavailable as error:  # one that cannot be removed stops no other
                    _log.warning("orphan_not_removed", container=container["Id"], reason=str(error))
        self._sweep_names({container["Labels"][Ownership.LABEL_SANDBOX] for container in found})
        return removed

    def _sweep_names(self, known: set[str]) -> None:
        """Removes the names that a killed launcher has left. ``known``: sandboxes with a container."""
        for folder in self._etc.glob("*"):
            with suppress(OSError):  # another launcher removes it
                if folder.name not in known and time.time() - folder.stat().st_mtime > _LEFT_BEHIND_S:
                    shutil.rmtree(folder, ignore_errors=True)

    def _forget_names(self, sandbox_id: str) -> None:
        """Frees the id of a sandbox whose container is gone, and removes its names."""
        self._remove_names(sandbox_id)
        self._uids.give_back(sandbox_id)

    def _remove_names(self, sandbox_id: str) -> None:
        shutil.rmtree(self._etc / sandbox_id, ignore_errors=True)  # none where they cannot be shown

    def inspect(self, container: str) -> dict[str, Any]:
        """The daemon's State of a container; empty once it is gone."""
        with self._daemon_errors():
            try:
                return dict(self._api.inspect_container(container)["State"])
            except NotFound:
                return {}

    def discard(self, sandbox_id: str, container: str) -> None:
        """Kills and removes a container."""
        try:
            self._remove(container)
            self._forget_names(sandbox_id)
        finally:
            self._ownership.forget(sandbox_id)

    @property
    def _api(self) -> docker.APIClient:
        # requests' sessions are not meant to be shared between threads.
        if not hasattr(self._local, "api"):
            self._local.api = docker.APIClient(
                base_url=self._settings.launcher.docker_url, version="auto", timeout=60
            )
        return self._local.api

    def _create(self, sandbox_id: str, profile: Profile, arguments: list[str], uid: int) -> str:
        """Creates a container. ``uid``: the job's; /etc/passwd is to name it."""
        names = self._names(sandbox_id, uid)
        try:
            return self._ask_for(sandbox_id, profile, arguments, names)
        except APIError as error:
            if not names or "bind source path does not exist" not in str(error):
                raise
            self._shares_files = False
            _log.warning(
                "names_not_shown",
                reason=f"the Docker daemon does not see {self._etc}",
                result="jobs have the users and services of their image, and their own user has no name",
            )
            return self._ask_for(sandbox_id, profile, arguments, [])

    def _names(self, sandbox_id: str, uid: int) -> list[Mount]:
        """The files that a job of this user finds in /etc, if daemon and launcher see the same files. They
        belong to this sandbox alone, and go with it. /etc/hosts is Docker's own."""
        if not self._shares_files:
            return []
        folder = self._etc / sandbox_id
        paths = write_etc(folder, uid)
        return [
            Mount(path, f"{folder}{path}", "bind", read_only=True) for path in paths if path != "/etc/hosts"
        ]

    def _ask_for(self, sandbox_id: str, profile: Profile, arguments: list[str], names: list[Mount]) -> str:
        image = self._settings.sandbox.images[profile.image]
        try:
            created = self._api.create_container(
                image,
                ["python3", "-I", "-X", "utf8", *arguments],
                name=f"cellblock-{sandbox_id}",
                hostname="sandbox",
                user="0:0",
                working_dir="/",
                stdin_open=True,
                labels=self._ownership.labels(sandbox_id),
                host_config=self._host_config(profile, names),
            )
        except ImageNotFound:
            raise StartFailed(f"{self.isolation}: the image {image} is missing; run: make images") from None
        return str(created["Id"])

    def _host_config(self, profile: Profile, names: list[Mount]) -> dict[str, Any]:
        """Every control but runsc's own options, which are the daemon's (``config/host/daemon.json``).

        tests/sandbox proves each, tests/attacks tries to pass them.
        """
        gvisor = self.isolation == "gvisor"
        config: dict[str, Any] = self._api.create_host_config(
            runtime=RUNTIMES[self.isolation],
            network_mode="none",  # no way out: connect fails at once
            ipc_mode="none",
            security_opt=["no-new-privileges", f"seccomp={self._seccomp}"],
            cap_drop=["ALL"],
            cap_add=list(CAPABILITIES),  # the guest's; dropped with the uid before the job
            read_only=True,
            tmpfs={
                "/tmp": ",".join(tmpfs_options(self._settings.sandbox.tmp_bytes, TMP_INODES)),  # noqa: S108
                "/dev/shm": ",".join(tmpfs_options(self._settings.sandbox.shm_bytes, SHM_INODES)),  # noqa: S108
            },
            extra_hosts={"sandbox": "127.0.0.1"},
            mem_limit=profile.memory_bytes,
            memswap_limit=profile.memory_bytes,  # no swap: the limit is the limit
            mem_swappiness=0 if not gvisor else None,
            pids_limit=sentry_pids(profile.pids) if gvisor else profile.pids + OWN_PIDS,
            sysctls=_LOOPBACK_SIX if not gvisor and _SIX.exists() else None,
            nano_cpus=round(profile.cpus * 1e9),
            ulimits=[Ulimit(name=name.lower(), soft=value, hard=value) for name, value in RLIMITS.items()],
            oom_kill_disable=False,
            mounts=[
                *names,
                *([_TERMINALS] if not gvisor else []),  # gVisor's are the sentry's own memory
                *([Mount(MOUNT_POINT, profile.context, "bind", read_only=True)] if profile.context else []),
            ],
            log_config=LogConfig(type="none"),  # no log file holds what a job prints
        )
        # Docker's own list, and everything else that tells of the host or can be written outside /tmp.
        config["MaskedPaths"] = list(_MASKED)
        return config

    def _attach(self, container: str) -> socket.socket:
        """The container's stdin and stdout as one socket of ours, before the guest has said anything."""
        attached = self._api.attach_socket(container, params={"stdin": 1, "stdout": 1, "stream": 1})
        try:
            return socket.socket(fileno=os.dup(attached.fileno()))
        finally:
            attached._response.close()

    def _remove(self, container: str) -> bool:
        """Removes a container. Returns whether it was there, without another removal of it under way."""
        with self._daemon_errors():
            try:
                self._api.remove_container(container, force=True, v=True)
            except NotFound:
                return False
            except DockerException as error:
                if "already in progress" not in str(error):
                    raise
                return False
        return True

    def _not_here(self) -> str | None:
        """Why there is no daemon to wait for, as far as its socket shows; None if there may be one."""
        kind, _, path = self._settings.launcher.docker_url.partition("://")
        if kind != "unix" or self._answered:
            return None
        if not Path(path).exists():
            return f"there is no Docker daemon on {path}; apt-get install docker.io, or start it"
        if not os.access(path, os.R_OK | os.W_OK):
            return f"this user is not allowed to use the Docker daemon on {path}; run the launcher as root"
        return None

    @contextmanager
    def _daemon_errors(self) -> Iterator[None]:
        try:
            yield
        except APIError as error:
            raise StartFailed(
                f"{self.isolation}: the Docker daemon refused: {error.explanation or error}"
            ) from error
        except (DockerException, RequestException, OSError) as error:
            if (why := self._not_here()) is not None:
                raise NotOnThisHost(f"{self.isolation}: {why}") from error
            raise BackendUnavailable(
                f"{self.isolation}: the Docker daemon failed: {error}; "
                f"is it running on {self._settings.launcher.docker_url}, and may this user open its socket?"
            ) from error
