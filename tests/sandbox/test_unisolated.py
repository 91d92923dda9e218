"""``process`` and ``none`` isolate nothing, say so for every job, and still leave nothing behind."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from cellblock import Outcome
from parts import launcher_process, wait_until
from sandbox.conftest import Run
from sandbox.harness import Host
from suite.ways import UNISOLATED, environment_of

pytestmark = pytest.mark.docker


@pytest.fixture(params=UNISOLATED)
def way(request: pytest.FixtureRequest) -> str:
    """Both ways that isolate nothing."""
    return str(request.param)


def test_every_job_is_logged_as_a_risk(tmp_path: Path, way: str) -> None:
    with launcher_process(tmp_path, **environment_of(way), CELLBLOCK_LAUNCHER_WARM="1") as (path, _):
        host = Host(path)
        wait_until(lambda: host.launcher.probe().isolations, 30, "the probe")
        for _ in range(3):
            assert host.run("print(1)").outcome is Outcome.OK
        host.launcher.close()
        log = tmp_path / "launcher.log"
        assert log.read_text().count("job_not_isolated") == 3


def test_a_launcher_that_is_root_gives_each_job_an_id_of_its_own(run: Run, way: str) -> None:
    assert os.geteuid() == 0
    code = "import os; print(os.getuid(), os.access('/etc/shadow', os.R_OK))"
    seen = [run(code, way=way).stdout.split() for _ in range(2)]
    assert seen[0][1] == seen[1][1] == "False"
    assert len({uid for uid, _ in seen} | {"0"}) == 3


def test_nothing_is_left_of_a_job(run: Run, way: str) -> None:
    code = """
import os, time
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork(): os._exit(0)
        time.sleep(60)
print(os.getuid(), os.getcwd())
"""
    result = run(code, way=way)
    uid, folder = result.stdout.split()
    assert result.outcome is Outcome.OK
    wait_until(lambda: not Path(folder).parent.exists(), what="its folder to go")
    status = subprocess.run(["pgrep", "-u", uid], capture_output=True, check=False)
    assert (status.returncode, status.stdout) == (1, b"")


def test_what_cannot_be_had_without_a_sandbox_is_refused_with_the_reason(
    sandbox_hosts: dict[str, Host], way: str
) -> None:
    host = sandbox_hosts[way]
    refused = host.run("print(1)", image="datascience")
    assert refused.outcome is Outcome.REJECTED
    assert refused.error is not None
    assert "leave the job's image out" in refused.error.message
    (host.contexts / "text").write_text("words")
    refused = host.run("print(1)", context_path=str(host.contexts / "text"))
    assert refused.outcome is Outcome.REJECTED
    assert refused.error is not None
    assert "cannot be mounted without a sandbox" in refused.error.message


def test_none_bounds_neither_memory_nor_processes(run: Run) -> None:
    code = """
import os
held = 'x' * (600 << 20)
made = [os.fork() or os._exit(0) for _ in range(60)]
print(len(held) >> 20, len(made))
"""
    assert run(code, way="none").stdout == "600 60\n"


def test_a_process_whose_name_is_no_text_is_watched_all_the_same(run: Run) -> None:
    code = """
open('/proc/self/comm', 'wb').write(b'\\xff\\xfe) S 1')
x = []
while True: x.append(bytearray(1 << 20))
"""
    for _ in range(2):
        result = run(code, way="process", limits={"memory_bytes": 128 << 20, "timeout_s": 20})
        assert result.outcome is Outcome.MEMORY, result
