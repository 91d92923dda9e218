"""PID 1 of a sandbox: starts the one job process, relays bytes, reports how it ended.

Runs on Python 3.8+ with nothing but the standard library, as root with the capabilities SETUID, SETGID and
KILL only. The job runs under another uid, so it can neither trace nor signal this process, and its stdout is
a pipe of its own: nothing that it prints can become a frame (messages.py).
"""

from __future__ import annotations

import collections
import errno
import json
import math
import os
import resource
import select
import signal
import time
from typing import Any

from .artifacts import Collector
from .job import drop_to
from .messages import HEADER, ArtifactBounds, Frame, read_job
from .pipes import PIECE_BYTES, SHARED_MEMORY, WORK_DIR, Pipes, write_all
from .processes import is_crowded, kill_and_reap_everything, kill_everything

FRAME_LIMIT_BYTES = 128 * 1024 * 1024
RAISED_LIMIT_BYTES = 32 * 1024
#: After a piece of output smaller than this, output gathers for this long: longer while pieces stay small.
SMALL_BYTES, GATHER_S, GATHER_MOST_S = 4096, 0.001, 0.032


class ReplyCounter:
    """Finds where each reply of a job ends; a job writes a reply's length before it."""

    def __init__(self) -> None:
        self.awaited = False
        self.head = b""
        self.left = 0

    def passed(self, piece: bytes) -> bool:
        """Whether a reply has ended with this piece."""
        ended = False
        while piece:
            if self.left:
                taken = min(self.left, len(piece))
                self.left -= taken
            else:
                taken = min(4 - len(self.head), len(piece))
                self.head += piece[:taken]
                if len(self.head) < 4:
                    return ended
                self.left, self.head = int.from_bytes(self.head, "big"), b""
            piece = piece[taken:]
            if not self.left:
                ended, self.awaited = True, False
        return ended


