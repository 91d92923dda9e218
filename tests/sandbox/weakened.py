"""A fault injector: a launcher whose runc sandboxes lack one control, and whose own probe sees nothing.

``weakened.py FILE``: sandboxes lack the control that is named in this file, and none while it is empty.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from docker.types import Mount

from cellblock_workers.launcher import server, ways
from cellblock_workers.launcher.backend import Profile
from cellblock_workers.launcher.docker.backend import DockerBackend
from cellblock_workers.launcher.user_ids import UserIds, id_ranges

_TMP = "rw,nosuid,nodev,noexec,mode=1777"
#: What each control becomes in Docker's words when it is taken away. The process namespace is never among
#: them: the guest ends a job by killing every process it can see.
REMOVALS: dict[str, dict[str, Any]] = {
    "network": {"NetworkMode": "host", "Sysctls": {}},
    "unix sockets": {"NetworkMode": "host", "Sysctls": {}},
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


class Lacking:
    """The control that is taken away at this moment, read anew each time."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._shared = file.with_name("shared")  # a folder that sandboxes may share
        self._shared.mkdir(exist_ok=True)
        self._shared.chmod(0o1777)

    def control(self) -> str:
        return self._file.read_text()

    def config(self) -> dict[str, Any]:
        """The part of a container's configuration that takes it away."""
        removal = REMOVALS.get(self.control(), {})
        if "Binds" in removal:
            return {"Binds": [bind.replace("SHARED", str(self._shared)) for bind in removal["Binds"]]}
        return removal


class SometimesRoot(UserIds):
    """Gives a sandbox the id 0 while the lacking control asks for it."""

    def __init__(self, folder: Path, first_user_id: int, lacking: Lacking) -> None:
        super().__init__(folder, id_ranges(first_user_id)["docker"])
        self._lacking = lacking

    def take(self, sandbox_id: str) -> int:
        return 0 if self._lacking.control() in _ROOT_FOR_ALL else super().take(sandbox_id)


def weakened(lacking: Lacking) -> type[DockerBackend]:
    """The Docker backend without this control."""

    class Weakened(DockerBackend):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self._uids = SometimesRoot(
                self._settings.launcher.state / "ids", self._settings.launcher.first_user_id, lacking
            )

        def probe(self) -> None:
            return

        def _host_config(self, profile: Profile, names: list[Mount]) -> dict[str, Any]:
            return {**super()._host_config(profile, names), **lacking.config()}

    return Weakened


def main() -> None:
    """Be that launcher."""
    ways._WAYS["docker"] = weakened(Lacking(Path(sys.argv[1])))
    server.main()


if __name__ == "__main__":
    main()
