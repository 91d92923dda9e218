"""The bounds on the filtering of one job's output."""

from __future__ import annotations

from dataclasses import dataclass

from cellblock_config.egress import EgressSettings
from cellblock_config.levels import MIB

#: Requests up to this size do not wait for a slot, and have a quarter of the memory.
SMALL_BYTES = 64 * 1024
_SMALL_SHARE = 4
#: A request may wait for processors: its wall time is ``_WALL_S`` plus this many times its CPU time.
_WALL_TIMES = 10
_WALL_S = 30.0
#: The least CPU time, however little money is left: enough for the short output of an ordinary job.
_LEAST_CPU_S = 0.1
#: An index takes some 5 s of CPU time for each GiB, and holds its sample three times at its end.
_INDEX_CPU_S, _INDEX_CPU_S_PER_MIB = 10.0, 0.06
_INDEX_MEMORY_TIMES, _INDEX_MEMORY_BYTES = 4, 64 * MIB


@dataclass(frozen=True, slots=True)
class FilterBounds:
    """The bounds of one request. ``by_cost``: the job's money, not the settings, sets the CPU time."""

    cpu_s: float
    memory_bytes: int
    by_cost: bool = False

    @property
    def wall_s(self) -> float:
        """Seconds until the worker gives up: then the host is too busy, or the process was stopped."""
        return _WALL_S + _WALL_TIMES * self.cpu_s


def bounds_of(
    size_bytes: int, settings: EgressSettings, *, small: bool, afford_s: float | None = None
) -> FilterBounds:
    """The bounds for ``size_bytes`` of output. ``afford_s``: the CPU time that the job's money pays for."""
    cpu_s = settings.filter_cpu_s + settings.filter_cpu_s_per_mib * size_bytes / MIB
    memory_bytes = settings.filter_memory_bytes // (_SMALL_SHARE if small else 1)
    if afford_s is not None and afford_s < cpu_s:
        return FilterBounds(max(_LEAST_CPU_S, afford_s), memory_bytes, by_cost=True)
    return FilterBounds(cpu_s, memory_bytes)


def index_bounds(context_bytes: int, settings: EgressSettings) -> FilterBounds:
    """The bounds for making the index of a context."""
    cpu_s = _INDEX_CPU_S + _INDEX_CPU_S_PER_MIB * context_bytes / MIB
    return FilterBounds(cpu_s, _INDEX_MEMORY_TIMES * settings.echo_memory_bytes + _INDEX_MEMORY_BYTES)
