"""Every way of making a sandbox, as tests name it."""

from __future__ import annotations

import json

from cellblock_config import LEVELS

#: The name in tests, the isolation, and the backend that makes it.
WAYS = {
    "gvisor-oci": ("gvisor", "oci"),
    "runc-oci": ("runc", "oci"),
    "gvisor-docker": ("gvisor", "docker"),
    "runc-docker": ("runc", "docker"),
    "namespaces": ("namespaces", "zygote"),
    "systemd": ("systemd", "scope"),
}
#: For development: the same outcomes, and no isolation.
UNISOLATED = {"process": ("process", "rlimits"), "none": ("none", "direct")}
EVERY_WAY = {**WAYS, **UNISOLATED}
#: Those that `make test` runs whole: gVisor's kernel and the host's, neither through a daemon.
FAST_WAYS = frozenset({"gvisor-oci", "namespaces"})
#: The same of evaluations: a judge and its guest decide a verdict, no kernel does.
FAST_EVALUATION_WAYS = frozenset({"namespaces"})
#: `make test` runs a taste of each of these, and CI every case on one of them.
OTHER_WAYS = frozenset(EVERY_WAY) - FAST_WAYS


def environment_of(way: str) -> dict[str, str]:
    """The settings under which every level runs in this one way."""
    isolation, backend = EVERY_WAY[way]
    environment = {
        "CELLBLOCK_SANDBOX_ISOLATIONS": f'["{isolation}"]',
        "CELLBLOCK_SANDBOX_CHAINS": json.dumps({level: [isolation] for level in LEVELS}),
    }
    if way in UNISOLATED:
        environment |= {"CELLBLOCK_SANDBOX_ISOLATIONS": "[]", "CELLBLOCK_SANDBOX_UNISOLATED": isolation}
    if isolation in {"gvisor", "runc"}:
        environment["CELLBLOCK_LAUNCHER_BACKENDS"] = f'["{backend}"]'
    return environment
