"""A guest beside the launcher, as the launcher holds it: all processes below it, and its end."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from cellblock_workers.launcher.base_sandbox import BaseSandbox
from cellblock_workers.launcher.evidence import Evidence
from cellblock_workers.launcher.memory_watch import MemoryWatch, Watched, family_of
from cellblock_workers.log import get_logger

_log = get_logger(__name__)

_LAST_WORD_S = 3.0
_GONE_S = 5.0
_LOOK_S = 0.005


class GuestProcess:
    """A guest and everything below it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid
        self.ended = threading.Event()
        threading.Thread(target=self._wait, name=f"guest-{self.pid}", daemon=True).start()

    @property
    def exit_code(self) -> int | None:
        """The exit code as a shell shows it; None while it runs."""
        code = self._process.returncode if self.ended.is_set() else None
        return 128 - code if code is not None and code < 0 else code

    def kill(self) -> None:
        """Ends what is below the guest while the guest can still reap it, then the guest."""
        deadline = time.monotonic() + _GONE_S
        while not self.ended.is_set() and time.monotonic() < deadline:
            below = family_of(self.pid)[1:]
            if not below:
                break
            for pid in below:
                with suppress(ProcessLookupError):
                    os.kill(pid, 9)
            time.sleep(_LOOK_S)
        if not self.ended.is_set():
            self._process.kill()
        self.ended.wait(_GONE_S)

    def _wait(self) -> None:
        self._process.wait()
        self.ended.set()


@dataclass(slots=True, eq=False, kw_only=True)
class UnisolatedSandbox(BaseSandbox):
    """One job's process, as the launcher holds it."""

    process: GuestProcess
    folder: Path
    watched: Watched
    discard: Callable[[UnisolatedSandbox], None]
    _destroyed: bool = field(init=False, default=False)

    def _prepare(self) -> None:
        """Logs the risk that the job runs at."""
        _log.warning(
            "job_not_isolated",
            isolation=self.isolation,
            sandbox=self.id,
            risk="this job can read, change and reach whatever its user on this host can",
        )

    def _total_cpu_ms(self) -> int | None:
        MemoryWatch.look(self.watched)
        return self.watched.cpu_ms

    def give_way(self, after_cpu_ms: int) -> bool:
        """Never gives way: processes of one user have no weights among themselves."""
        return True

    def evidence(self, *, ended: bool) -> Evidence:
        """What the watch saw, and how the guest ended if it has."""
        if ended:
            self.process.ended.wait(_LAST_WORD_S)
        cpu_ms = self._job_cpu_ms()  # looks at the others too
        return Evidence(
            running=not self.process.ended.is_set(),
            exit_code=self.process.exit_code,
            watch_kills=self.watched.kills,
            peak_memory_bytes=self.watched.peak_bytes or None,
            cpu_ms=cpu_ms,
        )

    def destroy(self) -> None:
        """Ends it and removes its folder. Idempotent."""
        if not self._destroyed:
            self.discard(self)
            self._destroyed = True
