"""A fault injector: a launcher whose runc sandboxes lack one control, and whose own probe sees nothing.

``weakened.py CONTROL [FLAG]``: which control; with a flag, it is lacking only while that file exists.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cellblock_workers.launcher import server
from cellblock_workers.launcher.backend import Profile
from cellblock_workers.launcher.docker_backend import DockerBackend
from cellblock_workers.launcher.user_ids import IdRange, UserIds

_TMP = "rw,nosuid,nodev,noexec,mode=1777"
#: What each control becomes in Docker's words when it is taken away. The process namespace is never among
#: them: the guest ends a job by killing every process it can see.
REMOVALS: dict[str, dict[str, Any]] = {
    "network": {"NetworkMode": "host"},
    "unix sockets": {"NetworkMode": "host"},
    "root read-only": {"ReadonlyRootfs": False},
    "memory": {"Memory": 0, "MemorySwap": 0},
    "processes": {"PidsLimit": 4096},
    "system calls": {"SecurityOpt": ["no-new-privileges", "seccomp=unconfined"]},
    "host files": {"Binds": ["/etc:/srv:ro"]},
    "disk bytes": {"Tmpfs": {"/tmp": _TMP}},
    "disk inodes": {"Tmpfs": {"/tmp": f"{_TMP},size=67108864"}},
    "job to job": {"Binds": ["SHARED:/var/tmp"]},
    # Not Docker's to take away: the uid is the guest's option.
    "uid": {},
    "guest": {},
}
_ROOT_FOR_ALL = {"uid", "guest"}


class RootForAll(UserIds):
    """Gives every sandbox the id 0."""

    def take(self, sandbox_id: str) -> int:
        return 0


def weakened(control: str, active: Callable[[], bool], shared: Path) -> type[DockerBackend]:
    """The Docker backend without this control. ``shared``: a folder for sandboxes that share one."""
    removal = REMOVALS[control]
    if "Binds" in removal:
        removal = {**removal, "Binds": [bind.replace("SHARED", str(shared)) for bind in removal["Binds"]]}

    class Weakened(DockerBackend):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            if control in _ROOT_FOR_ALL:
                self._uids = RootForAll(Path(), IdRange("none", 0, 0))

        def probe(self) -> None:
            return

        def _host_config(self, profile: Profile) -> dict[str, Any]:
            config = super()._host_config(profile)
            return {**config, **removal} if active() else config

    return Weakened


def main() -> None:
    """Be that launcher."""
    control, *flag = sys.argv[1:]
    shared = Path(os.environ["CELLBLOCK_LAUNCHER_SOCKET"]).with_name("shared")
    shared.mkdir(exist_ok=True)
    shared.chmod(0o1777)
    server._WAYS["docker"] = weakened(control, lambda: not flag or Path(flag[0]).exists(), shared)
    server.main()


if __name__ == "__main__":
    main()