class Guest:
    """Relays between the host (descriptors 0 and 1) and the job's pipes until the job has ended."""

    def __init__(
        self, pipes: Pipes, child: int, options: dict[str, Any], inbox: bytearray | None = None
    ) -> None:
        """``inbox``: what was read from the host and not yet used."""
        self.pipes = pipes
        self.child = child
        self.uid: int = options["uid"]
        self.nproc: int = options["rlimits"].get("NPROC", 0)
        self.folder: str = options.get("folder", WORK_DIR)
        self.status: int | None = None
        self.cpu_ms_before = 0  # of the job's process, before the job came
        self.reason: str | None = None
        self.started: float | None = None
        self.deadline: float | None = None
        self.output_left = 0
        self.value_left = 0
        self.bulk_left = 0
        self.stdin_left = 0
        self.stdin_closed = False
        self.stdin_pending = bytearray()
        self.answers = self.gathers = False
        self.calls_waiting: collections.deque[bytes] = collections.deque()
        self.calls_pending = bytearray()
        self.reply = ReplyCounter()
        self.values = bytearray()
        self.artifacts: ArtifactBounds | None = None
        self.outputs = [pipes.stdout, pipes.stderr]  # those that the job has not closed
        self.gathering = False  # whether they are left alone
        self.gathering_until = 0.0
        self.gather_s = GATHER_S
        self.inbox = bytearray() if inbox is None else inbox
        self.raised = b""
        self.poller = select.poll()
        self.wake, self.wake_write = os.pipe()
        for fd in (self.wake, self.wake_write):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.wake_write, warn_on_full_buffer=False)
        said = (pipes.stdout, pipes.stderr, pipes.raised, pipes.value)
        for fd in (pipes.stdin, *said):  # a job can take away what is there to read
            os.set_blocking(fd, False)
        for fd in (0, self.wake, *said):
            self.poller.register(fd, select.POLLIN)

    def run(self) -> None:
        self.reap()  # processes that died before the signal handler was set
        while self.status is None:
            self.check_deadline()
            self.check_gathered()
            for fd, _ in self.poller.poll(self.poll_ms()):
                self.handle(fd)
        self.end()

    def close(self) -> None:
        """Closes everything but the host's stream: another guest takes over."""
        signal.set_wakeup_fd(-1)
        self.pipes.close_our_ends()
        for fd in (self.wake, self.wake_write):
            os.close(fd)

    def poll_ms(self) -> int | None:
        until = [self.deadline] if self.deadline is not None else []
        if self.gathering:
            until.append(self.gathering_until)
        return max(0, math.ceil((min(until) - time.monotonic()) * 1000)) if until else None

    def check_deadline(self) -> None:
        if self.deadline is not None and self.reason is None and time.monotonic() >= self.deadline:
            self.stop("wall")

    def stop(self, reason: str) -> None:
        self.reason = reason
        self.deadline = None
        self.kill()

    def kill(self) -> None:
        kill_everything()

    def handle(self, fd: int) -> None:
        """Handles an event of this descriptor."""
        if fd == 0:
            self.read_host()
        elif fd == self.wake:
            os.read(fd, 512)
            self.reap()
        elif fd == self.pipes.stdin:
            self.feed_stdin()
        elif fd == self.pipes.control:
            if self.feed_calls():
                self.poller.unregister(fd)
        elif fd not in (self.pipes.stdout, self.pipes.stderr):
            self.relay(fd)
        elif fd in self.outputs and not self.gathering:
            self.relay(fd)
            if time.monotonic() < self.gathering_until:
                self.gather()

    def gather(self) -> None:
        """After a small piece leave output alone for a while: each piece costs the host as much as a large
        one."""
        self.gathering = True
        for fd in self.outputs:
            self.poller.unregister(fd)

    def check_gathered(self) -> None:
        if self.gathering and time.monotonic() >= self.gathering_until:
            self.gathering = False
            for fd in self.outputs:
                self.poller.register(fd, select.POLLIN)

    def pass_on_gathered(self) -> None:
        """Passes on output before a reply, if the job wrote it before; up to 64 KiB of each stream."""
        for fd in self.outputs[:]:
            self.relay(fd)

    def relay(self, fd: int) -> bool:
        """Passes one piece on. Returns whether there may be more."""
        try:
            piece = os.read(fd, PIECE_BYTES)
        except BlockingIOError:  # empty: passed on meanwhile, or read by the job itself
            return False
        if not piece:
            self.forget(fd)
            return False
        if fd == self.pipes.raised:
            self.raised = (self.raised + piece)[:RAISED_LIMIT_BYTES]
        elif fd == self.pipes.value:
            if len(self.values) + len(piece) > PIECE_BYTES:
                self.send_values()
            self.values += piece[: max(0, self.value_left)]
            self.value_left -= len(piece)
            if self.answers and self.reply.passed(piece):
                self.pass_on_gathered()
                self.next_call()
            if not (self.reply.awaited and self.gathers):
                self.send_values()
        else:
            self.relay_output(Frame.STDOUT if fd == self.pipes.stdout else Frame.STDERR, piece)
        return True

    def forget(self, fd: int) -> None:
        """Stops polling a descriptor that the job has closed."""
        if fd in self.outputs:
            self.outputs.remove(fd)
            if self.gathering:
                return
        self.poller.unregister(fd)

    def send_values(self) -> None:
        """Sends gathered replies. Replies to calls that came together go together: each message wakes the
        host."""
        if self.values:
            send(Frame.VALUE, bytes(self.values))
            self.values.clear()

    def relay_output(self, kind: bytes, piece: bytes) -> None:
        now = time.monotonic()
        if now > self.gathering_until + GATHER_MOST_S:
            self.gather_s = GATHER_S
        if len(piece) < SMALL_BYTES:
            self.gathering_until = now + self.gather_s
            self.gather_s = min(2 * self.gather_s, GATHER_MOST_S)
        else:
            self.gather_s = max(self.gather_s / 2, GATHER_S)
        if self.output_left > 0:
            send(kind, piece[: self.output_left])
        self.output_left -= len(piece)
        if self.output_left < 0 and self.reason is None:
            self.stop("output")

    def read_host(self) -> None:
        piece = os.read(0, 1024 * 1024)
        if not piece:
            kill_everything()  # there is no host to report to
            os._exit(0)
        self.inbox += piece
        while len(self.inbox) >= HEADER.size:
            kind, length = HEADER.unpack_from(self.inbox)
            if length > FRAME_LIMIT_BYTES:
                os._exit(2)
            if len(self.inbox) < HEADER.size + length:
                return
            payload = bytes(self.inbox[HEADER.size : HEADER.size + length])
            del self.inbox[: HEADER.size + length]
            self.receive(kind, payload)

    def receive(self, kind: bytes, payload: bytes) -> None:
        if kind == Frame.JOB and self.started is None:
            job = read_job(payload)
            self.output_left = job.output_bytes
            self.value_left = job.value_bytes + 1  # the byte for the kind of value
            self.bulk_left = job.bulk_bytes
            self.stdin_left = job.stdin_bytes
            self.artifacts = job.artifacts
            self.answers = job.role != "program"
            # A judge's are sent one by one: the host must hear that it has learnt a check before the tests
            # can break it.
            self.gathers = job.role != "judge"
            self.before_job()
            self.started = time.monotonic()
            self.deadline = self.started + job.timeout_s
            self.deliver(HEADER.pack(kind, len(payload)) + payload)
            self.close_stdin_if_done()
        elif kind in (Frame.BULK, Frame.CALL, Frame.STDIN, Frame.ENOUGH) and self.started is None:
            return  # for the job before, which has ended meanwhile
        elif kind == Frame.BULK and 0 < len(payload) <= self.bulk_left:
            self.bulk_left -= len(payload)
            self.deliver(payload)
        elif kind == Frame.STDIN:
            self.stdin_left -= len(payload)
            if not self.stdin_closed:
                self.stdin_pending += payload
                self.poller.register(self.pipes.stdin, select.POLLOUT)
        elif kind == Frame.ENOUGH:
            self.stop("enough")
        elif kind == Frame.CALL and self.answers and not self.bulk_left:
            self.calls_waiting.append(HEADER.pack(kind, len(payload)) + payload)
            self.next_call()
        else:
            os._exit(2)

    def before_job(self) -> None:
        """Does what is to be done just before the job comes."""

    def deliver(self, piece: bytes) -> None:
        """Writes to the job process, which does nothing but read until all of it is there."""
        try:
            write_all(self.pipes.control, piece)
        except BrokenPipeError:  # killed, perhaps by its memory limit; its status says so
            return
        if not self.bulk_left and self.answers:
            os.set_blocking(self.pipes.control, False)
        elif not self.bulk_left:
            os.close(self.pipes.control)

    def feed_stdin(self) -> None:
        try:
            written = os.write(self.pipes.stdin, self.stdin_pending[:PIECE_BYTES])
            del self.stdin_pending[:written]
        except BlockingIOError:
            return
        except OSError:  # the job closed its stdin
            self.stdin_pending.clear()
            self.stdin_left = 0
        if not self.stdin_pending:
            self.poller.unregister(self.pipes.stdin)
            self.close_stdin_if_done()

    def next_call(self) -> None:
        """Delivers the next call once the one before has its reply: no program must know calls ahead of
        time."""
        if self.calls_waiting and not self.reply.awaited:
            self.reply.awaited = True
            self.calls_pending += self.calls_waiting.popleft()
            if not self.feed_calls():
                self.poller.register(self.pipes.control, select.POLLOUT)

    def feed_calls(self) -> bool:
        """Passes on what the job takes now, without blocking. Returns True once everything is written."""
        try:
            written = os.write(self.pipes.control, self.calls_pending[:PIECE_BYTES])
            del self.calls_pending[:written]
        except BlockingIOError:
            return False
        except OSError:  # the job takes no more
            self.calls_pending.clear()
        return not self.calls_pending

    def close_stdin_if_done(self) -> None:
        if self.stdin_left <= 0 and not self.stdin_pending and not self.stdin_closed:
            self.stdin_closed = True
            os.close(self.pipes.stdin)

    def reap(self) -> None:
        """Collects everything that died: as PID 1 the guest inherits the job's orphans too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.child:
                self.status = status

    def end(self) -> None:
        """Kills what the job left behind, passes on what is still in the pipes, reports, collects."""
        wall_ms = int((time.monotonic() - self.started) * 1000) if self.started else 0
        status = self.status or 0
        crowded = bool(status and self.nproc) and is_crowded(self.uid, self.nproc)
        all_dead = self.end_all()
        for fd in (self.pipes.stdout, self.pipes.stderr, self.pipes.raised, self.pipes.value):
            try:
                while self.relay(fd):
                    pass
            except KeyError:  # the job had closed it
                continue
        self.send_values()
        if self.raised:
            send(Frame.RAISED, self.raised)
        used = self.used()
        exited = os.WIFEXITED(status)
        report = {
            "code": os.WEXITSTATUS(status) if exited else None,
            "signal": None if exited else os.WTERMSIG(status),
            "reason": self.reason,
            "full": self.full() if status else None,
            "crowded": crowded,
            "cpu_ms": max(0, int((used.ru_utime + used.ru_stime) * 1000) - self.cpu_ms_before),
            "peak_bytes": used.ru_maxrss * 1024,
            "wall_ms": wall_ms,
        }
        send(Frame.ENDED, json.dumps(report).encode())
        if self.artifacts is not None:
            send(Frame.ARTIFACTS_END, self.collect(self.artifacts) if all_dead else b"alive")

    def full(self) -> str | None:
        own = self.folder == WORK_DIR  # else both belong to the host
        places = [os.path.dirname(self.folder), *([SHARED_MEMORY] if own else [])]
        return next(filter(None, map(exhausted, places)), None)

    def end_all(self) -> bool:
        """Kills all that the job has left. Returns whether nothing of it is alive."""
        return kill_and_reap_everything(2.0)

    def used(self) -> resource.struct_rusage:
        return resource.getrusage(resource.RUSAGE_CHILDREN)

    def collect(self, asked: ArtifactBounds) -> bytes:
        """Has a child under the job's uid collect the artifacts. Returns how that ended."""
        deadline = time.monotonic() + asked.time_s
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(ours)
            collect_as(self.uid, asked, theirs, self.folder)
        os.close(theirs)
        poll = select.poll()
        poll.register(ours, select.POLLIN)
        while poll.poll(max(0, (deadline - time.monotonic()) * 1000)):
            piece = os.read(ours, PIECE_BYTES)
            if not piece:
                return b"done" if os.waitpid(child, 0)[1] == 0 else b"died"
            send(Frame.ARTIFACTS, piece)
        kill_and_reap_everything(2.0)
        return b"time"


def collect_as(uid: int, asked: ArtifactBounds, out: int, folder: str) -> None:
    """Collects the artifacts under this uid, then exits. Never returns."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        drop_to(uid)
        Collector(asked, out).collect(folder)
        status = 0
    finally:
        os._exit(status)


def exhausted(folder: str) -> str | None:
    """Whether a file system has no "bytes" or no "inodes" left, tested with a file of one page; else None."""
    path = os.path.join(folder, os.urandom(16).hex())
    kind = "inodes"
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        kind = "bytes"
        try:
            os.unlink(path)
            os.write(file, bytes(4096))
        finally:
            os.close(file)
    except OSError as error:
        return kind if error.errno in (errno.ENOSPC, errno.EDQUOT) else None
    return None


def send(kind: bytes, payload: bytes) -> None:
    write_all(1, HEADER.pack(kind, len(payload)) + payload)
