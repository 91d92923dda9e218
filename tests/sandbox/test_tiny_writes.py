"""What a job writes byte by byte costs its worker little more than what it writes at once."""

from __future__ import annotations

import statistics
import time

import pytest

from cellblock import Outcome
from cellblock.egress.governor import Governor
from sandbox.harness import Host

COUNT = 400_000


@pytest.fixture
def host(sandbox_hosts: dict[str, Host], kernel_way: str) -> Host:
    return sandbox_hosts[kernel_way]


def test_a_byte_at_a_time_is_few_messages(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces, feed = [], Governor.feed

    def counted(self: Governor, chunk: bytes) -> None:
        pieces.append(len(chunk))
        feed(self, chunk)

    monkeypatch.setattr(Governor, "feed", counted)
    code = f"import os\nfor _ in range({COUNT}): os.write(1, b'x')"
    result = host.run(code, limits={"timeout_s": 60})
    assert (result.outcome, sum(pieces)) == (Outcome.OK, COUNT)
    assert len(pieces) < result.usage.wall_ms / 4 + COUNT / 4096 + 20


def test_what_a_job_says_is_not_held_back(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line, a pause, a line: each arrives by itself, and soon after it was written."""
    late_ms: list[float] = []
    feed = Governor.feed

    def timed(self: Governor, chunk: bytes) -> None:
        late_ms.extend(1000 * (time.time() - float(line)) for line in chunk.split())
        feed(self, chunk)

    monkeypatch.setattr(Governor, "feed", timed)
    code = "import time\nfor _ in range(20):\n    print(time.time(), flush=True)\n    time.sleep(0.1)"
    result = host.run(code)
    assert (result.outcome, len(late_ms)) == (Outcome.OK, 20)
    assert statistics.median(late_ms) < 50, "gathered, it would be half the run: 1,000"


OWN_PIPES = """
import os, threading, time
def is_pipe(n):
    try: return os.readlink(f'/proc/self/fd/{n}').startswith('pipe')
    except OSError: return False
def eat(end):
    while True: os.read(end, 65536)
own = [n for n in NUMBERS if is_pipe(n)]
for one in own:
    try: end = os.open(f'/proc/self/fd/{one}', os.O_RDONLY)
    except OSError: continue
    for _ in range(3): threading.Thread(target=eat, args=(end,), daemon=True).start()
for _ in range(1000):
    for one in own:
        try: os.write(one, b'x')
        except OSError: pass
    time.sleep(0.0005)
os._exit(3)
"""


@pytest.mark.parametrize("numbers", ["[1]", "[2]", "range(3, 200)"])
def test_a_job_that_reads_what_it_says_itself_harms_itself_alone(host: Host, numbers: str) -> None:
    """Between the guest's looking and its reading nothing may be left to read."""
    result = host.run(OWN_PIPES.replace("NUMBERS", numbers), limits={"timeout_s": 20})
    assert (result.outcome, result.exit_code) == (Outcome.EXIT, 3), result
