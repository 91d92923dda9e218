"""What a worker holds while every job is as large as it may be, beside what memory_need.py says (M7)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cellblock import Client, Job, JobSpec, StoreUnavailable
from cellblock.contract.evaluations import Evaluation, StdioCase, StdioCheck, Trial
from cellblock_config import load_settings
from cellblock_workers.worker.memory_need import need
from faults.neighbours import PLAN, Fleet, fleet
from parts import descendants

pytestmark = [pytest.mark.quiet_host, pytest.mark.timeout(400)]
MIB = 2**20
#: A worker runs eight at once. They belong to two tenants, since one cannot have all of its slots.
JOBS = 10
#: As much as it may say, and little that takes seconds to look through.
SAYS = """
import os
open('0.txt', 'wb').write(os.urandom(4 << 20))
for n in (1, 2): open(f'{n}.txt', 'wb').write(bytes(4 << 20))
open('words.txt', 'w').write('\N{GRINNING FACE} word ' * 20_000)
for n in range(100): print('line ' * 12_000)
result = 'v' * 900_000
"""


def _plain(number: int) -> JobSpec:
    return JobSpec.model_validate(
        {
            "code": f"# {number} \N{GRINNING FACE}\n{SAYS}# " + "c" * 900_000,  # as text four times as long
            "stdin": b"\xff" * (7 * MIB),
            "files": {"data": bytes(7 * MIB)},
            "inputs": {"words": "i" * (7 * MIB)},
            "artifacts": ["*.txt"],
            "limits": {"timeout_s": 60},
        }
    )


def _trials(number: int) -> JobSpec:
    source = f"# {number} \N{GRINNING FACE}\nprint('o' * (4 << 20), end='')"
    check = StdioCheck(cases=(StdioCase(stdin="1\n", stdout="o" * MIB),) * 3)
    trials = tuple(Trial(id=str(n), source=f"{source}#{n}", check=0) for n in range(4))
    return JobSpec.model_validate({"evaluation": Evaluation(checks=(check,), trials=trials)})


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder: Path = tmp_path_factory.mktemp("memory")
    folder.chmod(0o755)
    with fleet(folder) as made:
        yield made


@pytest.mark.parametrize("make", [_plain, _trials])
def test_a_worker_holds_no_more_than_its_settings_say(host: Fleet, make: object) -> None:
    assert callable(make)
    peak = _Peak(host.worker.pid)
    with peak:
        jobs = [
            _submit(host.client, make(n).model_copy(update={"tenant": f"tenant-{n % 2}", "plan": PLAN}))
            for n in range(JOBS)
        ]
        outcomes = {job.result(timeout_s=300).outcome.value for job in jobs}
    ceiling = sum(term.size_bytes for term in need(load_settings()))
    found = {"peak_mib": peak.most_bytes // MIB, "ceiling_mib": ceiling // MIB, "outcomes": sorted(outcomes)}
    print(json.dumps(found))
    assert outcomes == {"ok"}, found
    assert host.worker_lives()
    assert 150 * MIB < peak.most_bytes < ceiling, found


def _submit(client: Client, spec: JobSpec) -> Job:
    """However long 25 MiB take to get to a busy store: a job that is in it twice does no harm here."""
    for _ in range(10):
        with suppress(StoreUnavailable):
            return client.submit(spec)
    raise AssertionError("the store takes no job of this size")


class _Peak:
    """The most that a process and all below it held at once, shared pages counted once."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.most_bytes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> _Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.05):
            held = sum(map(_pss_bytes, [self._pid, *descendants(self._pid)]))
            self.most_bytes = max(self.most_bytes, held)


def _pss_bytes(pid: int) -> int:
    with suppress(OSError):  # it has just ended
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0
