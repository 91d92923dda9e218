"""In a filter process: answers one request after the other, each within its bounds."""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from cellblock.egress.context import ContextSource
from cellblock.egress.outgoing import filter_outgoing
from cellblock_config.egress import EgressSettings
from cellblock_workers.filtering import wire
from cellblock_workers.filtering.guard import NICE_S, ProcessGuard, address_space_bytes, unlimited
from cellblock_workers.filtering.messages import answer_to_wire, from_wire

#: A process that has grown by this much is not used again.
_WORN_BYTES = 48 * 1024 * 1024
_DESCRIPTORS_MOST = 2
_WRITE_BYTES = 1024 * 1024


class Connection:
    """This process's end of the stream: reads exact lengths, and the descriptors in a message's first
    packet."""

    def __init__(self, stream: socket.socket) -> None:
        stream.setblocking(True)
        self._stream = stream
        self.descriptors: list[int] = []

    def receive(self, size: int) -> bytes:
        """``size`` bytes; fewer at the end of the stream."""
        data = bytearray(size)
        view, at = memoryview(data), 0
        while at < size:
            if at or size != wire.HEAD.size:
                got = self._stream.recv_into(view[at:])
            else:
                head, found, _, _ = socket.recv_fds(self._stream, size, _DESCRIPTORS_MOST)
                self.descriptors += found
                got = len(head)
                view[:got] = head
            if not got:
                break
            at += got
        del view
        return bytes(data) if at == size else bytes(data[:at])

    def send(self, message: wire.Message, blobs: list[bytes]) -> None:
        """Sends an answer."""
        for piece in wire.packed(message, blobs):
            self._stream.sendall(piece)

    def close_descriptors(self) -> None:
        """Closes the descriptors of the request before."""
        while self.descriptors:
            os.close(self.descriptors.pop())


def serve(stream: socket.socket, settings: EgressSettings) -> None:
    """Answers until the worker closes its end. A worn process only waits for that."""
    connection, server = Connection(stream), _Server(settings)
    while True:
        request = wire.read(connection.receive)
        if request is None:
            return
        if server.answer(connection, *request):
            connection.receive(1)  # ended by the worker, once that has read this process's clock for the bill
            return
        del request
        connection.close_descriptors()
        unlimited()


class _Server:
    def __init__(self, settings: EgressSettings) -> None:
        self._settings = settings
        self._grown_bytes = address_space_bytes() + _WORN_BYTES
        self._excerpts: dict[tuple[int, int, int], EgressSettings] = {}

    def answer(self, connection: Connection, message: wire.Message, blobs: list[bytes]) -> bool:
        """Answers one request. Returns whether this process is worn after it."""
        back: list[bytes] = []
        guard = ProcessGuard(message["cpu_s"], message["memory_bytes"], message["why_cpu"])
        try:
            if message["kind"] == "index":
                answer = _made_index(guard, message, connection.descriptors)
            else:
                answer, back = self._filtered(guard, message, blobs, connection.descriptors)
        except Exception as error:  # a defect of ours: nothing leaves, and the worker logs where it was
            answer = {"failed": _place(error)}
        held = sum(map(len, (*blobs, *back)))
        grown = address_space_bytes() - held > self._grown_bytes
        worn = guard.exceeded or guard.used_s > NICE_S or grown or "failed" in answer
        connection.send({**answer, "worn": worn}, back)
        return worn

    def _filtered(
        self, guard: ProcessGuard, message: wire.Message, blobs: list[bytes], descriptors: list[int]
    ) -> tuple[wire.Message, list[bytes]]:
        said = from_wire(message, blobs)
        source = None if message["index"] is None else _context(message["index"], *descriptors)
        kept = filter_outgoing(said, self._excerpt(message["output"]), source, guard)
        answer, back = answer_to_wire(said, kept)
        return {**answer, "exceeded": guard.exceeded}, back

    def _excerpt(self, output: Mapping[str, int]) -> EgressSettings:
        key = (output["output_limit_bytes"], output["output_head_bytes"], output["output_tail_bytes"])
        if key not in self._excerpts:
            self._excerpts[key] = self._settings.model_copy(update=dict(output))
        return self._excerpts[key]


def _context(index: Mapping[str, int], context: int, entries: int) -> ContextSource:
    """The context to compare the output with, with the index that was made before."""
    import numpy as np

    from cellblock.egress.echo import ContextIndex, adopt

    source = ContextSource(os.fstat(context).st_size, lambda start, length: os.pread(context, length, start))
    count = os.fstat(entries).st_size // 8
    # Mapped, not read: all processes share it.
    found: Any = np.memmap(os.fdopen(os.dup(entries), "rb"), np.uint64, "r", shape=(count,)) if count else []
    adopt(ContextIndex(source, np.asarray(found, np.uint64), index["shift"], index["block_bytes"]))
    return source


def _made_index(guard: ProcessGuard, message: wire.Message, descriptors: list[int]) -> wire.Message:
    from cellblock.egress.echo import ContextIndex

    context, into = descriptors
    source = ContextSource.of_descriptor(context)
    index = guard.run_last(lambda: ContextIndex.build(source, memory_bytes=message["echo_memory_bytes"]))
    data = memoryview(index.entries.tobytes())
    for start in range(0, len(data), _WRITE_BYTES):
        os.write(into, data[start : start + _WRITE_BYTES])
    return {"shift": index.shift, "block_bytes": index.block_bytes}


def _place(error: Exception) -> str:
    """The type and place of a defect, without a word of what was filtered."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = f" at {PurePath(last[0].filename).name}:{last[0].lineno}" if last else ""
    return f"{type(error).__name__}{where}"
