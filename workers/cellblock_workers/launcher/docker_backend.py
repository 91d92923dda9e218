"""gVisor and runc through the Docker daemon (requirements R1 and R2).

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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import docker
import structlog
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.types import DriverConfig, LogConfig, Mount, Ulimit
from requests.exceptions import RequestException

from cellblock_config import Isolation, Settings
from cellblock_workers.launcher.announcement import await_guest
from cellblock_workers.launcher.backend import (
    BackendUnavailable,
    Evidence,
    Framing,
    NotOnThisHost,
    Profile,
    StartFailed,
)
from cellblock_workers.launcher.canary import CANARY, judge_canary
from cellblock_workers.launcher.cgroups import SandboxCgroup, host_oom_kills
from cellblock_workers.launcher.contexts import MOUNT_POINT
from cellblock_workers.launcher.etc import write_etc
from cellblock_workers.launcher.guest_program import guest_program
from cellblock_workers.launcher.limits import (
    GUEST_PIDS,
    MASKED,
    RLIMITS,
    SENTRY_PIDS,
    SHM_INODES,
    START_CPUS,
    TERMINALS,
    TMP_INODES,
)
from cellblock_workers.launcher.ownership import Ownership
from cellblock_workers.launcher.seccomp import strict_profile
from cellblock_workers.launcher.user_ids import IdRange, UserIds

_log = structlog.get_logger(__name__)

RUNTIMES = {"gvisor": "runsc", "runc": "runc"}
IDS = IdRange("docker", 200_000, 60_000)
_NOBODYS_UID = 10_000  #: there is no job in a probe

_SIGKILLED = 137
_PANICKED = 2  #: of a Go program: the sentry
# The daemon's own instance of them has no bound but the host's.
_TERMINALS = Mount(
    "/dev/pts",
    None,
    "volume",
    no_copy=True,
    driver_config=DriverConfig(
        "local",
        {
            "type": "devpts",
            "device": "devpts",
            "o": f"nosuid,noexec,newinstance,ptmxmode=0666,mode=0620,max={TERMINALS}",
        },
    ),
)
_TMPFS = "rw,nosuid,nodev,noexec,mode=1777"
# Beside what tells of the host in /proc: with other ways there is no such mount.
#: Docker takes ::1 away with the network; a server of localhost binds it too.
_SYSCTLS = {"net.ipv6.conf.all.disable_ipv6": "0"}
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
        self._answered = False  # once it has, a missing socket is a daemon to wait for
        self._seccomp = json.dumps(strict_profile(isolation))
        self._etc = settings.launcher.state / "docker" / "etc"
        self._shares_files = True  # the first container shows
        self._uids = UserIds(settings.launcher.state / "ids", IDS)

    def probe(self) -> None:
        """Run the canary under this runtime and believe only its exit code."""
        runtime = RUNTIMES[self.isolation]
        with self._daemon_errors():
            runtimes = self._api.info().get("Runtimes", {})
            self._answered = True
            if runtime not in runtimes:
                raise NotOnThisHost(
                    f"{self.isolation}: the Docker daemon does not list the runtime {runtime}; "
                    "register it in daemon.json (config/host/daemon.json shows how) and reload the daemon"
                )
            profile = Profile("standard", self._settings.sandbox.default_image, 256 * 1024 * 1024, 1.0, 20)
            self._ownership.register(sandbox_id := f"probe-{secrets.token_hex(8)}")
            try:
                # Alone, so that whether the daemon sees our files is known before others need to.
                container = self._create(sandbox_id, profile, ["-c", CANARY], _NOBODYS_UID)
                try:
                    self._api.start(container)
                    code = int(self._api.wait(container, timeout=30)["StatusCode"])
                finally:
                    self._api.remove_container(container, force=True, v=True)
            finally:
                self._forget(sandbox_id)
        judge_canary(self.isolation, code)

    def start(self, profile: Profile) -> DockerSandbox:
        """Create, attach, start. The guest needs no answer: it announces itself on the stream."""
        sandbox_id = secrets.token_hex(8)
        self._ownership.register(sandbox_id)
        container, fast = None, self._sees_cgroups
        cpus = max(profile.cpus, START_CPUS) if fast else profile.cpus
        try:
            with self._daemon_errors():
                uid = self._uids.take(sandbox_id)
                options = {
                    "uid": uid,
                    # The sentry's processes are not the job's: the cgroup cannot count them apart.
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
                self._uids.give_back(sandbox_id)
            self._forget(sandbox_id)  # whatever is left of it is the sweep's
            raise
        sandbox = DockerSandbox(sandbox_id, profile, self, container, stream, fast)
        self._sees_cgroups = sandbox.sees_cgroup()
        # gVisor's sockets are the sentry's own memory.
        if self.isolation != "gvisor" and not sandbox.bound_sockets() and not self._warned:
            self._warned = True
            _log.warning(
                "sockets_not_bounded", reason="the container's cgroup is not below /sys/fs/cgroup here"
            )
        return sandbox

    def close(self) -> None:
        """Nothing is kept between sandboxes."""

    def sweep(self) -> int:
        """Remove the containers of owners that are gone."""
        removed = 0
        with self._daemon_errors():
            found = self._api.containers(all=True, filters={"label": Ownership.LABEL_SANDBOX})
        for container in found:
            if self._ownership.is_orphan(container["Labels"]):
                try:
                    removed += self._remove(container["Id"])
                    sandbox_id = container["Labels"][Ownership.LABEL_SANDBOX]
                    self._uids.give_back(sandbox_id)
                    self._remove_names(sandbox_id)
                except BackendUnavailable as error:  # one that will not go stops no other
                    _log.warning("orphan_not_removed", container=container["Id"], reason=str(error))
        return removed

    def inspect(self, container: str) -> dict[str, Any]:
        """The daemon's State of a container; empty once it is gone."""
        with self._daemon_errors():
            try:
                return dict(self._api.inspect_container(container)["State"])
            except NotFound:
                return {}

    def discard(self, sandbox_id: str, container: str) -> None:
        """Kill and remove a container."""
        try:
            self._remove(container)
            self._uids.give_back(sandbox_id)
        finally:
            self._forget(sandbox_id)

    def _forget(self, sandbox_id: str) -> None:
        self._remove_names(sandbox_id)
        self._ownership.forget(sandbox_id)

    def _remove_names(self, sandbox_id: str) -> None:
        shutil.rmtree(self._etc / sandbox_id, ignore_errors=True)  # most have none where they cannot be shown

    @property
    def _api(self) -> docker.APIClient:
        # requests' sessions are not meant to be shared between threads.
        if not hasattr(self._local, "api"):
            self._local.api = docker.APIClient(
                base_url=self._settings.launcher.docker_url, version="auto", timeout=60
            )
        return self._local.api

    def _create(self, sandbox_id: str, profile: Profile, arguments: list[str], uid: int) -> str:
        """``uid``: the job's, who is to have a name."""
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
        """What a job of this user finds in /etc, as far as daemon and launcher see the same files.

        /etc/hosts is Docker's own.
        """
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
        """Every control in one place; tests/sandbox proves each, tests/attacks tries to pass them."""
        gvisor = self.isolation == "gvisor"
        config: dict[str, Any] = self._api.create_host_config(
            runtime=RUNTIMES[self.isolation],
            network_mode="none",  # no way out: connect fails at once (R3)
            sysctls=_SYSCTLS if not gvisor else None,
            ipc_mode="none",
            security_opt=["no-new-privileges", f"seccomp={self._seccomp}"],
            cap_drop=["ALL"],
            cap_add=["SETUID", "SETGID", "KILL"],  # the guest's; dropped with the uid before the job
            read_only=True,
            tmpfs={
                "/tmp": f"{_TMPFS},nr_inodes={TMP_INODES},size={self._settings.sandbox.tmp_bytes}",  # noqa: S108
                "/dev/shm": f"{_TMPFS},nr_inodes={SHM_INODES},size={self._settings.sandbox.shm_bytes}",  # noqa: S108
            },
            extra_hosts={"sandbox": "127.0.0.1"},
            mem_limit=profile.memory_bytes,
            memswap_limit=profile.memory_bytes,  # no swap: the limit is the limit
            mem_swappiness=0 if not gvisor else None,
            pids_limit=SENTRY_PIDS if gvisor else profile.pids + GUEST_PIDS,
            nano_cpus=round(profile.cpus * 1e9),
            ulimits=[Ulimit(name=name.lower(), soft=value, hard=value) for name, value in RLIMITS.items()],
            oom_kill_disable=False,
            mounts=[
                *names,
                *([_TERMINALS] if not gvisor else []),  # gVisor's are the sentry's own memory
                *([Mount(MOUNT_POINT, profile.context, "bind", read_only=True)] if profile.context else []),
            ],
            log_config=LogConfig(type="none"),  # what a job prints is nobody's log file
        )
        # Docker's own list, and what else tells of the host or can be written outside /tmp.
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
        """Whether it was there, and nobody else's removal of it was under way."""
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
        """Why there is no daemon to wait for, where that can be told from its socket."""
        kind, _, path = self._settings.launcher.docker_url.partition("://")
        if kind != "unix" or self._answered:
            return None
        if not Path(path).exists():
            return f"there is no Docker daemon on {path}; apt-get install docker.io, or start it"
        if not os.access(path, os.R_OK | os.W_OK):
            return f"this user may not use the Docker daemon on {path}; run the launcher as root"
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


