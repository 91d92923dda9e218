"""Whether this machine can run the suite: checked before anything else, with any Python 3.

    python3 tests/suite/needs.py [--docker | --installed] [what is to be run, as pytest takes it]

Says which groups cannot run and which command mends it, and ends with 2. What config/host/setup.sh can
install is not missing. Whether the Docker daemon starts is for config/host/with-docker.sh to say.

The exit code alone answers two questions, 0 for yes and 1 for no. `--docker`: does any of the groups speak to
Docker? `--installed`: is every program there that they start?
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

_RUN = "sudo make test"
_INSTALL = "sudo config/host/setup.sh"
#: The programs that each group starts.
_GROUPS: dict[str, tuple[str, ...]] = {
    "unit": (),
    "packaging": (),
    "ledger": ("redis-server", "postgres"),
    "faults": ("redis-server", "postgres", "ip", "runsc", "dockerd"),
    "sandbox": ("runsc", "dockerd"),
    "attacks": ("runsc", "dockerd"),
    "compat": ("runsc", "dockerd"),
    "e2e": ("redis-server", "chromium", "docker-compose", "runsc", "dockerd"),
}
#: Those that make sandboxes: they have to be root, and speak to Docker.
_WITH_SANDBOXES = {"faults", "sandbox", "attacks", "compat", "e2e"}


def groups_of(chosen: list[str]) -> list[str]:
    """The groups that these paths are in; all of them where none is named."""
    named = [group for group in _GROUPS for path in chosen if f"tests/{group}" in path]
    return list(dict.fromkeys(named)) or list(_GROUPS)


def missing(group: str) -> list[tuple[str, str]]:
    """What a group lacks here, and the command that mends it."""
    found = []
    if (absent := absent_of(group)) and not _can_install():
        found.append((f"{', '.join(absent)} not installed", _INSTALL))
    if group in _WITH_SANDBOXES and os.geteuid() != 0:
        found.append(("not root, and no sandbox can be made without it", _RUN))
    return found


def absent_of(group: str) -> list[str]:
    """The programs of a group that are not installed."""
    return [name for name in _GROUPS[group] if not _has(name)]


def main() -> int:
    """Check; the exit code."""
    chosen = sys.argv[1:]
    if chosen[:1] == ["--docker"]:
        return 0 if _WITH_SANDBOXES & set(groups_of(chosen[1:])) else 1
    if chosen[:1] == ["--installed"]:
        return 1 if any(map(absent_of, groups_of(chosen[1:]))) else 0
    absent = [word for word in chosen if _is_path(word) and not Path(word.partition("::")[0]).exists()]
    if absent:
        print(f"There is no {', '.join(absent)}: T names files and folders of tests", file=sys.stderr)
        return 2
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


def _is_path(word: str) -> bool:
    """Else it is an option, or an option's value."""
    return not word.startswith("-") and ("/" in word or "::" in word or word.endswith(".py"))


def _has(program: str) -> bool:
    if program == "postgres" and list(Path("/usr/lib/postgresql").glob("*/bin/postgres")):
        return True  # Debian keeps it out of PATH
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is not None


def _can_install() -> bool:
    """As config/host/setup.sh decides it."""
    release = Path("/etc/os-release")
    lines = release.read_text().splitlines() if release.exists() else []
    said = {key: value.strip('"') for key, _, value in (line.partition("=") for line in lines)}
    if said.get("ID") != "debian" or int(said.get("VERSION_ID", "99")) < 12:
        return False
    if os.geteuid() == 0:
        return True
    return _has("sudo") and subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
