"""Which isolation runs: the first of ``sandbox.isolations`` that its probe proves, and nothing unproven."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import structlog

from cellblock_workers.launcher.backend import (
    Backend,
    BackendUnavailable,
    Profile,
    Sandbox,
    StartFailed,
)

_log = structlog.get_logger(__name__)

NO_GVISOR = "gVisor (runsc) not detected, falling back to strict seccomp isolation"


class NothingChosen(BackendUnavailable):
    """No isolation is in use now; a probe is due or under way."""


class Cascade:
    """Tries the backends in order and starts sandboxes on the one that passed. Thread-safe."""

    def __init__(self, backends: Sequence[Backend]) -> None:
        self._backends = backends
        self._chosen: Backend | None = None
        self._reasons: dict[str, str] = {}
        self._lock = threading.Lock()

    @property
    def chosen(self) -> str | None:
        """The isolation in use, None while none works."""
        chosen = self._chosen
        return chosen.isolation if chosen else None

    @property
    def reasons(self) -> dict[str, str]:
        """Why each isolation that is not used is not, by its name."""
        return dict(self._reasons)

    def probe(self) -> str | None:
        """Find the first backend that works; logs every step down. Returns its isolation.

        A backend that answers and fails is stepped over; one that cannot be asked ends the search, so
        that a daemon still coming up costs seconds and not the better isolation.
        """
        with self._lock:
            reasons: dict[str, str] = {}
            before, found = self._chosen, None
            for backend in self._backends:
                try:
                    backend.probe()
                except StartFailed as error:
                    reasons[backend.isolation] = str(error)
                    continue
                except BackendUnavailable as error:
                    reasons[backend.isolation] = str(error)
                    break
                found = backend
                break
            if reasons != self._reasons or found is not before:
                self._tell(found, reasons)
            self._chosen, self._reasons = found, reasons
            return found.isolation if found else None

    def is_best(self) -> bool:
        """Whether the first of the configured isolations is in use."""
        return self._chosen is self._backends[0]

    def start(self, profile: Profile) -> Sandbox:
        """Start on the chosen backend. A failure never steps down by itself: only a probe does."""
        chosen = self._chosen
        if chosen is None:
            raise NothingChosen("; ".join(self._reasons.values()) or "no isolation has been probed yet")
        try:
            return chosen.start(profile)
        except StartFailed:
            raise
        except BackendUnavailable:
            self._doubt(chosen)
            raise

    def doubt(self) -> None:
        """Something failed: no sandbox starts until a probe has passed again."""
        if (chosen := self._chosen) is not None:
            self._doubt(chosen)

    def _doubt(self, backend: Backend) -> None:
        with self._lock:
            if self._chosen is backend:
                self._chosen = None

    @staticmethod
    def _tell(found: Backend | None, reasons: dict[str, str]) -> None:
        for isolation, reason in reasons.items():
            _log.warning("isolation_unavailable", isolation=isolation, reason=reason)
        if found is not None:
            if found.isolation != "gvisor" and "gvisor" in reasons:
                _log.warning("isolation_fallback", message=NO_GVISOR, isolation=found.isolation)
            _log.info("isolation_chosen", isolation=found.isolation, backend=found.name)

    def sweep(self) -> int:
        """Remove what gone owners left; backends that cannot be asked are logged."""
        removed = 0
        for backend in self._backends[:1]:  # one daemon holds the containers of every runtime
            try:
                removed += backend.sweep()
            except BackendUnavailable as error:
                _log.warning("sweep_failed", reason=str(error))
        return removed
