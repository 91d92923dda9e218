"""Launchers with room for test suites, one of each way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from compat.inside import compat_host
from sandbox.harness import Host

HostOf = Callable[[str], Host]


@pytest.fixture(scope="session")
def compat_host_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostOf]:
    """The host of a way, started when the first case asks for it."""
    started: dict[str, Host] = {}
    with ExitStack() as stack:

        def host_of(way: str) -> Host:
            if way not in started:
                folder = tmp_path_factory.mktemp("compat")
                started[way] = stack.enter_context(compat_host(folder, way))
            return started[way]

        yield host_of
