"""The signals that ask a process to end: their handlers, and steps that they must not cut off."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

#: A service manager's, Ctrl-C, and the end of the terminal; in the order in which handlers are restored, and
#: the first one that came is raised.
_NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def on_stop(handler: Callable[[int, FrameType | None], object], *, interrupt: bool = True) -> None:
    """Has TERM, INT and HUP call ``handler``. HUP stays ignored where it is, as under nohup.

    Args:
        handler: As :func:`signal.signal` takes it. For the main thread.
        interrupt: Whether INT does too; without it Ctrl-C stays a :class:`KeyboardInterrupt`.
    """
    signal.signal(signal.SIGTERM, handler)
    if interrupt:
        signal.signal(signal.SIGINT, handler)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, handler)


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Delays SIGINT, SIGTERM and SIGHUP that arrive inside the block until its end.

    Does nothing in threads other than the main one, as they are never interrupted.

    For imports: the import system runs callbacks whose exceptions Python prints and drops, a
    :class:`KeyboardInterrupt` as any other.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: set[int] = set()
    before = {number: signal.getsignal(number) for number in _NUMBERS}
    for number, handler in before.items():
        if handler is not None:  # None: not Python's, so it could not be restored
            signal.signal(number, lambda number, _: came.add(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)
        for number in _NUMBERS:
            if number in came:
                signal.raise_signal(number)
