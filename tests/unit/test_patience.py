"""How long things may take, and what is said when Redis does not answer at all."""

from __future__ import annotations

import socket
import sys
import time
from subprocess import PIPE, Popen
from types import SimpleNamespace
from typing import Any, cast

import pytest
from redis.exceptions import AuthenticationError, ConnectionError, RedisError
from redis.sentinel import MasterNotFoundError

from cellblock import StoreUnavailable
from cellblock.admission.policy.deadline import Deadline
from cellblock.ledger import Transition
from cellblock.ledger.connection import store_errors
from cellblock.ledger.replies import FinishWord
from cellblock_workers import supervisor
from cellblock_workers.supervisor import Service, Supervisor
from cellblock_workers.worker import runner
from cellblock_workers.worker.runner import JobRunner


@pytest.mark.parametrize(("away_s", "heard"), [(0.6, True), (60, False)])
def test_an_attempt_tells_its_end_for_longer_than_its_lease(
    monkeypatch: pytest.MonkeyPatch, away_s: float, heard: bool
) -> None:
    """Injected: a store that is away for a while, and a lease of half a second."""
    monkeypatch.setattr(runner, "_SAY_AGAIN_S", (0.05,))
    monkeypatch.setattr(runner, "_SAY_BEYOND_S", 0.4)
    worker = cast(Any, SimpleNamespace(_settings=SimpleNamespace(ledger=SimpleNamespace(lease_s=0.5))))
    back = time.monotonic() + away_s

    def say() -> Transition[FinishWord]:
        if time.monotonic() < back:
            raise StoreUnavailable("away")
        return Transition("job", FinishWord.FINISHED)

    if heard:
        assert JobRunner._patiently(worker, say, "job").word == "finished"
    else:
        with pytest.raises(StoreUnavailable):
            JobRunner._patiently(worker, say, "job")


@pytest.mark.parametrize("event", ["connection.connect_tcp.complete", "connection.start_tls.complete"])
def test_a_connection_that_comes_after_the_deadline_is_cut(event: str) -> None:
    ours, theirs = socket.socketpair()
    deadline = Deadline(0.01)
    with ours, theirs, deadline:
        time.sleep(0.1)
        deadline.on_event(event, {"return_value": SimpleNamespace(get_extra_info=lambda name: ours)})
        theirs.settimeout(2)
        assert theirs.recv(1) == b"", "the other end sees it closed"


@pytest.mark.parametrize(
    ("service", "long"),
    [
        (Service("deaf", ()), False),
        (Service("deaf", (), patient=True), True),
        (Service("deaf", (), stop_s=1.7), True),
    ],
)
def test_a_service_may_take_the_time_it_needs_to_end(
    monkeypatch: pytest.MonkeyPatch, service: Service, long: bool
) -> None:
    monkeypatch.setattr(supervisor, "_STOP_S", 0.3)
    monkeypatch.setattr(supervisor, "_STOP_PATIENT_S", 2.0)
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
    with Popen([sys.executable, "-c", deaf], stdout=PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        began = time.monotonic()
        Supervisor([])._end(service, process)
        assert (time.monotonic() - began > 1.5) is long
    assert process.returncode == -9


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (AuthenticationError("invalid username-password pair"), "refused the login .* CELLBLOCK_REDIS_URL"),
        (ConnectionError("HELLO must be called with the client"), "refused the login .* CELLBLOCK_REDIS_URL"),
        (MasterNotFoundError("<redis.client.Redis(...)>"), "no sentinel named a master .*SENTINEL_PASSWORD"),
        (ConnectionError("[SSL: CERTIFICATE_VERIFY_FAILED]"), "cannot be reached .*CELLBLOCK_REDIS_TLS_CA"),
        (ConnectionError("Error 111 connecting"), "cannot be reached .*Error 111.*CELLBLOCK_REDIS_URL"),
    ],
)
def test_each_way_not_to_reach_redis_has_its_remedy(error: RedisError, says: str) -> None:
    with pytest.raises(StoreUnavailable, match=says) as raised, store_errors("asking"):
        raise error
    assert "redis.client" not in str(raised.value)
