"""Short jobs first: what has computed for a while gives way to what has just begun."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import docker
import pytest

from cellblock_workers.launcher.client import BorrowedSandbox
from cellblock_workers.launcher.ownership import Ownership
from parts import wait_until
from sandbox.harness import Host

ROOT = Path("/sys/fs/cgroup")
V1 = (ROOT / "memory").is_dir()
NAME, FULL = ("cpu.shares", 1024) if V1 else ("cpu.weight", 100)
SPIN = "while True: pass"
WAIT = "import time\ntime.sleep(2)"


@contextmanager
def running(host: Host, code: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A job while it runs: the id of its sandbox."""
    ids: list[str] = []
    acquire = host.launcher.acquire

    def recorded(*arguments: Any, **named: Any) -> BorrowedSandbox:
        lent = acquire(*arguments, **named)
        ids.append(lent.id)
        return lent

    monkeypatch.setattr(host.launcher, "acquire", recorded)
    with host.running(code, limits={"timeout_s": 4}):
        yield name_of_cgroup(wait_until(lambda: ids, what="the sandbox")[0])


def name_of_cgroup(sandbox_id: str) -> str:
    """The daemon's own id of a container, else the sandbox's."""
    with closing(docker.APIClient()) as api:
        found = api.containers(filters={"label": f"{Ownership.LABEL_SANDBOX}={sandbox_id}"})
    return str(found[0]["Id"]) if found else sandbox_id


def weights(name: str) -> set[int]:
    """What the cgroups of this name weigh."""
    found = set()
    for folder, names, _ in os.walk(ROOT / "cpu" if V1 else ROOT):
        for one in names:
            with suppress(FileNotFoundError):  # removed since it was listed
                found |= {int((Path(folder) / one / NAME).read_text())} if name in one else set()
    return found


def test_a_job_that_computes_gives_way(
    sandbox_hosts: dict[str, Host], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(sandbox_hosts[way], SPIN, monkeypatch) as sandbox:
        assert weights(sandbox) <= {FULL, FULL // 3}
        wait_until(lambda: weights(sandbox) == {FULL // 3}, what="the weight of one that gives way")


@pytest.mark.way("namespaces")
def test_a_job_that_waits_keeps_its_weight(
    sandbox_hosts: dict[str, Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(sandbox_hosts["namespaces"], WAIT, monkeypatch) as sandbox:
        seen: list[set[int]] = []

        def over() -> bool:
            seen.append(weights(sandbox))
            return not seen[-1]

        wait_until(over, what="the job's end")
    assert set.union(*seen) == {FULL}
    assert len(seen) > 10, "a second and more"
