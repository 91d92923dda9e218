"""The indices of contexts: each is made once, in a process of its own, and shared by all filter processes.

Only one is made at a time, and together they stay within ``egress.echo_memory_bytes``. A tenant with many
contexts has them made again and again, each on the bill of the job that asked, and takes one processor at
most.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cellblock_config.egress import EgressSettings
from cellblock_workers.filtering import wire
from cellblock_workers.filtering.bounds import index_bounds
from cellblock_workers.filtering.failures import Died, FilterFailed, Overrun, Stopped
from cellblock_workers.filtering.interruption import Interruption
from cellblock_workers.filtering.processes import Template

_ANSWER_BYTES = 4096
_KEPT_MOST = 64
_LOOK_S = 0.25
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL


@dataclass(frozen=True, slots=True)
class Index:
    """``entries``: a descriptor of sealed memory that holds them, so that no process changes another's."""

    entries: int
    shift: int
    block_bytes: int
    #: The CPU time that making it took, if this caller had it made; else 0.
    cpu_s: float = 0.0


class ContextIndexes:
    """The indices that one worker process keeps."""

    def __init__(self, template: Template, settings: EgressSettings) -> None:
        self._template = template
        self._settings = settings
        self._kept: OrderedDict[tuple[int, ...], tuple[Index, int]] = OrderedDict()
        self._look = threading.Lock()
        self._making = threading.Lock()

    @contextmanager
    def of(self, context: int, interruption: Interruption) -> Iterator[Index]:
        """The index of the file behind this descriptor; its own descriptor lives as long as the block.

        Raises :class:`Stopped` and :class:`FilterFailed`.
        """
        found = os.fstat(context)
        key = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        index = self._known(key)
        while index is None:
            if self._making.acquire(timeout=_LOOK_S):
                try:
                    index = self._known(key) or self._made(key, context, found.st_size, interruption)
                finally:
                    self._making.release()
            elif (reason := interruption.reason) is not None:
                raise Stopped(reason, 0.0)
        try:
            yield index
        finally:
            os.close(index.entries)

    def close(self) -> None:
        """Closes all of them."""
        with self._look:
            while self._kept:
                os.close(self._kept.popitem()[1][0].entries)

    def _known(self, key: tuple[int, ...]) -> Index | None:
        with self._look:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            index = self._kept[key][0]
            return Index(os.dup(index.entries), index.shift, index.block_bytes)

    def _made(self, key: tuple[int, ...], context: int, size: int, interruption: Interruption) -> Index:
        bounds = index_bounds(size, self._settings)
        message = {
            "kind": "index",
            "cpu_s": bounds.cpu_s,
            "memory_bytes": bounds.memory_bytes,
            "why_cpu": "the index of the context takes longer than allowed",
            "echo_memory_bytes": self._settings.echo_memory_bytes,
        }
        entries = os.memfd_create("context-index", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            with self._template.fork(with_context=True) as process:
                answer, _, cpu_s = process.ask(
                    message=message,
                    blobs=(),
                    descriptors=(context, entries),
                    bounds=bounds,
                    answer_bytes=_ANSWER_BYTES,
                    interruption=interruption,
                )
            fcntl.fcntl(entries, fcntl.F_ADD_SEALS, _SEALS)
            shift, block_bytes = (wire.item(answer, name, int) for name in ("shift", "block_bytes"))
            kept = Index(os.dup(entries), shift, block_bytes)
        except (Died, Overrun, wire.Malformed) as error:
            os.close(entries)
            raise FilterFailed("the context could not be indexed", getattr(error, "cpu_s", 0.0)) from None
        except BaseException:
            os.close(entries)
            raise
        self._keep(key, kept)
        return Index(entries, shift, block_bytes, cpu_s)

    def _keep(self, key: tuple[int, ...], index: Index) -> None:
        with self._look:
            self._kept[key] = index, os.fstat(index.entries).st_size
            while len(self._kept) > 1 and (
                len(self._kept) > _KEPT_MOST
                or sum(size for _, size in self._kept.values()) > self._settings.echo_memory_bytes
            ):
                os.close(self._kept.popitem(last=False)[1][0].entries)
