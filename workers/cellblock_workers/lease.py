"""Leases: one thread per worker process renews them all and hears of cancelled and lost ones."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

from cellblock.errors import SandboxUnavailable, StoreUnavailable
from cellblock.ledger import Claim, Ledger, PulseWord
from cellblock_config import LedgerSettings
from cellblock_workers.log import get_logger

_log = get_logger(__name__)


#: Why an attempt has to stop. A stop reason replaces the current one only if it ranks higher (further right).
StopReason = Literal["drain", "cancel", "lost"]
_WEIGHT: tuple[StopReason, ...] = ("drain", "cancel", "lost")


class Lease:
    """The lease of one attempt. Its descriptor turns readable when the attempt has to stop.

    ``sandbox_s``: the launcher destroys the attempt's sandbox when it was not renewed for this many seconds;
    None leaves the sandbox to the connection that borrowed it.
    """

    def __init__(self, claim: Claim, sandbox_s: float | None = None, taken: float | None = None) -> None:
        self.claim = claim
        self.sandbox_s = sandbox_s
        self.sandboxes: set[str] = set()  #: the ids of the sandboxes that it holds now
        self.ran = False  #: whether it ever had a sandbox
        self.stopped: StopReason | None = None
        self.lent_micros = claim.lent_micros  #: what its nested runs hold of its money now
        self.renewed = time.monotonic() if taken is None else taken  #: when its latest renewal was sent
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def fileno(self) -> int:
        """The descriptor for poll()."""
        return self._event

    def stop(self, why: StopReason) -> None:
        """Makes the attempt stop: cancelled, given back because the worker ends, or lost to another."""
        if self.stopped is None or _WEIGHT.index(why) > _WEIGHT.index(self.stopped):
            self.stopped = why
            os.eventfd_write(self._event, 1)

    def borrowed(self, sandbox: str) -> None:
        """Notes that the attempt holds this sandbox."""
        self.sandboxes.add(sandbox)
        self.ran = True

    def returned(self, sandbox: str) -> None:
        """Notes that the attempt has given this sandbox back."""
        self.sandboxes.discard(sandbox)

    def wait(self, timeout_s: float) -> None:
        """Waits until it has to stop, for ``timeout_s`` at most."""
        poll = select.poll()
        poll.register(self._event, select.POLLIN)
        poll.poll(timeout_s * 1000)

    def close(self) -> None:
        """Closes the descriptor."""
        os.close(self._event)


class Heart:
    """Beats for every lease of this process, on a thread of its own."""

    def __init__(
        self,
        ledger: Ledger,
        worker: str,
        settings: LedgerSettings,
        status: Callable[[], Mapping[str, object]],
        renew: Callable[[Sequence[str]], None] = lambda sandboxes: None,
    ) -> None:
        """``renew`` tells the launcher which sandboxes still belong to a job of this worker."""
        self._ledger = ledger
        self._worker = worker
        self._settings = settings
        self._status = status
        self._renew = renew
        self._leases: dict[tuple[str, int], Lease] = {}
        self.begun = 0  #: attempts so far
        self._claimed = time.monotonic()
        self._cancelled: dict[str, float] = {}  # when it was heard, of jobs not held here
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._nudged = threading.Event()
        self._draining = False
        self._threads = [
            threading.Thread(target=self._beat_on, name="heart", daemon=True),
            threading.Thread(target=self._guard, name="lease-guard", daemon=True),
            threading.Thread(target=self._keep_sandboxes, name="sandbox-keeper", daemon=True),
        ]

    def start(self) -> None:
        """Begins to beat."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stops beating; leases then run out by themselves."""
        self._closing.set()
        self._nudged.set()
        for thread in self._threads:
            thread.join(timeout=5)

    @contextmanager
    def hold(self, claim: Claim, sent: float | None = None) -> Iterator[Lease]:
        """Renews the claim's lease while the block runs. ``sent``: monotonic time when the claim was
        sent."""
        lease = Lease(claim, sandbox_s=self._settings.lease_s, taken=sent)
        key = (claim.job_id, claim.fence)
        with self._lock:
            self._claimed = time.monotonic()
            self._leases[key] = lease
            self.begun += 1
            if self._draining:
                lease.stop("drain")
            if self._cancelled.pop(claim.job_id, None) is not None:
                self._nudged.set()
        try:
            yield lease
        finally:
            with self._lock:
                del self._leases[key]
            lease.close()

    def idle_s(self) -> float:
        """Seconds since the last claim of a job here; before the first, since the start."""
        return time.monotonic() - self._claimed

    def held(self) -> int:
        """The number of jobs that run here."""
        return len(self._leases)

    def running(self) -> list[tuple[str, float]]:
        """The ids of the jobs that run here, each with the Unix time at which its attempt began."""
        with self._lock:
            return [(lease.claim.job_id, lease.claim.started) for lease in self._leases.values()]

    @property
    def draining(self) -> bool:
        """Whether this worker gives back what it has: no job must be claimed any more."""
        return self._draining

    def nudge(self, job_id: str | None = None) -> None:
        """Beats at once if this job runs here, to hear what happened to it; None: if any job runs here."""
        now = time.monotonic()
        with self._lock:
            ours = any(job_id in {None, held} for held, _ in self._leases)
            if job_id is not None and not ours:  # it may be claimed here just now
                recent = {one: at for one, at in self._cancelled.items() if now - at < self._settings.beat_s}
                self._cancelled = {**recent, job_id: now}
        if ours:
            self._nudged.set()

    def drain(self) -> None:
        """Stops every attempt, and every later one at once: their jobs are given back."""
        with self._lock:
            self._draining = True
            for lease in self._leases.values():
                lease.stop("drain")

    def beat(self) -> None:
        """Renews all leases once and passes on what the ledger says of them."""
        with self._lock:
            keys = list(self._leases)
        sent = time.monotonic()
        try:
            pulses = self._ledger.beat(self._worker, keys, self._status())
        except StoreUnavailable as error:
            _log.warning("beat_failed", error=str(error))
            return
        with self._lock:
            for key, pulse in pulses.items():
                lease = self._leases.get(key)
                if lease is not None:
                    lease.renewed = sent
                    lease.lent_micros = pulse.lent_micros
                    if pulse.word is not PulseWord.HELD:
                        lease.stop("cancel" if pulse.word is PulseWord.CANCEL else "lost")

    def expire(self) -> None:
        """Stops attempts that were not renewed for a lease's length, by our own clock: others may run their
        jobs."""
        with self._lock:
            for lease in self._leases.values():
                if time.monotonic() - lease.renewed >= self._settings.lease_s:
                    lease.stop("lost")

    def _keep_sandboxes(self) -> None:
        # Apart from the beats: a launcher that hangs must not cost this worker its leases.
        while not self._closing.wait(self._settings.beat_s):
            with self._lock:
                fresh = time.monotonic() - self._settings.lease_s
                kept = [
                    sandbox
                    for lease in self._leases.values()
                    if lease.stopped != "lost" and lease.renewed > fresh
                    for sandbox in tuple(lease.sandboxes)
                ]
            if kept:
                try:
                    self._renew(kept)
                except SandboxUnavailable as error:
                    _log.warning("sandboxes_not_renewed", error=str(error))
                except Exception:  # a defect of ours: without renewals every later sandbox would be destroyed
                    _log.exception("renewal_crashed")

    def _guard(self) -> None:
        # Apart from the beats: those may hang in a dead connection while the leases run out.
        while not self._closing.wait(self._settings.lease_s / 20):
            self.expire()

    def _beat_on(self) -> None:
        while not self._closing.is_set():
            try:
                self.beat()
            except Exception:  # the heart must not stop for a defect of ours
                _log.exception("beat_crashed")
            self._nudged.wait(self._settings.beat_s)
            self._nudged.clear()
