"""The launcher's end of one zygote: starts it, asks it for sandboxes, hears of their ends."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources

from cellblock_workers.launcher.backend import BackendUnavailable, NotOnThisHost, StartFailed
from cellblock_workers.launcher.namespaces.roots import Root
from cellblock_workers.log import get_logger
from cellblock_workers.zygote.fork_request import ForkRequest
from cellblock_workers.zygote.zygote import PACKET_BYTES

_log = get_logger(__name__)

_BOOT = (sys.executable, "-P", "-m", "cellblock_workers.launcher.namespaces.boot")
_MODULES = ("kernel", "forks", "root", "fork_request", "zygote")
_END_S = 6.0
_NO_NAMESPACES = {1, 28, 38}  # EPERM, ENOSPC (max_user_namespaces), ENOSYS


def zygote_modules() -> dict[str, str]:
    """The text of the zygote's own modules, in the order of their imports."""
    package = resources.files("cellblock_workers.zygote")
    return {f"cellblock_workers.zygote.{name}": (package / f"{name}.py").read_text() for name in _MODULES}


@dataclass(frozen=True, slots=True)
class ZygoteProgram:
    """What a zygote is told once, when it starts."""

    preload: tuple[str, ...]
    guest: Mapping[str, str]
    canaries: tuple[str, ...]
    seccomp: str
    several_ids: bool
    views: tuple[str, ...]

    def in_memory(self) -> int:
        """A descriptor of the whole program, with the zygote's own text."""
        file = os.memfd_create("zygote")
        with os.fdopen(os.dup(file), "w") as text:
            json.dump({"modules": zygote_modules(), **asdict(self)}, text)
        os.lseek(file, 0, os.SEEK_SET)
        return file


class ForkedGuest:
    """One sandbox's PID 1, as the kernel and its zygote report it."""

    def __init__(self, server: str) -> None:
        self._server = server
        self.answered = threading.Event()
        self.ended = threading.Event()
        self.pidfd: int | None = None
        self.status: int | None = None  # as wait(2) has it
        self.failure: str | None = None
        self._lock = threading.Lock()

    @property
    def lost(self) -> bool:
        """Whether it ended with its zygote, so that its status is not known."""
        return self.ended.is_set() and self.status is None

    def refusal(self) -> BackendUnavailable | None:
        """Why it is not a sandbox; None if it simply ended, or runs."""
        if self.failure is not None:
            return StartFailed(f"namespaces: {self.failure}")
        return BackendUnavailable(f"{self._server} ended under a sandbox") if self.lost else None

    def kill(self) -> None:
        """Kills it, and with it its PID namespace."""
        with self._lock:
            if self.pidfd is not None:
                try:
                    signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
                except ProcessLookupError:
                    return

    def close(self) -> None:
        """Closes the descriptor; after that :meth:`kill` does nothing."""
        with self._lock:
            if self.pidfd is not None:
                os.close(self.pidfd)
                self.pidfd = None


