"""docker-compose.yml: the fleet in containers, with the rights it promises and no others."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import docker
import pytest

from parts import REPOSITORY, cellblock, free_port, wait_until

pytestmark = pytest.mark.timeout(240)
COMPOSED = pytest.mark.long("starts six containers, one after the other")

SERVICES = ("redis", "launcher", "worker", "archiver", "flower")
WORKER_UID = 10001
UP_S = 150.0
#: Other tests load the same host, and Docker asks for a state of health every ten seconds.
HEALTHY_S = 180.0
_YAML_TO_JSON = "import json, sys, yaml; json.dump(yaml.safe_load(sys.stdin), sys.stdout)"
_SOCKET = "/var/run/docker.sock"


class Project:
    """One compose project with a name, passwords and a port of its own."""

    def __init__(self) -> None:
        self.name = f"cellblock-test-{secrets.token_hex(4)}"
        self.redis_password = secrets.token_hex(24)
        self.monitor_password = secrets.token_hex(24)
        self.port = free_port()
        self.variables = {
            "REDIS_PASSWORD": self.redis_password,
            "MONITOR_PASSWORD": self.monitor_password,
            "MONITOR_PORT": str(self.port),
            "LAUNCHER_OWNER": self.name,
            "WORKER_CONCURRENCY": "2",
        }

    def compose(
        self, *arguments: str, code: int = 0, stdin: str = "", timeout_s: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """docker-compose on the repository's files; the developer's own .env is not read."""
        binary = shutil.which("docker-compose")
        assert binary, "docker-compose is missing; run the tests with: make test"
        example = REPOSITORY / "config" / "compose" / "example.env"
        options = ["--file", str(REPOSITORY / "docker-compose.yml"), "--env-file", str(example)]
        done = subprocess.run(
            [binary, *options, "--project-name", self.name, *arguments],
            input=stdin,
            env={**os.environ, **self.variables},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == code, f"{arguments} ended with {done.returncode}: {done.stderr}"
        return done

    def run_job(self, code: str) -> dict[str, Any]:
        """One job through the running fleet, submitted from the worker's container."""
        done = self.compose("exec", "-T", "worker", "cellblock", "run", "-", "--json", stdin=code)
        return dict(json.loads(done.stdout))

    def flower(self, path: str, method: str = "GET", *, password: str | None = None) -> tuple[int, str]:
        """Status and body of one request to Flower."""
        account = f"cellblock:{self.monitor_password if password is None else password}"
        headers = {"Authorization": f"Basic {base64.b64encode(account.encode()).decode()}"}
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            connection.request(method, path, headers={} if password == "" else headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()


class Daemon:
    """What the Docker daemon says of a project."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._api = docker.APIClient(version="auto", timeout=30)

    def close(self) -> None:
        self._api.close()

    def containers(self) -> dict[str, dict[str, Any]]:
        """docker inspect of every container of the project, by service."""
        found = self._labelled(f"com.docker.compose.project={self._project.name}")
        return {
            c["Labels"]["com.docker.compose.service"]: self._api.inspect_container(c["Id"]) for c in found
        }

    def sandboxes(self) -> list[str]:
        """Ids of all sandboxes made by the project's launcher."""
        return [c["Id"] for c in self._labelled(f"cellblock.owner={self._project.name}")]

    def left(self) -> list[str]:
        """Whatever of the project still exists."""
        label = {"label": f"com.docker.compose.project={self._project.name}"}
        networks = [n["Name"] for n in self._api.networks(filters=label)]
        volumes = [v["Name"] for v in self._api.volumes(filters=label)["Volumes"] or []]
        return [*self.containers(), *self.sandboxes(), *networks, *volumes]

    def processes(self, service: str) -> str:
        """Every argument list of a service's container."""
        return json.dumps(self._api.top(self.containers()[service]["Id"], ps_args="-eo pid,args"))

    def health(self) -> dict[str, str]:
        """Each service's state of health."""
        return {name: c["State"]["Health"]["Status"] for name, c in self.containers().items()}

    def _labelled(self, label: str) -> list[dict[str, Any]]:
        return list(self._api.containers(all=True, filters={"label": label}))


@contextmanager
def running(project: Project) -> Iterator[Daemon]:
    """The project, up and healthy; taken down afterwards, with proof that nothing is left."""
    with closing(Daemon(project)) as daemon:
        try:
            project.compose("up", "--detach", timeout_s=UP_S)
            try:
                wait_until(lambda: daemon.health() == dict.fromkeys(SERVICES, "healthy"), HEALTHY_S, "health")
            except AssertionError:
                print(daemon.health(), project.compose("logs", "--no-color", "--tail", "50").stdout)
                raise
            yield daemon
        finally:
            project.compose("down", "--volumes", "--remove-orphans", timeout_s=120)
            assert daemon.left() == []


@pytest.fixture(scope="module")
def project() -> Project:
    return Project()


@pytest.fixture(scope="module")
def daemon(project: Project) -> Iterator[Daemon]:
    with running(project) as up:
        yield up


@pytest.fixture(scope="module")
def declared() -> dict[str, Any]:
    """The file as docker-compose understands it. Asks no daemon."""
    # Debian's docker-compose brings PyYAML to Debian's Python; ours does not need it otherwise.
    done = subprocess.run(
        ["/usr/bin/python3", "-c", _YAML_TO_JSON],
        input=Project().compose("config").stdout,
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout))


