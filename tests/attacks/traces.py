"""What sandboxes leave on a host: looked for by the names they had, no matter who made them."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import docker
from docker.errors import NotFound

from cellblock_workers.launcher.client import BorrowedSandbox
from parts import wait_until
from sandbox.harness import Host

_NAME = re.compile(r"[0-9a-f]{64}|[0-9a-f]{16}")
_FOLDERS = ("/run", "/var/run/docker", "/tmp")
#: What a job that reached the host could have changed there, by the attacks as they are written.
_LISTED = ("/", "/etc", "/home", "/mnt", "/opt", "/srv", "/var/tmp", "/dev/shm", "/dev/mqueue")
_SWITCHES = (
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/sysrq",
    "/proc/sys/vm/panic_on_oom",
    "/proc/swaps",
)


class Traces:
    """One launcher's sandboxes, from the moment they are lent."""

    def __init__(self, host: Host, api: docker.APIClient) -> None:
        self.host = host
        self.sandboxes: set[str] = set()
        self._names: set[str] = set()
        self._api = api
        self._before = self._settled()

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Note every sandbox that is lent while the block runs."""
        acquire = self.host.launcher.acquire

        def noted(*args: Any, **options: Any) -> BorrowedSandbox:
            lent = acquire(*args, **options)
            self.sandboxes.add(lent.id)
            self._names.add(lent.id)
            if lent.backend == "docker":
                try:
                    self._names.add(str(self._api.inspect_container(f"cellblock-{lent.id}")["Id"]))
                except NotFound:
                    return lent  # ended already
            return lent

        with patch.object(self.host.launcher, "acquire", noted):
            yield

    def found(self) -> list[str]:
        """Processes, containers, cgroups, mounts and files that still carry a name of theirs."""
        return [
            f"{kind}: {text}"
            for kind, texts in (
                ("process", _processes()),
                ("container", self._containers()),
                ("cgroup", _paths("/sys/fs/cgroup")),
                ("mount", Path("/proc/self/mountinfo").read_text().splitlines()),
                *(("file", _paths(folder)) for folder in _FOLDERS),
            )
            for text in texts
            if self._names & set(_NAME.findall(text))
        ]

    def host_now(self) -> dict[str, Any]:
        """The host's own files and switches that attacks reach for."""
        listed = {
            folder: sorted(map(str, Path(folder).iterdir())) for folder in _LISTED if Path(folder).is_dir()
        }
        return listed | {path: Path(path).read_text() for path in _SWITCHES if Path(path).exists()}

    def changed(self) -> dict[str, tuple[Any, Any]]:
        """The parts of the host that have changed: as they were, and as they are."""
        now = self.host_now()
        return {name: (was, now.get(name)) for name, was in self._before.items() if was != now.get(name)}

    def _settled(self) -> dict[str, Any]:
        """The host twice in a row the same: other tests make files that go again."""

        def same() -> dict[str, Any] | None:
            before = self.host_now()
            time.sleep(0.2)
            return before if before == self.host_now() else None

        found: dict[str, Any] = wait_until(same, 30, "a host on which nothing changes")
        return found

    def _containers(self) -> list[str]:
        return [f"{one['Names']} {one['Id']}" for one in self._api.containers(all=True)]


def _processes() -> Iterator[str]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            yield (folder / "cgroup").read_text() + (folder / "cmdline").read_text()
        except (OSError, UnicodeDecodeError):
            continue  # it ended this moment


def _paths(root: str) -> Iterator[str]:
    for folder, folders, names in os.walk(root):
        yield from (f"{folder}/{name}" for name in folders + names)
