"""What looking through one job's words may take."""

from __future__ import annotations

from dataclasses import dataclass

from cellblock_config.egress import EgressSettings
from cellblock_config.levels import MIB

#: Requests up to this size wait for nobody, and have a quarter of the memory.
SMALL_BYTES = 64 * 1024
_SMALL_SHARE = 4
#: Beyond its CPU time a request may wait for processors so many times as long.
_WALL_TIMES = 10
_WALL_S = 30.0
#: However little money is left, the few words of an ordinary job are looked through.
_LEAST_CPU_S = 0.1
#: An index takes some 5 s for each GiB, and holds its sample three times at its end.
_INDEX_CPU_S, _INDEX_CPU_S_PER_MIB = 10.0, 0.06
_INDEX_MEMORY_TIMES, _INDEX_MEMORY_BYTES = 4, 64 * MIB


@dataclass(frozen=True, slots=True)
class FilterBounds:
    """Of one request. ``by_cost``: its CPU time is what the job's money is enough for."""

    cpu_s: float
    memory_bytes: int
    by_cost: bool = False

    @property
    def wall_s(self) -> float:
        """After so long nobody waits for it any more: the host is too busy, or the process was stopped."""
        return _WALL_S + _WALL_TIMES * self.cpu_s


def bounds_of(
    size_bytes: int, settings: EgressSettings, *, small: bool, afford_s: float | None = None
) -> FilterBounds:
    """For so much to look through. ``afford_s``: the CPU time that there is money for."""
    cpu_s = settings.filter_cpu_s + settings.filter_cpu_s_per_mib * size_bytes / MIB
    memory_bytes = settings.filter_memory_bytes // (_SMALL_SHARE if small else 1)
    if afford_s is not None and afford_s < cpu_s:
        return FilterBounds(max(_LEAST_CPU_S, afford_s), memory_bytes, by_cost=True)
    return FilterBounds(cpu_s, memory_bytes)


def index_bounds(context_bytes: int, settings: EgressSettings) -> FilterBounds:
    """For making the index of a context."""
    cpu_s = _INDEX_CPU_S + _INDEX_CPU_S_PER_MIB * context_bytes / MIB
    return FilterBounds(cpu_s, _INDEX_MEMORY_TIMES * settings.echo_memory_bytes + _INDEX_MEMORY_BYTES)
