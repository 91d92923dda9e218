"""Whether this worker may claim: only while its launcher starts sandboxes whose controls the worker has
tested."""

from __future__ import annotations

import threading
from collections.abc import Callable

from cellblock.errors import SandboxUnavailable
from cellblock_config import LevelName
from cellblock_workers.launcher.client import LauncherClient
from cellblock_workers.log import get_logger
from cellblock_workers.worker.proof import NotProven, Proof

_log = get_logger(__name__)

#: How often a ready worker looks whether the launcher's isolations have changed.
_LOOK_S = 10.0
#: Attacks on a host that has failed them are not repeated faster than an operator can act.
_RETRY_S = 30.0


class Health:
    """Ready or paused, with the reason. While paused it asks the launcher again until sandboxes start.

    ``proof``: what has to be renewed before the worker is ready. None: the launcher's own probe is trusted.
    """

    def __init__(self, launcher: LauncherClient, probe_s: float, proof: Proof | None = None) -> None:
        self._launcher = launcher
        self._probe_s = probe_s
        self._proof = proof
        self._reason: str | None = "starting"
        self._said: str | None = None  # the reason that the log has
        self._isolations: dict[LevelName, str] = {}
        self._watchers: list[Callable[[], None]] = []
        self._paused = threading.Event()
        self._paused.set()
        self._ready = threading.Event()
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._keep, name="health", daemon=True)

    def start(self) -> None:
        """Begins to look for a working launcher."""
        self._thread.start()

    def stop(self) -> None:
        """Stops looking."""
        self._closing.set()
        self._paused.set()
        self._thread.join(timeout=5)

    @property
    def ready(self) -> bool:
        """Whether jobs may be claimed."""
        return self._reason is None

    def wait_ready(self, timeout_s: float) -> bool:
        """Waits until jobs may be claimed. Returns whether they may now."""
        return self._ready.wait(timeout_s)

    def watch(self, changed: Callable[[], None]) -> None:
        """Calls ``changed`` at every change, from any thread."""
        self._watchers.append(changed)

    def pause(self, reason: str) -> None:
        """Stops claiming until the launcher works again. ``reason`` goes to the log and into
        :meth:`status`."""
        with self._lock:
            self._because(reason)
            self._ready.clear()
            self._paused.set()
        self._tell()

    def status(self) -> dict[str, object]:
        """What the worker reports of itself with every beat."""
        return {
            "state": "ready" if self.ready else "paused",
            "reason": self._reason,
            "isolations": self._isolations,
        }

    def _keep(self) -> None:
        while not self._closing.is_set():
            if self._paused.wait(_LOOK_S):
                if self._isolations:  # it worked a moment ago: what lasts must not be asked about in a spin
                    self._closing.wait(self._probe_s)
                if not self._closing.is_set():
                    self._closing.wait(self._recover())
            elif self._proof is not None:
                self._look(self._proof)
        self._launcher.close()  # this thread's connection

    def _recover(self) -> float:
        """Asks, proves, resumes. Returns the seconds until the next try; 0 after success."""
        try:
            reply = self._launcher.probe()
            if not reply.isolations:
                self._because("; ".join((reply.reasons or {}).values()) or "the launcher offers no isolation")
                return self._probe_s
            if self._proof is not None:
                self._proof.renew(reply.isolations)
        except SandboxUnavailable as error:
            self._because(str(error))
            return self._probe_s
        except NotProven as error:
            self._because(str(error))
            return _RETRY_S
        except Exception as error:  # a defect of ours leaves the worker paused, and the watch over it alive
            _log.exception("health_crashed")
            self._because(f"internal error: {type(error).__name__}")
            return _RETRY_S
        self._resume(reply.isolations)
        return 0

    def _look(self, proof: Proof) -> None:
        """While ready: tests the controls again when their time has come, or when another isolation is in
        use."""
        try:
            isolations = self._launcher.probe().isolations
            if isolations and (proof.due or isolations != self._isolations):
                proof.renew(isolations)
                self._isolations = isolations
        except Exception as error:  # recovery looks again, and tells the kinds of failure apart
            self.pause(str(error))

    def _resume(self, isolations: dict[LevelName, str]) -> None:
        with self._lock:
            self._reason = self._said = None
            self._isolations = isolations
            self._paused.clear()
            self._ready.set()
        _log.info("worker_ready", isolations=isolations)
        self._tell()

    def _because(self, reason: str) -> None:
        """Notes why the worker is not ready; the log has each reason once."""
        self._reason = reason
        if reason != self._said:
            self._said = reason
            _log.error("worker_paused", reason=reason, remedy="claims resume by themselves")

    def _tell(self) -> None:
        for changed in self._watchers:
            changed()
