"""What a job asks for by name: a priority, and one of three levels, with the limits that it starts from and
the isolations that satisfy it, best first (docs/adr/0005)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

LevelName = Literal["permissive", "standard", "strict"]
PriorityClass = Literal["high", "normal", "low"]
Unisolated = Literal["process", "none"]
Isolation = Literal["gvisor", "runc", "systemd", "namespaces", "process", "none"]

MIB = 1024 * 1024
#: The most sandboxes of one series. All are made ahead: a job also pays for unused ones of its last series.
SERIES_MOST = 32


@dataclass(frozen=True, slots=True)
class LevelDefaults:
    """The limits of a job that names only its level; a job may set its own within the operator's bounds.

    ``chain``: the first of these isolations that a host has and proves runs the job; no other one may.
    ``modules``: what a job can import where ``sandbox.module_guard`` is on.
    """

    timeout_s: float
    memory_bytes: int
    cpus: float
    pids: int
    output_bytes: int
    chain: tuple[Isolation, ...]
    modules: tuple[str, ...]


LEVELS: Mapping[LevelName, LevelDefaults] = MappingProxyType(
    {
        "permissive": LevelDefaults(
            timeout_s=60.0,
            memory_bytes=1024 * MIB,
            cpus=1.0,
            pids=100,
            output_bytes=16 * MIB,
            chain=("namespaces", "systemd", "runc", "gvisor"),
            modules=("pandas", "math", "statistics", "json", "numpy", "datetime"),
        ),
        "standard": LevelDefaults(
            timeout_s=30.0,
            memory_bytes=512 * MIB,
            cpus=1.0,
            pids=50,
            output_bytes=16 * MIB,
            chain=("gvisor", "runc", "systemd", "namespaces"),
            modules=("pandas", "math", "statistics", "json"),
        ),
        "strict": LevelDefaults(
            timeout_s=10.0,
            memory_bytes=256 * MIB,
            cpus=0.5,
            pids=50,
            output_bytes=4 * MIB,
            chain=("gvisor", "runc"),
            modules=("math", "statistics", "json"),
        ),
    }
)
