"""Long looks give way: who waits for a place does not wait for the end of another tenant's texts."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from cellblock.contract.results import Artifact
from cellblock.egress import Outgoing
from cellblock.ledger import Claim
from cellblock_config import EgressSettings
from cellblock_config.levels import MIB
from cellblock_workers.filtering.failures import Stopped
from cellblock_workers.filtering.fair_slots import FairSlots, Turn
from cellblock_workers.filtering.interruption import Interruption
from cellblock_workers.filtering.outgoing_filter import OutgoingFilter
from cellblock_workers.lease import Lease
from parts import wait_until

TOKEN = "gh" + "p_" + "x7Kq9Zt2Lm4Rv8Bw1Nc6Pd3Hs5Jf0Gy7Qa2X"
#: Each beginning is tried by its rule: about six seconds of CPU time for each MiB.
_BEGINNINGS = "".join(("gh" + "p_", "xox" + "b-", "sk_" + "live_", "AK" + "IA", "gl" + "pat-", "ey" + "J"))
HONEST = "".join(f"row {n}, a name and {n * 7919 % 1000} pieces\n" for n in range(4000)).encode()


def long_look(size: int = MIB // 4) -> Outgoing:
    """Two files that take long to look through; the first one has a secret at its end."""
    decoys = (_BEGINNINGS * (size // len(_BEGINNINGS) + 1))[:size].encode()
    first = Artifact(path="a.txt", data=decoys + f"\n{TOKEN}\n".encode())
    return Outgoing(artifacts=(first, Artifact(path="b.txt", data=decoys)))


@pytest.fixture(scope="module")
def outgoing() -> Iterator[OutgoingFilter]:
    one = OutgoingFilter(EgressSettings())
    yield one
    one.close()


class Looking:
    """Looks at once, one thread each, and when each ended."""

    def __init__(self, outgoing: OutgoingFilter) -> None:
        self._outgoing = outgoing
        self._threads: list[threading.Thread] = []
        self.ended: list[str] = []
        self.kept: dict[str, Outgoing] = {}

    def begin(self, tenant: str, said: Outgoing) -> None:
        def look() -> None:
            self.kept[tenant] = self._outgoing.look(said, tenant=tenant).said
            self.ended.append(tenant)

        self._threads.append(threading.Thread(target=look))
        self._threads[-1].start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()


@pytest.mark.timeout(300)
def test_a_tenant_does_not_wait_for_the_end_of_two_others_long_looks(outgoing: OutgoingFilter) -> None:
    looking = Looking(outgoing)
    for tenant in ("a", "b"):
        looking.begin(tenant, long_look())
    wait_until(lambda: len(outgoing._large._held) == 2, 20, "both places taken")
    looking.begin("c", Outgoing(artifacts=(Artifact(path="c.csv", data=HONEST),)))
    looking.join()
    assert looking.ended[0] == "c"
    assert looking.kept["c"].artifacts[0].data == HONEST
    for tenant in ("a", "b"):
        first, second = looking.kept[tenant].artifacts
        assert first.data.endswith(b"\n[REDACTED: github_token]\n"), "nothing that was found is lost"
        assert second.data == long_look().artifacts[1].data


class Process:
    """A process as a turn sees it."""

    def __init__(self, held_bytes: int) -> None:
        self._held_bytes = held_bytes
        self.paused = threading.Event()
        self.resumed = threading.Event()

    def held_bytes(self) -> int:
        return self._held_bytes

    def pause(self) -> None:
        self.paused.set()

    def resume(self) -> None:
        self.resumed.set()


class Holders:
    """Requests that have their places, and threads that wait for one."""

    def __init__(self, places: int, aside_bytes: int) -> None:
        self.slots = FairSlots(places, wait_s=30, aside_bytes=aside_bytes)
        self._held: dict[str, ExitStack] = {}
        self._waiting: list[threading.Thread] = []
        self.order: list[str] = []

    def take(self, name: str, tenant: str) -> Turn:
        self._held[name] = ExitStack()
        return self._held[name].enter_context(self.slots.taken(tenant, Interruption(None)))

    def queue(self, name: str, tenant: str) -> None:
        def wait() -> None:
            self.take(name, tenant)
            self.order.append(name)

        before = len(self.slots._waiting)
        self._waiting.append(threading.Thread(target=wait))
        self._waiting[-1].start()
        wait_until(lambda: len(self.slots._waiting) == before + 1, 10, f"{name} in line")

    def end(self, name: str) -> None:
        self._held.pop(name).close()

    def give_way(self, name: str, turn: Turn, process: Process) -> None:
        """As a worker's thread does it: it returns when the place is back."""

        def wait() -> None:
            turn.give_way(process)
            self.order.append(name)

        self._waiting.append(threading.Thread(target=wait))
        self._waiting[-1].start()
        assert process.paused.wait(10)

    def join(self) -> None:
        for thread in self._waiting:
            thread.join(10)


