"""Holds back Ctrl-C and TERM while a step runs that must not be cut off."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

#: In the order in which their handlers are restored, and the first one that came is raised.
_NUMBERS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Delays SIGINT and SIGTERM that arrive inside the block until its end.

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
