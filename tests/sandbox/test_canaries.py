"""Every control is proven in every way; with one taken away its attack gets out, and no worker claims."""

from __future__ import annotations

import importlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cellblock import Client, JobResult, JobSpec, JobState, Outcome, Timings
from cellblock.errors import SandboxUnavailable
from cellblock_config import LEVELS, Settings, load_settings
from cellblock_workers.launcher.client import LauncherClient
from cellblock_workers.worker import health
from cellblock_workers.worker.canaries import CONTROLS, Control, prove
from cellblock_workers.worker.health import Health
from cellblock_workers.worker.proof import NotProven, Proof
from parts import launcher_process, wait_until, worker_process
from sandbox.harness import Host
from sandbox.weakened import REMOVALS
from suite.ways import WAYS, environment_of

pytestmark = [pytest.mark.docker, pytest.mark.no_rerun]

WEAKENED = str(Path(__file__).with_name("weakened.py"))
CANARIES = [control for control in CONTROLS if control.canary]
RUNC = {
    "CELLBLOCK_SANDBOX_ISOLATIONS": '["runc"]',
    "CELLBLOCK_SANDBOX_CHAINS": json.dumps({level: ["runc"] for level in LEVELS}),
    "CELLBLOCK_LAUNCHER_BACKENDS": '["docker"]',
    "CELLBLOCK_LAUNCHER_WARM": "0",
}


def named(name: str) -> Control:
    return next(control for control in CONTROLS if control.name == name)


