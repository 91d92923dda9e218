"""Keeps a small set of processes running on one host: starts, restarts, stops in order.

The supervisor holds no state and opens no connection. It can restart the privileged launcher because the
worker, not the supervisor, gives its privileges up.
"""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cellblock.errors import CellblockError
from cellblock.interrupts import on_stop
from cellblock_workers.log import get_logger
from cellblock_workers.parent_death import SUPERVISOR_VARIABLE

_log = get_logger(__name__)

#: The exit code of a process for which an operator has to change something.
REFUSED = 4

_RESTART_PAUSES_S = (0.2, 0.5, 1.0, 2.0, 5.0)
_STABLE_S = 30.0
#: Seconds until a service must have ended: a patient one longer than a worker drains; a second signal ends
#: that.
_STOP_S = 60.0
_STOP_PATIENT_S = 3700.0
#: Seconds until a service must have ended that was told to end at once.
_NOW_S = 10.0
_ONE_WISH_S = 0.5
_STOPPING = "running jobs may finish; signal again to give them back now"
_AT_ONCE = 2  #: signals to end: after these no service gets more time


@dataclass(slots=True)
class Service:
    """One process to keep running. ``essential``: when it ends, everything stops with its exit code.

    ``environment``: all of it; nothing of the supervisor's is added but its pid.
    ``refusals``: exit codes that a restart cannot mend; these stop everything too. ``patient``: after TERM it
    ends only with its work, and QUIT ends it in good order at once. ``stop_s``: seconds that it may take to
    end, where it needs others than most.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    user: int | None = None
    essential: bool = False
    refusals: tuple[int, ...] = ()
    patient: bool = False
    stop_s: float | None = None
    ready: Callable[[subprocess.Popen[bytes]], None] | None = None
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    restarts: int = 0
    due: float = 0.0

    def start(self) -> None:
        """Starts it and, if it has a ``ready``, waits until it serves."""
        options: dict[str, Any] = {}
        if self.user is not None:
            options = {"user": self.user, "group": group_of(self.user), "extra_groups": []}
        self.process = subprocess.Popen(
            list(self.command),
            env={**self.environment, SUPERVISOR_VARIABLE: str(os.getpid())},
            stdin=subprocess.DEVNULL,
            cwd="/",  # a folder that every user can enter
            stdout=sys.stderr.fileno(),  # the supervisor's own stdout is an interface
            start_new_session=True,  # only the supervisor gets a terminal's Ctrl-C
            **options,
        )
        self.started = time.monotonic()
        if self.ready is not None:
            self.ready(self.process)
        _log.info("service_started", service=self.name, pid=self.process.pid)


class Supervisor:
    """Runs services, first to last; stops them last to first."""

    def __init__(
        self,
        services: Sequence[Service],
        *,
        on_ready: Callable[[], None] = lambda: None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``on_ready``: called once all have been started. It must not wait: nobody looks after them
        meanwhile. ``tell``: told in words what a person waits for."""
        self._services = services
        self._tell = tell
        self._on_ready = on_ready
        self._refused: int | None = None
        self._signals = 0
        self._signalled = float("-inf")

    def run(self) -> int:
        """Runs until TERM, INT, HUP or QUIT, or an essential service ends, or one refuses. Returns the exit
        code."""
        on_stop(self._on_signal)
        signal.signal(signal.SIGQUIT, self._on_quit)
        code = 0
        try:
            for service in self._services:
                self._tell(f"starting {service.name}")
                service.start()
            self._on_ready()
            while not self._signals:
                ended = self._look_after() if self._refused is None else self._refused
                if ended is not None:
                    code = ended
                    break
                time.sleep(0.1)
        finally:
            self._stop()
        return code

    @property
    def ends(self) -> bool:
        """Whether it stops, or is about to."""
        return bool(self._signals) or self._refused is not None

    def refuse(self) -> None:
        """Has it stop everything and return ``REFUSED``. For another thread."""
        self._refused = REFUSED

    def _on_signal(self, *_: object) -> None:
        # timeout(1) and some shells signal the process and its group: that counts once.
        now = time.monotonic()
        if now - self._signalled > _ONE_WISH_S:
            self._signals += 1
        self._signalled = now

    def _on_quit(self, *_: object) -> None:
        self._signals = _AT_ONCE

    def _look_after(self) -> int | None:
        """Restarts what died. Returns the exit code of an essential service that ended, or of a refusal; else
        None."""
        now = time.monotonic()
        for service in self._services:
            if service.process is None:
                if now >= service.due:
                    self._restart(service)
                continue
            code = service.process.poll()
            if code is None:
                continue
            _log.error("service_ended", service=service.name, exit_code=code)
            if service.essential or code in service.refusals:
                return code if code >= 0 else 128 - code
            service.restarts = 0 if now - service.started > _STABLE_S else service.restarts + 1
            self._postpone(service)
        return None

    def _restart(self, service: Service) -> None:
        """Starts it again. If it does not come up it is ended and tried later; the other services go on."""
        try:
            service.start()
        except (CellblockError, OSError) as error:
            _log.error("service_restart_failed", service=service.name, error=str(error))
            if service.process is not None and service.process.poll() is None:
                service.process.kill()
                service.process.wait()
            service.restarts += 1
            self._postpone(service)

    @staticmethod
    def _postpone(service: Service) -> None:
        pause_s = _RESTART_PAUSES_S[min(service.restarts, len(_RESTART_PAUSES_S) - 1)]
        service.process, service.due = None, time.monotonic() + pause_s

    def _stop(self) -> None:
        if self._signals == 1:
            _log.info("stopping", note=_STOPPING)
            self._tell(f"stopping; {_STOPPING}")
        for service in reversed(self._services):
            process = service.process
            if process is None or process.poll() is not None:
                continue
            self._end(service, process)
            _log.info("service_stopped", service=service.name, exit_code=process.returncode)

    def _end(self, service: Service, process: subprocess.Popen[bytes]) -> None:
        """Sends TERM and gives time; after a second signal QUIT and ``_NOW_S``; then SIGKILL."""
        process.terminate()
        limit_s = service.stop_s or (_STOP_PATIENT_S if service.patient else _STOP_S)
        deadline, asked = time.monotonic() + limit_s, False
        while process.poll() is None:
            if self._signals >= _AT_ONCE and not asked:
                if service.patient:
                    process.send_signal(signal.SIGQUIT)
                deadline, asked = time.monotonic() + _NOW_S, True
            if time.monotonic() > deadline:
                _log.error("service_killed", service=service.name)
                process.kill()
                process.wait()
            time.sleep(0.02)


def group_of(user: int) -> int:
    """A user's own group; for a user without an account the group of the same number."""
    try:
        return pwd.getpwuid(user).pw_gid
    except KeyError:
        return user
