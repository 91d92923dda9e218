"""Whether this worker may claim: it stops when its launcher cannot start sandboxes, and says so."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from cellblock.errors import SandboxUnavailable
from cellblock.models import PRIORITY_CLASSES
from cellblock_workers.launcher.client import LauncherClient

_log = structlog.get_logger(__name__)


class Health:
    """Ready or paused, with the reason. While paused it asks the launcher again until sandboxes start."""

    def __init__(self, launcher: LauncherClient, probe_s: float) -> None:
        self._launcher = launcher
        self._probe_s = probe_s
        self._reason: str | None = "starting"
        self._isolation: str | None = None
        self._watchers: list[Callable[[bool], None]] = []
        self._paused = threading.Event()
        self._paused.set()
        self._ready = threading.Event()
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._recover, name="health", daemon=True)

    def start(self) -> None:
        """Begin to look for a working launcher."""
        self._thread.start()

    def stop(self) -> None:
        """Stop looking."""
        self._closing.set()
        self._paused.set()
        self._thread.join(timeout=5)

    @property
    def ready(self) -> bool:
        """Whether jobs may be claimed."""
        return self._reason is None

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait until jobs may be claimed; whether they may."""
        return self._ready.wait(timeout_s)

    def watch(self, changed: Callable[[bool], None]) -> None:
        """Call ``changed(ready)`` at every change, from whichever thread notices it."""
        self._watchers.append(changed)

    def pause(self, reason: str) -> None:
        """Stop claiming until the launcher works again."""
        with self._lock:
            if self._reason is None:
                _log.error("worker_paused", reason=reason, remedy="claims resume by themselves")
            self._reason = reason
            self._ready.clear()
            self._paused.set()
        self._tell(False)

    def status(self) -> dict[str, object]:
        """What the worker says of itself with every beat."""
        return {
            "state": "ready" if self.ready else "paused",
            "reason": self._reason,
            "isolation": self._isolation,
            "queues": list(PRIORITY_CLASSES),
        }

    def _recover(self) -> None:
        while not self._closing.is_set():
            self._paused.wait()
            if self._closing.is_set():
                return
            try:
                reply = self._launcher.probe()
            except SandboxUnavailable as error:
                self._reason = str(error)
            else:
                if reply.isolation:
                    self._resume(reply.isolation)
                    continue
                self._reason = "; ".join((reply.reasons or {}).values()) or self._reason
            self._closing.wait(self._probe_s)

    def _resume(self, isolation: str) -> None:
        with self._lock:
            self._reason = None
            self._isolation = isolation
            self._paused.clear()
            self._ready.set()
        _log.info("worker_ready", isolation=isolation)
        self._tell(True)

    def _tell(self, ready: bool) -> None:
        for changed in self._watchers:
            changed(ready)
