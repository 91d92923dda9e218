"""The table for people, and the JSON that later runs are compared with."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

RUNSC, PYTHON, PANDAS = "docker run runsc", "bare python", "bare pandas"
#: What issue 3 promises: a figure, its baseline, and the bound on their ratio.
AT_MOST, AT_LEAST = "<=", ">="


@dataclass(frozen=True)
class Measured:
    """One run's figures; each kind by variant."""

    rounds: int
    latency_ms: Mapping[str, Sequence[float]]
    jobs_per_s: Mapping[str, Sequence[float]]
    idle_bytes: Mapping[str, float]
    pandas_ms: Mapping[str, Sequence[float]]

    def goals(self) -> list[tuple[str, float, str, float]]:
        """Each promise that was measured: what, the ratio found, and its bound."""
        median = statistics.median
        found = []
        if (warm := self.latency_ms.get("gvisor-oci warm")) is not None:
            ratio = median(warm) / median(self.latency_ms[RUNSC])
            found.append((f"gvisor-oci warm / {RUNSC}", ratio, AT_MOST, 1 / 20))
        if (rate := self.jobs_per_s.get("gvisor-oci")) is not None:
            ratio = median(rate) / median(self.jobs_per_s[RUNSC])
            found.append((f"gvisor-oci jobs per second / {RUNSC}", ratio, AT_LEAST, 2.5))
        if (warm := self.latency_ms.get("namespaces warm")) is not None:
            ratio = median(warm) / median(self.latency_ms[PYTHON])
            found.append((f"namespaces warm / {PYTHON}", ratio, AT_MOST, 1.0))
        if (job := self.pandas_ms.get("namespaces")) is not None:
            ratio = median(job) / median(self.pandas_ms[PANDAS])
            found.append((f"namespaces pandas / {PANDAS}", ratio, AT_MOST, 1 / 20))
        return found


def report(measured: Measured, path: Path) -> None:
    """Print everything and write it to ``path``."""
    console = Console(width=None if sys.stdout.isatty() else 100)
    title = f"hello job, {measured.rounds} alternating rounds"
    console.print(_timings(title, measured.latency_ms, RUNSC, PYTHON))
    console.print(_timings("import pandas, warm", measured.pandas_ms, PANDAS))
    table = Table("", "jobs/s", f"of {RUNSC}", "idle warm sandbox", title="several at once; memory")
    base = statistics.median(measured.jobs_per_s[RUNSC])
    for name, rates in measured.jobs_per_s.items():
        rate, held = statistics.median(rates), measured.idle_bytes.get(name)
        table.add_row(name, f"{rate:.2f}", f"{rate / base:.2f}x", f"{held / 1e6:.1f} MB" if held else "")
    console.print(table)
    for what, ratio, sense, bound in measured.goals():
        met = ratio <= bound if sense == AT_MOST else ratio >= bound
        console.print(f"{what}: {ratio:.3f}, promised {sense} {bound:g}: {'met' if met else 'NOT MET'}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(_summary(measured), indent=2) + "\n")


def _timings(title: str, took: Mapping[str, Sequence[float]], *baselines: str) -> Table:
    table = Table("", "p50 ms", "p95 ms", *(f"of {name}" for name in baselines), title=title)
    for name, values in took.items():
        p50 = statistics.median(values)
        ratios = (f"{p50 / statistics.median(took[base]):.3f}" for base in baselines)
        table.add_row(name, f"{p50:.1f}", f"{percentile(values, 95):.1f}", *ratios)
    return table


def _summary(measured: Measured) -> dict[str, object]:
    def timings(took: Mapping[str, Sequence[float]]) -> dict[str, object]:
        return {
            name: {"p50": statistics.median(values), "p95": percentile(values, 95), "all": list(values)}
            for name, values in took.items()
        }

    return {
        "rounds": measured.rounds,
        "latency_ms": timings(measured.latency_ms),
        "pandas_ms": timings(measured.pandas_ms),
        "jobs_per_s": {name: list(rates) for name, rates in measured.jobs_per_s.items()},
        "idle_bytes": dict(measured.idle_bytes),
        "goals": [
            {"what": what, "ratio": ratio, "sense": sense, "bound": bound}
            for what, ratio, sense, bound in measured.goals()
        ],
    }


def percentile(values: Sequence[float], percent: int) -> float:
    """Nearest rank."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, round(percent / 100 * (len(ranked) - 1)))]
