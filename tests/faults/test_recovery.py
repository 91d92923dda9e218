"""What happens to running jobs when a worker, a launcher or the Docker daemon goes away."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

import docker
import pytest

from cellblock import Client, JobSpec, JobState, Outcome
from cellblock_config import load_settings
from cellblock_workers.launcher.client import LauncherClient
from faults.hosts import cgroups_of
from parts import NAMESPACES, launcher_process, wait_until, worker_process
from suite.ways import WAYS, environment_of

pytestmark = [pytest.mark.docker, pytest.mark.no_rerun]


def containers_of(owner: str) -> list[str]:
    """Names of the containers a launcher of this name made."""
    with closing(docker.from_env()) as daemon:
        found = daemon.api.containers(all=True, filters={"label": f"cellblock.owner={owner}"})
    return [name for container in found for name in container["Names"]]


def left_by(owner: str, state: Path) -> list[str]:
    """What this launcher's sandboxes left: containers, records of what no daemon knows, cgroups."""
    records = [path for path in state.rglob("*.json") if path.parent.name == "records"]
    return [*containers_of(owner), *map(str, records), *cgroups_of(record.stem for record in records)]


def warm_launcher(socket_path: Path, idle: int) -> None:
    """Wait until this many sandboxes are ready."""
    client = LauncherClient(socket_path, timeout_s=60)
    wait_until(lambda: (client.probe().counts or {}).get("idle", 0) >= idle, 60, f"{idle} warm sandboxes")
    client.close()


@pytest.mark.timeout(180)
@pytest.mark.long("waits for leases to run out")
def test_a_killed_workers_twenty_jobs_run_again_within_two_leases_and_end_exactly_once(
    tmp_path: Path, redis_url: str
) -> None:
    jobs, owner = 20, "test-kill9"
    pool = {"CELLBLOCK_LAUNCHER_WARM": str(jobs), "CELLBLOCK_LAUNCHER_WARM_TOTAL": str(jobs)}
    pool["CELLBLOCK_LAUNCHER_STATE"] = str(tmp_path / "state")
    many = {"CELLBLOCK_WORKER_CONCURRENCY": str(jobs)}
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with (
        launcher_process(tmp_path, CELLBLOCK_LAUNCHER_OWNER=owner, **NAMESPACES, **pool) as (launcher, _),
        Client(redis_url) as client,
    ):
        warm_launcher(launcher, jobs)
        with worker_process(tmp_path / "a", redis_url, launcher, **many) as doomed:
            handles = [
                client.submit(JobSpec(code="import time; time.sleep(4); print('done')")) for _ in range(jobs)
            ]
            wait_until(
                lambda: client._ledger.figures.running() == jobs, 30, "all jobs running on the first worker"
            )
            doomed.kill()
            killed = time.time()
            with worker_process(tmp_path / "b", redis_url, launcher, **many):
                results = [handle.result(timeout_s=60) for handle in handles]
        assert {result.outcome for result in results} == {Outcome.OK}
        assert {result.stdout for result in results} == {"done\n"}
        assert {result.attempt for result in results} == {2}
        events = client.events(limit=1000)
        terminal = Counter(event.job_id for event in events if event.terminal)
        assert terminal == Counter({handle.id: 1 for handle in handles})
        assert client._ledger.figures.running() == 0
        assert client._ledger.figures.depth() == 0
        started = [event.at for event in events if event.type == "agent.run.started"]
        again = [at - killed for at in started if at > killed]
        assert len(again) == jobs
        assert max(again) <= 2 * load_settings().ledger.lease_s
    assert left_by(owner, tmp_path / "state") == []


@pytest.mark.parametrize(
    "way",
    [
        "namespaces",
        *(
            pytest.param(way, marks=pytest.mark.long("a launcher for each way"))
            for way in ("gvisor-docker", "gvisor-oci", "runc-oci")
        ),
    ],
)
def test_a_launcher_that_dies_loses_no_job_and_leaves_nothing(
    tmp_path: Path, redis_url: str, way: str
) -> None:
    owner, state = "test-dying-launcher", tmp_path / "state"
    variables = {
        "CELLBLOCK_LAUNCHER_OWNER": owner,
        "CELLBLOCK_LAUNCHER_STATE": str(state),
        **environment_of(way),
    }
    with worker_process(tmp_path, redis_url, tmp_path / "launcher.sock"), Client(redis_url) as client:
        with launcher_process(tmp_path, **variables) as (_, process):
            job = client.submit(JobSpec(code="import time; time.sleep(3); print('done')"))
            wait_until(lambda: job.status().state is JobState.RUNNING, 20, "the job running")
            wait_until(lambda: left_by(owner, state), 20, "a sandbox to leave behind")
            process.kill()
            process.wait()
            wait_until(lambda: job.status().state is JobState.QUEUED, 10, "the job back in its queue")
            assert job.status().losses == 0
        with launcher_process(tmp_path, **variables):
            result = job.result(timeout_s=40)
    assert (result.outcome, result.isolation) == (Outcome.OK, WAYS[way][0])
    assert result.attempt == 2
    assert left_by(owner, state) == []


