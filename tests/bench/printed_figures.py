"""`python tests/bench/printed_figures.py NAME`: one figure of the installed packages, for compare.py.

gvisor-start   CPU seconds that starting and ending a sandbox under gVisor takes, the median of seven
strict-hello   hello jobs a second under gVisor, in those of `docker run --rm --runtime=runsc`
lines          CPU time of 300,000 prints under gVisor, in that of a bare interpreter with a pipe
evaluation     samples of HumanEval a second, judged under gVisor: a solution of each problem
filter         megabytes of honest text a second through the output filter, in texts of 64 KiB
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from cellblock_config import load_settings

TEXTS, TEXT_BYTES = 8, 64 * 1024


def gvisor_start() -> float:
    """CPU time of the children, not of this process."""
    from cellblock_workers.launcher.backend import Profile
    from cellblock_workers.launcher.oci.backend import OciBackend
    from cellblock_workers.launcher.oci.children import adopt_orphans
    from cellblock_workers.launcher.ownership import Ownership

    adopt_orphans()
    took = []
    with tempfile.TemporaryDirectory() as state:
        backend = OciBackend(
            "gvisor", load_settings(launcher={"state": state}), Ownership(f"bench-{os.getpid()}")
        )
        profile = Profile(level="strict", image="python", memory_bytes=256 * 2**20, cpus=1.0, pids=20)
        for _ in range(8):
            before = _children_cpu_s()
            backend.start(profile).destroy()
            took.append(_children_cpu_s() - before)
    return statistics.median(took[1:])


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def strict_hello() -> float:
    """Both in turn, in one process."""
    from bench.hello import fleet, measure_throughput

    with fleet("gvisor-oci") as one:
        rates = measure_throughput("gvisor-oci", one)
    ours, plain = (statistics.median(rates[name]) for name in ("gvisor-oci", "docker run runsc"))
    return ours / plain


def lines() -> float:
    """One after the other, five times."""
    from bench.hello import fleet
    from cellblock import JobSpec

    code = "for number in range(300_000): print(number)"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    ratios = []
    with fleet("gvisor-oci") as one:
        for _ in range(5):
            before = _children_cpu_s()
            subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment, check=True)
            bare_s = _children_cpu_s() - before
            usage = one.client.submit(JobSpec(code=code, level="strict")).result(timeout_s=60).usage
            ratios.append(usage.cpu_ms / 1000 / bare_s)
    return statistics.median(ratios)


def evaluation() -> float:
    """The first samples are not timed."""
    from bench.evaluation import judge, references
    from bench.hello import fleet

    samples = references(1)
    with fleet("gvisor-oci") as one:
        judge(one.client, samples[:8])
        return judge(one.client, samples)


def filtering() -> float:
    """In this process, without the pipes to the filter's own."""
    from bench.egress.honest import Rng, mixed
    from cellblock.egress import filter_text

    rng = Rng(7)
    texts = [mixed(rng, TEXT_BYTES) for _ in range(TEXTS)]
    filter_text(texts[0])
    began = time.perf_counter()
    for text in texts:
        filter_text(text)
    return sum(len(text.encode()) for text in texts) / 1e6 / (time.perf_counter() - began)


FIGURES = {
    "gvisor-start": gvisor_start,
    "strict-hello": strict_hello,
    "lines": lines,
    "evaluation": evaluation,
    "filter": filtering,
}

if __name__ == "__main__":
    print(FIGURES[sys.argv[1]]())
