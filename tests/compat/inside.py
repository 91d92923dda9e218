"""A worker's parts on a launcher that makes its sandboxes in one way, with room for test suites."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from cellblock.contract.results import JobResult
from parts import LAUNCHER, launcher_process, wait_until
from sandbox.harness import MIB, Host
from sandbox.systemd_host import systemd_launcher
from suite.measured import launcher_of
from suite.ways import EVERY_WAY, environment_of

IMAGE = "compat"
#: What differs from what operators get: time and room, for suites that are longer than a job, and the image.
SANDBOX = {
    "images": {
        "python": "cellblock/python:latest",
        "datascience": "cellblock/datascience:latest",
        IMAGE: f"cellblock/{IMAGE}:latest",
    },
    "timeout_max_s": 1800,
    "tmp_bytes": 512 * MIB,
    "memory_max_bytes": 4096 * MIB,
}
LIMITS = {"memory_bytes": 4096 * MIB, "pids": 256, "cpus": 1.0, "output_bytes": 16 * MIB}
LEDGER = {"lease_s": 3600}


@contextmanager
def compat_host(folder: Path, way: str) -> Iterator[Host]:
    """A host of this way, past its first probe."""
    isolation, _ = EVERY_WAY[way]
    environment = {
        **environment_of(way),
        "CELLBLOCK_LAUNCHER_WARM": "0",
        **{f"CELLBLOCK_SANDBOX_{name.upper()}": json.dumps(value) for name, value in SANDBOX.items()},
    }
    with ExitStack() as stack:
        if isolation == "systemd":
            path = stack.enter_context(systemd_launcher(folder, environment))
        else:
            program, more = launcher_of(isolation, LAUNCHER)
            path, _ = stack.enter_context(launcher_process(folder, program=program, **environment, **more))
        host = Host(path, sandbox=SANDBOX, ledger=LEDGER)
        wait_until(lambda: host.launcher.probe().isolations, 60, f"{way} passing its probe")
        yield host
        host.launcher.close()


def run_job(host: Host, code: str | None, *, timeout_s: float, **spec: Any) -> JobResult:
    """Run one job; several threads may, and each then waits for its own."""
    job_id = host.admit(code, limits={**LIMITS, "timeout_s": timeout_s, **spec.pop("limits", {})}, **spec)
    host.runner.run(job_id)
    result = wait_until(
        lambda: host.ledger.reads.result(job_id), timeout_s + 120, f"the job's end ({host.unavailable})"
    )
    assert isinstance(result, JobResult)
    return result
