"""Process ids of the host are shared out by tenant; a job that uses up its own ends by that."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cellblock import Outcome
from cellblock_workers.launcher.limits import OWN_PIDS
from cellblock_workers.launcher.process_shares import ProcessShares
from sandbox.harness import Host
from sandbox.test_oci import PROFILE, backend_with, started
from sandbox.test_precedence import ROOT, V1

PIDS = ROOT / "pids" / "cellblock" if V1 else ROOT / "cellblock"
BOMB = """
import os, time
time.sleep(1)
while True:
    try:
        if os.fork() == 0: time.sleep(30); os._exit(0)
    except OSError: time.sleep(0.01)
"""


def test_fork_bomb_that_ends_gvisors_kernel_is_its_jobs_end(
    sandbox_hosts: dict[str, Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected: a bound close to what the sentry holds, which a fork bomb meets at another one by chance."""
    host, ids = sandbox_hosts["gvisor-oci"], []
    acquire = host.launcher.acquire

    def bounded(*arguments: Any, **named: Any) -> Any:
        lent = acquire(*arguments, **named)
        folder = PIDS / lent.id
        (folder / "pids.max").write_text(str(int((folder / "pids.current").read_text()) + 8))
        ids.append(lent.id)
        return lent

    monkeypatch.setattr(host.launcher, "acquire", bounded)
    result = host.run(BOMB, limits={"timeout_s": 10, "pids": 64})
    assert result.outcome is Outcome.PIDS, result
    assert result.error is not None
    assert "64" in result.error.message


def test_sandboxes_of_one_tenant_have_no_more_process_ids_than_its_share(tmp_path: Path) -> None:
    shares = ProcessShares(40)

    def limits(*sandboxes: Any) -> list[int]:
        return [int((PIDS / sandbox.id / "pids.max").read_text()) for sandbox in sandboxes]

    with ExitStack() as stack:
        backend = backend_with("runc", tmp_path / "state")
        mine = [stack.enter_context(started(backend, PROFILE)) for _ in range(3)]
        (other,) = (stack.enter_context(started(backend, PROFILE)) for _ in range(1))
        own = PROFILE.pids + OWN_PIDS
        assert limits(*mine, other) == [own] * 4
        shares.add(mine[0], "acme")
        shares.add(other, "another")
        assert limits(mine[0], other) == [own, own], "each fits into its tenant's"
        shares.add(mine[1], "acme")
        shares.add(mine[2], "acme")
        assert sum(limits(*mine)) <= 40
        assert min(limits(*mine)) >= 12, "in proportion"
        assert limits(other) == [own]
        shares.back(mine[2])
        shares.back(mine[1])
        shares.back(mine[1])
        assert limits(mine[0]) == [own]
