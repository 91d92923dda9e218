"""A fresh interpreter that has imported the filter, and forks a filter process whenever a worker asks.

The worker has threads and must not be forked; this interpreter has one thread, and nothing of any job. A fork
takes milliseconds where an interpreter takes half a second, and all forks share what was imported.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import resource
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_REQUEST_BYTES = 16
#: A sample of everything that the filter examines in detail.
_WORDS = """user: a
password = b
{"key": "dGhpcyBpcyBhIHRleHQgdGhhdCBzYXlzIG5vdGhpbmcgYXQgYWxs"}
68656c6c6f20776f726c64 %41%42 \N{LATIN SMALL LETTER E WITH ACUTE} \x1b[0m"""
#: What the worker asks for: a process, or one that will compare with contexts.
PLAIN, WITH_CONTEXT = b"process", b"context"


def main() -> None:
    """Serves the worker at the other end of the descriptor in the first argument."""
    # A group's signals are for the worker.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):  # if memory is short, the worker should be the last to be killed
        Path("/proc/self/oom_score_adj").write_text("1000")
    requests = socket.socket(fileno=int(sys.argv[1]))
    requests.setblocking(True)
    serve, settings = _prepared(requests)
    signal.signal(signal.SIGCHLD, _reap)
    gc.collect()
    gc.freeze()
    ours = os.getpid()
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, _REQUEST_BYTES, 1)
        if not request:
            _end_forks()
            return
        if request == WITH_CONTEXT:
            with suppress(ImportError):  # the code that needs it will report that
                importlib.import_module("cellblock.egress.echo")
        child = os.fork()
        if child:
            handle = os.pidfd_open(child)
            with suppress(ConnectionError):  # the worker has ended: so does this process, at its next read
                socket.send_fds(requests, [str(child).encode()], [handle])
            os.close(handle)
            os.close(descriptors[0])
            continue
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != ours:
            os._exit(1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        requests.close()
        try:
            serve(socket.socket(fileno=descriptors[0]), settings)
        except ConnectionError:
            pass
        finally:
            os._exit(0)


def _prepared(requests: socket.socket):  # type: ignore[no-untyped-def]
    """The filter, imported, and its settings. The worker sends them first, so no secret is in an argument."""
    from cellblock.contract.results import Artifact
    from cellblock.egress import Governed, Outgoing, filter_outgoing
    from cellblock_config.egress import EgressSettings
    from cellblock_workers.filtering import wire
    from cellblock_workers.filtering.serving import Connection, serve

    told = wire.read(Connection(requests).receive)
    if told is None:
        raise SystemExit(0)
    settings = EgressSettings.model_validate_json(json.dumps(told[0]["settings"]))
    # Code that compiles its expressions at first use does so here, once for all forks.
    said = Outgoing(stdout=Governed(_WORDS, 0), value=[_WORDS], value_kind="json")
    filter_outgoing(replace(said, artifacts=(Artifact(path="a.txt", data=_WORDS.encode()),)), settings)
    return serve, settings


def _end_forks() -> None:
    """Ends and awaits the forks: a container's PID 1 may be a program that does not reap orphans."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    os.killpg(0, signal.SIGUSR1)  # the group holds this process and its forks, nothing else
    os.killpg(0, signal.SIGCONT)  # of one that is stopped, a signal waits until it goes on
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def _reap(*_: object) -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    main()
