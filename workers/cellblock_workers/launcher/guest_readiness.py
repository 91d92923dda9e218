"""Waits until a guest says that it is there. Only the worker reads what it says."""

from __future__ import annotations

import select
import socket

from cellblock_workers.launcher.backend import GuestEnded, StartFailed


def await_guest(stream: socket.socket, isolation: str, timeout_s: float) -> None:
    """Waits until the guest has written something.

    Raises :class:`GuestEnded` when it ends instead, and :class:`StartFailed` after ``timeout_s``.
    """
    poll = select.poll()
    poll.register(stream, select.POLLIN | select.POLLRDHUP)
    events = poll.poll(timeout_s * 1000)
    if not events:
        raise StartFailed(f"{isolation}: the guest did not announce itself within {timeout_s:g} s")
    if events[0][1] & (select.POLLHUP | select.POLLRDHUP | select.POLLERR):
        raise GuestEnded(
            f"{isolation}: the sandbox ended before its guest announced itself; "
            "has the image every module of sandbox.preload?"
        )