class Weakened:
    """A launcher that says it works and lacks whichever control it is told to."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "launcher.sock"
        self.file = folder / "lacking"
        self.lack(None)

    def lack(self, control: str | None) -> None:
        """Make sandboxes without this control from now on; with ``None``, make whole ones."""
        new = self.file.with_name("next")
        new.write_text(control or "")
        new.replace(self.file)


@pytest.fixture(scope="module")
def weakened_launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weakened]:
    folder = tmp_path_factory.mktemp("weakened")
    launcher = Weakened(folder)
    with launcher_process(folder, program=(WEAKENED, str(launcher.file)), **RUNC) as (path, _):
        client = LauncherClient(path, timeout_s=60)
        wait_until(lambda: client.probe().isolations, 60, "the weakened launcher's word that it works")
        client.close()
        yield launcher


@pytest.fixture
def weakened(weakened_launcher: Weakened) -> Iterator[Weakened]:
    """That launcher, with every control until a test takes one away."""
    yield weakened_launcher
    weakened_launcher.lack(None)


def settings_for(path: Path, **worker: object) -> Settings:
    return load_settings(launcher={"socket": path}, worker=worker)


def test_an_operators_guard_and_bounds_are_no_matter_to_the_canaries(tmp_path: Path) -> None:
    namespaces = environment_of("namespaces")
    with launcher_process(tmp_path, **namespaces, CELLBLOCK_SANDBOX_CPUS_MIN="1") as (path, _):
        settings = load_settings(
            launcher={"socket": path},
            sandbox={"module_guard": True, "cpus_min": 1.0},
            ledger={"code_bytes": 100},
        )
        client = LauncherClient(path, timeout_s=60)
        wait_until(lambda: client.probe().isolations, 60, "the probe")
        client.close()
        findings = prove(path, settings, "standard", CANARIES)
    assert {finding.state for finding in findings} == {"proven"}, findings


def test_the_table_names_each_control_once_and_the_canaries_are_the_ones_promised() -> None:
    assert len({control.name for control in CONTROLS}) == len(CONTROLS) >= 20
    assert {control.name for control in CANARIES} == {
        "network",
        "root read-only",
        "memory",
        "processes",
        "wall time",
        "system calls",
        "uid",
    }
    for control in CONTROLS:
        compile(control.code, control.name, "exec")
        assert control.remedy
        assert control.stops


@pytest.mark.timeout(180)
def test_every_control_is_proven_in_this_way(sandbox_hosts: dict[str, Host], way: str) -> None:
    settings = sandbox_hosts[way].settings
    findings = prove(settings.launcher.socket, settings, "standard", CONTROLS)
    assert [finding.control for finding in findings] == list(CONTROLS)
    assert {(f.control.name, f.detail) for f in findings if f.state == "not proven"} == set()
    assert {finding.way for finding in findings} == {WAYS[way]}
    assert all(
        f.detail and f.way and f.way.isolation in f.control.elsewhere
        for f in findings
        if f.state == "elsewhere"
    )


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", REMOVALS)
def test_an_attack_gets_out_where_its_control_is_missing(weakened: Weakened, name: str) -> None:
    weakened.lack(name)
    for _ in range(2):  # one from before may stand ready, if a job stopped waiting for it; it is used once
        (finding,) = prove(weakened.socket, settings_for(weakened.socket), "standard", [named(name)])
        if finding.state != "proven":
            break
    assert finding.state == "not proven"
    assert finding.detail.startswith("ESCAPED"), finding.detail


#: These look and touch nothing, so they may run where no control is. The others must not: one kills PID 1.
HARMLESS = ("environment", "descriptors", "other processes")


@pytest.mark.parametrize("name", HARMLESS)
def test_an_attack_that_only_looks_gets_out_without_any_sandbox(tmp_path: Path, name: str) -> None:
    with socket.socket(socket.AF_UNIX) as inherited:
        done = subprocess.run(
            [sys.executable, "-c", named(name).code, "{}"],
            capture_output=True,
            text=True,
            env={"SECRET_OF_THE_HOST": "1"},
            pass_fds=[inherited.fileno()],
            timeout=30,
            check=True,
        )
    assert "ESCAPED" in done.stdout


def test_nothing_is_concluded_from_a_launcher_that_has_no_sandbox(tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailable, match="no launcher answers"):
        prove(tmp_path / "none", settings_for(tmp_path / "none"), "standard", CANARIES)


@pytest.mark.way("namespaces")
@pytest.mark.timeout(120)
def test_an_operators_bounds_do_not_stop_a_control_from_being_proven(sandbox_hosts: dict[str, Host]) -> None:
    path = sandbox_hosts["namespaces"].settings.launcher.socket
    settings = load_settings(
        launcher={"socket": path},
        sandbox={
            "memory_min_bytes": 200 << 20,
            "memory_max_bytes": 300 << 20,
            "timeout_max_s": 5,
            "pids_max": 10,
        },
        egress={"output_limit_bytes": 64, "output_head_bytes": 0, "output_tail_bytes": 0},
    )
    chosen = [named("memory"), named("processes"), named("disk bytes"), named("wall time")]
    assert {finding.state for finding in prove(path, settings, "standard", chosen)} == {"proven"}


@pytest.mark.way("namespaces")
def test_a_sandbox_of_a_way_not_yet_proven_is_given_back_before_any_code_goes_in(
    sandbox_hosts: dict[str, Host],
) -> None:
    host = sandbox_hosts["namespaces"]
    proof = Proof(host.settings)
    client = LauncherClient(host.settings.launcher.socket, timeout_s=60, refuse=proof.refuse)
    job_id = host.admit("print('never')")
    manifest = host.ledger.claims.claim_next(message=job_id, worker="test-worker", operation="op").manifest  # type: ignore[union-attr]
    with pytest.raises(SandboxUnavailable, match="namespaces \\(zygote\\) are not proven"):
        client.acquire(
            job_id=job_id, fence=1, level=manifest.level, image=manifest.image, limits=manifest.limits
        )
    assert (client.probe().counts or {})["in_use"] == 0
    proof.renew({"standard": "namespaces"})
    lent = client.acquire(
        job_id=job_id, fence=1, level=manifest.level, image=manifest.image, limits=manifest.limits
    )
    client.kill(lent)
    proof.withdraw()
    assert proof.refuse(lent) is not None
    assert proof.due
    client.close()


@pytest.mark.timeout(120)
def test_a_worker_claims_nothing_where_a_control_does_not_bite(
    tmp_path: Path, redis_url: str, weakened: Weakened
) -> None:
    weakened.lack("root read-only")
    quick = {"CELLBLOCK_WORKER_CANARIES": "true", "CELLBLOCK_LEDGER_BEAT_S": "0.5"}
    with (
        worker_process(tmp_path, redis_url, weakened.socket, **quick),
        Client(redis_url) as client,
    ):
        job = client.submit(JobSpec(code="print('never')"))
        state = wait_until(lambda: refusing(client), 60, "the worker refusing")
        assert state["state"] == "paused"
        assert "runc docker: the control 'root read-only' does not bite (ESCAPED wrote" in state["reason"]
        assert named("root read-only").remedy in state["reason"]
        assert (job.status().state, job.status().attempt) == (JobState.QUEUED, 0)
    log = (tmp_path / "worker.log").read_text()
    (said,) = [json.loads(line) for line in log.splitlines() if "control_does_not_bite" in line]
    assert (said["control"], said["way"], said["level"]) == ("root read-only", "runc/docker", "error")
    assert said["remedy"]
    assert "worker_ready" not in log


def refusing(client: Client) -> dict[str, Any] | None:
    """What a worker says that was held back by a control."""
    states = [dict(state) for state in client._ledger.figures.workers().values()]
    return next((state for state in states if "does not bite" in str(state["reason"])), None)


@pytest.mark.timeout(120)
def test_a_worker_proves_its_host_and_then_works(
    tmp_path: Path, redis_url: str, launcher_socket: Path
) -> None:
    with (
        worker_process(tmp_path, redis_url, launcher_socket, CELLBLOCK_WORKER_CANARIES="true"),
        Client(redis_url) as client,
    ):
        result = client.submit(JobSpec(code="print('after')")).result(timeout_s=60)
    assert (result.outcome, result.stdout) == (Outcome.OK, "after\n")
    log = [json.loads(line) for line in (tmp_path / "worker.log").read_text().splitlines() if line[:1] == "{"]
    order = [
        line["event"]
        for line in log
        if line.get("event") in {"canaries_passed", "worker_ready", "job_finished"}
    ]
    assert order == ["canaries_passed", "worker_ready", "job_finished"]
    passed = next(line for line in log if line["event"] == "canaries_passed")
    print(f"canaries of {passed['ways']} took {passed['took_ms']} ms")
    assert f"{result.isolation}/{result.backend}" in passed["ways"]


@pytest.mark.timeout(120)
@pytest.mark.long("a host is proved three times")
def test_a_control_that_stops_biting_pauses_a_working_host_until_it_bites_again(
    weakened: Weakened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_LOOK_S", 0.05)
    monkeypatch.setattr(health, "_RETRY_S", 0.05)
    settings = settings_for(weakened.socket, canary_s=0.1)
    watched = Health(LauncherClient(weakened.socket, timeout_s=60), 0.05, Proof(settings))
    watched.start()
    try:
        assert watched.wait_ready(60)
        weakened.lack("root read-only")
        wait_until(lambda: not watched.ready, 60, "the host being paused")
        assert "'root read-only' does not bite" in str(watched.status()["reason"])
        weakened.lack(None)
        assert watched.wait_ready(60)
    finally:
        watched.stop()


@pytest.mark.timeout(120)
@pytest.mark.long("a host is proved twice")
def test_a_failed_round_withdraws_what_an_earlier_one_proved(weakened: Weakened) -> None:
    proof = Proof(settings_for(weakened.socket))
    proof.renew({"standard": "runc", "strict": "runc"})
    assert not proof.due
    weakened.lack("root read-only")
    with pytest.raises(NotProven, match="runc docker: the control 'root read-only' does not bite"):
        proof.renew({"standard": "runc"})
    assert proof.due


class LoadedHost:
    """Injected: a host on which every attack takes as many times its usual time as this says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, load: float) -> None:
        self.load = load
        self.rounds: list[float] = []
        self.escapes: str | None = None
        module = importlib.import_module("cellblock_workers.worker.canaries.prove")
        monkeypatch.setattr(module, "_run", self.run)

    def run(self, _: str, control: Control, ground: Any, marker: str) -> JobResult:
        assert marker
        self.rounds.append(ground.patience)
        late = self.load > ground.patience
        outcome = Outcome.WALL_TIMEOUT if late and control.held else next(iter(control.outcomes))
        return JobResult(
            job_id="j",
            outcome=outcome,
            level="standard",
            timings=Timings(submitted=0, admitted=0),
            trace_id="0" * 32,
            stdout="ESCAPED it\n" if control.name == self.escapes else "" if late else "HELD\n",
            isolation="runc",
            backend="oci",
            exit_code=control.exit_code,
        )