class ForkServer:
    """One zygote with its process. Thread-safe; useless once :attr:`alive` is false."""

    def __init__(self, image: str, root: Root, program: ZygoteProgram, timeout_s: float) -> None:
        """Starts it and waits until its modules are imported. Raises :class:`BackendUnavailable`."""
        self._name = f"namespaces: the fork-server of {image}"
        self._numbers = itertools.count()
        self._children: dict[int, ForkedGuest] = {}
        self._lock = threading.Lock()
        self._ready = threading.Event()
        self._fault: BackendUnavailable | None = None
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.root = root
        self.alive = True
        self._retired = False
        # The zygote is killed when the thread that started it ends: so that thread stays and listens.
        self._keeper = threading.Thread(
            target=self._keep, args=(theirs, root, program), name=f"zygote-{image}", daemon=True
        )
        self._keeper.start()
        if not self._ready.wait(timeout_s):
            self.close()
            raise StartFailed(f"{self._name} was not ready within {timeout_s:g} s")
        if self._fault is not None:
            raise self._fault

    def spawn(self, request: ForkRequest, descriptors: Sequence[int], timeout_s: float) -> ForkedGuest:
        """Forks a sandbox that gets these descriptors. Raises :class:`BackendUnavailable`."""
        number, child = next(self._numbers), ForkedGuest(self._name)
        with self._lock:
            self._children[number] = child
        packet = request.packet(number)
        try:
            socket.send_fds(self._control, [packet], descriptors)
        except OSError as error:
            self._forget(number)
            raise BackendUnavailable(f"{self._name} is gone: {error}") from error
        if not child.answered.wait(timeout_s):
            self.close()  # its child may still come: not without the zygote
            child.ended.wait(_END_S)
            child.close()
            raise StartFailed(f"{self._name} did not answer within {timeout_s:g} s")
        if child.pidfd is None:
            self._forget(number)
            raise child.refusal() or BackendUnavailable(f"{self._name} did not fork")
        return child

    def retire(self) -> None:
        """Forks no more, and ends with the last sandbox."""
        with self._lock:
            self._retired = True
            idle = not self._children
        if idle:
            self.close()

    def close(self) -> None:
        """Ends it, with every sandbox that it ever forked."""
        try:
            self._control.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # ended already

    def wait(self) -> None:
        """Waits until its process is gone; for use after :meth:`close`."""
        self._keeper.join(timeout=_END_S)

    def _forget(self, number: int) -> None:
        with self._lock:
            self._children.pop(number, None)
            last = self._retired and not self._children
        if last:
            self.close()

    def _keep(self, theirs: socket.socket, root: Root, program: ZygoteProgram) -> None:
        process = None
        try:
            process = self._boot(theirs, root, program)
            while self._hear():
                pass
        except OSError as error:
            self._fault = self._fault or StartFailed(f"{self._name} could not start: {error}")
        finally:
            theirs.close()
            self._end(process)

    def _boot(self, theirs: socket.socket, root: Root, program: ZygoteProgram) -> subprocess.Popen[bytes]:
        file = program.in_memory()
        try:
            return subprocess.Popen(
                [*_BOOT, root.as_json(), str(file)],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                pass_fds=[file],
                cwd="/",
            )
        finally:
            os.close(file)
            theirs.close()

    def _hear(self) -> bool:
        """Takes one message. Returns False when no more will come."""
        packet, passed, _, _ = socket.recv_fds(self._control, PACKET_BYTES, 1)
        if not packet:
            return False
        message = json.loads(packet)
        if "ready" in message:
            self._ready.set()
        elif "fault" in message:
            self._fault = _boot_failure(self._name, message["fault"], message.get("errno"))
        else:
            self._tell(message, passed)
        return True

    def _tell(self, message: dict[str, object], passed: list[int]) -> None:
        """Takes the message that a child started, failed or ended."""
        number = next(message[kind] for kind in ("started", "failed", "ended") if kind in message)
        with self._lock:
            child = self._children.get(int(str(number)))
        if child is None:  # no one waits for it any more
            for descriptor in passed:
                os.close(descriptor)
            return
        if "failed" in message:
            child.failure = f"{message['step']} could not be had: {message['why']}"
            if message["step"] == "new namespaces":
                child.answered.set()
        elif "started" in message:
            if passed:
                (child.pidfd,) = passed
            else:
                child.failure = "its descriptor could not be had: is the launcher out of open files?"
            child.answered.set()
        else:
            child.status = int(str(message["status"]))
            self._forget(int(str(number)))
            child.ended.set()

    def _end(self, process: subprocess.Popen[bytes] | None) -> None:
        self._control.close()
        code = None
        if process is not None:
            try:
                code = process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
        with self._lock:
            self.alive = False
            children, self._children = list(self._children.values()), {}
        for child in children:
            child.answered.set()
            child.ended.set()
        if not self._ready.is_set() and self._fault is None:
            self._fault = StartFailed(f"{self._name} ended with {code} at its start")
        self._ready.set()
        _log.info("zygote_ended", name=self._name, code=code, sandboxes=len(children))


def _boot_failure(name: str, why: str, number: int | None) -> StartFailed:
    if number in _NO_NAMESPACES and ("unshare" in why or "clone" in why):
        return NotOnThisHost(
            f"namespaces: this user is not allowed to make user namespaces ({why}); set the sysctls "
            "user.max_user_namespaces above 0, kernel.unprivileged_userns_clone to 1 and "
            "kernel.apparmor_restrict_unprivileged_userns to 0 where they exist, or run the launcher as root"
        )
    return StartFailed(f"{name} could not start: {why}")