@dataclass(slots=True)
class DockerSandbox:
    """One container with its guest."""

    id: str
    profile: Profile
    _backend: DockerBackend
    _container: str
    stream: socket.socket
    _starts_fast: bool  #: its quota is to be written when it is lent
    _cgroup: SandboxCgroup = field(init=False)
    _cpu_ms_before: int = field(init=False, default=0)
    _host_oom_kills_before: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._cgroup = SandboxCgroup(
            (Path("docker") / self._container, Path("system.slice") / f"docker-{self._container}.scope")
        )

    @property
    def isolation(self) -> str:
        """What separates the job from the host."""
        return self._backend.isolation

    @property
    def backend(self) -> str:
        """How it was made."""
        return self._backend.name

    @property
    def series(self) -> int:
        """A single one."""
        return 0

    @property
    def framing(self) -> Framing:
        """The daemon puts an eight-byte header before each piece of output."""
        return "docker"

    def sees_cgroup(self) -> bool:
        """Whether its cgroup is below /sys/fs/cgroup here: then its limits can be written."""
        return self._cgroup.memory_limit_bytes() is not None

    def bound_sockets(self) -> bool:
        """Whether what its sockets hold is bounded now."""
        return self._cgroup.bound_sockets()

    def lend(self) -> None:
        """Hold it to the job's share of CPU time, and start counting that."""
        late = self._starts_fast and self.profile.cpus < START_CPUS
        if late and not self._cgroup.limit_cpus(self.profile.cpus):
            raise StartFailed(
                f"{self.isolation}: CPU time cannot be limited in the cgroup of {self.id}; "
                "the launcher needs the cpu controller below /sys/fs/cgroup, writable"
            )
        self._cpu_ms_before = self._cgroup.cpu_ms() or 0
        self._host_oom_kills_before = host_oom_kills()

    def evidence(self, *, ended: bool) -> Evidence:
        """Read the cgroup while it is there, and the daemon's word when the sandbox has ended."""
        group = self._cgroup
        oom_kills = group.oom_kills()
        pids_refused = None if self.isolation == "gvisor" else group.pids_refused()
        peak, total_cpu_ms = group.peak_memory_bytes(), group.cpu_ms()
        cpu_ms = None if total_cpu_ms is None else total_cpu_ms - self._cpu_ms_before
        if cpu_ms is not None and not ended:
            return Evidence(True, None, oom_kills, pids_refused, peak, cpu_ms)
        state = self._final_state() if ended else self._backend.inspect(self._container)
        # containerd passes on the kernel's notice for the cgroup, but loses it when the exit is faster. A
        # sandbox that nobody but the kernel can have killed is then told by the kernel's host-wide count. So
        # is a sentry that panicked: it does when the kernel kills what it cannot do without.
        sudden = {_SIGKILLED, _PANICKED} if self.isolation == "gvisor" else {_SIGKILLED}
        killed = state.get("ExitCode") in sudden and host_oom_kills() > self._host_oom_kills_before
        if state.get("OOMKilled") or (ended and killed):
            oom_kills = max(oom_kills or 0, 1)
            peak = peak or self.profile.memory_bytes
        return Evidence(
            bool(state.get("Running")), state.get("ExitCode"), oom_kills, pids_refused, peak, cpu_ms
        )

    def destroy(self) -> None:
        """Kill and remove the container."""
        self.stream.close()
        self._backend.discard(self.id, self._container)

    def _final_state(self) -> dict[str, Any]:
        # The stream ends a moment before the daemon has written down why.
        deadline = time.monotonic() + 3.0
        while True:
            state = self._backend.inspect(self._container)
            if not state.get("Running") or time.monotonic() > deadline:
                return state
            time.sleep(0.02)
