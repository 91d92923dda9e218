"""What the job prints: written line by line at first, and gathered once there are many lines.

A system call for each line costs gVisor 20 µs of CPU time, a hundred times the print itself. What a job has
printed must survive an end by a limit all the same. So the first lines are written at once, whatever comes
after them. From then on lines gather as for a pipe, and a thread writes them from time to time.
"""

from __future__ import annotations

import _thread
import io
import os
import signal
import sys
import threading
import time
import warnings
from typing import Any

#: How many lines are written at once: 5 ms of CPU time under gVisor.
LINES_AT_ONCE = 256
WRITE_S = 0.3
#: How long before the job's deadline its output is written once more.
BEFORE_DEADLINE_S = 0.03
#: How long a fork waits for the thread, which waits for the guest to read, or for the program itself.
FORK_WAITS_S = 1.0
#: Used while the program runs, which may replace them in their modules.
new_lock, new_thread, monotonic = _thread.allocate_lock, _thread.start_new_thread, time.monotonic
own_process, entries_of, send_signal = os.getpid, os.listdir, os.kill


class BufferedWriter(io.BufferedWriter):
    """The buffer of the standard output, which tells of each flush: of each line, at first.

    It has the name of the interpreter's, as a program may look at it.
    """

    __module__ = "_io"
    told: Any = None

    def flush(self) -> None:
        super().flush()
        if self.told is not None:
            self.told()


def write_lines_at_once() -> None:
    """Makes the standard output anew, for this process and its forks."""
    first: Any = sys.stdout
    file = io.FileIO(1, "w", closefd=False)
    file.name = first.name
    made = io.TextIOWrapper(BufferedWriter(file), first.encoding, first.errors, "\n", line_buffering=True)
    made.mode = "w"  # type: ignore[misc]
    vars(sys).update(stdout=made, __stdout__=made)


class OutputWriter:
    """Counts the job's lines, then has them gather, and writes them from a thread.

    ``threading`` does not know of that thread, and it takes no signal but its own. The program's forks have
    none: what they print is written line by line if it was, else when they flush or end.
    """

    def __init__(self, stream: Any, timeout_s: float) -> None:
        """``timeout_s``: the job's, which begins now."""
        self.stream = stream
        self.buffer = stream.buffer
        self.buffer.told = self.count
        self.process = own_process()
        self.lines = 0
        self.deadline = monotonic() + timeout_s - BEFORE_DEADLINE_S
        self.first_time = new_lock()  # nobody releases it
        self.rest = new_lock()  # nobody releases it: to wait for it is to sleep
        self.writing = new_lock()  # no fork happens meanwhile: the child would find the stream locked
        self.forking = False
        self.rest.acquire()

    def count(self) -> None:
        self.lines += 1
        if self.lines >= LINES_AT_ONCE and self.first_time.acquire(False):  # two threads may come here
            self.buffer.told = None
            if own_process() == self.process:
                self.gather()

    def gather(self) -> None:
        """Has lines gather from now on, if the limit of processes allows the thread."""
        if sys.version_info >= (3, 12):  # which warns of a thread that the program does not have
            warnings.filterwarnings("ignore", ".* is multi-threaded, use of fork", DeprecationWarning)
        try:
            # In one call: between two, threads would meet what write_through_beside_threads is about.
            self.stream.reconfigure(line_buffering=False, write_through=bool(_thread._count()))
        except ValueError:
            return  # detached or closed: the program has another stream
        write_through_beside_threads(self.stream)
        os.register_at_fork(
            before=self.before_fork, after_in_parent=self.after_fork, after_in_child=self.in_child
        )
        try:
            new_thread(self.run, ())
        except RuntimeError:
            self.stream.reconfigure(line_buffering=True)

    def run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - {signal.SIGSYS})
        while True:
            left_s = self.deadline - monotonic()
            self.rest.acquire(True, min(WRITE_S, left_s) if left_s > 0 else WRITE_S)
            with self.writing:
                write_printed(self.stream)
            self.end_with_main_thread()

    def end_with_main_thread(self) -> None:
        """Ends the process if a forbidden system call has ended its main thread: gVisor (runsc 20221219) ends
        no more of a process than the thread that makes the call."""
        try:
            entries_of(f"/proc/{self.process}/task")
        except FileNotFoundError:
            send_signal(self.process, signal.SIGSYS)

    def before_fork(self) -> None:
        self.forking = self.writing.acquire(True, FORK_WAITS_S)

    def after_fork(self) -> None:
        if self.forking:
            self.forking = False
            self.writing.release()

    def in_child(self) -> None:
        self.forking, self.writing = False, new_lock()


def write_through_beside_threads(stream: Any) -> None:
    """Has a stream's text go straight to its buffer from the program's first thread on.

    The buffer has a lock. The text above it has none: before 3.12.4 what threads print at the same time is
    lost there, or garbled (gh-119506). Without threads that lock costs: under gVisor it reads the clock,
    which is a system call in the first second of a sandbox.
    """
    names = vars(threading)
    start = names.get("_start_new_thread")
    if _thread._count() or start is None:  # it does already; or this is 3.13, which is mended
        return

    def start_first(*given: Any) -> Any:
        names["_start_new_thread"] = start
        try:
            stream.reconfigure(write_through=True)
        except Exception:
            write_printed(stream)  # detached or closed
        return start(*given)

    names["_start_new_thread"] = start_first


def write_printed(first: object) -> None:
    """Writes what the streams hold, and ``first``, as far as no code of the program runs for it."""
    for stream in (first, getattr(sys, "stdout", None), getattr(sys, "stderr", None)):
        if type(stream) is io.TextIOWrapper:
            write_stream(stream)


def write_stream(stream: io.TextIOWrapper) -> None:
    try:
        buffer: Any = stream.buffer
        if type(buffer) in (io.BufferedWriter, BufferedWriter) and type(buffer.raw) is io.FileIO:
            stream.flush()
    except BaseException:
        return  # detached, closed or broken: the program will meet it itself
