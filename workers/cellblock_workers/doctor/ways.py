"""Every way in which this host may make sandboxes: tried by a launcher of its own, attacked with every
control."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from cellblock.errors import SandboxUnavailable
from cellblock_config import LEVELS, ContainerBackend, Isolation, LevelName, Settings, Unisolated
from cellblock_workers.launcher.client import LauncherClient
from cellblock_workers.launcher.ownership import Ownership
from cellblock_workers.launcher.spawn import private_launcher
from cellblock_workers.launcher.ways import build_backends
from cellblock_workers.worker.canaries import CONTROLS, ControlFinding, Way, prove

_LEVEL: LevelName = "standard"


@dataclass(frozen=True, slots=True)
class WayReport:
    """One way on this host. ``reason``: why it cannot be used, or how its attacks broke off."""

    way: Way
    available: bool
    reason: str = ""
    findings: tuple[ControlFinding, ...] = ()
    took_s: float = 0.0

    @property
    def proven(self) -> bool:
        """Whether it can be used and no control failed."""
        return (
            self.available
            and not self.reason
            and all(f.state in ("proven", "elsewhere") for f in self.findings)
        )


def known_ways(settings: Settings) -> list[Way]:
    """The ways for which the launcher has backends, whether or not they work here."""
    isolations = tuple(name for name in get_args(Isolation) if name not in get_args(Unisolated))
    everything = settings.model_copy(
        update={"sandbox": settings.sandbox.model_copy(update={"isolations": isolations, "unisolated": None})}
    )
    table = build_backends(everything, Ownership("doctor"))
    return [Way(isolation, backend.name) for isolation, backends in table.items() for backend in backends]


def probe_all(ways: Sequence[Way], settings: Settings, done: Callable[[], None]) -> list[WayReport]:
    """Asks each way's own launcher whether a sandbox starts and passes its probe.

    ``done`` is called after each, from the thread that asked. It runs one launcher more at once than there
    are processors: all of them together could miss their time to start on a busy host, and seem unusable.
    """

    def probe(way: Way) -> WayReport:
        began = time.monotonic()
        try:
            with _launcher(way, settings):
                return WayReport(way, available=True, took_s=time.monotonic() - began)
        except SandboxUnavailable as error:
            return WayReport(way, available=False, reason=str(error), took_s=time.monotonic() - began)
        finally:
            done()

    with ThreadPoolExecutor(len(os.sched_getaffinity(0)) + 1) as pool:
        return list(pool.map(probe, ways))


def attack(way: Way, settings: Settings, found: Callable[[ControlFinding], None]) -> WayReport:
    """Runs every control's attack in this way. ``found`` is called with each finding as it is made."""
    began = time.monotonic()
    available = False
    try:
        with _launcher(way, settings) as socket:
            available = True
            findings = tuple(prove(socket, settings, _LEVEL, CONTROLS, found=found))
    except SandboxUnavailable as error:
        return WayReport(way, available, str(error), took_s=time.monotonic() - began)
    strangers = {finding.way for finding in findings} - {way}
    reason = f"sandboxes were made by {strangers.pop()}" if strangers else ""
    return WayReport(
        way=way, available=True, reason=reason, findings=findings, took_s=time.monotonic() - began
    )


@contextmanager
def _launcher(way: Way, settings: Settings) -> Iterator[Path]:
    """A launcher that has only this way, past its probe. Raises :class:`SandboxUnavailable`."""
    environment = {
        "CELLBLOCK_SANDBOX_ISOLATIONS": json.dumps([way.isolation]),
        "CELLBLOCK_SANDBOX_CHAINS": json.dumps({level: [way.isolation] for level in LEVELS}),
    }
    if way.backend in get_args(ContainerBackend):
        environment["CELLBLOCK_LAUNCHER_BACKENDS"] = json.dumps([way.backend])
    with private_launcher(f"doctor-{way.isolation}-{way.backend}", environment) as launcher:
        socket = launcher.wait()
        with closing(LauncherClient(socket, timeout_s=settings.sandbox.start_timeout_s)) as client:
            reply = client.await_probe(settings.sandbox.start_timeout_s)
            if not reply.isolations:
                raise SandboxUnavailable("; ".join((reply.reasons or {}).values()))
        yield socket
