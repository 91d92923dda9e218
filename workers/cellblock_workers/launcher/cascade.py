"""Which isolation runs for which level: the first in the level's chain that passes its probe.

An isolation may be made in several ways (straight through the OCI runtime, or through the Docker daemon); the
first way that works is used. Nothing unproven runs, and no isolation outside the level's chain.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from cellblock_config import Isolation, LevelName
from cellblock_workers.launcher.backend import (
    Backend,
    BackendUnavailable,
    NotOnThisHost,
    Profile,
    Sandbox,
    StartFailed,
)
from cellblock_workers.log import get_logger

_log = get_logger(__name__)

NO_GVISOR = "gVisor (runsc) not detected, falling back to strict seccomp isolation"

Chains = Mapping[LevelName, Sequence[Isolation]]


class NothingChosen(BackendUnavailable):
    """No isolation is in use for this level now; a probe is due or under way."""


class LevelRefused(StartFailed):
    """Nothing on this host satisfies the level: asking again changes nothing."""


class _Undecided(Exception):
    """A backend could not be asked. To skip it would give up a better isolation for a momentary fault."""


class Cascade:
    """Proves the backends in order and starts sandboxes on the one a level ends up with. Thread-safe.

    ``backends``: the ways of each isolation, preferred first. ``chains``: the isolations of each level, best
    first.
    """

    def __init__(self, backends: Mapping[Isolation, Sequence[Backend]], chains: Chains) -> None:
        self._backends = backends
        self._chains = chains
        self._chosen: dict[LevelName, Backend] = {}
        self._reasons: dict[str, str] = {}
        self._absent: frozenset[Isolation] = frozenset()
        self._lock = threading.Lock()

    @property
    def chosen(self) -> dict[LevelName, str]:
        """The isolation in use for each level that has one."""
        return {level: backend.isolation for level, backend in self._chosen.items()}

    @property
    def reasons(self) -> dict[str, str]:
        """Why each isolation (or one way of making it) that was tried is not used, by
        ``isolation/backend``."""
        return dict(self._reasons)

    def probe(self) -> dict[LevelName, str]:
        """Finds each level's first backend that works, and logs every step down. Returns :attr:`chosen`.

        A backend that answers and fails is skipped. One that cannot be asked leaves its levels without any,
        so that a restart of a daemon costs seconds and not the better isolation. A daemon whose socket was
        never there counts as not on this host: start the launcher after it.
        """
        with self._lock:
            round_ = _Round(self._backends)
            chosen: dict[LevelName, Backend] = {}
            for level, chain in self._chains.items():
                try:
                    backend = round_.first(chain)
                except _Undecided:
                    continue
                if backend is not None:
                    chosen[level] = backend
            if round_.reasons != self._reasons or chosen != self._chosen:
                self._tell(chosen, round_.reasons)
            self._chosen, self._reasons, self._absent = chosen, round_.reasons, frozenset(round_.absent)
            return self.chosen

    def is_best(self) -> bool:
        """Whether every level runs on the first isolation of its chain, made the preferred way."""
        return all(
            self._chosen.get(level) is self._backends[chain[0]][0]
            for level, chain in self._chains.items()
            if chain
        )

    def start(self, profile: Profile) -> Sandbox:
        """Starts on the level's backend. A failure never steps down by itself: only a probe does."""
        chosen = self._chosen.get(profile.level)
        if chosen is None:
            raise self._nothing(profile.level)
        try:
            return chosen.start(profile)
        except StartFailed:
            raise
        except BackendUnavailable:
            self._doubt(chosen)
            raise

    def doubt(self) -> None:
        """Notes that something failed: no sandbox starts until a probe has passed again."""
        with self._lock:
            self._chosen = {}

    def _doubt(self, backend: Backend) -> None:
        with self._lock:  # a new one: others go through the old one without the lock
            self._chosen = {level: used for level, used in self._chosen.items() if used is not backend}

    def _nothing(self, level: LevelName) -> BackendUnavailable:
        chain = self._chains[level]
        if not chain:
            return LevelRefused(
                f"level {level}: none of its isolations is allowed on this host; "
                "CELLBLOCK_SANDBOX_ISOLATIONS says what is, CELLBLOCK_SANDBOX_CHAINS what satisfies a level"
            )
        why = "; ".join(reason for way, reason in self._reasons.items() if way.partition("/")[0] in chain)
        if self._absent.issuperset(chain):
            return LevelRefused(f"level {level} needs {' or '.join(chain)}: {why}")
        return NothingChosen(why or "no isolation has been probed yet")

    @staticmethod
    def _tell(chosen: Mapping[LevelName, Backend], reasons: Mapping[str, str]) -> None:
        for way, reason in reasons.items():
            isolation, _, backend = way.partition("/")
            _log.warning("isolation_unavailable", isolation=isolation, backend=backend, reason=reason)
        used = {found.isolation for found in chosen.values()}
        if "runc" in used and "gvisor" not in used and any(way.startswith("gvisor/") for way in reasons):
            _log.warning("isolation_fallback", message=NO_GVISOR, isolation="runc")
        for level, found in chosen.items():
            _log.info("isolation_chosen", level=level, isolation=found.isolation, backend=found.name)

    def close(self) -> None:
        """Ends what the backends keep between sandboxes."""
        for ways in self._backends.values():
            for backend in ways:
                backend.close()

    def sweep(self) -> int:
        """Removes what owners that are gone have left. Returns how many; backends that cannot be asked are
        logged."""
        removed = 0
        swept: set[str] = set()
        for ways in self._backends.values():
            for backend in ways:
                if backend.sweeps in swept:
                    continue
                swept.add(backend.sweeps)
                try:
                    removed += backend.sweep()
                except NotOnThisHost:
                    continue
                except BackendUnavailable as error:
                    _log.warning("sweep_failed", reason=str(error))
        return removed


class _Round:
    """One round of probes: asks every backend at most once, and only if a level needs to know."""

    def __init__(self, backends: Mapping[Isolation, Sequence[Backend]]) -> None:
        self._backends = backends
        self._found: dict[Isolation, Backend | _Undecided | None] = {}
        self.absent: set[Isolation] = set()
        self.reasons: dict[str, str] = {}

    def first(self, chain: Sequence[Isolation]) -> Backend | None:
        """The first backend of the chain that works. Raises :class:`_Undecided`."""
        for isolation in chain:
            if isolation not in self._found:
                self._found[isolation] = self._prove(isolation)
            found = self._found[isolation]
            if isinstance(found, _Undecided):
                raise found
            if found is not None:
                return found
        return None

    def _prove(self, isolation: Isolation) -> Backend | _Undecided | None:
        undecided, absent = False, True
        for backend in self._backends[isolation]:
            try:
                backend.probe()
            except NotOnThisHost as error:
                self.reasons[f"{isolation}/{backend.name}"] = str(error)
            except StartFailed as error:
                self.reasons[f"{isolation}/{backend.name}"] = str(error)
                absent = False
            except BackendUnavailable as error:
                self.reasons[f"{isolation}/{backend.name}"] = str(error)
                undecided, absent = True, False
            else:
                return backend
        if absent:
            self.absent.add(isolation)
        return _Undecided() if undecided else None
