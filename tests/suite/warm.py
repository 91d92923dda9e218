"""Starts the product's commands from an interpreter that has imported them already.

A command of ours spends most of its processor time on imports, and the suite starts hundreds. One process
imports them once; each command is a fork of it, with arguments, variables, folder and descriptors of its own,
as a child of the process that asked: everything that :class:`subprocess.Popen` promises holds. Importing the
product has no side effects (tests/packaging holds that), so nothing else is shared. What an interpreter reads
at its start (``PYTHON…``) cannot be set this way: then the command is started in full. Under coverage.py a
fork is measured if the interpreter is, whatever its own variables say.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

#: The installed command.
CELLBLOCK = str(Path(sys.executable).with_name("cellblock"))
#: What is started as a module, and the command: each by the function that it calls.
_PROGRAMS = {
    ("-m", "cellblock_workers.launcher.server"): "cellblock_workers.launcher.server:main",
    ("-m", "cellblock_workers.worker.main"): "cellblock_workers.worker.main:main",
}
_COMMAND = "cellblock.cli:main"
_AT_START = ("PYTHON", "LD_", "LANG", "LC_", "TZ")
#: What a fork cannot be given. For another value the command is started in full.
_USUAL = {
    **dict.fromkeys(("executable", "preexec_fn", "uid", "gid", "gids")),
    **dict.fromkeys(("umask", "process_group"), -1),
    **dict.fromkeys(("shell", "start_new_session"), False),
    "close_fds": True,
    "pass_fds": (),
}
_SYS_CLONE, _CLONE_PARENT = {"x86_64": 56, "aarch64": 220}, 0x8000  #: asm/unistd.h, linux/sched.h
_REQUEST_BYTES = 1 << 20
#: How many of each program were forked in this process, for :mod:`suite.times`.
forked: Counter[str] = Counter()
_lock = threading.Lock()
_servers: dict[int, tuple[socket.socket, subprocess.Popen[bytes]]] = {}  #: by the process they belong to


class WarmPopen(subprocess.Popen[bytes]):
    """A process of one of the product's commands."""

    def _execute_child(self, *arguments: Any) -> None:
        """Called by ``Popen`` once its pipes are there; whatever this cannot do, ``Popen`` does."""
        signature = inspect.signature(super()._execute_child)  # type: ignore[misc]
        given = signature.bind(*arguments).arguments
        words = [os.fspath(word) for word in given["args"]]
        environment = dict(os.environ if given["env"] is None else given["env"])
        folder = os.fspath(given["cwd"] or Path.cwd())
        found = _program(words)
        ordinary = all(given[name] == usual for name, usual in _USUAL.items()) and Path(folder).is_dir()
        if found is None or not ordinary or _at_start(environment) != _at_start(os.environ):
            super()._execute_child(*arguments)  # type: ignore[misc]
            return
        program, rest = found
        request = {"program": program, "arguments": rest, "environment": environment, "folder": folder}
        ends = [given["p2cread"], given["c2pwrite"], given["errwrite"]]
        with _lock:
            self.pid = _ask(request, [end if end >= 0 else number for number, end in enumerate(ends)])
        forked[program] += 1
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[name] for name in pipes))  # type: ignore[attr-defined]


def _program(words: Sequence[str]) -> tuple[str, list[str]] | None:
    """Which function a command calls, and ``sys.argv`` for it."""
    if words[0] == CELLBLOCK:
        return _COMMAND, list(words)
    if words[0] == sys.executable and tuple(words[1:3]) in _PROGRAMS:
        return _PROGRAMS[words[1], words[2]], list(words[2:])
    return None


def _at_start(environment: dict[str, str] | os._Environ[str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_AT_START)}


def _ask(request: dict[str, Any], ends: Sequence[int]) -> int:
    """Have the server start a program on these three descriptors; its pid."""
    if os.getpid() not in _servers:
        _servers[os.getpid()] = _start()
    server, process = _servers[os.getpid()]
    try:
        socket.send_fds(server, [json.dumps(request).encode()], list(ends))
        return int(server.recv(64))
    except BaseException:  # an answer that comes after all must not be taken for the next one
        del _servers[os.getpid()]
        server.close()
        process.wait()
        raise


def _start() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * _REQUEST_BYTES)
    with theirs:
        # It ends when the other end of its socket is closed, so with this process.
        command = [sys.executable, __file__, str(theirs.fileno())]
        # numpy's threads would be lost in each fork, and waited for when that forks in turn.
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        return ours, subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment)


def _serve(requests: socket.socket) -> Callable[[], object]:
    """Answer until nobody asks any more. In a fork: what it is to call."""
    programs = {name: _load(name) for name in (_COMMAND, *_PROGRAMS.values())}
    for module in _imported_late():
        importlib.import_module(module)
    gc.freeze()  # else each fork would copy every object that its collector looks at
    while True:
        message, ends, _, _ = socket.recv_fds(requests, _REQUEST_BYTES, 3)
        if not message:
            os._exit(0)
        request = json.loads(message)
        pid = _fork()
        if pid == 0:
            requests.close()
            _become(request, ends)
            return programs[request["program"]]
        for end in ends:
            os.close(end)
        requests.send(str(pid).encode())


def _imported_late() -> set[str]:
    """What a command imports when it is used, and a launcher and a filter too."""
    from cellblock.cli.commands import COMMANDS

    return {
        *(
            "cellblock.cli.root",
            "cellblock.client",
            "cellblock_workers.embedded_host",
            "cellblock_workers.embedded",
        ),
        *("cellblock_workers.filtering.serving", "structlog"),
        *(f"cellblock.cli.{command.module}" for command in COMMANDS.values()),
    }


def _load(name: str) -> Callable[[], object]:
    module, _, function = name.partition(":")
    found: Callable[[], object] = getattr(importlib.import_module(module), function)
    return found


def _fork() -> int:
    """A fork whose parent is this process's parent, so that the one that asked can wait for it."""
    libc = ctypes.CDLL(None)
    before, after_in_child, after_in_parent = (
        getattr(ctypes.pythonapi, f"PyOS_{name}")
        for name in ("BeforeFork", "AfterFork_Child", "AfterFork_Parent")
    )
    before()
    pid = int(libc.syscall(_SYS_CLONE[os.uname().machine], _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0))
    (after_in_parent if pid else after_in_child)()
    if pid < 0:
        raise OSError("clone failed")
    return pid


def _become(request: dict[str, Any], ends: Sequence[int]) -> None:
    """Take the arguments, variables, folder and descriptors of the process that was asked for."""
    for number, end in enumerate(ends):
        os.dup2(end, number)
    for end in ends:
        os.close(end)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.argv[:] = request["arguments"]
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        buffering = 1 if mode == "w" and (number == 2 or os.isatty(number)) else -1
        errors = "backslashreplace" if number == 2 else "strict"
        stream = open(number, mode, buffering, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)


def _main() -> None:
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        program = _serve(requests)
    try:
        sys.exit(program())  # type: ignore[arg-type]
    except SystemExit as ended:
        _end(ended.code)


def _end(code: object) -> NoReturn:
    """As an interpreter ends, but for taking apart every object that it has imported."""
    if not isinstance(code, int | None):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BrokenPipeError):
            stream.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    _main()
