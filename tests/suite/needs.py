"""Whether this machine can run the suite: checked before anything else, with any Python 3.

    python3 tests/suite/needs.py [--docker] [what is to be run, as pytest takes it]

Says which groups cannot run and which command mends it, and ends with 2. What `make setup` installs is not
missing where it can install: as root on Debian, or through a sudo that asks for no password. With `--docker`
it only says by its exit code whether any of the groups speaks to Docker: 0 if so, else 1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

_RUN = "sudo make test"
_INSTALL = "sudo config/host/setup.sh"
#: Of each group: the programs it starts, whether it has to be root, and whether it speaks to Docker.
_GROUPS: dict[str, tuple[tuple[str, ...], bool, bool]] = {
    "unit": ((), False, False),
    "packaging": ((), False, False),
    "ledger": (("redis-server",), False, False),
    "faults": (("redis-server", "ip", "runsc", "dockerd"), True, True),
    "sandbox": (("runsc", "dockerd"), True, True),
    "attacks": (("runsc", "dockerd"), True, True),
    "e2e": (("redis-server", "chromium", "docker-compose", "runsc", "dockerd"), True, True),
}


def groups_of(chosen: list[str]) -> list[str]:
    """The groups that these paths are in; all of them where none is named."""
    named = [group for group in _GROUPS for path in chosen if f"tests/{group}" in path]
    return list(dict.fromkeys(named)) or list(_GROUPS)


def missing(group: str) -> list[tuple[str, str]]:
    """What a group lacks here, and the command that mends it."""
    programs, root, docker = _GROUPS[group]
    found = []
    absent = [name for name in programs if not _has(name)]
    if absent and not _can_install():
        found.append((f"{', '.join(absent)} not installed", _INSTALL))
    if root and os.geteuid() != 0:
        found.append(("not root, and no sandbox can be made without it", _RUN))
    if docker and not absent and os.geteuid() != 0 and not _docker_answers():
        found.append(("no Docker daemon answers, and only root can start one", _RUN))
    return found


def main() -> int:
    """Check; the exit code."""
    chosen = sys.argv[1:]
    if chosen[:1] == ["--docker"]:
        return 0 if any(_GROUPS[group][2] for group in groups_of(chosen[1:])) else 1
    lacking = {group: missing(group) for group in groups_of(chosen)}
    if not any(lacking.values()):
        return 0
    print("These groups of tests cannot run here:", file=sys.stderr)
    for group, reasons in lacking.items():
        for reason, command in reasons:
            print(f"  {group:<10} {reason}; run: {command}", file=sys.stderr)
    rest = [group for group, reasons in lacking.items() if not reasons]
    if rest:
        print(f"The others can: make test T='{' '.join(f'tests/{one}' for one in rest)}'", file=sys.stderr)
    return 2


def _has(program: str) -> bool:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is not None


def _can_install() -> bool:
    if not Path("/etc/debian_version").exists():
        return False
    if os.geteuid() == 0:
        return True
    return _has("sudo") and subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode == 0


def _docker_answers() -> bool:
    return _has("docker") and subprocess.run(["docker", "version"], capture_output=True).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
