"""The three levels a job can ask for, and the limits each one starts from (requirement L1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

LevelName = Literal["permissive", "standard", "strict"]

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LevelDefaults:
    """The limits of a job that names only its level; a job may set its own within the operator's bounds."""

    timeout_s: float
    memory_bytes: int
    cpus: float
    pids: int
    output_bytes: int


LEVELS: Mapping[LevelName, LevelDefaults] = MappingProxyType(
    {
        "permissive": LevelDefaults(60.0, 1024 * MIB, 1.0, 100, 16 * MIB),
        "standard": LevelDefaults(30.0, 512 * MIB, 1.0, 50, 16 * MIB),
        "strict": LevelDefaults(10.0, 256 * MIB, 0.5, 50, 4 * MIB),
    }
)
