"""A host that systemd runs, with this repository's units installed as their README says: in a container.

Its launcher listens in a folder of this machine, so tests speak to it as to any other.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cellblock_config import load_settings
from parts import REPOSITORY, wait_until

UNITS = REPOSITORY / "config" / "host" / "systemd"
SLICE = "cellblock-sandbox.slice"
IMAGE = "cellblock/systemd:latest"
#: What is below the slice's own figures is one test's; the others want a host with room.
ROOMY = {"MemoryMax": "4G", "CPUQuota": "400%"}
_DROP_IN = "/etc/systemd/system/cellblock-launcher.service.d"
_INSTALL = f"""
install -D -m 644 -t /etc/systemd/system {UNITS}/*.slice {UNITS}/*.service
install -D -m 644 {UNITS}/cellblock.sysusers /etc/sysusers.d/cellblock.conf
install -D -m 440 {UNITS}/cellblock.sudoers /etc/sudoers.d/cellblock
systemd-sysusers
ln -s {sys.prefix} /opt/cellblock
mkdir -p /etc/cellblock
systemctl daemon-reload
"""


@dataclass(frozen=True)
class SystemdHost:
    """A running one. ``folder`` is the same here and there."""

    container: str
    folder: Path

    @property
    def socket(self) -> Path:
        """Where its launcher listens."""
        return self.folder / "launcher.sock"

    def sh(self, script: str, *, user: str = "root", check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a script in it."""
        command = ["docker", "exec", "--user", user, self.container, "bash", "-euc", script]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert not check or done.returncode == 0, f"{script}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def bound(self, settings: Mapping[str, str]) -> None:
        """Bound the slice as an operator does: in a drop-in."""
        lines = "".join(f"{name}={value}\n" for name, value in settings.items())
        folder = f"/etc/systemd/system/{SLICE}.d"
        self.sh(f"mkdir -p {folder}; printf '[Slice]\\n%s' {shlex.quote(lines)} >{folder}/size.conf")
        self.sh("systemctl daemon-reload")

    def start_launcher(self, **environment: str) -> None:
        """Start the launcher's unit with these settings."""
        variables = {"CELLBLOCK_LAUNCHER_SOCKET": str(self.socket), **environment}
        # Its socket is in a folder that a test shares with it.
        lines = rf"[Service]\nPrivateTmp=no\nReadWritePaths={self.folder}\n"
        self.sh(f"mkdir -p {_DROP_IN}; printf '{lines}' >{_DROP_IN}/test.conf")
        self.sh("systemctl daemon-reload")
        # In single quotes systemd's EnvironmentFile= takes every character as it is.
        text = "".join(f"{name}='{value}'\n" for name, value in variables.items())
        self.sh(f"printf %s {shlex.quote(text)} >/etc/cellblock/launcher.env")
        self.sh("systemctl restart cellblock-launcher.service")
        there = f"test -S {variables['CELLBLOCK_LAUNCHER_SOCKET']}"
        wait_until(lambda: self.sh(there, check=False).returncode == 0, 30, "the launcher's socket")

    def journal(self) -> str:
        """What the launcher has logged."""
        return self.sh("journalctl --no-pager --quiet --unit cellblock-launcher.service").stdout

    def scopes(self) -> list[str]:
        """The scopes in the slice, as systemd lists them."""
        found = self.sh("systemctl list-units --plain --no-legend 'cellblock-*.scope'").stdout
        return [line.split()[0] for line in found.splitlines()]


@contextmanager
def systemd_host(folder: Path) -> Iterator[SystemdHost]:
    """Boot one and install the units; removed afterwards with all that runs in it."""
    images = load_settings().launcher.image_roots
    mounts = [f"{path}:{path}:ro" for path in {REPOSITORY, Path(sys.prefix), images}]
    options = [
        # Its own systemd makes cgroups and mounts; a covered /proc cannot be mounted anew in a sandbox.
        *("--cap-add", "SYS_ADMIN", "--security-opt", "seccomp=unconfined"),
        *("--security-opt", "systempaths=unconfined", "--security-opt", "apparmor=unconfined"),
        *("--network", "none", "--env", "container=docker", "--tmpfs", "/run", "--tmpfs", "/tmp"),
        *("--volume", "/sys/fs/cgroup:/sys/fs/cgroup:rw", "--volume", f"{folder}:{folder}"),
        *(word for mount in mounts for word in ("--volume", mount)),
    ]
    started = subprocess.run(["docker", "run", "--detach", *options, IMAGE], capture_output=True, text=True)
    assert started.returncode == 0, f"{started.stderr}\nis the image there? images/build.sh systemd"
    host = SystemdHost(started.stdout.strip(), folder)
    try:
        wait_until(lambda: _is_up(host), 60, "systemd being up")
        host.sh(_INSTALL)
        yield host
    finally:
        subprocess.run(["docker", "rm", "--force", host.container], capture_output=True, check=True)


@contextmanager
def systemd_launcher(folder: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    """The socket of a launcher that is a service of such a host."""
    with systemd_host(folder) as host:
        host.bound(ROOMY)
        host.start_launcher(**environment)
        try:
            yield host.socket
        finally:
            (folder / "launcher.log").write_text(host.journal())


def _is_up(host: SystemdHost) -> bool:
    return host.sh("systemctl is-system-running", check=False).stdout.strip() in {"running", "degraded"}


def chains_of(isolation: str) -> dict[str, str]:
    """The settings of a launcher that has this isolation for every level."""
    levels = ("permissive", "standard", "strict")
    return {
        "CELLBLOCK_SANDBOX_ISOLATIONS": f'["{isolation}"]',
        "CELLBLOCK_SANDBOX_CHAINS": json.dumps({level: [isolation] for level in levels}),
    }
