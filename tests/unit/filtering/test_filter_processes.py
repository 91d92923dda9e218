"""The filter's own processes: what one job said takes no more of a worker than it may."""

from __future__ import annotations

import base64
import lzma
import os
import random
import re
import signal
import string
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock.contract.outcomes import JobError
from cellblock.contract.results import Artifact, SkippedArtifact
from cellblock.contract.values import TableValue
from cellblock.egress import Governed, Outgoing
from cellblock.egress.rules import RULES
from cellblock.ledger import Claim
from cellblock_config import EgressSettings
from cellblock_config.levels import MIB
from cellblock_workers.filtering import wire
from cellblock_workers.filtering.failures import FilterFailed, Stopped
from cellblock_workers.filtering.fair_slots import FairSlots
from cellblock_workers.filtering.interruption import Interruption
from cellblock_workers.filtering.messages import answer_from_wire, answer_to_wire, from_wire, to_wire
from cellblock_workers.filtering.outgoing_filter import OutgoingFilter
from cellblock_workers.filtering.processes import Template, _Talk, environment, start_template
from cellblock_workers.lease import Lease
from parts import wait_until

#: Beginnings of known forms in one run: each is tried by its rule, from there to the end of the run.
_BEGINNINGS = "".join(("gh" + "p_", "xox" + "b-", "sk_" + "live_", "AK" + "IA", "gl" + "pat-", "ey" + "J"))
SECRET = "correct-horse-" + "battery"


def hostile(size: int) -> bytes:
    """H3's artifact: beginnings of all known forms in one run, none of them whole, packed into base64."""
    chance = random.Random(1)
    begun = [rule.literal for rule in RULES if re.fullmatch(r"[\w-]+", rule.literal)]
    run = ""
    while len(run) < size:
        run += "".join(chance.choices(begun, k=1000))
    return base64.b64encode(zlib.compress(run[:size].encode(), 9))