# --- what the files declare: no Docker needed --------------------------------------------------------------


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_is_bounded_and_hardened(declared: dict[str, Any], service: str) -> None:
    options = declared["services"][service]
    assert options["image"].startswith("cellblock/")
    assert options["read_only"] is True
    assert options["cap_drop"] == ["ALL"]
    assert options["security_opt"] == ["no-new-privileges:true"]
    assert {"mem_limit", "pids_limit", "healthcheck", "stop_grace_period", "user"} <= options.keys()
    assert not {"privileged", "cap_add", "devices", "pid", "ipc"} & options.keys()


def test_docker_and_the_network_are_never_in_one_hand(declared: dict[str, Any]) -> None:
    services = declared["services"]
    assert set(services) == set(SERVICES)
    holders = [name for name in SERVICES if any(_SOCKET in v for v in services[name].get("volumes", []))]
    assert holders == ["launcher"]
    assert services["launcher"]["network_mode"] == "none"
    assert "networks" not in services["launcher"]
    assert "ports" not in services["launcher"]
    assert services["worker"]["user"] == f"{WORKER_UID}:{WORKER_UID}"
    allowed = services["launcher"]["environment"]["CELLBLOCK_LAUNCHER_ALLOWED_UIDS"]
    assert json.loads(allowed) == [WORKER_UID]
    assert "launcher-socket:/run/cellblock:ro" in services["worker"]["volumes"]
    assert "/sys/fs/cgroup:/sys/fs/cgroup:ro" in services["launcher"]["volumes"]


def test_only_flower_is_published_and_only_on_loopback(declared: dict[str, Any]) -> None:
    services = declared["services"]
    assert [name for name in SERVICES if "ports" in services[name]] == ["flower"]
    assert all(port.startswith("127.0.0.1:") for port in services["flower"]["ports"])
    assert declared["networks"]["backend"]["internal"] is True
    assert set(services["redis"]["networks"]) == set(services["worker"]["networks"]) == {"backend"}


@pytest.mark.parametrize("variable", ["REDIS_PASSWORD", "MONITOR_PASSWORD"])
def test_without_a_password_nothing_starts(variable: str) -> None:
    project = Project()
    project.variables[variable] = ""
    refused = project.compose("config", "--quiet", code=1)
    assert f"set {variable}" in refused.stderr


def test_redis_loses_nothing_and_its_file_holds_no_secret() -> None:
    lines = (REPOSITORY / "config" / "redis.conf").read_text().splitlines()
    options = [line.split() for line in lines if line and not line.startswith("#")]
    for option in ("appendonly yes", "appendfsync everysec", "maxmemory-policy noeviction"):
        assert option.split() in options
    assert ["protected-mode", "yes"] in options
    assert not {"requirepass", "user", "masterauth"} & {option[0] for option in options}


