"""What an attempt at an evaluation has cost so far: its programs' runs, and what its tests computed."""

from __future__ import annotations

from collections.abc import Callable

from cellblock.admission.costs import Charge
from cellblock.contract.outcomes import Usage
from cellblock_workers.launcher.evidence import Evidence
from cellblock_workers.lease import Lease
from cellblock_workers.worker.cost_meter import CostMeter
from cellblock_workers.worker.execution import cost_of


class OverCap(Exception):
    """The job has cost as much as it may: its cap is reached."""


class Bill:
    """Adds up every run, also the ones that were repeated. Without a price there is no cost, and no cap."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._charge = lease.claim.manifest.charge
        self._cost_micros = self._starts_micros = 0
        self._filter_cpu_s = 0.0
        self.beside = Usage()  #: of judges, and of runs that are in no trial's result

    @property
    def cost_micros(self) -> int | None:
        """The cost of this attempt so far, at most its cap; None without a price."""
        if self._charge is None:
            return None
        return min(self._cost_micros + self._starts_micros, self._charge.cap_micros)

    def add(self, usage: Usage) -> None:
        """Charges one run, with the fixed price of a run."""
        if self._charge is not None:
            self._cost_micros += cost_of(self._charge, usage)

    def add_lost(self, usage: Usage) -> None:
        """Charges a run that came to nothing, and is part of no trial's result."""
        self.add(usage)
        self._add_beside(usage)

    def add_judging(self, usage: Usage) -> None:
        """Charges what a judge computed and held while it was at work; the fixed price of a run is not
        due."""
        if self._charge is not None:
            self._cost_micros += cost_of(_of_judges(self._charge), usage)
        self._add_beside(usage)

    def add_filtering(self, cpu_s: float) -> None:
        """Charges the filter's CPU time for one output: little, so it is added up before it is rounded."""
        before_ms = round(1000 * self._filter_cpu_s)
        self._filter_cpu_s += cpu_s
        filter_cpu_ms = round(1000 * self._filter_cpu_s)
        if self._charge is not None:
            self._cost_micros += cost_of(
                _of_judges(self._charge), Usage(filter_cpu_ms=filter_cpu_ms - before_ms)
            )
        self.beside = self.beside.model_copy(update={"filter_cpu_ms": filter_cpu_ms})

    def add_start(self, cpu_ms: int) -> None:
        """Charges what it took to start a sandbox for this evaluation alone, as far as the cap allows."""
        if self._charge is not None:
            self._starts_micros += cost_of(_of_judges(self._charge), Usage(start_cpu_ms=cpu_ms))
        total_ms = self.beside.start_cpu_ms + cpu_ms
        self.beside = self.beside.model_copy(update={"start_cpu_ms": total_ms})

    def affordable_cpu_s(self) -> float | None:
        """The seconds of CPU time that the rest of the cap pays for; None without a price."""
        if self._charge is None:
            return None
        rates = _of_judges(self._charge).rates
        left_micros = self._charge.cap_micros - self._spent_micros()
        return rates.cpu_s_for(left_micros, cpu_ms=0, wall_ms=0, memory_bytes=0)

    def check_cap(self) -> None:
        """Raises :class:`OverCap` when all runs, with earlier charges and loans, have reached the cap."""
        if self._charge is not None and self._spent_micros() >= self._charge.cap_micros:
            raise OverCap

    def meter(self, used: Callable[[], Evidence]) -> Callable[[], CostMeter] | None:
        """Returns what makes the meter of a run when it begins; ``used`` asks the kernel. None without a
        price."""
        return self._meter(self._charge, used, None)

    def judging_meter(
        self, used: Callable[[], Evidence], busy_ms: Callable[[], int]
    ) -> Callable[[], CostMeter] | None:
        """The same for a judge, which is at work for ``busy_ms`` of its life."""
        return self._meter(None if self._charge is None else _of_judges(self._charge), used, busy_ms)

    def _meter(
        self, charge: Charge | None, used: Callable[[], Evidence], busy_ms: Callable[[], int] | None
    ) -> Callable[[], CostMeter] | None:
        if charge is None:
            return None
        limits = self._lease.claim.manifest.limits
        return lambda: CostMeter(
            charge=charge, limits=limits, usage=used, elsewhere_micros=self._spent_micros, busy_ms=busy_ms
        )

    def _spent_micros(self) -> int:
        return self._lease.claim.charged_micros + self._lease.lent_micros + self._cost_micros

    def _add_beside(self, usage: Usage) -> None:
        peak_bytes = max(self.beside.peak_memory_bytes, usage.peak_memory_bytes)
        cpu_ms = self.beside.cpu_ms + usage.cpu_ms
        self.beside = self.beside.model_copy(update={"cpu_ms": cpu_ms, "peak_memory_bytes": peak_bytes})


def _of_judges(charge: Charge) -> Charge:
    return charge.model_copy(update={"rates": charge.rates.model_copy(update={"per_run": 0})})
