"""The ways to make a sandbox that this host may use."""

from __future__ import annotations

from collections.abc import Callable

from cellblock_config import Isolation, Settings
from cellblock_workers.launcher.backend import Backend, Profile, Sandbox
from cellblock_workers.launcher.namespaces.backend import NamespacesBackend
from cellblock_workers.launcher.oci.backend import OciBackend
from cellblock_workers.launcher.oci.runtime import RUNTIMES
from cellblock_workers.launcher.ownership import Ownership
from cellblock_workers.launcher.systemd.backend import ScopeBackend
from cellblock_workers.launcher.unisolated.backend import UnisolatedBackend


class DockerWay:
    """A container of the Docker daemon. The daemon's client is imported when the way is first tried."""

    name = "docker"
    sweeps = "docker"

    def __init__(self, isolation: Isolation, settings: Settings, ownership: Ownership) -> None:
        self.isolation = isolation
        self._settings = settings
        self._ownership = ownership
        self._found: Backend | None = None
        self._first_sweep_left_out = False

    def _backend(self) -> Backend:
        if self._found is None:
            from cellblock_workers.launcher.docker.backend import DockerBackend

            self._found = DockerBackend(self.isolation, self._settings, self._ownership)
        return self._found

    def probe(self) -> None:
        """As :meth:`Backend.probe`."""
        self._backend().probe()

    def start(self, profile: Profile) -> Sandbox:
        """As :meth:`Backend.start`."""
        return self._backend().start(profile)

    def sweep(self) -> int:
        """As :meth:`Backend.sweep`; a way that nothing has tried is left out of the first sweep.

        Importing the daemon's client would hold up a first job. What owners that are gone have left of this
        way goes with the second sweep.
        """
        if self._found is None and not self._first_sweep_left_out:
            self._first_sweep_left_out = True
            return 0
        return self._backend().sweep()

    def close(self) -> None:
        """As :meth:`Backend.close`."""
        if self._found is not None:
            self._found.close()


_WAYS: dict[str, Callable[[Isolation, Settings, Ownership], Backend]] = {
    "oci": OciBackend,
    "docker": DockerWay,
}


def build_backends(settings: Settings, ownership: Ownership) -> dict[Isolation, list[Backend]]:
    """The ways of each isolation that this host may use, preferred first."""
    backends: dict[Isolation, list[Backend]] = {}
    for isolation in settings.sandbox.usable:
        if isolation in RUNTIMES:
            ways = settings.launcher.backends
            backends[isolation] = [_WAYS[way](isolation, settings, ownership) for way in ways]
        elif isolation == "namespaces":
            backends[isolation] = [NamespacesBackend(settings, ownership)]
        elif isolation == "systemd":
            backends[isolation] = [ScopeBackend(settings, ownership)]
        else:
            backends[isolation] = [UnisolatedBackend(isolation, settings, ownership)]
    return backends
