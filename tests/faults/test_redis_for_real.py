"""The Redis of production: TLS and a client certificate, a user with few rights, sentinels, a failover."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import RedisError

from cellblock import Client, JobSpec, StoreUnavailable
from cellblock_config import load_settings
from cellblock_workers.broker import create_celery
from parts import NAMESPACES, free_port, launcher_process, wait_until, worker_process

pytestmark = pytest.mark.no_rerun


@contextmanager
def server(folder: Path, *options: str, program: str = "redis-server") -> Iterator[subprocess.Popen[bytes]]:
    """A server or sentinel of this test's, with these lines as its configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "redis.conf"
    config.write_text(
        "\n".join(("bind 127.0.0.1", f"dir {folder}", 'save ""', "protected-mode no", *options))
    )
    binary = shutil.which("redis-server")
    assert binary
    extra = ["--sentinel"] if program == "redis-sentinel" else []
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen([binary, str(config), *extra], stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def fleet(folder: Path, url: str, **settings: str) -> Iterator[Client]:
    """A launcher, a worker and a client, all of which know the store by the same settings."""
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        for name, value in {"CELLBLOCK_REDIS_URL": url, **settings}.items():
            patch.setenv(name, value)
        socket, _ = stack.enter_context(launcher_process(folder, **NAMESPACES))
        stack.enter_context(worker_process(folder, url, socket, **NAMESPACES))
        yield stack.enter_context(Client())


def runs(client: Client, timeout_s: float = 30) -> bool:
    return client.submit(JobSpec(code="print(6*7)")).result(timeout_s=timeout_s).stdout == "42\n"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a server's certificate for 127.0.0.1, a client's, and another authority."""
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    for name in ("ca", "other"):
        asked = (
            f"req -x509 -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.crt -days 2 -subj /CN={name}"
        )
        openssl(*asked.split())
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1")
    for name in ("server", "client"):
        openssl(*f"req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr -subj /CN={name}".split())
        sign = f"x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -out {name}.crt"
        openssl(*f"{sign} -extfile names".split())
    return folder


def answers(client: Redis) -> bool:
    try:
        return bool(client.ping())
    except RedisError:
        return False


def test_a_job_over_tls_with_a_client_certificate_and_no_other(tmp_path: Path, certificates: Path) -> None:
    port, held = free_port(), certificates
    options = [
        f"tls-port {port}",
        "port 0",
        f"tls-cert-file {held}/server.crt",
        f"tls-key-file {held}/server.key",
        f"tls-ca-cert-file {held}/ca.crt",
        "tls-auth-clients yes",
    ]
    login = {
        "CELLBLOCK_REDIS_TLS_CA": f"{held}/ca.crt",
        "CELLBLOCK_REDIS_TLS_CERT": f"{held}/client.crt",
        "CELLBLOCK_REDIS_TLS_KEY": f"{held}/client.key",
    }
    url = f"rediss://127.0.0.1:{port}/0"
    with server(tmp_path / "redis", *options), fleet(tmp_path / "host", url, **login) as client:
        assert runs(client)
        wrong: list[dict[str, Any]] = [
            {"tls_ca": held / "other.crt", "tls_cert": held / "client.crt", "tls_key": held / "client.key"},
            {"tls_ca": held / "ca.crt", "tls_cert": None, "tls_key": None},
        ]
        for settings in wrong:
            with pytest.MonkeyPatch.context() as patch:
                for name in login:
                    patch.delenv(name)
                loaded = load_settings(redis={"url": url, **settings})
            with Client(settings=loaded) as other, pytest.raises(StoreUnavailable):
                other.submit(JobSpec(code="1"))


def test_a_user_with_the_rights_of_the_documentation_is_enough(tmp_path: Path) -> None:
    """docs/fleet.md names these rights; this is the proof that they do."""
    port = free_port()
    rights = "~{cellblock}* &* +@all -@admin -@dangerous +info"
    acl = f"user cellblock on >sentinel-pw {rights}"
    url = f"redis://cellblock:sentinel-pw@127.0.0.1:{port}/0"
    with (
        server(tmp_path / "redis", f"port {port}", "user default off", acl),
        fleet(tmp_path / "host", url) as client,
    ):
        assert runs(client)
        assert client.events(group="readers")
        wrong = load_settings(redis={"url": url.replace("sentinel-pw", "another")})
        with (
            Client(settings=wrong) as other,
            pytest.raises(StoreUnavailable, match=r"login.*CELLBLOCK_REDIS_URL"),
        ):
            other.status("job")
        assert "sentinel-pw" not in (tmp_path / "host" / "worker.log").read_text()


@pytest.mark.long("three sentinels agree on another store")
def test_a_failover_of_the_sentinels_costs_seconds_and_no_job(tmp_path: Path) -> None:
    first, second = free_port(), free_port()
    sentinel_ports = [free_port() for _ in range(3)]
    watch = [
        f"sentinel monitor fleet 127.0.0.1 {first} 2",
        "sentinel down-after-milliseconds fleet 1000",
        "sentinel failover-timeout fleet 5000",
    ]
    hosts = ",".join(f"127.0.0.1:{port}" for port in sentinel_ports)
    url = f"redis+sentinel://{hosts}/0?service=fleet"
    with ExitStack() as stack:
        quickly = "repl-diskless-sync-delay 0"
        master = stack.enter_context(server(tmp_path / "1", f"port {first}", "appendonly yes", quickly))
        stack.enter_context(
            server(tmp_path / "2", f"port {second}", "appendonly yes", f"replicaof 127.0.0.1 {first}")
        )
        _until_copied(first)  # a sentinel that comes too early looks for replicas again 10 s later
        for number, port in enumerate(sentinel_ports):
            stack.enter_context(
                server(tmp_path / f"s{number}", f"port {port}", *watch, program="redis-sentinel")
            )
        for port in sentinel_ports:  # any of them may lead the failover
            _until_watched(port)
        client = stack.enter_context(fleet(tmp_path / "host", url))
        assert runs(client)
        waiting = client.submit(JobSpec(code="import time; time.sleep(1); print('through')"))
        with closing(Redis(port=first)) as before:
            before.wait(1, 2000)  # the replica has it: what it has not, a failover may forget
        master.kill()
        master.wait()
        assert waiting.result(timeout_s=50).stdout == "through\n"
        assert _eventually_runs(client)


def test_worker_tells_flower_no_password_of_redis_or_sentinels(tmp_path: Path) -> None:
    port, sentinel_port = free_port(), free_port()
    watch = (
        f"sentinel monitor fleet 127.0.0.1 {port} 1",
        "sentinel auth-pass fleet redis-secret",
        "requirepass sentinel-secret",
    )
    url = (
        f"redis+sentinel://:redis-secret@127.0.0.1:{sentinel_port},127.0.0.1:{sentinel_port}/0?service=fleet"
    )
    with ExitStack() as stack:
        login = ("requirepass redis-secret", "masterauth redis-secret")
        stack.enter_context(server(tmp_path / "redis", f"port {port}", *login))
        wait_until(lambda: _answers(port, "redis-secret"), 10, "redis")
        sentinel = server(tmp_path / "s", f"port {sentinel_port}", *watch, program="redis-sentinel")
        stack.enter_context(sentinel)
        wait_until(lambda: _answers(sentinel_port, "sentinel-secret"), 10, "the sentinel")
        secret = {"CELLBLOCK_REDIS_SENTINEL_PASSWORD": "sentinel-secret"}
        client = stack.enter_context(fleet(tmp_path / "host", url, **secret))
        assert runs(client)
        app = create_celery(load_settings())
        stack.callback(app.close)
        (stats,) = app.control.inspect(timeout=5).stats().values()
        assert stats["broker"]["transport"] == "sentinel"
        assert stats["pool"]["max-concurrency"], "Flower's page of a worker"
        assert "secret" not in str(stats)


def _answers(port: int, password: str) -> bool:
    with closing(Redis(port=port, password=password)) as redis:
        try:
            return bool(redis.ping())
        except RedisError:
            return False


def _until_copied(port: int) -> None:
    """Until a server has a replica that holds what it holds."""
    with closing(Redis(port=port, decode_responses=True)) as master:

        def is_copied() -> bool:
            try:
                state: Any = master.info("replication")
            except RedisError:
                return False
            return bool(state["connected_slaves"]) and state["slave0"]["state"] == "online"

        wait_until(is_copied, 30, "the replica")


def _until_watched(port: int) -> None:
    """Until a sentinel knows the replica and the other sentinels: before that it fails over to nothing."""
    with closing(Redis(port=port, decode_responses=True)) as sentinel:

        def knows() -> bool:
            try:
                state: Any = sentinel.sentinel_master("fleet")
            except RedisError:
                return False
            return bool(state["num-slaves"] >= 1 and state["num-other-sentinels"] >= 2)

        wait_until(knows, 30, "the sentinels knowing each other")


def _eventually_runs(client: Client) -> bool:
    def attempt() -> bool:
        try:
            return runs(client)
        except StoreUnavailable:
            return False

    return bool(wait_until(attempt, 40, "a job after the failover"))
