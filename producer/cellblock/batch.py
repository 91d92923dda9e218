"""A batch of jobs of any length: a window of them in flight, and no accepted job lost on any way out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from cellblock.contract.job_spec import JobSpec
from cellblock.contract.results import JobResult
from cellblock.errors import CellblockError
from cellblock.waiting import closed_while_waiting


@dataclass(frozen=True, slots=True)
class Start:
    """A job on its way. ``shared``: others might have submitted it too, under its idempotency key."""

    job_id: str
    future: Future[JobResult]
    shared: bool


@dataclass(slots=True, eq=False)
class _Item:
    """What came of one spec: a job, or the error that refused it."""

    start: Start | None
    future: Future[JobResult]


class Batch:
    """Runs specs through a fleet, once. :meth:`stop` can be called from any thread."""

    def __init__(
        self,
        start: Callable[[JobSpec, Callable[[float], bool]], Start | CellblockError],
        cancel_waiting: Callable[[list[str]], object],
        *,
        window: int,
    ) -> None:
        """``start``: submits a job, or returns the error that refuses it alone; it waits for room by calling
        its second argument with seconds, which says whether the batch was stopped meanwhile.
        ``cancel_waiting``: cancels those of these jobs that have not started."""
        self._start = start
        self._cancel_waiting = cancel_waiting
        self._window = window
        self._flight: deque[_Item] = deque()
        self._stopping: Future[Any] = Future()
        self._failure: Exception | None = None

    def run(
        self, specs: Iterable[JobSpec], *, ordered: bool
    ) -> Generator[JobResult | CellblockError, None, None]:
        """For each spec its result, or its error. Where submitting fails as a whole, or ``specs`` does, the
        results of accepted jobs come first and the error is raised after them."""
        items = self._items(specs)
        try:
            yield from self._ordered(items) if ordered else self._unordered(items)
            if self._failure is not None:
                raise self._failure
        finally:  # the caller stopped reading
            self.stop()

    def stop(self) -> None:
        """Submits no more, and cancels the jobs in flight that have not started."""
        with suppress(Exception):  # stopped already
            self._stopping.set_result(None)
        jobs = [item.start for item in list(self._flight) if item.start and not item.future.done()]
        if waiting := list({job.job_id for job in jobs if not job.shared}):
            self._cancel_waiting(waiting)

    def _items(self, specs: Iterable[JobSpec]) -> Iterator[_Item]:
        """Submits spec by spec, as the caller reads on, until one fails in a way that others would too."""
        source = iter(specs)
        try:
            while not self._stopping.done() and (spec := next(source, None)) is not None:
                yield self._begun(spec)
        except Exception as error:
            self._failure = error

    def _begun(self, spec: JobSpec) -> _Item:
        begun = self._start(spec, lambda pause_s: bool(wait([self._stopping], timeout=pause_s).done))
        if isinstance(begun, Start):
            return _Item(begun, begun.future)
        refused: Future[JobResult] = Future()
        refused.set_exception(begun)
        return _Item(None, refused)

    def _ordered(self, items: Iterator[_Item]) -> Iterator[JobResult | CellblockError]:
        flight = self._flight
        for item in items:
            flight.append(item)
            while flight and (len(flight) >= self._window or flight[0].future.done()):
                if not self._waited(flight[0].future):
                    return
                yield _landed(flight.popleft())
        while flight and self._waited(flight[0].future):
            yield _landed(flight.popleft())

    def _unordered(self, items: Iterator[_Item]) -> Iterator[JobResult | CellblockError]:
        # Specs with one idempotency key are one job and share its future; each still gets its result.
        more = True
        while more or self._flight:
            while more and len(self._flight) < self._window:
                item = next(items, None)
                if item is None:
                    more = False
                else:
                    self._flight.append(item)
                    yield from self._take_done()
            if self._flight:
                if not self._waited(*(item.future for item in self._flight)):
                    return
                yield from self._take_done()

    def _waited(self, *futures: Future[JobResult]) -> bool:
        """Waits for one of these; false if the batch is to stop."""
        wait([*futures, self._stopping], return_when=FIRST_COMPLETED)
        return not self._stopping.done()

    def _take_done(self) -> Iterator[JobResult | CellblockError]:
        for item in [item for item in self._flight if item.future.done()]:
            self._flight.remove(item)
            yield _landed(item)


def _landed(item: _Item) -> JobResult | CellblockError:
    try:
        return item.future.result()
    except CancelledError:
        job_id = item.start.job_id if item.start is not None else "-"
        raise closed_while_waiting(job_id) from None
    except CellblockError as error:  # such as a result that expired before it was read
        return error
