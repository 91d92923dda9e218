"""A fork of a command keeps none of its variables, descriptors, signals or duties."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

BEGIN = """
import atexit, json, os, signal, socket, sys, threading, time
from cellblock_workers.forks import can_fork, fork
"""


def run(program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BEGIN + program],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def seen(program: str, **variables: str) -> Any:
    """What a program prints as JSON on its last line."""
    done = run(program, **variables)
    assert done.stderr == ""
    return json.loads(done.stdout.splitlines()[-1])


def test_a_fork_has_the_environment_it_is_given_and_shows_no_other() -> None:
    found = seen(
        "def show():\n"
        "    shown = open('/proc/self/environ').read()\n"
        "    child = os.popen('env').read()\n"
        "    print(json.dumps([dict(os.environ), 'hunter2' in shown, 'hunter2' in child]), flush=True)\n"
        "fork(show, {'PATH': '/usr/bin:/bin', 'KEPT': 'x'}).wait()",
        A_SECRET="hunter2",
    )
    assert found == [{"PATH": "/usr/bin:/bin", "KEPT": "x"}, False, False]


def test_a_fork_keeps_the_descriptors_it_is_given_and_reads_no_stdin() -> None:
    opened, kept, stdin = seen(
        "ours, theirs = socket.socketpair()\n"
        "other = open('/etc/hostname')\n"
        "def show():\n"
        "    numbers = [int(name) for name in os.listdir('/proc/self/fd')]\n"
        "    print(json.dumps([len([n for n in numbers if n > 2]), theirs.fileno() in numbers,\n"
        "                      os.readlink('/proc/self/fd/0')]), flush=True)\n"
        "fork(show, {}, keep=[theirs.fileno()]).wait()"
    )
    assert (opened, kept, stdin) == (2, True, "/dev/null")  # the kept one, and the one that lists them


def test_a_fork_is_in_a_group_of_its_own_with_the_usual_signals() -> None:
    group, handlers = seen(
        "signal.signal(signal.SIGTERM, lambda *_: None)\n"
        "def show():\n"
        "    usual = [signal.getsignal(n) is signal.SIG_DFL for n in (signal.SIGINT, signal.SIGTERM)]\n"
        "    print(json.dumps([os.getpgrp() == os.getpid(), usual]), flush=True)\n"
        "fork(show, {}).wait()"
    )
    assert (group, handlers) == (True, [True, True])


def test_what_its_parent_would_do_at_its_end_happens_once() -> None:
    done = run(
        "atexit.register(lambda: print('at the end'))\n"
        "print('before', end=' ')\n"
        "try:\n"
        "    fork(lambda: None, {}).wait()\n"
        "finally:\n"
        "    print('finally')\n"
    )
    assert (done.stdout, done.stderr) == ("before finally\nat the end\n", "")


@pytest.mark.parametrize(
    ("body", "code", "printed"),
    [
        ("sys.exit(7)", 7, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit('the remedy')", 1, "the remedy\n"),
        ("raise ValueError('marker-77')", 1, "cellblock: a process ended with ValueError at <string>:5\n"),
        ("os.kill(os.getpid(), 9)", -9, ""),
    ],
)
def test_how_a_fork_ended_is_its_exit_code(body: str, code: int, printed: str) -> None:
    done = run(
        f"def end():\n    {body}\nmade = fork(end, {{}})\nprint(made.wait(30), made.poll(), made.returncode)"
    )
    assert (done.stdout, done.stderr) == (f"{code} {code} {code}\n", printed)


def test_a_fork_that_runs_is_waited_for_no_longer_than_asked_and_can_be_ended() -> None:
    done = run(
        "import subprocess\n"
        "made = fork(lambda: time.sleep(60), {})\n"
        "try:\n"
        "    made.wait(timeout=0.1)\n"
        "except subprocess.TimeoutExpired:\n"
        "    print(made.poll())\n"
        "made.terminate()\n"
        "print(made.wait(30))\n"
        "made.kill()\n"
    )
    assert (done.stdout, done.stderr) == ("None\n-15\n", "")


@pytest.mark.parametrize("pause_s", [0, 0.2], ids=["runs when it is looked for", "has ended"])
def test_a_fork_can_be_waited_for_where_no_status_of_children_is_kept(pause_s: float) -> None:
    """A daemon that starts commands often has SIGCHLD ignored, and its children inherit that."""
    done = run(
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "real = os.pidfd_open\n"
        f"os.pidfd_open = lambda pid: time.sleep({pause_s}) or real(pid)\n"
        "print(fork(lambda: None, {}).wait(30))"
    )
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_a_fork_ends_with_its_parent() -> None:
    # run() comes back only when the fork, too, has closed the pipes that both write to.
    assert run("fork(lambda: time.sleep(600), {})\nos._exit(0)").returncode == 0


def test_an_interrupt_in_a_fork_that_has_no_handlers_yet_runs_nothing_of_its_parent() -> None:
    """Injected: Ctrl-C as soon as there is a fork."""
    done = run(
        "real = os.fork\n"
        "def forked():\n"
        "    pid = real()\n"
        "    if pid == 0:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return pid\n"
        "os.fork = forked\n"
        "try:\n"
        "    print(fork(lambda: print('ran'), {}).wait(30))\n"
        "finally:\n"
        "    print('at the end', flush=True)\n"
    )
    assert (done.stdout, done.stderr) == ("-2\nat the end\n", "")


def test_a_process_with_a_second_thread_is_not_to_be_forked() -> None:
    assert seen("print(json.dumps(can_fork()))") is True
    second = "threading.Thread(target=time.sleep, args=(1,), daemon=True).start()\n"
    assert seen(second + "print(json.dumps(can_fork()))") is False
