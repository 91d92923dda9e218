"""The isolations whose controls this worker has seen hold: it claims for no other, and sends code to no
other.

The launcher probes its backends too. This is an independent test, through the path that jobs take.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby

from cellblock.errors import OperatorError
from cellblock_config import LevelName, Settings
from cellblock_workers.launcher.client import BorrowedSandbox
from cellblock_workers.log import get_logger
from cellblock_workers.worker.canaries import CONTROLS, ControlFinding, Way, prove

_log = get_logger(__name__)

#: The factors on the usual time that an attack gets when it was too slow, one round after the other.
_PATIENCE = (2.0, 6.0)


class NotProven(OperatorError):
    """A control of an offered isolation does not bite; the message names both and the remedy."""


class Proof:
    """The ways of making a sandbox whose controls held, and when they were last tested. Thread-safe."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._unisolated = settings.sandbox.unisolated
        self._proven: frozenset[Way] = frozenset()
        self._due = 0.0
        self._lock = threading.Lock()
        self._canaries = [control for control in CONTROLS if control.canary]

    def refuse(self, sandbox: BorrowedSandbox) -> str | None:
        """Why nothing may be sent into this sandbox; None if it may be used."""
        if Way(sandbox.isolation, sandbox.backend) in self._proven or sandbox.isolation == self._unisolated:
            return None
        return f"the controls of {sandbox.isolation} ({sandbox.backend}) are not proven on this host yet"

    @property
    def due(self) -> bool:
        """Whether ``worker.canary_s`` has passed since the last round."""
        return time.monotonic() >= self._due

    def withdraw(self) -> None:
        """Trusts nothing until the next round has passed."""
        with self._lock:
            self._proven, self._due = frozenset(), 0.0

    def renew(self, isolations: Mapping[LevelName, str]) -> None:
        """Runs the canaries in every offered isolation, except the one that the settings name as isolating
        nothing.

        An attack that was too slow gets more time, and what was proven before stays proven meanwhile: load,
        which any tenant can cause, is no reason to stop. An attack that is still too slow then is not proven.

        Raises :class:`NotProven` when a control does not bite, :class:`SandboxUnavailable` when there is no
        sandbox; after either nothing is trusted.
        """
        began = time.monotonic()
        try:
            levels = _one_level_each(isolations)
            if self._unisolated in isolations.values():
                _log.warning(
                    "isolation_none", isolation=self._unisolated, risk="its jobs act as this host's user"
                )
                levels = [level for level in levels if isolations[level] != self._unisolated]
            findings = self._attack(levels) if levels else []
            self._check(findings)
        except Exception:
            self.withdraw()
            raise
        with self._lock:
            self._proven = frozenset(finding.way for finding in findings if finding.way)
            self._due = time.monotonic() + self._settings.worker.canary_s
        took_ms = round((time.monotonic() - began) * 1000)
        _log.info("canaries_passed", ways=sorted("/".join(way) for way in self._proven), took_ms=took_ms)

    def _attack(self, levels: list[LevelName]) -> list[ControlFinding]:
        with ThreadPoolExecutor(len(levels), "proof") as pool:
            rounds = list(pool.map(self._attack_one, levels))
        return [finding for found in rounds for finding in found]

    def _attack_one(self, level: LevelName) -> list[ControlFinding]:
        socket, settings = self._settings.launcher.socket, self._settings
        findings = prove(socket, settings, level, self._canaries)
        for patience in _PATIENCE:
            slow = [finding.control for finding in findings if finding.state == "too slow"]
            if not slow or any(finding.state == "not proven" for finding in findings):
                break
            _log.warning(
                "canaries_too_slow",
                controls=[control.name for control in slow],
                level=level,
                patience=patience,
            )
            again = {one.control.name: one for one in prove(socket, settings, level, slow, patience=patience)}
            findings = [again.get(finding.control.name, finding) for finding in findings]
        return findings

    def _check(self, findings: list[ControlFinding]) -> None:
        bad = [finding for finding in findings if finding.state in ("not proven", "too slow")]
        for finding in bad:
            _log.error(
                "control_does_not_bite",
                control=finding.control.name,
                way="/".join(finding.way) if finding.way else None,
                detail=finding.detail,
                stops=finding.control.stops,
                remedy=finding.control.remedy,
            )
        if bad:
            raise NotProven("; ".join(_in_words(finding) for finding in bad))
        # Two ways in one round: the launcher changed its choice meanwhile, and neither was tested completely.
        for isolation, group in groupby(
            sorted({finding.way for finding in findings if finding.way}), key=lambda way: way.isolation
        ):
            if len(backends := [way.backend for way in group]) > 1:
                raise NotProven(f"{isolation} was made by {' and '.join(backends)} while it was attacked")


def _one_level_each(isolations: Mapping[LevelName, str]) -> list[LevelName]:
    """One level for each isolation that runs on it: standard, which a launcher keeps warm, if possible."""
    by_isolation: dict[str, LevelName] = {}
    for level in sorted(isolations, key=lambda level: level != "standard"):
        by_isolation.setdefault(isolations[level], level)
    return list(by_isolation.values())


def _in_words(finding: ControlFinding) -> str:
    where = " ".join(finding.way) if finding.way else "the sandbox"
    control = finding.control
    return f"{where}: the control '{control.name}' does not bite ({finding.detail}); {control.remedy}"
