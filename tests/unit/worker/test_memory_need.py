"""What a worker may have to hold follows from its settings, and is compared with what it may have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock_config import Settings, load_settings
from cellblock_config.levels import MIB
from cellblock_workers.worker import memory_need
from cellblock_workers.worker.memory_need import available_bytes, need, shortage
from cellblock_workers.worker.send_queue import SendQueue


def total(**groups: object) -> int:
    return sum(term.size_bytes for term in need(load_settings(**groups)))


@pytest.mark.parametrize(
    ("group", "more"),
    [
        ("worker", {"concurrency": 16}),
        ("ledger", {"artifacts_bytes": 64 * MIB}),
        ("ledger", {"inputs_bytes": 32 * MIB}),
        ("egress", {"filter_memory_bytes": 512 * MIB}),
        ("egress", {"filter_large_at_once": 4}),
        ("egress", {"output_limit_bytes": 16 * MIB}),
    ],
)
def test_whatever_lets_jobs_say_more_is_in_it(group: str, more: dict[str, int]) -> None:
    assert total(**{group: more}) > total()


def test_the_least_limit_counts(tmp_path: Path) -> None:
    proc, cgroup = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (cgroup / "a/b").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:  4194304 kB\n")
    (proc / "self/cgroup").write_text("0::/a/b\n")
    assert available_bytes(proc, cgroup)[0] == 4096 * MIB
    (cgroup / "a/memory.max").write_text(f"{1024 * MIB}\n")
    (cgroup / "a/b/memory.max").write_text("max\n")
    assert available_bytes(proc, cgroup) == (1024 * MIB, "the memory limit of its cgroup (memory.max)")
    (proc / "self/cgroup").write_text("9:memory:/docker/none\n0::/\n")
    (cgroup / "memory").mkdir()
    (cgroup / "memory/memory.limit_in_bytes").write_text(f"{512 * MIB}\n")
    assert available_bytes(proc, cgroup)[0] == 512 * MIB, "a container sees its own group at the root"


def test_a_shortage_names_settings_values_and_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    settings: Settings = load_settings()
    monkeypatch.setattr(memory_need, "available_bytes", lambda: (64 * MIB, "a test"))
    why = shortage(settings)
    assert why is not None
    assert "64 MiB, by a test" in why
    assert "lower worker.concurrency (8)" in why
    monkeypatch.setattr(memory_need, "available_bytes", lambda: (2**50, "a test"))
    assert shortage(settings) is None


def test_an_outbox_makes_its_pieces_when_their_turn_comes() -> None:
    made: list[int] = []

    def pieces() -> Iterator[bytes]:
        for number in range(3):
            made.append(number)
            yield bytes([number]) * 3

    outbox = SendQueue()
    assert not outbox
    outbox.put(pieces())
    outbox.put([b"", b"z"])
    sent = bytearray()
    while outbox:
        sent += outbox.first()[:2]
        assert len(made) <= 1 + len(sent) // 3
        outbox.sent(min(2, len(outbox.first())))
    assert bytes(sent) == b"\0\0\0\1\1\1\2\2\2z"