def test_a_turn_ends_only_for_another_tenants_request() -> None:
    held = Holders(1, aside_bytes=100)
    turn = held.take("a", "a")
    assert turn.give_way(Process(1)) is None, "nobody waits"
    held.queue("a again", "a")
    assert turn.give_way(Process(1)) is None, "its own tenant's next request gains nothing"
    held.queue("b", "b")
    process = Process(1)
    held.give_way("a", turn, process)
    wait_until(lambda: held.order == ["b"], 10, "b's turn")
    assert not process.resumed.is_set()
    held.end("b")
    wait_until(lambda: held.order == ["b", "a"], 10, "who was set aside, before who never began")
    assert process.resumed.is_set()
    held.end("a")
    held.join()
    held.end("a again")


def test_what_is_set_aside_holds_a_bounded_amount_of_memory_together() -> None:
    held = Holders(2, aside_bytes=100)
    first, second = held.take("a", "a"), held.take("b", "b")
    held.queue("c", "c")
    assert first.give_way(Process(101)) is None, "there is no room for it"
    process = Process(60)
    held.give_way("a", first, process)
    wait_until(lambda: held.order == ["c"], 10, "c's turn")
    held.queue("d", "d")
    assert second.give_way(Process(50)) is None, "nor for both"
    held.end("c")
    wait_until(lambda: len(held.order) == 2, 10, "a place for who waited")
    held.end("b")
    held.join()
    assert sorted(held.order) == ["a", "c", "d"]
    held.end("a")
    held.end("d")


def lease() -> Lease:
    """An attempt's right, as far as a filter looks at it."""
    return Lease(Claim("job", 1, "worker", None, 0.0, 0.0))  # type: ignore[arg-type]


def test_a_request_that_is_set_aside_stops_with_its_attempt(outgoing: OutgoingFilter) -> None:
    held, ends = lease(), []

    def look() -> None:
        try:
            outgoing.look(long_look(), tenant="a", lease=held)
        except Stopped as stopped:
            ends.append(stopped)

    victim = threading.Thread(target=look)
    victim.start()
    looking = Looking(outgoing)
    for tenant in ("b", "c"):
        looking.begin(tenant, long_look())
    wait_until(lambda: any(one.held_bytes for one in outgoing._large._waiting), 60, "one set aside")
    tenant = next(one.tenant for one in outgoing._large._waiting if one.held_bytes)
    held.stop("cancel")
    victim.join()
    looking.join()
    held.close()
    assert [(one.reason, one.cpu_s > 0.5) for one in ends] == [("cancel", True)], tenant
    assert not outgoing._large._waiting
    assert outgoing._large._free == 2


CLOSES = """
import os, signal, threading, time
from pathlib import Path
from cellblock.contract.results import Artifact
from cellblock.egress import Outgoing
from cellblock_config.egress import EgressSettings
from cellblock_workers.filtering.outgoing_filter import OutgoingFilter
from cellblock_workers.guest.processes import adopt_orphans
adopt_orphans()
one = OutgoingFilter(EgressSettings())
said = Outgoing(artifacts=(Artifact(path="a", data=b"gh" b"p_" * 200_000),))
threading.Thread(target=one.look, args=(said,), kwargs={"tenant": "t"}, daemon=True).start()
while one._template._started is None:
    time.sleep(0.01)
template = one._template._started.process.pid
children = Path(f"/proc/{template}/task/{template}/children")
while not children.read_text():
    time.sleep(0.01)
looking = int(children.read_text().split()[0])
os.kill(looking, signal.SIGSTOP)
one.close()
print(Path(f"/proc/{looking}").exists(), flush=True)
os._exit(0)
"""


def test_a_process_that_is_set_aside_ends_with_the_filter() -> None:
    """A signal to a stopped process waits until it goes on. Its template awaits it: nobody else may."""
    done = subprocess.run([sys.executable, "-c", CLOSES], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("False\n", "")