@pytest.mark.parametrize(
    "password", ["", "short", "sixteen chars or more", "quote'\"quote'\"quote", "a\nb" * 9]
)
def test_a_password_that_would_break_the_configuration_is_refused(password: str) -> None:
    script = REPOSITORY / "config" / "compose" / "redis.sh"
    environment = {"PATH": os.environ["PATH"], "REDISCLI_AUTH": password}
    done = subprocess.run(["bash", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "REDIS_PASSWORD must be" in done.stderr


# --- the running project -----------------------------------------------------------------------------------


@COMPOSED
def test_a_job_runs_and_flower_shows_it_without_its_code(project: Project, daemon: Daemon) -> None:
    marker = secrets.token_hex(16)
    output = hashlib.sha256(marker.encode()).hexdigest()
    result = project.run_job(f"import hashlib\nprint(hashlib.sha256(b'{marker}').hexdigest())")
    assert (result["outcome"], result["isolation"]) == ("ok", "gvisor")
    assert result["stdout"] == f"{output}\n"
    assert result["usage"]["peak_memory_bytes"] > 0  # the launcher reads the sandbox's cgroup

    job_id = result["job_id"]
    task = wait_until(lambda: _finished(project, job_id), 30, "the task in Flower's API")
    assert task["name"] == "cellblock.run"
    assert task["worker"].startswith("cellblock@")

    answers = [f"/api/task/info/{job_id}", "/api/tasks", "/api/workers?refresh=1", "/api/queues/length"]
    pages = ["/", f"/task/{job_id}", "/tasks", f"/worker/{task['worker']}", "/broker"]
    logs = project.compose("logs", "--no-color").stdout
    for text in [logs, *(_ok(project, path) for path in [*answers, "/api/task/types", *pages])]:
        assert marker not in text
        assert output not in text


@COMPOSED
def test_a_job_that_has_ended_is_in_the_archive(project: Project, daemon: Daemon) -> None:
    job_id = project.run_job("print('for the record')")["job_id"]

    def archived() -> bool:
        listed = project.compose("exec", "-T", "archiver", "cellblock", "jobs", "list", "--json").stdout
        return job_id in listed

    wait_until(archived, 30, "the job in the archive")
    mounts = {m["Destination"]: m for m in daemon.containers()["archiver"]["Mounts"]}
    assert mounts["/var/lib/cellblock"]["RW"] is True
    assert "/var/lib/cellblock" not in {m["Destination"] for m in daemon.containers()["worker"]["Mounts"]}


@COMPOSED
def test_flower_shows_nothing_without_the_password(project: Project, daemon: Daemon) -> None:
    for path in ("/", "/tasks", "/broker", "/api/tasks", "/api/workers", "/api/queues/length"):
        assert project.flower(path, password="")[0] == 401
        assert project.flower(path, password="wrong")[0] == 401
    assert project.flower("/metrics", password="")[0] == 404, "the page Flower would show to anybody"


@COMPOSED
def test_flower_controls_nothing(project: Project, daemon: Daemon) -> None:
    workers = json.loads(_ok(project, "/api/workers?refresh=1"))
    assert len(workers) == 1
    worker = next(iter(workers))
    calls = [f"worker/{verb}/{worker}" for verb in ("shutdown", "pool/restart", "pool/grow", "pool/shrink")]
    calls += [f"worker/queue/{verb}/{worker}?queue=celery" for verb in ("add-consumer", "cancel-consumer")]
    calls += [f"task/{verb}/cellblock.run" for verb in ("apply", "async-apply", "send-task", "rate-limit")]
    calls += ["task/timeout/cellblock.run", "task/revoke/some-id", "task/abort/some-id"]
    for call in calls:
        status, body = project.flower(f"/api/{call}", "POST")
        assert (status, "Read only" in body) == (403, True), call


@COMPOSED
def test_containers_have_the_rights_they_need_and_no_others(project: Project, daemon: Daemon) -> None:
    containers = daemon.containers()
    for container in containers.values():
        host = container["HostConfig"]
        assert host["ReadonlyRootfs"] is True
        assert host["CapDrop"] == ["ALL"]
        assert not host["CapAdd"]
        assert host["Privileged"] is False
        assert "no-new-privileges:true" in host["SecurityOpt"]
    mounts = {name: {m["Destination"]: m for m in c["Mounts"]} for name, c in containers.items()}
    assert [name for name in SERVICES if _SOCKET in mounts[name]] == ["launcher"]
    assert mounts["worker"]["/run/cellblock"]["RW"] is False
    assert containers["worker"]["Config"]["User"] == f"{WORKER_UID}:{WORKER_UID}"
    users = {name: containers[name]["Config"]["User"] for name in ("redis", "worker", "archiver", "flower")}
    assert len(set(users.values())) == len(users), "none reads what another was told, or writes"
    assert containers["launcher"]["HostConfig"]["NetworkMode"] == "none"
    assert list(containers["launcher"]["NetworkSettings"]["Networks"]) == ["none"]
    assert list(containers["worker"]["NetworkSettings"]["Networks"]) == [f"{project.name}_backend"]

    seen = project.compose("exec", "-T", "worker", "python3", "-c", _SEEN_FROM_INSIDE).stdout
    assert json.loads(seen) == {"uid": WORKER_UID, "capabilities": 0, "writable": [], "network": False}


_SEEN_FROM_INSIDE = """
import json, os, socket
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
def reached(address):
    try:
        socket.create_connection(address, timeout=1).close()
    except OSError:
        return False
    return True
print(json.dumps({
    "uid": os.getuid(),
    "capabilities": int(status["CapBnd"], 16) | int(status["CapPrm"], 16),
    "writable": [p for p in ("/", "/etc", "/usr", "/run", "/run/cellblock") if os.access(p, os.W_OK)],
    "network": reached(("1.1.1.1", 53)),
}))
"""


@COMPOSED
def test_another_user_is_refused_on_the_launchers_socket(project: Project, daemon: Daemon) -> None:
    health = ["python3", "/usr/local/lib/cellblock/health.py", "launcher"]
    project.compose("exec", "-T", "worker", *health)
    refused = project.compose("exec", "-T", "--user", "12345", "worker", *health, code=1)
    assert "SandboxUnavailable" in refused.stderr
    assert '"uid": 12345' in project.compose("logs", "--no-color", "launcher").stdout


@COMPOSED
def test_doctor_in_the_workers_container_judges_the_launcher_it_uses(
    project: Project, daemon: Daemon
) -> None:
    said = project.compose("exec", "-T", "worker", "cellblock", "doctor", "--json").stdout
    found = json.loads(said.splitlines()[-1])
    assert found["levels"]["standard"] in {"gvisor", "runc"}
    assert "launcher" in {check["name"] for check in found["checks"]}
    assert [check for check in found["checks"] if check["status"] == "problem"] == []


@COMPOSED
def test_redis_keeps_what_it_is_told_and_obeys_only_the_password(project: Project, daemon: Daemon) -> None:
    def redis(*command: str, auth: str = project.redis_password) -> str:
        cli = ["exec", "-T", "-e", f"REDISCLI_AUTH={auth}", "redis", "redis-cli", *command]
        return project.compose(*cli).stdout

    info = redis("info").splitlines()
    assert {"aof_enabled:1", "maxmemory_policy:noeviction"} <= set(info)
    assert redis("ping", auth="").startswith("NOAUTH")
    for command in ("config", "flushall", "replicaof", "shutdown", "module"):
        assert "unknown command" in redis(command)


@COMPOSED
def test_passwords_are_in_no_argument_list_and_no_log(project: Project, daemon: Daemon) -> None:
    places = [daemon.processes(service) for service in SERVICES]
    for container in daemon.containers().values():
        places.append(json.dumps([container["Path"], container["Args"], container["Config"]["Healthcheck"]]))
    places.append(project.compose("logs", "--no-color").stdout)
    for place in places:
        assert project.redis_password not in place
        assert project.monitor_password not in place


@COMPOSED
def test_a_killed_launcher_comes_back_and_removes_what_its_earlier_life_left(
    project: Project, daemon: Daemon
) -> None:
    left = set(wait_until(daemon.sandboxes, 30, "warm sandboxes"))
    project.compose("kill", "launcher")
    # Another container: all the two lives have in common is the owner's name and the socket's volume.
    project.compose("up", "--detach", "--no-deps", "--force-recreate", "launcher")
    wait_until(lambda: not left & set(daemon.sandboxes()), 60, "the earlier sandboxes gone")
    assert project.run_job("print(6*7)")["stdout"] == "42\n"


def _ok(project: Project, path: str) -> str:
    status, body = project.flower(path)
    assert status == 200, f"{path} answered {status}"
    return body


def _finished(project: Project, job_id: str) -> dict[str, Any] | None:
    task = json.loads(_ok(project, "/api/tasks")).get(job_id)
    return dict(task) if task and task["state"] == "SUCCESS" else None


@pytest.mark.long("starts a container")
def test_program_of_this_machine_reaches_redis_as_the_page_says(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "installation.md").read_text()
    (block,) = (text for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "6379:6379" in text)
    port = free_port()
    override = tmp_path / "docker-compose.override.yml"
    override.write_text(block.replace("6379:6379", f"{port}:6379"))
    project = Project()
    with closing(Daemon(project)) as daemon:
        try:
            project.compose("--file", str(override), "up", "--detach", "redis", timeout_s=UP_S)
            url = f"redis://:{project.redis_password}@127.0.0.1:{port}/0"
            wait_until(lambda: cellblock("status", CELLBLOCK_REDIS_URL=url).returncode == 0, 60, "its answer")
        finally:
            project.compose("down", "--volumes", "--remove-orphans", timeout_s=120)
            assert daemon.left() == []
