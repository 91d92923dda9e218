"""Fixtures: real parts, private to the test run, stopped by pid."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import hypothesis
import pytest
from redis import Redis

from cellblock import Client
from cellblock.ledger import Ledger, connect
from cellblock_config import Settings, load_settings
from cellblock_workers.archiver import Archiver
from cellblock_workers.launcher.client import LauncherClient
from faults.postgres import Postgres
from parts import NAMESPACES, RedisServer, launcher_process, wait_until
from sandbox.harness import Host, hosts


def pytest_configure() -> None:
    """Take interrupts, as what tests start then does: a run in the background begins by ignoring them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    # How long an example takes says more of the machine than of the code.
    hypothesis.settings.register_profile(
        "unhurried", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
    hypothesis.settings.load_profile("unhurried")


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test reads the developer's settings."""
    for name in list(os.environ):
        if name.startswith("CELLBLOCK_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One server for all cases of this process."""
    server = RedisServer(tmp_path_factory.mktemp("redis"), fsync="everysec")  # no test kills this one
    server.start()
    yield server
    server.stop()


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """The address of an empty Redis."""
    with closing(Redis.from_url(redis_server.url)) as redis:
        redis.flushall()
    return redis_server.url


@pytest.fixture(scope="module")
def module_redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Redis that nobody empties, for a worker that serves all cases of a module."""
    server = RedisServer(tmp_path_factory.mktemp("redis"), fsync="everysec")
    server.start()
    yield server.url
    server.stop()


@pytest.fixture
def settings(redis_url: str) -> Settings:
    """Default settings on the tests' Redis."""
    return load_settings(redis={"url": redis_url})


@pytest.fixture
def ledger(settings: Settings) -> Iterator[Ledger]:
    """A ledger on an empty Redis."""
    redis = connect(settings)
    yield Ledger(redis, settings)
    redis.close()


@pytest.fixture
def client(settings: Settings) -> Iterator[Client]:
    """A client under these settings, which a module may replace."""
    with Client(settings=settings) as opened:
        yield opened


@pytest.fixture
def redis(settings: Settings) -> Iterator[Redis]:
    """The store under these settings, to look into and to inject faults."""
    with connect(settings) as opened:
        yield opened


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis that the test may stop and start; its files are in ``tmp_path``."""
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A PostgreSQL for all cases of a module."""
    server = Postgres(tmp_path_factory.mktemp("postgres"))
    server.create()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def archiver(settings: Settings) -> Iterator[Archiver]:
    """An archiver under these settings; its database is made."""
    opened = Archiver(settings)
    opened.prepare()
    yield opened
    opened.archive.close()


@pytest.fixture(scope="session")
def launcher_socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A launcher for all cases of this process, past its first probe, of the quickest isolation."""
    with launcher_process(tmp_path_factory.mktemp("launcher"), **NAMESPACES) as (path, _):
        client = LauncherClient(path, timeout_s=60)
        wait_until(lambda: client.probe().isolations, 60, "an isolation passing its probe")
        client.close()
        yield path


@pytest.fixture(scope="session")
def sandbox_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Host]]:
    """A launcher of each way for all cases of this process, started when the first one asks for it."""
    with hosts(tmp_path_factory.mktemp) as started:
        yield started
