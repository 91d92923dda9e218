"""Launchers under attack, and what sandboxes leave behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest

from attacks.running import Attacked, abstract_socket, listening
from attacks.traces import Traces
from sandbox.harness import Host
from sandbox.peer import docker_api

TracesOf = Callable[[str], Traces]
AttackedOf = Callable[[str], Attacked]


@pytest.fixture(scope="package")
def traces(sandbox_hosts: dict[str, Host]) -> Iterator[TracesOf]:
    """The launcher of each way, with a note of every sandbox it lends from now on."""
    with docker_api() as api, ExitStack() as stack:

        @cache
        def of(way: str) -> Traces:
            traces = Traces(sandbox_hosts[way], api)
            stack.enter_context(traces.followed())
            return traces

        yield of


@pytest.fixture(scope="package")
def attacked(request: pytest.FixtureRequest, traces: TracesOf) -> Iterator[AttackedOf]:
    """The attacks of each way. All chosen ones begin when a test first asks for one."""
    with abstract_socket() as name, listening(), ExitStack() as stack:

        @cache
        def of(way: str) -> Attacked:
            cases = [getattr(item, "callspec", None) for item in request.session.items]
            chosen = [case.params for case in cases if case and case.params.get("way") == way]
            attacks = [params["attack"] for params in chosen if "attack" in params]
            attacked = Attacked(traces(way).host, attacks, name)
            stack.callback(attacked.close)
            return attacked

        yield of
