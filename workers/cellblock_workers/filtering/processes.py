"""Filter processes as a worker sees them: it starts and asks them, reads their clocks, and kills them."""

from __future__ import annotations

import os
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from cellblock_config.egress import EgressSettings
from cellblock_workers.filtering import wire
from cellblock_workers.filtering.bounds import FilterBounds
from cellblock_workers.filtering.failures import Died, FilterFailed, Overrun, Stopped
from cellblock_workers.filtering.fair_slots import Turn
from cellblock_workers.filtering.interruption import Interruption
from cellblock_workers.filtering.template import PLAIN, WITH_CONTEXT
from cellblock_workers.log import get_logger

_log = get_logger(__name__)

#: -P: a module in the folder that the command was called in must not replace one of ours.
COMMAND = (sys.executable, "-P", "-m", "cellblock_workers.filtering.template")
#: The whole environment: where programs and libraries are, and nothing of cellblock's.
_PASSED = ("PATH", "LANG", "TZ", "TMPDIR", "SYSTEMROOT")
_PASSED_BEGINNINGS = ("PYTHON", "LD_", "LC_")
_START_S = 30.0
_LOOK_S = 0.25
_PIECE_BYTES = 256 * 1024
#: The kernel ends a process that goes on beyond its time; the worker's own look comes only after that.
_GRACE_S = 3.0
#: The CPU time of a turn, after which a large request gives way to one that waits.
TURN_S = 1.0
_PID_BYTES = 32
_PAGE_BYTES = resource.getpagesize()
_PLACE = re.compile(r"\w{1,60}(?: at [\w.<>]{1,60}:\d{1,6})?")


def environment() -> dict[str, str]:
    """The environment of a template."""
    return {
        # Otherwise numpy's threads would be started before the first fork.
        "OPENBLAS_NUM_THREADS": "1",
        **{
            name: value
            for name, value in os.environ.items()
            if name in _PASSED or name.startswith(_PASSED_BEGINNINGS)
        },
    }


