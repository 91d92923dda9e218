"""Jobs in real sandboxes, each test in every way of making one."""

from __future__ import annotations

from typing import Any, Protocol

import pytest

from cellblock.contract.results import JobResult
from sandbox.harness import Host
from suite.ways import EVERY_WAY, WAYS


class Run(Protocol):
    """Admit, claim, run and finish one job in one way."""

    def __call__(self, code: str | None, *, way: str, **spec: Any) -> JobResult: ...


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    """Every way of making a sandbox, one after the other."""
    return str(request.param)


@pytest.fixture(params=["gvisor-oci", "namespaces"])
def kernel_way(request: pytest.FixtureRequest) -> str:
    """One on gVisor's kernel and one on the host's, for what only the guest decides."""
    return str(request.param)


@pytest.fixture(params=["namespaces", "gvisor-oci", "runc-docker"])
def evaluation_way(request: pytest.FixtureRequest) -> str:
    """In series, one by one without a daemon, and one by one with it."""
    return str(request.param)


@pytest.fixture(params=EVERY_WAY)
def any_way(request: pytest.FixtureRequest) -> str:
    """The same, and the two that isolate nothing."""
    return str(request.param)


@pytest.fixture(params=[*WAYS, "process"])
def bounded_way(request: pytest.FixtureRequest) -> str:
    """Those that bound memory and processes."""
    return str(request.param)


@pytest.fixture
def host(sandbox_hosts: dict[str, Host], way: str) -> Host:
    """The host of this test's way."""
    return sandbox_hosts[way]


@pytest.fixture(scope="session")
def run(sandbox_hosts: dict[str, Host]) -> Run:
    """Run a job in-process through the real runner, client and launcher."""

    def run_on(code: str | None, *, way: str, **spec: Any) -> JobResult:
        result = sandbox_hosts[way].run(code, **spec)
        assert result.isolation in {EVERY_WAY[way][0], None}
        return result

    return run_on
