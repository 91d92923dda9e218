"""Ctrl-C and TERM are held back while a step runs, and not lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from cellblock.interrupts import interrupts_held, on_stop


def test_an_interrupt_inside_the_block_comes_at_its_end() -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt), interrupts_held():
        os.kill(os.getpid(), signal.SIGINT)
        steps.append("after the signal")
    assert steps == ["after the signal"]


def test_an_interrupt_is_held_back_while_another_thread_could_take_the_signal() -> None:
    steps = []
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    try:
        with pytest.raises(KeyboardInterrupt), interrupts_held():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
            steps.append("after the signal")
    finally:
        done.set()
        other.join()
    assert steps == ["after the signal"]


def test_the_handlers_of_before_are_there_again() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with interrupts_held(), interrupts_held():
        assert signal.getsignal(signal.SIGINT) not in before
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_another_thread_than_the_main_one_holds_nothing() -> None:
    seen = []

    def look() -> None:
        with interrupts_held():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_what_asks_a_process_to_end_calls_its_handler(number: signal.Signals) -> None:
    seen = []
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        on_stop(lambda number, _: seen.append(number))
        os.kill(os.getpid(), number)
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    assert seen == [number]


def test_a_hangup_inside_the_block_comes_at_its_end() -> None:
    seen: list[str] = []
    before = signal.signal(signal.SIGHUP, lambda *_: seen.append("hangup"))
    try:
        with interrupts_held():
            os.kill(os.getpid(), signal.SIGHUP)
            seen.append("after the signal")
    finally:
        signal.signal(signal.SIGHUP, before)
    assert seen == ["after the signal", "hangup"]


def test_under_nohup_the_end_of_the_terminal_ends_nothing() -> None:
    program = (
        "import os, signal, sys\n"
        "from cellblock.interrupts import on_stop\n"
        "on_stop(lambda *_: sys.exit(1))\n"
        "os.kill(os.getpid(), signal.SIGHUP)\n"
    )
    done = subprocess.run(["nohup", sys.executable, "-c", program], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
