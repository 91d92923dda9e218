"""The ways to make a sandbox that this host may use."""

from __future__ import annotations

from cellblock_config import Isolation, Settings
from cellblock_workers.launcher.backend import Backend
from cellblock_workers.launcher.docker.backend import DockerBackend
from cellblock_workers.launcher.namespaces.backend import NamespacesBackend
from cellblock_workers.launcher.oci.backend import OciBackend
from cellblock_workers.launcher.oci.runtime import RUNTIMES
from cellblock_workers.launcher.ownership import Ownership
from cellblock_workers.launcher.systemd.backend import ScopeBackend
from cellblock_workers.launcher.unisolated.backend import UnisolatedBackend

_WAYS: dict[str, type[OciBackend] | type[DockerBackend]] = {"oci": OciBackend, "docker": DockerBackend}


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