def test_a_loaded_host_gets_more_time_and_goes_on_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = LoadedHost(monkeypatch, 1)
    proof = Proof(settings_for(tmp_path / "none"))
    proof.renew({"standard": "runc"})
    assert set(host.rounds) == {1.0}
    host.load = 5
    trusted: list[bool] = []
    run = host.run

    def watched(*given: Any) -> JobResult:
        trusted.append(bool(proof._proven))
        return run(*given)

    monkeypatch.setattr(importlib.import_module("cellblock_workers.worker.canaries.prove"), "_run", watched)
    proof.renew({"standard": "runc"})
    assert max(host.rounds) >= 5
    assert all(trusted), "what was proven stays so while it is tried again"
    assert not proof.due


@pytest.mark.parametrize("load", [1, 5], ids=["idle", "loaded"])
def test_load_hides_no_control_that_does_not_bite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load: float
) -> None:
    host = LoadedHost(monkeypatch, 1)
    proof = Proof(settings_for(tmp_path / "none"))
    proof.renew({"standard": "runc"})
    host.load, host.escapes = load, "network"
    with pytest.raises(NotProven, match="'network' does not bite"):
        proof.renew({"standard": "runc"})
    assert proof.due
    assert max(host.rounds) == 1, "nothing waits for what is known"


def test_what_stays_too_slow_is_not_proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = LoadedHost(monkeypatch, 1000)
    proof = Proof(settings_for(tmp_path / "none"))
    with pytest.raises(NotProven, match="does not bite"):
        proof.renew({"standard": "runc"})
    assert len(set(host.rounds)) > 1
    assert proof.due


def test_an_attack_that_got_out_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Injected: the second time it would be held."""
    module = importlib.import_module("cellblock_workers.worker.canaries.prove")
    said = iter(["ESCAPED wrote /x\n", "HELD\n"])
    timings = Timings(submitted=0, admitted=0)

    def run(*_: object) -> JobResult:
        return JobResult(
            job_id="j",
            outcome=Outcome.OK,
            level="standard",
            timings=timings,
            trace_id="0" * 32,
            stdout=next(said),
            isolation="runc",
            backend="oci",
        )

    monkeypatch.setattr(module, "_run", run)
    control = next(one for one in CONTROLS if one.before is None and not one.elsewhere)
    finding = module._attack(control, None)
    assert (finding.state, finding.detail) == ("not proven", "ESCAPED wrote /x")
