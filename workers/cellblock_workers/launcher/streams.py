"""Sockets that take bytes, and nothing but bytes, from a peer that may be hostile.

The peer of a Unix socket can send descriptors. A descriptor that lingers on close stops the closing thread
for as long as the peer likes. Kernels since 6.16 pass none if the receiver says so; on older ones a receiver
has to expect them (:func:`close_aside`).
"""

from __future__ import annotations

import array
import os
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress

_SO_PASSRIGHTS = 83  # asm-generic/socket.h
DESCRIPTORS_MAX = 253  # SCM_MAX_FD: no packet carries more


def sandbox_stream() -> tuple[socket.socket, socket.socket]:
    """The host's end of a sandbox's stream, and the guest's."""
    ours, theirs = socket.socketpair()
    refuse_descriptors(ours)
    return ours, theirs


def refuse_descriptors(receiver: socket.socket) -> bool:
    """Lets no peer send descriptors to this socket, or to one it accepts. Returns whether the kernel can."""
    try:
        receiver.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 0)
    except OSError:
        return False
    return True


def receive(receiver: socket.socket, most_bytes: int) -> tuple[bytes, list[int]]:
    """Up to ``most_bytes`` of what has arrived, and the descriptors with it. Raises what ``recv`` raises."""
    room = socket.CMSG_SPACE(DESCRIPTORS_MAX * array.array("i").itemsize)
    data, ancillary, _, _ = receiver.recvmsg(most_bytes, room, socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    return data, list(descriptors)


def close_aside(descriptors: Sequence[int]) -> None:
    """Closes what a peer sent, in a thread that no other thread waits for."""

    def close() -> None:
        for descriptor in descriptors:
            with suppress(OSError):
                os.close(descriptor)

    threading.Thread(target=close, name="close-aside", daemon=True).start()
