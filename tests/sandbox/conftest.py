"""Jobs in real sandboxes, each test on every isolation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import pytest

from cellblock.models import JobResult
from sandbox.harness import ISOLATIONS, Host, hosts


class Run(Protocol):
    """Admit, claim, run and finish one job on one isolation."""

    def __call__(self, code: str, *, isolation: str, **spec: Any) -> JobResult: ...


@pytest.fixture(scope="package")
def sandbox_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Host]]:
    """A launcher of each isolation for all tests of this folder."""
    with hosts(tmp_path_factory.mktemp) as started:
        yield started


@pytest.fixture(params=ISOLATIONS)
def isolation(request: pytest.FixtureRequest) -> str:
    """Every isolation, one after the other."""
    return str(request.param)


@pytest.fixture
def host(sandbox_hosts: dict[str, Host], isolation: str) -> Host:
    """The host of this test's isolation."""
    return sandbox_hosts[isolation]


@pytest.fixture(scope="package")
def run(sandbox_hosts: dict[str, Host]) -> Run:
    """Run a job in-process through the real runner, client and launcher."""

    def run_on(code: str, *, isolation: str, **spec: Any) -> JobResult:
        result = sandbox_hosts[isolation].run(code, **spec)
        assert result.isolation in {isolation, None}
        return result

    return run_on
