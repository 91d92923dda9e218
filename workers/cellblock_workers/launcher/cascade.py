"""Which isolation runs: the first of ``sandbox.isolations`` that its probe proves, and nothing unproven."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import structlog

from cellblock_workers.launcher.backend import Backend, BackendUnavailable, Profile, Sandbox

_log = structlog.get_logger(__name__)

NO_GVISOR = "gVisor (runsc) not detected, falling back to strict seccomp isolation"


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
        """Find the first backend that works; logs every step down. Returns its isolation."""
        with self._lock:
            reasons: dict[str, str] = {}
            before = self._chosen
            for backend in self._backends:
                try:
                    backend.probe()
                except BackendUnavailable as error:
                    reasons[backend.isolation] = str(error)
                    _log.warning("isolation_unavailable", isolation=backend.isolation, reason=str(error))
                    continue
                if backend.isolation != "gvisor" and "gvisor" in reasons:
                    _log.warning("isolation_fallback", message=NO_GVISOR, isolation=backend.isolation)
                if before is not backend:
                    _log.info("isolation_chosen", isolation=backend.isolation, backend=backend.name)
                self._chosen, self._reasons = backend, reasons
                return backend.isolation
            self._chosen, self._reasons = None, reasons
            return None

    def start(self, profile: Profile) -> Sandbox:
        """Start on the chosen backend. A failure never steps down by itself: only a probe does."""
        chosen = self._chosen
        if chosen is None:
            raise BackendUnavailable("; ".join(self._reasons.values()) or "no isolation has been probed yet")
        return chosen.start(profile)

    def doubt(self) -> None:
        """Something failed: no sandbox starts until a probe has passed again."""
        with self._lock:
            self._chosen = None

    def sweep(self) -> int:
        """Remove what gone owners left; backends that cannot be asked are logged."""
        removed = 0
        for backend in self._backends[:1]:  # one daemon holds the containers of every runtime
            try:
                removed += backend.sweep()
            except BackendUnavailable as error:
                _log.warning("sweep_failed", reason=str(error))
        return removed
