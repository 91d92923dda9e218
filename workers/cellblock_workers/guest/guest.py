"""PID 1 of a sandbox: starts the one job process, relays bytes, reports how it ended.

Runs on Python 3.8+ with nothing but the standard library, as root with the capabilities SETUID, SETGID
and KILL only. The job runs under another uid, so it can neither trace nor signal this process, and its
stdout is a pipe of its own: nothing it prints can become a frame.

Over 400 lines, because it is handed to the interpreter as one text: any image with Python can run it.

Frames, both ways: one type byte, a big-endian u32 length, that many bytes.
  in   J  the job as JSON: code, args, timeout_s, cpu_s, output_bytes, stdin_bytes
       I  stdin, in pieces, stdin_bytes in all
  out  R  ready: the job process waits for its job
       O  a piece of stdout        E  a piece of stderr
       T  what the job says it raised, JSON written by the job itself: a claim, not evidence
       X  how it ended, JSON: code, signal, reason (null, "wall", "output"), cpu_ms, wall_ms
"""

from __future__ import annotations

import atexit
import json
import linecache  # noqa: F401 - what tracebacks need, imported before the job is there to wait for it
import math
import os
import resource
import select
import signal
import struct
import sys
import threading
import time
import traceback
import types
from typing import Any

HEADER = struct.Struct(">cI")
FRAME_LIMIT_BYTES = 128 * 1024 * 1024
PIECE_BYTES = 64 * 1024
RAISED_LIMIT_BYTES = 32 * 1024
WORK_DIR = "/tmp/sandbox"


class Pipes:
    """The job's ends and ours, by purpose."""

    def __init__(self) -> None:
        self.job_control, self.control = os.pipe()
        self.job_stdin, self.stdin = os.pipe()
        self.stdout, self.job_stdout = os.pipe()
        self.stderr, self.job_stderr = os.pipe()
        self.raised, self.job_raised = os.pipe()

    def close_job_ends(self) -> None:
        for fd in (self.job_control, self.job_stdin, self.job_stdout, self.job_stderr, self.job_raised):
            os.close(fd)


# --- the job process -------------------------------------------------------------------------------


def become_job(pipes: Pipes, uid: int, nproc: int) -> tuple[dict[str, Any], int]:
    """Drop to the job's uid, take the standard descriptors, and wait for the job. Returns it."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    make_dumpable()
    # A job may only be killed before the guest is: the kernel takes the highest score first.
    with open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")
    control = os.dup2(pipes.job_control, 100)
    raised = os.dup2(pipes.job_raised, 101)
    for fd, source in enumerate((pipes.job_stdin, pipes.job_stdout, pipes.job_stderr)):
        os.dup2(source, fd, inheritable=True)
    os.closerange(3, 100)
    os.umask(0o022)
    os.makedirs(WORK_DIR, exist_ok=True)
    os.chdir(WORK_DIR)
    set_limit(resource.RLIMIT_CORE, 0)
    if nproc:
        set_limit(resource.RLIMIT_NPROC, nproc)
    job = json.loads(read_control(control))
    os.close(control)
    return job, raised


def make_dumpable() -> None:
    """Give the job back its own /proc/self, which changing the uid made root's."""
    try:
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE
    except (ImportError, OSError, AttributeError):
        return  # an image without libffi: only /proc/self stays closed to the job


def set_limit(which: int, value: int) -> None:
    resource.setrlimit(which, (value, value))


def read_control(fd: int) -> bytes:
    """All the guest sends before it closes the pipe; nothing at all means there will be no job."""
    pieces = []
    while True:
        piece = os.read(fd, PIECE_BYTES)
        if not piece:
            break
        pieces.append(piece)
    if not pieces:
        os._exit(0)
    return b"".join(pieces)


def run_job(job: dict[str, Any], raised_fd: int) -> int:
    """Run the code as __main__. Returns its exit status."""
    cpu_s = max(1, math.ceil(job["cpu_s"]))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    os.environ.clear()
    os.environ.update(
        PATH="/usr/local/bin:/usr/bin:/bin",
        HOME=WORK_DIR,
        TMPDIR=WORK_DIR,
        USER="job",
        LOGNAME="job",
        LANG="C.UTF-8",
        PYTHONUTF8="1",
    )
    path = os.path.join(WORK_DIR, "main.py")
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    write_all(file, job["code"].encode())
    os.close(file)
    sys.argv = [path] + job["args"]
    sys.path.insert(0, WORK_DIR)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=path, __builtins__=__builtins__)
    sys.modules["__main__"] = main
    try:
        exec(compile(job["code"], path, "exec", dont_inherit=True), main.__dict__)
    except SystemExit as error:
        return exit_status(error.code)
    except BaseException as error:
        report_raised(error, path, raised_fd)
        return 1
    return 0


def exit_status(code: object) -> int:
    """What the interpreter makes of SystemExit's argument."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    sys.stderr.write(str(code) + "\n")
    return 1


def leave(status: int) -> None:
    """The interpreter's way out (threads, atexit, flush) without its tear-down, which would copy
    every page shared with the guest for nothing: the process ends here."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException as error:
        traceback.print_exception(type(error), error, error.__traceback__)
        status = status or 120
    os._exit(status)


