"""The worker's side of the filter: has a job's output filtered in another process, within bounds, at a
price."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from cellblock.egress import Outgoing
from cellblock.egress.files import as_text
from cellblock.egress.outgoing import withhold_all
from cellblock.egress.withholding import OutOfBounds
from cellblock_config.egress import EgressSettings
from cellblock_config.levels import MIB
from cellblock_workers.filtering import wire
from cellblock_workers.filtering.bounds import SMALL_BYTES, FilterBounds, bounds_of
from cellblock_workers.filtering.failures import Died, FilterFailed, Overrun
from cellblock_workers.filtering.fair_slots import FairSlots, Turn
from cellblock_workers.filtering.indexes import ContextIndexes
from cellblock_workers.filtering.interruption import Interruption
from cellblock_workers.filtering.messages import answer_from_wire, size_of, to_wire
from cellblock_workers.filtering.processes import FilterProcess, Template
from cellblock_workers.lease import Lease

#: An answer may be longer than its request by notices, reasons and counts.
_ANSWER_BYTES = MIB
_LEAST_KEPT = 2


@dataclass(frozen=True, slots=True)
class FilteredOutput:
    """What may leave, the CPU time that the decision took, and whether the job had too little money for
    it."""

    said: Outgoing
    cpu_s: float
    over_cost: bool = False


class OutgoingFilter:
    """The filter of one worker process. Threads may ask at once; each has a process to itself meanwhile."""

    def __init__(self, settings: EgressSettings, template: Template | None = None) -> None:
        """``template``: one that was started already."""
        self._settings = settings
        self._template = template or Template(settings)
        self._indexes = ContextIndexes(self._template, settings)
        processors = len(os.sched_getaffinity(0))
        self._idle_most = max(_LEAST_KEPT, processors)
        self._idle: list[FilterProcess] = []
        self._lock = threading.Lock()
        self._closed = False
        largest = bounds_of(0, settings, small=False)
        # Called at the end of this process at the latest, even if close() is forgotten.
        self._end = weakref.finalize(self, _end, self._idle, self._indexes, self._template)
        self._large = FairSlots(
            settings.filter_large_at_once,
            wait_s=10 * largest.wall_s,
            aside_bytes=settings.filter_memory_bytes,
        )

    def start(self) -> None:
        """Begins to get ready, so that the first job need not wait. Returns at once."""
        self._template.start()

    def close(self) -> None:
        """Ends its processes."""
        with self._lock:
            self._closed = True
        self._end()

    def look(
        self,
        said: Outgoing,
        *,
        tenant: str,
        lease: Lease | None = None,
        context: int | None = None,
        afford_s: float | None = None,
        output: EgressSettings | None = None,
    ) -> FilteredOutput:
        """The part of ``said`` that may leave. ``context``: a descriptor of the file that it must not repeat.
        ``afford_s``: the CPU time that the job's money pays for. ``output``: the settings whose bounds of
        output hold, by default the filter's own.

        Raises :class:`Stopped` when the attempt has to stop, :class:`FilterFailed` when it is our fault; both
        carry the CPU time that was used.
        """
        interruption = Interruption(lease)
        message, blobs = to_wire(said)
        pieces = wire.packed(message, blobs)
        size = size_of(said) + (len(pieces[1]) if said.value_kind == "json" else 0) + sum(map(len, blobs))
        request = {
            **message,
            "kind": "outgoing",
            "output": _output(output or self._settings),
            "index": None,
        }
        answer_bytes = sum(map(len, pieces)) + _ANSWER_BYTES
        del pieces
        descriptors: tuple[int, ...] = ()
        spent_s = 0.0
        with ExitStack() as stack:
            if context is not None and self._settings.echo_bytes:
                index = stack.enter_context(self._indexes.of(context, interruption))
                request["index"] = {"shift": index.shift, "block_bytes": index.block_bytes}
                descriptors, spent_s = (context, index.entries), index.cpu_s
            for small in (True, False) if size <= SMALL_BYTES else (False,):
                turn = None if small else stack.enter_context(self._large.taken(tenant, interruption))
                left_s = None if afford_s is None else afford_s - spent_s
                looked, exceeded = self._asked_within(
                    said=said,
                    request=request,
                    blobs=blobs,
                    descriptors=descriptors,
                    bounds=bounds_of(size, self._settings, small=small, afford_s=left_s),
                    answer_bytes=answer_bytes,
                    interruption=interruption,
                    turn=turn,
                )
                spent_s += looked.cpu_s
                # A small archive can unpack to more than a small request may hold.
                if not exceeded or looked.over_cost or all(as_text(blob) is not None for blob in blobs):
                    break
        return FilteredOutput(looked.said, spent_s, looked.over_cost)

    def _asked_within(
        self,
        said: Outgoing,
        request: wire.Message,
        blobs: list[bytes],
        descriptors: tuple[int, ...],
        bounds: FilterBounds,
        answer_bytes: int,
        interruption: Interruption,
        turn: Turn | None,
    ) -> tuple[FilteredOutput, bool]:
        """What may leave, and whether anything was withheld because it went beyond the bounds."""
        why_cpu = _why_cpu(bounds)
        limits = {"cpu_s": bounds.cpu_s, "memory_bytes": bounds.memory_bytes, "why_cpu": why_cpu}
        try:
            return self._asked(
                said=said,
                request={**request, **limits},
                blobs=blobs,
                descriptors=descriptors,
                bounds=bounds,
                answer_bytes=answer_bytes,
                interruption=interruption,
                turn=turn,
            )
        except Overrun as overrun:
            withheld = withhold_all(said, OutOfBounds(why_cpu))
            return FilteredOutput(withheld, overrun.cpu_s, bounds.by_cost), True

    def _asked(
        self,
        said: Outgoing,
        request: wire.Message,
        blobs: list[bytes],
        descriptors: tuple[int, ...],
        bounds: FilterBounds,
        answer_bytes: int,
        interruption: Interruption,
        turn: Turn | None,
    ) -> tuple[FilteredOutput, bool]:
        """Asks a process. Others may be to blame if it dies, so a fresh one is asked once more."""
        died_s = 0.0
        for last in (False, True):
            with self._process(fresh=last, with_context=bool(descriptors)) as process:
                try:
                    answer, back, cpu_s = process.ask(
                        message=request,
                        blobs=blobs,
                        descriptors=descriptors,
                        bounds=bounds,
                        answer_bytes=answer_bytes,
                        interruption=interruption,
                        turn=turn,
                    )
                    kept = answer_from_wire(said, answer, back)
                    exceeded = wire.item(answer, "exceeded", bool)
                except Died as death:
                    died_s += death.cpu_s
                    continue
                except wire.Malformed as error:
                    process.worn = True
                    raise FilterFailed(f"its answer holds {error}") from None
            return FilteredOutput(kept, died_s + cpu_s, exceeded and bounds.by_cost), exceeded
        why = OutOfBounds("its filter process ended under it, twice; return less, or smaller files")
        return FilteredOutput(withhold_all(said, why), died_s), True

    @contextmanager
    def _process(self, *, fresh: bool, with_context: bool) -> Iterator[FilterProcess]:
        with self._lock:
            process = self._idle.pop() if self._idle and not fresh else None
        if process is None:
            process = self._template.fork(with_context=with_context)
        try:
            yield process
        finally:
            with self._lock:
                kept = not (process.worn or self._closed or len(self._idle) >= self._idle_most)
                if kept:
                    self._idle.append(process)
            if not kept:
                process.close()


def _end(idle: list[FilterProcess], indexes: ContextIndexes, template: Template) -> None:
    while idle:
        idle.pop().close()
    indexes.close()
    template.stop()


def _output(settings: EgressSettings) -> dict[str, int]:
    names = ("output_limit_bytes", "output_head_bytes", "output_tail_bytes")
    return {name: getattr(settings, name) for name in names}


def _why_cpu(bounds: FilterBounds) -> str:
    if bounds.by_cost:
        return "looking through it costs more than the job may (max_cost_micros, or its plan's cost per run)"
    return (
        f"looking through it takes more than {bounds.cpu_s:.1f} s of CPU time (egress.filter_cpu_s and "
        "egress.filter_cpu_s_per_mib); return less, or smaller files"
    )
