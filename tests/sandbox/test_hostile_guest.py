"""A guest that lies, floods or falls silent costs its own sandbox and nothing else.

Fault injection: the launcher here is a stand-in that speaks launcher/protocol.py truly and lends one end
of a socketpair; at the other end the test plays the guest. Runner, client, session and verdict are real.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from cellblock import JobState, Outcome
from cellblock.contract.results import JobResult
from cellblock_workers.launcher.client import LevelUnavailable
from cellblock_workers.launcher.protocol import REQUEST, Acquire, Probe, Reply, receive, send
from cellblock_workers.worker import runner
from cellblock_workers.worker.frames import frame
from sandbox.harness import MIB, Host, forget_peak_rss, peak_rss_bytes

pytestmark = pytest.mark.no_rerun

Guest = Callable[[socket.socket], None]

READY = frame(b"R", b"")


def ending(**fields: object) -> bytes:
    fine = {
        "code": 0,
        "signal": None,
        "reason": None,
        "full": None,
        "crowded": False,
        "cpu_ms": 1,
        "peak_bytes": 1,
        "wall_ms": 1,
    }
    return frame(b"X", json.dumps({**fine, **fields}).encode())


class StandIn:
    """A launcher that lends socketpairs, and can die at a chosen request."""

    def __init__(self, path: Path, guest: Guest, dies_at: type | None) -> None:
        self._guest = guest
        self._dies_at = dies_at
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(path))
        self._listener.listen()
        self.connection: socket.socket | None = None
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        self.connection, _ = self._listener.accept()
        self._listener.close()
        players: list[threading.Thread] = []
        with suppress(OSError):
            while packet := receive(self.connection)[0]:
                request = REQUEST.validate_json(packet)
                if self._dies_at is type(request):
                    break
                if isinstance(request, Acquire):
                    players.append(self._lend(self.connection))
                else:
                    probed = isinstance(request, Probe)
                    send(self.connection, Reply(isolations={"standard": "runc"}) if probed else Reply())
        self.connection.close()
        for player in players:
            player.join(timeout=20)

    def _lend(self, connection: socket.socket) -> threading.Thread:
        ours, theirs = socket.socketpair()
        with theirs:
            reply = Reply(sandbox="s1", isolation="runc", backend="stand-in", framing="raw", warm=True)
            send(connection, reply, theirs.fileno())
        player = threading.Thread(target=self._play, args=(ours,))
        player.start()
        return player

    def _play(self, stream: socket.socket) -> None:
        with stream, suppress(OSError):
            self._guest(stream)


@contextmanager
def playing(folder: Path, guest: Guest, *, dies_at: type | None = None) -> Iterator[tuple[Host, StandIn]]:
    """A host whose only sandbox holds this guest."""
    path = folder / "stand-in.sock"
    stand_in = StandIn(path, guest, dies_at)
    host = Host(path, sandbox={"start_timeout_s": 1.0, "kill_grace_s": 0.3, "artifacts_s": 0.5})
    try:
        yield host, stand_in
    finally:
        host.launcher.close()
        stand_in.thread.join(timeout=20)
        assert not stand_in.thread.is_alive()


def outcome_of(folder: Path, guest: Guest, timeout_s: float = 10, **spec: Any) -> JobResult:
    """How a job with this much time ends when this guest runs it."""
    with playing(folder, guest) as (host, _):
        return host.run("print(1)", limits={"timeout_s": timeout_s}, **spec)


def saying(*pieces: bytes, hold: bool = True) -> Guest:
    """A guest that says the first piece, takes its job if it is ready, says the rest and holds the line."""

    def guest(stream: socket.socket) -> None:
        stream.sendall(pieces[0])
        if pieces[0] == READY:
            stream.recv(1 << 20)  # the job
        for piece in pieces[1:]:
            stream.sendall(piece)
        while hold and stream.recv(1 << 20):
            pass

    return guest


def test_the_stand_in_itself_works(tmp_path: Path) -> None:
    result = outcome_of(tmp_path, saying(READY, frame(b"O", b"hello\n"), ending()))
    assert (result.outcome, result.stdout, result.exit_code) == (Outcome.OK, "hello\n", 0)


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [
        ([b"\0\0\0\0\0"], "unknown kind"),
        ([READY, frame(b"Q", b"")], "unknown kind b'Q'"),
        ([READY, struct.pack(">cI", b"O", 2**32 - 1)], "4294967295 bytes"),
        ([READY, struct.pack(">cI", b"T", 32 * 1024 + 1)], "32769 bytes"),
        ([struct.pack(">cI", b"R", 1) + b"x"], "1 bytes"),
        ([ending()], "X outside a job"),
        ([READY + ending()], "X outside a job"),
        ([frame(b"O", b"early")], "O outside a job"),
        ([READY, READY], "announced itself twice"),
        ([READY, ending() + frame(b"O", b"late")], "O outside a job"),
        ([READY, frame(b"O", b"")], "says nothing new"),
        ([READY, frame(b"T", b"{}") * 2], "says nothing new"),
        ([READY, ending(outcome="ok")], "malformed"),
        ([READY, ending(reason="cancel")], "malformed"),
        ([READY, ending(full="everything")], "malformed"),
        ([READY, frame(b"A", b"x")], "A outside a collection"),
        ([READY, frame(b"Z", b"done")], "Z outside a collection"),
        ([READY, ending() + frame(b"Z", b"done")], "Z outside a collection"),
        ([READY, frame(b"V", b"")], "says nothing new"),
        ([READY, frame(b"V", b"x" * 65_536) * 20], "longer than the guest may pass on"),
        ([READY, frame(b"X", b"\xff" * 100)], "malformed"),
    ],
)
def test_what_no_honest_guest_says_is_a_sandbox_error_with_the_reason(
    tmp_path: Path, pieces: list[bytes], reason: str
) -> None:
    result = outcome_of(tmp_path, saying(*pieces))
    assert result.outcome is Outcome.SANDBOX_ERROR
    assert result.error is not None
    assert reason in result.error.message
    assert result.evidence["fault"] == result.error.message


@pytest.mark.parametrize("pieces", [[b"O"], [READY], [READY, frame(b"O", b"half")[:-2]], [READY, b"X\0\0"]])
def test_a_stream_that_closes_midway_is_a_sandbox_error(tmp_path: Path, pieces: list[bytes]) -> None:
    result = outcome_of(tmp_path, saying(*pieces, hold=False))
    assert result.outcome is Outcome.SANDBOX_ERROR
    assert result.error is not None
    assert "without a report" in result.error.message


def test_a_guest_that_never_announces_itself_is_given_up(tmp_path: Path) -> None:
    result = outcome_of(tmp_path, lambda stream: (stream.recv(1), None)[1])
    assert result.outcome is Outcome.SANDBOX_ERROR
    assert result.error is not None
    assert "did not announce itself" in result.error.message


def trickle(stream: socket.socket) -> None:
    stream.sendall(READY)
    stream.recv(1 << 20)
    stream.sendall(frame(b"O", b"kept\n") + struct.pack(">cI", b"O", 60_000))
    while True:
        stream.sendall(b"x")
        time.sleep(0.02)


@pytest.mark.parametrize("guest", [saying(READY, frame(b"O", b"kept\n")), trickle])
def test_the_hosts_deadline_holds_whatever_the_guest_does(tmp_path: Path, guest: Guest) -> None:
    result = outcome_of(tmp_path, guest, timeout_s=0.7)
    assert (result.outcome, result.stdout) == (Outcome.WALL_TIMEOUT, "kept\n")
    assert 900 < result.usage.wall_ms < 5000
    assert result.evidence["stopped_by"] == "host"


def test_a_gigabyte_of_output_frames_is_cut_at_the_limit_in_bounded_memory(tmp_path: Path) -> None:
    pushed: list[int] = []

    def flood(stream: socket.socket) -> None:
        stream.sendall(READY)
        stream.recv(1 << 20)
        piece = frame(b"O", b"x" * 64 * 1024)
        for _ in range(16 * 1024):
            stream.sendall(piece)
            pushed.append(len(piece))

    before = forget_peak_rss()
    result = outcome_of(tmp_path, flood)
    assert result.outcome is Outcome.OUTPUT_LIMIT
    assert sum(pushed) < 32 * MIB
    assert peak_rss_bytes() - before < 32 * MIB


@pytest.mark.parametrize("claim", [b"\0" * 32 * 1024, b"{" * 32 * 1024, b'{"type":1}', b'"\\ud800"'])
def test_garbage_about_an_exception_changes_nothing_but_the_message(tmp_path: Path, claim: bytes) -> None:
    result = outcome_of(tmp_path, saying(READY, frame(b"T", claim), ending(code=3)))
    assert (result.outcome, result.exit_code) == (Outcome.EXIT, 3)
    assert result.error is not None
    assert result.error.type == "Exit"


def header(kind: bytes, **fields: object) -> bytes:
    """How an artifact is announced within the A frames."""
    return frame(kind, json.dumps(fields).encode())


FILE = header(b"F", path="a/b", size=5) + b"bytes"
DONE = frame(b"Z", b"done")


def test_artifacts_after_the_end_are_taken_whole(tmp_path: Path) -> None:
    pieces = [ending(), frame(b"A", FILE[:7]), frame(b"A", FILE[7:]), DONE]
    result = outcome_of(tmp_path, saying(READY, *pieces), artifacts=("*",))
    assert (result.outcome, result.artifacts_skipped) == (Outcome.OK, ())
    assert [(file.path, file.data) for file in result.artifacts] == [("a/b", b"bytes")]


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [
        ([frame(b"A", FILE)], "A outside a collection"),
        ([ending(), frame(b"A", header(b"F", path="../x", size=0)), DONE], "outside of the work folder"),
        ([ending(), frame(b"A", header(b"F", path="x", size=2**40)), DONE], "more artifacts than"),
        ([ending(), frame(b"A", FILE[:-1]), DONE], "within a file"),
        ([ending(), frame(b"A", b"\xff" * 100), DONE], "header no honest guest sends"),
        ([ending(), frame(b"Z", b"perhaps")], "unknown word"),
        ([ending(), frame(b"Z", b"")], "unknown word"),
        ([ending(), ending()], "X outside a job"),
        ([ending(), frame(b"O", b"late")], "O outside a job"),
        ([ending(), frame(b"V", b"j1")], "V outside a job"),
    ],
)
def test_artifacts_no_honest_guest_sends_are_a_sandbox_error(
    tmp_path: Path, pieces: list[bytes], reason: str
) -> None:
    result = outcome_of(tmp_path, saying(READY, *pieces), artifacts=("*",))
    assert result.outcome is Outcome.SANDBOX_ERROR
    assert result.error is not None
    assert reason in result.error.message
    assert result.artifacts == ()


@pytest.mark.parametrize(
    ("pieces", "hold", "reason"),
    [
        ([], True, "ended before its files"),
        ([frame(b"A", FILE)], True, "ended before its files"),
        ([frame(b"A", FILE)], False, "ended before its files"),
        ([frame(b"A", FILE), frame(b"Z", b"time")], True, "longer than allowed"),
        ([frame(b"A", FILE + FILE[:9]), frame(b"Z", b"died")], True, "broke off"),
        ([frame(b"Z", b"alive")], True, "outlived"),
    ],
)
def test_a_collection_that_does_not_end_costs_its_time_and_not_the_outcome(
    tmp_path: Path, pieces: list[bytes], hold: bool, reason: str
) -> None:
    before = time.monotonic()
    result = outcome_of(tmp_path, saying(READY, ending(), *pieces, hold=hold), artifacts=("*",))
    assert time.monotonic() - before < 10
    assert result.outcome is Outcome.OK
    assert len(result.artifacts) == sum(piece.startswith(b"A") for piece in pieces)
    assert reason in result.artifacts_skipped[-1].reason


def test_a_flood_of_artifacts_is_cut_in_bounded_memory(tmp_path: Path) -> None:
    def flood(stream: socket.socket) -> None:
        stream.sendall(READY)
        stream.recv(1 << 20)
        stream.sendall(ending())
        for n in range(2000):
            stream.sendall(frame(b"A", header(b"F", path=str(n), size=60_000) + bytes(60_000)))

    before = forget_peak_rss()
    assert outcome_of(tmp_path, flood, artifacts=("*",)).outcome is Outcome.SANDBOX_ERROR
    assert peak_rss_bytes() - before < 64 * MIB


@pytest.mark.parametrize("claim", [b"j{", b"z", b"j" + b"[" * 60_000, b"t\xff", b"jNaN"])
def test_garbage_for_a_value_changes_no_outcome(tmp_path: Path, claim: bytes) -> None:
    result = outcome_of(tmp_path, saying(READY, frame(b"V", claim), ending()))
    assert result.outcome is Outcome.OK
    assert (result.value is None) is (result.value_error is not None)


def test_a_report_without_code_or_signal_never_breaks_the_worker(tmp_path: Path) -> None:
    assert outcome_of(tmp_path, saying(READY, ending(code=None))).outcome is Outcome.SIGNAL


@pytest.mark.parametrize(
    "fields",
    [
        {"code": 256},
        {"code": -1},
        {"code": 10**400},
        {"cpu_ms": 10**400},
        {"cpu_ms": -1},
        {"wall_ms": 10**20},
        {"peak_bytes": 10**20},
        {"peak_bytes": -1},
        {"code": None, "signal": 10**9},
        {"code": None, "signal": 0},
    ],
)
def test_numbers_that_no_process_has_are_a_violation(tmp_path: Path, fields: dict[str, object]) -> None:
    result = outcome_of(tmp_path, saying(READY, ending(**fields)))
    assert result.outcome is Outcome.SANDBOX_ERROR
    assert "malformed" in str(result.evidence["fault"])


def test_a_descriptor_that_lingers_neither_stops_the_worker_nor_its_deadline(tmp_path: Path) -> None:
    linger_s = 12

    def guest(stream: socket.socket) -> None:
        stream.sendall(READY)
        stream.recv(1 << 20)
        with socket.create_server(("127.0.0.1", 0)) as server:
            full = socket.create_connection(server.getsockname())
            full.setblocking(False)
            with suppress(BlockingIOError):
                while True:
                    full.send(b"x" * 65_536)
            full.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, linger_s))
            socket.send_fds(stream, [frame(b"O", b"hello\n")], [full.fileno()])
            full.setblocking(True)
            full.close()
            while stream.recv(1 << 20):
                pass

    with playing(tmp_path, guest) as (host, _):
        host.runner.start()  # as a worker does: a process forked later would wait for what lingers
        before = time.monotonic()
        result = host.run("print(1)", limits={"timeout_s": 0.7})
        took_s = time.monotonic() - before
    assert result.outcome is Outcome.SANDBOX_ERROR
    assert "descriptors on the sandbox's stream" in str(result.evidence["fault"])
    assert took_s < linger_s / 2


@pytest.mark.parametrize("dies_at", [Acquire, None])
def test_a_launcher_that_dies_gives_the_job_back_without_counting_a_loss(
    tmp_path: Path, dies_at: type | None
) -> None:
    def guest(stream: socket.socket) -> None:
        stream.sendall(READY)
        stream.recv(1 << 20)
        connection = stand_in.connection
        assert connection is not None
        connection.shutdown(socket.SHUT_RDWR)
        stream.recv(1)

    with playing(tmp_path, guest, dies_at=dies_at) as (host, stand_in):
        status = host.run_unfinished("print(1)")
    assert (status.state, status.losses) == (JobState.QUEUED, 0)
    assert host.released == [status.job_id]
    assert "launcher" in host.unavailable[0]


def test_no_launcher_at_all_gives_the_job_back_without_counting_a_loss(tmp_path: Path) -> None:
    host = Host(tmp_path / "nobody.sock")
    status = host.run_unfinished("print(1)")
    assert (status.state, status.losses) == (JobState.QUEUED, 0)
    assert str(tmp_path / "nobody.sock") in host.unavailable[0]


def test_a_level_without_an_isolation_for_now_gives_its_job_back_and_pauses_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> JobResult:
        raise LevelUnavailable("docker is away")

    monkeypatch.setattr(runner, "execute", refuse)
    monkeypatch.setattr(runner, "_LEVEL_HOLD_S", 0.3)
    host = Host(tmp_path / "nobody.sock")
    before = time.monotonic()
    status = host.run_unfinished("print(1)")
    assert (status.state, status.losses, host.unavailable) == (JobState.QUEUED, 0, [])
    assert time.monotonic() - before >= 0.3, "held, or it would be claimed again at once"