class CuttableProxy:
    """A fault injector: a Unix socket in front of the real Docker daemon that a test can cut."""

    def __init__(self, path: Path, target: str = "/var/run/docker.sock") -> None:
        self.path = path
        self._target = target
        self._pairs: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener: socket.socket | None = None

    def open(self) -> None:
        """Let connections through."""
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(64)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self) -> None:
        """End every connection and refuse new ones, as a daemon that is gone does."""
        assert self._listener is not None
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.path.unlink()
        for end in self._pairs:
            with suppress(OSError):  # its peer may have closed it already
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(timeout=10)
        for end in self._pairs:
            end.close()
        self._pairs.clear()
        self._threads.clear()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            far.connect(self._target)
            self._pairs += [near, far]
            for source, sink in ((near, far), (far, near)):
                thread = threading.Thread(target=self._copy, args=(source, sink), daemon=True)
                thread.start()
                self._threads.append(thread)  # what cut() waits for has to be running

    @staticmethod
    def _copy(source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65_536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return


@pytest.mark.timeout(120)
def test_without_docker_jobs_go_back_unburned_and_the_worker_says_so(tmp_path: Path, redis_url: str) -> None:
    proxy = CuttableProxy(tmp_path / "docker.sock")
    proxy.open()
    through = {
        "CELLBLOCK_LAUNCHER_DOCKER_URL": f"unix://{proxy.path}",
        "CELLBLOCK_LAUNCHER_BACKENDS": '["docker"]',
        "CELLBLOCK_SANDBOX_ISOLATIONS": '["gvisor", "runc"]',
    }
    with (
        launcher_process(tmp_path, CELLBLOCK_LAUNCHER_OWNER="test-no-docker", **through) as (launcher, _),
        worker_process(tmp_path, redis_url, launcher, CELLBLOCK_LEDGER_BEAT_S="0.5"),
        Client(redis_url) as client,
    ):
        warm_launcher(launcher, 1)
        job = client.submit(JobSpec(code="import time; time.sleep(3); print('done')"))
        wait_until(lambda: in_use(launcher) == 1, 30, "the job in its sandbox")
        proxy.cut()
        wait_until(lambda: job.status().state is JobState.QUEUED, 15, "the job back in its queue")
        wait_until(lambda: "Docker daemon failed" in paused_because(client), 15, "the worker saying why")
        attempts = job.status().attempt
        waiting = client.submit(JobSpec(code="print('later')"))
        assert job.status().losses == 0
        assert waiting.status().attempt == 0
        proxy.open()
        results = [job.result(timeout_s=40), waiting.result(timeout_s=40)]
        assert [result.stdout for result in results] == ["done\n", "later\n"]
        assert job.status().losses == 0
        assert attempts <= results[0].attempt
    proxy.cut()


def paused_because(client: Client) -> str:
    """The reason the paused worker gives, empty while there is none."""
    states = client._ledger.figures.workers().values()
    return "".join(str(state["reason"]) for state in states if state["state"] == "paused")


def in_use(launcher: Path) -> int:
    """How many sandboxes run a job."""
    client = LauncherClient(launcher, timeout_s=60)
    counts = client.probe().counts or {}
    client.close()
    return counts.get("in_use", 0)


CORRUPT = {
    "not text": b"\xff\xfe not even text",
    "not a message": b"{}",
    "no properties": json.dumps({"body": "!!!", "headers": {}, "properties": {}}).encode(),
    "body not json": json.dumps(
        {
            "body": "bm90IGpzb24=",
            "content-encoding": "utf-8",
            "content-type": "application/json",
            "headers": {"task": "cellblock.run", "id": "x", "lang": "py"},
            "properties": {
                "body_encoding": "base64",
                "delivery_tag": "t",
                "delivery_info": {"exchange": "cellblock", "routing_key": "cellblock.jobs"},
            },
        }
    ).encode(),
}


def test_corrupt_messages_are_dropped_and_their_jobs_still_end(
    tmp_path: Path, redis_url: str, launcher_socket: Path
) -> None:
    queue = "{cellblock}:broker:cellblock.jobs"
    with Client(redis_url) as client:
        fast = {"CELLBLOCK_LEDGER_REPUBLISH_AFTER_S": "1"}
        jobs = {kind: client.submit(JobSpec(code=f"print({kind!r})")) for kind in CORRUPT}
        assert client._redis.llen(queue) == len(CORRUPT)
        client._redis.delete(queue)
        client._redis.rpush(queue, *CORRUPT.values())  # one after the other: each is read by the same worker
        with worker_process(tmp_path, redis_url, launcher_socket, **fast):
            for kind, job in jobs.items():
                assert job.result(timeout_s=40).stdout == f"{kind}\n"
            assert client.submit(JobSpec(code="print('next')")).result(timeout_s=20).stdout == "next\n"