def glued(size: int) -> bytes:
    """Beginnings of known forms, and nothing else."""
    return (_BEGINNINGS * (size // len(_BEGINNINGS) + 1))[:size].encode()


def lease() -> Lease:
    """An attempt's right, as far as a filter looks at it."""
    return Lease(Claim("job", 1, "worker", None, 0.0, 0.0))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def outgoing() -> Iterator[OutgoingFilter]:
    one = OutgoingFilter(EgressSettings(secrets={"pass": SECRET}))
    yield one
    one.close()


@pytest.fixture(scope="module")
def hasty() -> Iterator[OutgoingFilter]:
    """One that gives nobody more than a moment, and little memory."""
    one = OutgoingFilter(
        EgressSettings(filter_cpu_s=1.0, filter_cpu_s_per_mib=0, filter_memory_bytes=32 * MIB)
    )
    yield one
    one.close()


def text(words: str) -> Governed:
    """A stream that was not cut."""
    return Governed(words, 0)


def test_what_is_filtered_here_is_what_is_filtered_there(outgoing: OutgoingFilter) -> None:
    said = Outgoing(
        stdout=text(f"it is {SECRET}\ud800"),
        value={"a": [1, 2.5, None, "é\ud801"]},
        value_kind="json",
        error=JobError(type="E", message=SECRET, traceback="line"),
        evidence={"fault": SECRET, "n": 3, "b": True},
        artifacts=(
            Artifact(path="a.txt", data=SECRET.encode()),
            Artifact(path="b.bin", data=bytes(range(256))),
        ),
        artifacts_skipped=(SkippedArtifact(path="c", reason="too large"),),
    )
    looked = outgoing.look(said, tenant="t")
    kept = looked.said
    assert kept.stdout.text.startswith("it is [REDACTED")
    assert kept.value == said.value
    assert SECRET not in str(kept)
    assert kept.evidence["n"] == 3
    assert [
        (one.path, one.data == before.data)
        for one, before in zip(kept.artifacts, said.artifacts, strict=True)
    ] == [
        ("a.txt", False),
        ("b.bin", True),
    ]
    assert kept.artifacts_skipped == said.artifacts_skipped
    assert {one.stream for one in kept.redactions} == {"stdout", "error", "artifacts"}
    assert 0 < looked.cpu_s < 2


def test_a_table_leaves_as_it_came(outgoing: OutgoingFilter) -> None:
    table = TableValue(b"\xff" * 300)
    assert outgoing.look(Outgoing(value=table, value_kind="table"), tenant="t").said.value is table


def test_a_hostile_file_costs_its_budget_and_nothing_but_itself(hasty: OutgoingFilter) -> None:
    """Other threads of the worker go on: the interpreter's lock is not held."""
    files = (
        Artifact(path="a.txt", data=b"honest"),
        Artifact(path="hostile", data=hostile(2 * MIB)),
        Artifact(path="z.txt", data=b"behind it"),
    )
    began_s, counted, going = time.process_time(), 0, threading.Event()

    def count() -> None:
        nonlocal counted
        while not going.wait(0.001):
            counted += 1

    counter = threading.Thread(target=count)
    counter.start()
    looked = hasty.look(Outgoing(stdout=text("hello"), artifacts=files), tenant="t")
    going.set()
    counter.join()
    assert looked.said.stdout.text == "hello"
    assert [one.path for one in looked.said.artifacts] == ["a.txt"]
    assert [one.path for one in looked.said.artifacts_skipped] == ["hostile", "z.txt"]
    assert "egress.filter_cpu_s" in looked.said.artifacts_skipped[0].reason
    assert {(one.kind, one.stream, one.count) for one in looked.said.redactions} == {
        ("unfiltered", "artifacts", 2)
    }
    assert 0.1 < looked.cpu_s < 6, "what it took is known"
    assert time.process_time() - began_s < 2, "and was not taken from this process"
    assert counted > 20


@pytest.mark.timeout(900)
@pytest.mark.long("the filter reads 4.5 MiB of text")
def test_an_honest_text_of_4_5_mib_passes_within_the_default_budget() -> None:
    """The standard library's sources, as a job may hand them on: nothing is withheld for want of time."""
    held = bytearray()
    for path in sorted(Path(os.__file__).parent.glob("**/*.py")):
        if len(held) < 4.5 * MIB:
            held += path.read_bytes()
    one = OutgoingFilter(EgressSettings())
    try:
        looked = one.look(Outgoing(artifacts=(Artifact(path="sources.txt", data=bytes(held)),)), tenant="t")
    finally:
        one.close()
    assert [kept.path for kept in looked.said.artifacts] == ["sources.txt"]
    assert looked.said.artifacts_skipped == ()
    assert len(looked.said.artifacts[0].data) > 0.99 * len(held)


def test_memory_is_bounded_too(hasty: OutgoingFilter) -> None:
    noise = random.Random(1)
    emoji = "\U0001f600" + "".join(noise.choices(string.ascii_letters + " ", k=MIB))
    said = Outgoing(stdout=text("hello"), artifacts=(Artifact(path="big", data=emoji.encode()),))
    generous = OutgoingFilter(EgressSettings(filter_cpu_s=60, filter_memory_bytes=32 * MIB))
    try:
        looked = generous.look(said, tenant="t")
    finally:
        generous.close()
    assert looked.said.stdout.text == "hello"
    assert "egress.filter_memory_bytes" in looked.said.artifacts_skipped[0].reason


def test_texts_that_take_too_long_say_so_in_their_place(hasty: OutgoingFilter) -> None:
    words = hostile(MIB).decode()
    looked = hasty.look(Outgoing(stdout=text(words), value=words, value_kind="json"), tenant="t")
    assert looked.said.stdout.text.startswith("[withheld: looking through it takes more than 1.0 s")
    assert looked.said.value_kind is None
    assert looked.said.value_error is not None
    assert "withheld" in looked.said.value_error


def test_an_honest_text_of_some_size_passes(outgoing: OutgoingFilter) -> None:
    words = "".join(f"row {number}, a name and {number * 7919 % 1000} pieces\n" for number in range(16_000))
    data = words.encode()
    looked = outgoing.look(Outgoing(artifacts=(Artifact(path="a.csv", data=data),)), tenant="t")
    assert looked.said.artifacts_skipped == ()
    assert looked.said.artifacts[0].data == data


@pytest.mark.parametrize("word", ["cancel", "drain", "lost"])
def test_what_stops_the_attempt_ends_the_filter(outgoing: OutgoingFilter, word: str) -> None:
    held = lease()
    threading.Timer(0.2, lambda: held.stop(word)).start()  # type: ignore[arg-type]
    began = time.monotonic()
    with pytest.raises(Stopped) as stopped:
        outgoing.look(
            Outgoing(artifacts=(Artifact(path="glued", data=glued(3 * MIB)),)), tenant="t", lease=held
        )
    assert (stopped.value.reason, time.monotonic() - began < 20) == (word, True)
    held.close()
    assert outgoing.look(Outgoing(stdout=text("next")), tenant="t").said.stdout.text == "next"


def test_what_was_cancelled_before_is_looked_through(outgoing: OutgoingFilter) -> None:
    held = lease()
    held.stop("cancel")
    said = Outgoing(stdout=text(f"half of it {SECRET}"))
    assert outgoing.look(said, tenant="t", lease=held).said.stdout.text.startswith("half of it [REDACTED")
    held.close()


def test_too_little_money_ends_it_too(outgoing: OutgoingFilter) -> None:
    said = Outgoing(stdout=text("hello"), artifacts=(Artifact(path="hostile", data=hostile(2 * MIB)),))
    looked = outgoing.look(said, tenant="t", afford_s=0.2)
    assert looked.over_cost
    assert looked.said.stdout.text == "hello"
    assert "max_cost_micros" in looked.said.artifacts_skipped[0].reason
    assert looked.cpu_s < 2


def test_a_process_that_is_killed_is_replaced(
    outgoing: OutgoingFilter,
) -> None:
    outgoing.look(Outgoing(stdout=text("one")), tenant="t")
    process = outgoing._idle[-1]
    signal.pidfd_send_signal(process._handle, signal.SIGKILL)
    assert outgoing.look(Outgoing(stdout=text("two")), tenant="t").said.stdout.text == "two"


def test_a_template_that_is_killed_is_started_again(outgoing: OutgoingFilter) -> None:
    outgoing.look(Outgoing(stdout=text("one")), tenant="t")
    started = outgoing._template._started
    template = started.process if started else None
    assert template is not None
    template.kill()
    template.wait()
    assert outgoing.look(Outgoing(stdout=text("two")), tenant="t").said.stdout.text == "two"


def test_a_template_that_ended_before_it_had_its_settings_is_started_again() -> None:
    started = start_template()
    started.process.kill()
    started.process.wait()
    template = Template(EgressSettings(), started)
    template.start()
    one = OutgoingFilter(EgressSettings(), template)
    try:
        assert one.look(Outgoing(stdout=text("one")), tenant="t").said.stdout.text == "one"
    finally:
        one.close()


def test_a_process_that_is_stopped_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cellblock_workers.filtering.bounds._WALL_S", 0.5)
    one = OutgoingFilter(EgressSettings(filter_cpu_s=0.1, filter_cpu_s_per_mib=0))
    try:
        one.look(Outgoing(stdout=text("one")), tenant="t")
        signal.pidfd_send_signal(one._idle[-1]._handle, signal.SIGSTOP)
        with pytest.raises(FilterFailed, match="too little time"):
            one.look(Outgoing(stdout=text("two")), tenant="t")
    finally:
        one.close()


def test_what_a_worn_process_took_is_there_for_a_worker_that_looks_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is worn by what costs most, and its time is on a bill. The mock is a worker on a busy host."""
    late: list[float] = []
    through = _Talk.through

    def slowly(talk: _Talk) -> object:
        answer = through(talk)
        time.sleep(0.5)
        late.append(time.clock_gettime(talk._process._clock))
        return answer

    monkeypatch.setattr(_Talk, "through", slowly)
    one = OutgoingFilter(EgressSettings(filter_cpu_s=0.3, filter_cpu_s_per_mib=0))
    try:
        found = one.look(Outgoing(stdout=text("word " * 100_000)), tenant="t")
    finally:
        one.close()
    assert late
    assert found.cpu_s > 0.1


CLOSES = """
import os
from pathlib import Path
from cellblock.egress import Governed, Outgoing
from cellblock_config.egress import EgressSettings
from cellblock_workers.filtering.outgoing_filter import OutgoingFilter
from cellblock_workers.guest.processes import adopt_orphans
adopt_orphans()
one = OutgoingFilter(EgressSettings())
one.look(Outgoing(stdout=Governed("one", 0)), tenant="t")
one.close()
print([*Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()])
"""


def test_nothing_is_left_when_it_is_closed() -> None:
    """Also where orphans go to a process that reaps none, as PID 1 does in many containers."""
    done = subprocess.run([sys.executable, "-c", CLOSES], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_its_processes_are_told_no_secret_but_by_their_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELLBLOCK_EGRESS_SECRETS", f'{{"a": "{SECRET}"}}')
    monkeypatch.setenv("CELLBLOCK_REDIS_URL", f"redis://:{SECRET}@localhost/0")
    monkeypatch.setenv("SOMEBODYS_TOKEN", SECRET)
    one = OutgoingFilter(EgressSettings(secrets={"a": SECRET}))
    try:
        assert SECRET not in one.look(Outgoing(stdout=text(SECRET)), tenant="t").said.stdout.text
        assert SECRET not in str(environment())
        started = one._template._started
        template = started.process if started else None
        assert template is not None
        for name in ("environ", "cmdline"):
            assert SECRET.encode() not in Path(f"/proc/{template.pid}/{name}").read_bytes()
        assert Path(f"/proc/{template.pid}/oom_score_adj").read_text().strip() == "1000"
        assert b"Max core file size        0" in Path(f"/proc/{template.pid}/limits").read_bytes()
        ignored = next(
            line for line in Path(f"/proc/{template.pid}/status").read_text().splitlines() if "SigIgn" in line
        )
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
            assert int(ignored.split()[1], 16) & 1 << number - 1
    finally:
        one.close()


def test_a_context_is_indexed_once_for_all(outgoing: OutgoingFilter, tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    noise = random.Random(2)
    words = " ".join("".join(noise.choices(string.ascii_lowercase, k=7)) for _ in range(40_000))
    path = tmp_path / "context.txt"
    path.write_text(words)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        first = outgoing.look(Outgoing(stdout=text("a summary")), tenant="t", context=descriptor)
        again = outgoing.look(Outgoing(stdout=text(words[500:2500])), tenant="t", context=descriptor)
        files = (Artifact(path="copy", data=words[9000:12_000].encode()),)
        file = outgoing.look(Outgoing(artifacts=files), tenant="t", context=descriptor)
    finally:
        os.close(descriptor)
    assert (first.said.stdout.text, first.said.blocked) == ("a summary", False)
    assert again.said.blocked
    assert file.said.blocked
    assert len(outgoing._indexes._kept) == 1


def test_answers_are_held_to_what_was_asked() -> None:
    said = Outgoing(stdout=text("a"), artifacts=(Artifact(path="a", data=b"x"),))
    sent, blobs = to_wire(said)
    assert from_wire(sent, blobs) == said
    good, _ = answer_to_wire(said, said)
    assert answer_from_wire(said, good, []) == said
    bad = (
        {"stdout": ["a"]},
        {"stdout": [1, 2]},
        {"artifacts": [[1, False]]},
        {"artifacts": [[0, True]]},
        {"artifacts": [[0, False], [0, False]]},
        {"artifacts": None},
        {"evidence": {"new": "word"}},
        {"value_kind": "table"},
        {"error": "x"},
        {"skipped": [["a"]]},
        {"redactions": [["a", "b", -1]]},
        {"blocked": 1},
    )
    for wrong in bad:
        with pytest.raises(wire.Malformed):
            answer_from_wire(said, {**good, **wrong}, [])


def test_an_answer_is_no_longer_than_what_was_asked_and_its_notices() -> None:
    """Also that of a process which was taken over by what it read: a result has a bound."""
    said = Outgoing(
        stdout=text("a"),
        value=["v" * MIB],
        value_kind="json",
        artifacts=(Artifact(path="a", data=b"x"), Artifact(path="b", data=bytes(MIB))),
    )
    good, _ = answer_to_wire(said, said)
    assert answer_from_wire(said, {**good, "artifacts": [[0, True], [1, False]]}, [bytes(64 * 1024)])
    long = "x" * 200_000
    for wrong, blobs in (
        ({"artifacts": [[0, True], [1, False]]}, [bytes(MIB)]),
        ({"stdout": [long, 0]}, []),
        ({"same_value": False, "value": ["v" * MIB, long]}, []),
        ({"error": ["E", long, ""]}, []),
        ({"skipped": [["a", "why"]] * 20_000}, []),
        ({"redactions": [[long, "stdout", 1]]}, []),
    ):
        with pytest.raises(wire.Malformed, match="notices"):
            answer_from_wire(said, {**good, **wrong}, blobs)


def test_one_tenants_requests_wait_for_one_of_anothers_at_most() -> None:
    turns, order, go = FairSlots(1, wait_s=30, aside_bytes=0), [], threading.Event()

    def ask(tenant: str) -> None:
        with turns.taken(tenant, Interruption(None)):
            order.append(tenant)
            go.wait(10)

    flood = [threading.Thread(target=ask, args=("flood",)) for _ in range(5)]
    for one in flood:
        one.start()
    wait_until(lambda: len(turns._waiting) == 4, 10, "the flood")
    other = threading.Thread(target=ask, args=("other",))
    other.start()
    wait_until(lambda: len(turns._waiting) == 5, 10, "the other")
    go.set()
    for one in (*flood, other):
        one.join()
    assert order.index("other") <= 2


def test_the_last_place_is_for_a_tenant_that_holds_none() -> None:
    turns, order = FairSlots(2, wait_s=30, aside_bytes=0), []
    first, second, go = threading.Event(), threading.Event(), threading.Event()

    def ask(tenant: str, here: threading.Event) -> None:
        with turns.taken(tenant, Interruption(None)):
            order.append(tenant)
            here.set()
            go.wait(10)

    flood = [threading.Thread(target=ask, args=("flood", first)) for _ in range(3)]
    for one in flood:
        one.start()
    wait_until(lambda: len(turns._waiting) == 2, 10, "the flood")
    other = threading.Thread(target=ask, args=("other", second))
    other.start()
    assert second.wait(10)
    assert order == ["flood", "other"]
    go.set()
    for one in (*flood, other):
        one.join()


def test_a_small_file_does_not_wait_for_the_texts_of_others(outgoing: OutgoingFilter) -> None:
    outgoing.look(Outgoing(stdout=text("hello")), tenant="a")
    large = Outgoing(artifacts=(Artifact(path="a.txt", data=glued(MIB)),))
    ended: dict[str, float] = {}

    def look(tenant: str) -> None:
        outgoing.look(large, tenant=tenant)
        ended[tenant] = time.monotonic()

    others = [threading.Thread(target=look, args=(tenant,)) for tenant in ("a", "b")]
    for one in others:
        one.start()
    wait_until(lambda: len(outgoing._large._held) == 2, 10, "the others")
    picture = Artifact(path="p.png", data=b"\x89PNG\r\n\x1a\n" + random.Random(1).randbytes(92))
    began = time.monotonic()
    looked = outgoing.look(Outgoing(artifacts=(picture,)), tenant="c")
    took_s = time.monotonic() - began
    assert looked.said.artifacts == (picture,)
    assert not ended
    for one in others:
        one.join()
    assert took_s < (min(ended.values()) - began) / 3


def test_a_small_archive_of_much_text_is_looked_into_with_the_memory_of_a_large_one() -> None:
    words = " ".join(f"word{n}" for n in range(40_000)).encode()
    packed = lzma.compress(words * 6)
    assert len(packed) < 64 * 1024 < len(words)
    patient = OutgoingFilter(EgressSettings(filter_cpu_s=60.0, filter_memory_bytes=256 * MIB))
    try:
        file = Artifact(path="a.xz", data=packed)
        assert patient.look(Outgoing(artifacts=(file,)), tenant="t").said.artifacts == (file,)
    finally:
        patient.close()
