"""A worker without Celery: real runner, client, launcher process and sandboxes, on an in-process ledger."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, cast

from cellblock import JobSpec
from cellblock.admission.costs import Charge
from cellblock.admission.resolve import resolve
from cellblock.contract.evaluations import Check, Evaluation, TrialResult
from cellblock.contract.job_status import JobStatus
from cellblock.contract.outcomes import Outcome
from cellblock.contract.results import JobResult
from cellblock.ledger import Ledger
from cellblock_config import Settings, load_settings
from cellblock_config.prices import Rates
from cellblock_workers.embedded_host import in_process_redis
from cellblock_workers.filtering.outgoing_filter import OutgoingFilter
from cellblock_workers.launcher.client import LauncherClient
from cellblock_workers.lease import Heart
from cellblock_workers.worker.evaluation.examination import add_usage
from cellblock_workers.worker.runner import JobRunner
from parts import LAUNCHER, launcher_process, wait_until
from sandbox.systemd_host import systemd_launcher
from suite.measured import launcher_of
from suite.ways import EVERY_WAY, environment_of

MIB = 1024 * 1024


def words(found: Mapping[str, TrialResult]) -> dict[str, tuple[str, str]]:
    """The verdict on each trial, and what failed."""
    return {
        name: (one.verdict.value, f"{one.error.type}: {one.error.message}" if one.error else "")
        for name, one in found.items()
    }


@cache
def _shared_filter() -> OutgoingFilter:
    """The filter of every host of this process: to start one takes longer than a job."""
    return OutgoingFilter(load_settings().egress)


class Host:
    """Everything of a worker but its queue. Jobs run in the calling thread."""

    def __init__(self, socket: Path, **groups: object) -> None:
        # A fault of ours is a test's result, not something to be tried again. Nothing beats here.
        groups["ledger"] = {
            "fault_retries": 0,
            "lease_s": 600,
            **cast(dict[str, Any], groups.get("ledger", {})),
        }
        self.settings: Settings = load_settings(**{"launcher": {"socket": socket}, **groups})
        self.ledger = Ledger(in_process_redis(), self.settings, embedded=True)
        self.launcher = LauncherClient(socket, timeout_s=60)
        self.heart = Heart(self.ledger, "test-worker", self.settings.ledger, lambda: {"state": "ready"})
        self.contexts = socket.parent  # where its launcher lets contexts lie
        self.released: list[str] = []
        self.unavailable: list[str] = []
        self.runner = JobRunner(
            self.ledger,
            self.launcher,
            self.heart,
            self.settings,
            worker="test-worker",
            on_wake=lambda wakes: self.released.extend(wakes),
            on_unavailable=self.unavailable.append,
        )
        if "egress" not in groups:  # else it needs a filter of these settings
            self.runner._outgoing = _shared_filter()

    def admit(self, code: str | None, **spec: Any) -> str:
        """Put one job into the ledger; its id."""
        manifest = resolve(JobSpec(code=code, **spec), self.settings)
        return self.ledger.admissions.admit(uuid.uuid4().hex, manifest).job_id

    def run(self, code: str | None, **spec: Any) -> JobResult:
        """Admit, claim, run and finish one job."""
        job_id = self.admit(code, **spec)
        if self.runner.run(job_id) != job_id:  # another thread has claimed it, and this one another's
            wait_until(lambda: self.ledger.reads.result(job_id), 60, "the other thread")
        result = self.ledger.reads.result(job_id)
        assert result is not None, f"the job was given back: {self.unavailable}"
        return result

    def run_at_price(self, spec: JobSpec, rates: Rates, cap_micros: int) -> JobResult:
        """Admit this job at these prices, and run one attempt, which has to be its last."""
        charge = Charge(rates=rates, cap_micros=cap_micros)
        manifest = resolve(spec, self.settings).model_copy(update={"charge": charge})
        job_id = self.ledger.admissions.admit(uuid.uuid4().hex, manifest).job_id
        self.runner.run(job_id)
        result = self.ledger.reads.result(job_id)
        assert result is not None, "it is to be tried again"
        return result

    def judge(
        self, trials: Iterable[tuple[str, str, Check]], verdict: str = "split", **limits: float
    ) -> JobResult:
        """Run an evaluation of these ids, sources and checks, which has to end well itself, in as many turns
        as it takes."""
        given = list(trials)
        checks = list(dict.fromkeys(check for _, _, check in given))
        named = [{"id": name, "source": text, "check": checks.index(check)} for name, text, check in given]
        evaluation = Evaluation.model_validate({"checks": checks, "verdict": verdict, "trials": named})
        result = self.run(None, evaluation=evaluation, limits={"timeout_s": 10.0, **limits})
        assert result.outcome is Outcome.OK, result
        turn = len(result.trials)
        assert [trial.id for trial in result.trials] == [name for name, _, _ in given[:turn]]
        if turn == len(given):
            return result
        rest = self.judge(given[turn:], verdict, **limits)
        merged = {"trials": (*result.trials, *rest.trials), "usage": add_usage(result.usage, rest.usage)}
        return result.model_copy(update=merged)

    def run_unfinished(self, code: str, **spec: Any) -> JobStatus:
        """Run one attempt of a job that is expected to be given back; where the ledger then has it."""
        job_id = self.admit(code, **spec)
        self.runner.run(job_id)
        assert self.ledger.reads.result(job_id) is None
        return self.ledger.reads.status(job_id)

    @contextmanager
    def running(self, code: str | None, **spec: Any) -> Iterator[tuple[str, Callable[[], JobResult]]]:
        """Run a job in a thread of its own: its id, and a call that waits for its result."""
        job_id = self.admit(code, **spec)

        def work() -> None:
            self.runner.run(job_id)
            self.launcher.close()

        thread = threading.Thread(target=work)

        def wait() -> JobResult:  # another thread may have claimed it, and this one another's
            result = wait_until(lambda: self.ledger.reads.result(job_id), 30, "the job's end")
            assert isinstance(result, JobResult)
            return result

        thread.start()
        try:
            yield job_id, wait
        finally:
            thread.join(timeout=30)


@contextmanager
def hosts(folder: Callable[[str], Path]) -> Iterator[dict[str, Host]]:
    """One launcher process for each way, past its first probe, with a host on it."""
    with ExitStack() as stack:
        yield _Hosts(lambda way: stack.enter_context(_host(folder(way), way)))


class _Hosts(dict[str, Host]):
    """Starts a way's launcher when the first test asks for it."""

    def __init__(self, start: Callable[[str], Host]) -> None:
        self._start = start

    def __missing__(self, way: str) -> Host:
        return self.setdefault(way, self._start(way))


@contextmanager
def _host(folder: Path, way: str) -> Iterator[Host]:
    isolation, _ = EVERY_WAY[way]
    environment = {
        **environment_of(way),
        "CELLBLOCK_LAUNCHER_WARM": "1",
        "CELLBLOCK_LAUNCHER_CONTEXT_ROOTS": json.dumps([str(folder / "contexts")]),
    }
    (folder / "contexts").mkdir()
    with _launcher(folder, isolation, environment) as path:
        host = Host(path)
        host.contexts = folder / "contexts"
        wait_until(lambda: host.launcher.probe().isolations, 60, f"{way} passing its probe")
        yield host
        host.launcher.close()


@contextmanager
def _launcher(folder: Path, isolation: str, environment: dict[str, str]) -> Iterator[Path]:
    if isolation == "systemd":
        with systemd_launcher(folder, environment) as path:
            yield path
    else:
        program, more = launcher_of(isolation, LAUNCHER)
        with launcher_process(folder, program=program, **environment, **more) as (path, _):
            yield path


def peak_rss_bytes() -> int:
    """The most memory this process has held since :func:`forget_peak_rss`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


def forget_peak_rss() -> int:
    """Begin to measure the peak anew; what is held now."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_rss_bytes()