@dataclass(frozen=True, slots=True)
class StartedTemplate:
    """A template's process, and the socket on which it takes its settings and then requests."""

    process: subprocess.Popen[bytes]
    requests: socket.socket

    def close(self) -> None:
        """Closes the connection: the process then ends, and with it every process that it has forked."""
        self.requests.close()
        try:
            self.process.wait(timeout=_LOOK_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start_template() -> StartedTemplate:
    """Begins to start a template."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [*COMMAND, str(theirs.fileno())],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            cwd="/",
            process_group=0,  # a terminal's Ctrl-C is for the worker, also before it can be ignored
        )
    ours.settimeout(_START_S)  # whatever default Celery sets
    return StartedTemplate(process, ours)


class Template:
    """The interpreter that forks filter processes, started when first needed and again when it has ended."""

    def __init__(self, settings: EgressSettings, started: StartedTemplate | None = None) -> None:
        """``started``: a process that was started already, and waits for its settings."""
        self._settings = settings
        self._lock = threading.Lock()
        self._started = started
        self._has_settings = False

    def start(self) -> None:
        """Begins to start it. Returns at once; what fails here is tried again by :meth:`fork`."""
        with self._lock, suppress(OSError):
            self._ready()

    def stop(self) -> None:
        """Closes the connection: it then ends, and with it every process that it has forked."""
        with self._lock:
            self._discard()

    def fork(self, *, with_context: bool) -> FilterProcess:
        """A new process. Raises :class:`FilterFailed`."""
        for last in (False, True):
            try:
                with self._lock:
                    return self._forked(WITH_CONTEXT if with_context else PLAIN)
            except (OSError, ValueError) as error:
                self.stop()
                if last:
                    raise FilterFailed(f"no filter process can be started ({type(error).__name__})") from None
        raise AssertionError("the second try ends it")

    def _forked(self, word: bytes) -> FilterProcess:
        requests = self._ready()
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(requests, [word], [theirs.fileno()])
                answer, handles, _, _ = socket.recv_fds(requests, _PID_BYTES, 1)
                return FilterProcess(int(answer), handles[0], ours)
            except BaseException:
                ours.close()
                raise

    def _ready(self) -> socket.socket:
        """The socket of a process that was told its settings."""
        if self._started is None:
            self._started = start_template()
        if not self._has_settings:
            settings = self._settings.model_dump(mode="json", exclude={"secrets", "secrets_file"})
            for piece in wire.packed({"settings": {**settings, "secrets": self._settings.registered}}):
                self._started.requests.sendall(piece)
            self._has_settings = True
        return self._started.requests

    def _discard(self) -> None:
        if self._started is not None:
            self._started.close()
        self._started, self._has_settings = None, False


class FilterProcess:
    """One process that answers one request after the other, and its CPU time by the kernel's clock."""

    def __init__(self, pid: int, handle: int, stream: socket.socket) -> None:
        self._handle = handle
        self._statm = Path(f"/proc/{pid}/statm")
        self._shared_bytes = self._own_bytes()  # with the template, until it writes there
        self._clock = (~pid << 3) | 2  # as clock_getcpuclockid(3) makes it
        self._stream = stream
        self._stream.setblocking(False)
        self.worn = False  #: whether it must not be used again
        self._used_s = 0.0

    def __enter__(self) -> FilterProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends it."""
        self._send_signal(signal.SIGKILL)
        os.close(self._handle)
        self._stream.close()

    def cpu_s(self) -> float:
        """The CPU time that it has used since its start, in seconds."""
        with suppress(OSError):  # it is gone: the last value counts
            self._used_s = time.clock_gettime(self._clock)
        return self._used_s

    def held_bytes(self) -> int:
        """The memory that it holds beyond what it began with."""
        return max(0, self._own_bytes() - self._shared_bytes)

    def pause(self) -> None:
        """Stops it where it is: until it is resumed it takes neither processor nor more memory."""
        self._send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continues it."""
        self._send_signal(signal.SIGCONT)

    def _send_signal(self, number: signal.Signals) -> None:
        with suppress(OSError):  # it is gone: a wait for its answer ends by itself
            signal.pidfd_send_signal(self._handle, number)

    def _own_bytes(self) -> int:
        with suppress(OSError):
            _, resident, shared, *_ = self._statm.read_text().split()
            return (int(resident) - int(shared)) * _PAGE_BYTES
        return 0

    def ask(
        self,
        message: Mapping[str, object],
        blobs: Sequence[bytes],
        descriptors: Sequence[int],
        bounds: FilterBounds,
        answer_bytes: int,
        interruption: Interruption,
        turn: Turn | None = None,
    ) -> tuple[wire.Message, list[bytes], float]:
        """Its answer of at most ``answer_bytes``, and the CPU time that the answer took, in seconds.

        ``turn``: the place of a large request, which it gives up to others in between.

        Raises :class:`Overrun`, :class:`Stopped`, :class:`Died` and :class:`FilterFailed`; then the process
        is worn.
        """
        talk = _Talk(
            process=self,
            message=dict(message),
            blobs=blobs,
            descriptors=descriptors,
            bounds=bounds,
            answer_bytes=answer_bytes,
            interruption=interruption,
            turn=turn,
        )
        self.worn = True
        answer, back = talk.through()
        self.worn = wire.item(answer, "worn", bool)
        if "failed" in answer:
            raise FilterFailed(_in_our_words(answer), talk.used_s())
        return answer, back, talk.used_s()


def _in_our_words(answer: wire.Message) -> str:
    """The place of a defect. The process worked on a tenant's bytes, so only a text of this form is passed
    on."""
    place = str(answer["failed"])
    return place if _PLACE.fullmatch(place) else "it says nothing plain"


class _Talk:
    """One request and its answer, within bounds that the worker itself enforces."""

    def __init__(
        self,
        process: FilterProcess,
        message: wire.Message,
        blobs: Sequence[bytes],
        descriptors: Sequence[int],
        bounds: FilterBounds,
        answer_bytes: int,
        interruption: Interruption,
        turn: Turn | None,
    ) -> None:
        self._process = process
        self._stream = process._stream
        self._out = [memoryview(piece) for piece in wire.packed(message, blobs) if piece]
        self._descriptors = list(descriptors)
        self._bounds = bounds
        self._most_bytes = answer_bytes
        self._interruption = interruption
        self._turn = turn
        self._turn_until_s = TURN_S
        self._began_s = process.cpu_s()
        self._over = time.monotonic() + bounds.wall_s

    def used_s(self) -> float:
        """The CPU time that the process has used for this request so far."""
        return self._process.cpu_s() - self._began_s

    def through(self) -> tuple[wire.Message, list[bytes]]:
        """Sends the whole request. Returns the answer."""
        try:
            while self._out:
                self._wait(select.POLLOUT)
                self._send()
            head = self._received(wire.HEAD.size)
            text_bytes, blob_bytes = wire.lengths(bytes(head), self._most_bytes)
            message, sizes = wire.unpacked(bytes(self._received(text_bytes)), blob_bytes)
            return message, [bytes(self._received(size)) for size in sizes]
        except wire.Malformed as error:
            raise FilterFailed(f"its answer is {error}", self.used_s()) from None
        except OSError:
            raise self._end() from None

    def _send(self) -> None:
        piece = self._out[0]
        try:
            if self._descriptors:
                sent = socket.send_fds(self._stream, [piece], self._descriptors)
                self._descriptors = []
            else:
                sent = self._stream.send(piece[:_PIECE_BYTES])
        except BlockingIOError:
            return
        self._out[0] = piece[sent:]
        if sent == len(piece):
            del self._out[0]

    def _received(self, size: int) -> bytearray:
        data = bytearray(size)
        at = 0
        with memoryview(data) as view:
            while at < size:
                self._wait(select.POLLIN)
                try:
                    got = self._stream.recv_into(view[at:])
                except BlockingIOError:
                    continue
                if not got:
                    raise self._end()
                at += got
        return data

    def _wait(self, event: int) -> None:
        """Waits until the stream is ready. Raises if the request has to end instead."""
        poll = select.poll()
        poll.register(self._stream, event)
        self._interruption.register(poll)
        while True:
            ready = dict(poll.poll(1000 * _LOOK_S))
            if self._stream.fileno() in ready:
                return
            if (reason := self._interruption.reason) is not None:
                raise Stopped(reason, self.used_s())
            if (used_s := self.used_s()) > self._bounds.cpu_s + _GRACE_S:
                raise Overrun("CPU time", used_s)
            if self._turn is not None and used_s >= self._turn_until_s:
                self._give_way(self._turn, used_s)
            if time.monotonic() > self._over:
                raise FilterFailed("the host had too little time for it", used_s)

    def _give_way(self, turn: Turn, used_s: float) -> None:
        """Lets others have the place, if they wait for it; the time until it is back does not count."""
        try:
            waited_s = turn.give_way(self._process)
        except Stopped as stopped:
            raise Stopped(stopped.reason, used_s) from None
        except FilterFailed as failed:
            raise FilterFailed(str(failed), used_s) from None
        if waited_s is not None:
            self._over += waited_s
            self._turn_until_s = used_s + TURN_S

    def _end(self) -> Exception:
        """The exception for the end of the stream."""
        used_s = self.used_s()
        return Overrun("CPU time", used_s) if used_s > self._bounds.cpu_s else Died(used_s)
