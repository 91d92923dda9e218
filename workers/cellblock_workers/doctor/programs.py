"""The checklist's lines about programs: what makes sandboxes here, and with which rights."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import docker
from docker.errors import DockerException
from requests.exceptions import RequestException

from cellblock_config import Settings
from cellblock_config.levels import MIB
from cellblock_workers.doctor.checks import Check
from cellblock_workers.doctor.stores import store_checks
from cellblock_workers.launcher.backend import BackendUnavailable
from cellblock_workers.launcher.systemd import manager
from cellblock_workers.worker.memory_need import need, shortage

#: kvm is not tried: in a nested virtual machine it hangs instead of failing.
_PLATFORMS = ("systrap", "ptrace")
_PLATFORM_S = 5.0
_NEEDED_ARGUMENTS = ("--network=none", "--oci-seccomp")


def program_checks(settings: Settings) -> Iterator[Check]:
    """Checks every program that a launcher or ``cellblock up`` may need. Changes nothing."""
    yield _runsc()
    yield _version_of("runc", "runc through the OCI runtime is not available: apt-get install runc")
    yield from _docker(settings)
    yield _image_roots(settings)
    yield _libseccomp()
    yield from _systemd(settings)
    if settings.redis.url is None:
        remedy = "cellblock up starts one: apt-get install redis-server, or set CELLBLOCK_REDIS_URL"
        yield _version_of("redis-server", remedy)


def service_checks(settings: Settings) -> Iterator[Check]:
    """Checks what a worker needs, wherever its launcher is. Keeps a few bytes in the blob store."""
    yield Check("python", "ok", platform.python_version())
    yield from store_checks(settings)
    yield _worker_memory(settings)


def _worker_memory(settings: Settings) -> Check:
    wanted = sum(term.size_bytes for term in need(settings))
    value = f"a worker may have to hold {wanted // MIB} MiB"
    why = shortage(settings)
    return (
        Check("worker memory", "ok", value) if why is None else Check("worker memory", "warning", value, why)
    )


def _version_of(program: str, remedy: str) -> Check:
    path = _which(program)
    if path is None:
        return Check(program, "warning", "not installed", remedy)
    return Check(program, "ok", f"{_first_line([path, '--version'])} ({path})")


def _runsc() -> Check:
    check = _version_of("runsc", "gVisor is not available: apt-get install runsc")
    if check.status != "ok" or os.geteuid() != 0:
        return check
    path = str(_which("runsc"))
    works = next((name for name in _PLATFORMS if _platform_works(path, name)), None)
    if works is None:
        remedy = f"runsc --platform={_PLATFORMS[-1]} --network=none do true says why"
        return Check("runsc", "warning", f"{check.value}; no platform works", remedy)
    return Check("runsc", "ok", f"{check.value}; platform {works} works")


def _platform_works(runsc: str, name: str) -> bool:
    command = [runsc, f"--platform={name}", "--network=none", "do", "true"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PLATFORM_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _docker(settings: Settings) -> Iterator[Check]:
    url = settings.launcher.docker_url
    yield from _docker_socket(url)
    try:
        with closing(docker.APIClient(base_url=url, version="auto", timeout=5)) as api:
            version, info = api.version(), api.info()
            images = {tag for image in api.images() for tag in image["RepoTags"] or ()}
    except (DockerException, RequestException, OSError) as error:
        remedy = (
            "gvisor and runc through Docker are not available: start dockerd (systemctl start docker; in a "
            "checkout: config/host/with-docker.sh COMMAND), or join the group docker"
        )
        yield Check("docker daemon", "warning", f"no answer on {url}: {_short(error)}", remedy)
        return
    yield Check("docker daemon", "ok", f"{version['Version']} on {url}")
    yield _docker_runtime(info.get("Runtimes", {}))
    missing = [image for image in settings.sandbox.images.values() if image not in images]
    if missing:
        yield Check("docker images", "warning", f"missing: {', '.join(missing)}", "make images")
    else:
        yield Check("docker images", "ok", ", ".join(settings.sandbox.images.values()))


def _docker_socket(url: str) -> Iterator[Check]:
    """Every user who can write to it is root on this host. Yields nothing where there is no socket."""
    name = "docker socket"
    kind, _, path = url.partition("://")
    if kind != "unix":
        yield Check(name, "warning", url, "everyone who reaches it is root on its host: use a Unix socket")
        return
    try:
        found = Path(path).stat()
    except OSError:
        return  # the daemon's own line says that it is not reachable
    value = f"{stat.filemode(found.st_mode)} uid {found.st_uid} gid {found.st_gid}"
    if found.st_mode & stat.S_IWOTH:
        yield Check(name, "problem", value, f"every user of this host can become root: chmod o-rwx {path}")
    else:
        yield Check(name, "ok", value)


def _docker_runtime(runtimes: dict[str, Any]) -> Check:
    name = "docker runtime runsc"
    remedy = "merge config/host/daemon.json into /etc/docker/daemon.json and reload the daemon"
    if "runsc" not in runtimes:
        return Check(name, "warning", "not registered", remedy)
    arguments = [argument.lstrip("-") for argument in runtimes["runsc"].get("runtimeArgs") or ()]
    if "ignore-cgroups" in arguments:
        return Check(name, "problem", "--ignore-cgroups", f"it lifts every memory limit: remove it; {remedy}")
    missing = [wanted for wanted in _NEEDED_ARGUMENTS if wanted.lstrip("-") not in arguments]
    if missing:
        return Check(name, "warning", f"without {' '.join(missing)}", remedy)
    return Check(name, "ok", " ".join(f"--{argument}" for argument in arguments))


def _image_roots(settings: Settings) -> Check:
    folder = settings.launcher.image_roots
    missing = [name for name in settings.sandbox.images if not (folder / name / "rootfs").is_dir()]
    if missing:
        remedy = "these cannot run in namespaces or by the OCI runtime: make images"
        return Check("image roots", "warning", f"{folder}: missing {', '.join(missing)}", remedy)
    return Check("image roots", "ok", f"{folder}: {', '.join(settings.sandbox.images)}")


def _libseccomp() -> Check:
    try:
        ctypes.CDLL("libseccomp.so.2")
    except OSError:
        remedy = "namespaces cannot filter system calls: apt-get install libseccomp2"
        return Check("libseccomp", "warning", "not installed", remedy)
    return Check("libseccomp", "ok", "libseccomp.so.2")


def _systemd(settings: Settings) -> Iterator[Check]:
    if not Path("/run/systemd/system").is_dir():
        remedy = "scopes of systemd are not available; the other isolations do not need it"
        yield Check("systemd", "warning", "not the init system here", remedy)
        return
    yield Check("systemd", "ok", _first_line(["systemctl", "--version"]))
    name = settings.launcher.slice
    try:
        found = manager.unit_file(name)
    except BackendUnavailable as error:
        found, name = "", f"{name}: {error}"
    if found:
        yield Check("systemd slice", "ok", found)
    else:
        remedy = (
            "the isolation systemd is not available: config/host/systemd/README.md says how to install it"
        )
        yield Check("systemd slice", "warning", f"no {name}", remedy)


def _which(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not say its version: {_short(error)}"
    return (done.stdout.splitlines() or ["version unknown"])[0][:60]


def _short(error: Exception) -> str:
    return str(error).splitlines()[0][:160] if str(error) else type(error).__name__
