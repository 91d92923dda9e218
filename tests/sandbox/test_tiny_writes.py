"""What a job writes byte by byte costs its worker little more than what it writes at once."""

from __future__ import annotations

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


def test_what_a_job_says_is_not_held_back(host: Host) -> None:
    """A line, a pause, a line: each arrives before the next."""
    code = "import time\nfor n in range(200):\n    print(n, flush=True)\n    time.sleep(0.002)"
    result = host.run(code)
    assert result.stdout.split() == [str(number) for number in range(200)]
