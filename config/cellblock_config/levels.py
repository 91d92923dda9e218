"""The three levels a job can ask for: the limits each one starts from (requirement L1), and which
isolations satisfy it, best first (docs/adr/0005)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

LevelName = Literal["permissive", "standard", "strict"]
Unisolated = Literal["process", "none"]
Isolation = Literal["gvisor", "runc", "systemd", "namespaces", "process", "none"]

MIB = 1024 * 1024


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
            60.0,
            1024 * MIB,
            1.0,
            100,
            16 * MIB,
            ("namespaces", "systemd", "runc", "gvisor"),
            ("pandas", "math", "statistics", "json", "numpy", "datetime"),
        ),
        "standard": LevelDefaults(
            30.0,
            512 * MIB,
            1.0,
            50,
            16 * MIB,
            ("gvisor", "runc", "systemd", "namespaces"),
            ("pandas", "math", "statistics", "json"),
        ),
        "strict": LevelDefaults(
            10.0, 256 * MIB, 0.5, 50, 4 * MIB, ("gvisor", "runc"), ("math", "statistics", "json")
        ),
    }
)
