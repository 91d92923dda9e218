"""A hundred thousand trivial samples through a whole fleet: does anything grow with them?

`cellblock eval` is killed (SIGKILL) half-way and run again by the same command. Printed: samples per second,
the client's peak memory beside that of a twentieth as many samples, and Redis's peak.

Settings: SAMPLES (100,000), WAY (namespaces).
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from redis import Redis

from bench.hello import fleet

SAMPLES = int(os.environ.get("SAMPLES", "100000"))
WAY = os.environ.get("WAY", "namespaces")
FEW = 20
PROBLEMS = 100


def main() -> int:
    """Print the figures; write build/bench/samples-<way>.json."""
    with fleet(WAY) as one, tempfile.TemporaryDirectory() as folder:
        assert one.settings.redis.url is not None
        url = one.settings.redis.url.get_secret_value()
        redis: Redis = Redis.from_url(url)
        few = _run(_command(Path(folder), SAMPLES // FEW), url)
        many = _command(Path(folder), SAMPLES)
        killed = _run(many, url, until=SAMPLES // 2)
        began = _done(Path(folder), SAMPLES)
        resumed = _run(many, url)
        found = {
            "way": WAY,
            "samples": SAMPLES,
            "samples_per_s": round((SAMPLES - began) / resumed["took_s"], 1),
            "killed_after": began,
            "judged": _done(Path(folder), SAMPLES),
            "judged_twice": _done(Path(folder), SAMPLES) - _distinct(Path(folder), SAMPLES),
            "client_peak_mib": {str(SAMPLES // FEW): few["peak_mib"], str(SAMPLES): resumed["peak_mib"]},
            "client_cpu_ms_per_sample": round(1000 * resumed["cpu_s"] / (SAMPLES - began), 3),
            "killed_client_peak_mib": killed["peak_mib"],
            "redis_peak_mib": round(int(redis.info("memory")["used_memory_peak"]) / 2**20, 1),
            "redis_after_mib": round(int(redis.info("memory")["used_memory"]) / 2**20, 1),
        }
    print(json.dumps(found, indent=2))
    path = Path(f"build/bench/samples-{WAY}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=2) + "\n")
    whole = found["judged"] == SAMPLES and found["judged_twice"] == 0
    return 0 if whole else 1


def _command(folder: Path, count: int) -> list[str]:
    """``cellblock eval`` of this many programs, all different."""
    problems, samples = folder / "problems.jsonl", folder / f"samples-{count}.jsonl"
    with problems.open("w") as file:
        for number in range(PROBLEMS):
            check = {"test_list": [f"assert f({number}) == {number + 1}"], "task_id": f"t/{number}"}
            file.write(json.dumps(check) + "\n")
    with samples.open("w") as file:
        for number in range(count):
            text = f"def f(x):\n    return x + 1  # {number}\n"
            file.write(json.dumps({"task_id": f"t/{number % PROBLEMS}", "solution": text}) + "\n")
    options = ["--problems", str(problems), "--level", "standard", "--out", str(folder / f"out-{count}")]
    return [str(Path(sys.executable).with_name("cellblock")), "eval", str(samples), *options]


def _run(command: list[str], url: str, until: int | None = None) -> dict[str, float]:
    """Seconds, and peak memory and CPU time of the process; ``until``: killed when this many are judged.

    The peak is the process's own (VmHWM): what wait4 tells begins with what its parent had when it forked.
    """
    out, started, peak_kib = Path(command[-1]), time.monotonic(), 0
    process = subprocess.Popen(command, env={**os.environ, "CELLBLOCK_REDIS_URL": url})
    ended = None
    while ended is None:
        time.sleep(0.5)
        peak_kib = max(peak_kib, _peak_kib(process.pid))
        if until is not None and _lines(out) >= until:
            os.kill(process.pid, signal.SIGKILL)  # Popen would wait for it, before wait4 can
        ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == (0 if until is None else -signal.SIGKILL), process.returncode
    return {
        "took_s": time.monotonic() - started,
        "peak_mib": round(peak_kib / 1024, 1),
        "cpu_s": used.ru_utime + used.ru_stime,
    }


def _peak_kib(pid: int) -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) if found else 0  # it has ended


def _lines(out: Path) -> int:
    try:
        with (out / "results.jsonl").open("rb") as file:
            return sum(1 for _ in file)
    except OSError:
        return 0


def _done(folder: Path, count: int) -> int:
    return _lines(folder / f"out-{count}")


def _distinct(folder: Path, count: int) -> int:
    with (folder / f"out-{count}" / "results.jsonl").open() as file:
        return len({json.loads(line)["index"] for line in file})


if __name__ == "__main__":
    sys.exit(main())