def report_raised(error: BaseException, path: str, raised_fd: int) -> None:
    """Print the traceback as the interpreter would, from the job's own first frame on, and pass it out."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != path:
        trace = trace.tb_next
    if sys.excepthook is sys.__excepthook__:
        text = "".join(traceback.format_exception(type(error), error, trace))
        sys.stderr.write(text)
    else:
        text = "".join(traceback.format_exception(type(error), error, trace))
        sys.excepthook(type(error), error, trace)
    try:
        message = str(error)
    except Exception:
        message = "<the exception's __str__ failed>"
    report = {"type": type(error).__name__[:200], "message": message[:2000], "traceback": text[-4000:]}
    try:
        if os.getpid() == os.getsid(0):  # a forked child's exception is not the job's
            os.write(raised_fd, json.dumps(report, ensure_ascii=False).encode("utf-8", "replace"))
    except OSError:
        return  # the job closed it: its loss


# --- the guest -------------------------------------------------------------------------------------


class Guest:
    """Relays between the host (descriptors 0 and 1) and the job's pipes until the job has ended."""

    def __init__(self, pipes: Pipes, child: int) -> None:
        self.pipes = pipes
        self.child = child
        self.status: int | None = None
        self.reason: str | None = None
        self.started: float | None = None
        self.deadline: float | None = None
        self.output_left = 0
        self.stdin_left = 0
        self.stdin_closed = False
        self.stdin_pending = bytearray()
        self.inbox = bytearray()
        self.raised = b""
        self.poller = select.poll()
        self.wake, wake_write = os.pipe()
        for fd in (self.wake, wake_write):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        os.set_blocking(pipes.stdin, False)
        for fd in (0, self.wake, pipes.stdout, pipes.stderr, pipes.raised):
            self.poller.register(fd, select.POLLIN)

    def run(self) -> None:
        send(b"R", b"")
        while self.status is None:
            self.check_deadline()
            for fd, _ in self.poller.poll(self.poll_ms()):
                self.handle(fd)
            self.reap()
        self.end()

    def poll_ms(self) -> int | None:
        if self.deadline is None:
            return None
        return max(0, math.ceil((self.deadline - time.monotonic()) * 1000))

    def check_deadline(self) -> None:
        if self.deadline is not None and self.reason is None and time.monotonic() >= self.deadline:
            self.stop("wall")

    def stop(self, reason: str) -> None:
        self.reason = reason
        self.deadline = None
        kill_everything()

    def handle(self, fd: int) -> None:
        if fd == 0:
            self.read_host()
        elif fd == self.wake:
            os.read(fd, 512)
        elif fd == self.pipes.stdin:
            self.feed_stdin()
        else:
            self.relay(fd)

    def relay(self, fd: int) -> bool:
        """Pass one piece on. True while there may be more."""
        piece = os.read(fd, PIECE_BYTES)
        if not piece:
            self.poller.unregister(fd)
            return False
        if fd == self.pipes.raised:
            self.raised = (self.raised + piece)[:RAISED_LIMIT_BYTES]
            return True
        if self.output_left > 0:
            send(b"O" if fd == self.pipes.stdout else b"E", piece[: self.output_left])
        self.output_left -= len(piece)
        if self.output_left < 0 and self.reason is None:
            self.stop("output")
        return True

    def read_host(self) -> None:
        piece = os.read(0, 1024 * 1024)
        if not piece:
            kill_everything()  # nobody is left to report to
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
        if kind == b"J" and self.started is None:
            job = json.loads(payload)
            self.output_left = job["output_bytes"]
            self.stdin_left = job["stdin_bytes"]
            self.started = time.monotonic()
            self.deadline = self.started + job["timeout_s"]
            write_all(self.pipes.control, payload)
            os.close(self.pipes.control)
            self.close_stdin_if_done()
        elif kind == b"I" and self.started is not None:
            self.stdin_left -= len(payload)
            if not self.stdin_closed:
                self.stdin_pending += payload
                self.poller.register(self.pipes.stdin, select.POLLOUT)
        else:
            os._exit(2)

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

    def close_stdin_if_done(self) -> None:
        if self.stdin_left <= 0 and not self.stdin_pending and not self.stdin_closed:
            self.stdin_closed = True
            os.close(self.pipes.stdin)

    def reap(self) -> None:
        """Collect everything that died: as PID 1 the guest inherits the job's orphans too."""
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
        """Kill what the job left behind, pass on what is still in the pipes, report."""
        wall_ms = int((time.monotonic() - self.started) * 1000) if self.started else 0
        give_up = time.monotonic() + 2.0
        while time.monotonic() < give_up:
            kill_everything()
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                time.sleep(0.001)
        for fd in (self.pipes.stdout, self.pipes.stderr, self.pipes.raised):
            os.set_blocking(fd, False)
            try:
                while self.relay(fd):
                    pass
            except (BlockingIOError, KeyError):  # empty, or closed by the job before
                continue
        if self.raised:
            send(b"T", self.raised)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        status = self.status or 0
        exited = os.WIFEXITED(status)
        report = {
            "code": os.WEXITSTATUS(status) if exited else None,
            "signal": None if exited else os.WTERMSIG(status),
            "reason": self.reason,
            "cpu_ms": int((used.ru_utime + used.ru_stime) * 1000),
            "wall_ms": wall_ms,
        }
        send(b"X", json.dumps(report).encode())


def send(kind: bytes, payload: bytes) -> None:
    write_all(1, HEADER.pack(kind, len(payload)) + payload)


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def kill_everything() -> None:
    """Every process of this PID namespace but this one."""
    try:
        os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        return


def start() -> tuple[dict[str, Any], int]:
    """Fork the waiting job process; returns its job in the child, never returns in the guest."""
    options = json.loads(sys.argv[1])
    pipes = Pipes()
    child = os.fork()
    if child == 0:
        return become_job(pipes, options["uid"], options["nproc"])
    pipes.close_job_ends()
    Guest(pipes, child).run()
    # The host reads the last frame and then takes the sandbox down; without a host, stdin ends.
    while os.read(0, PIECE_BYTES):
        pass
    os._exit(0)


if __name__ == "__main__":
    leave(run_job(*start()))
