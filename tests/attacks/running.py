"""Runs the attacks of one way, several at once; each is alone in its sandbox, and judged alone."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from attacks.table import Attack
from cellblock import Outcome
from cellblock.contract.results import JobResult
from cellblock_workers.worker.session import Session
from parts import wait_until
from sandbox.harness import MIB, Host

_AT_ONCE = 2
#: By the id of a neighbour: set once it has said that its plant is there.
_planted: dict[str, threading.Event] = {}


def _plant_of(job_id: str) -> threading.Event:
    return _planted.setdefault(job_id, threading.Event())


@dataclass(frozen=True)
class Ended:
    """What came of an attack. ``planted``: what the jobs before and beside it printed."""

    result: JobResult
    planted: str


class _ListeningSession(Session):
    """The real session of a job. Tells when the job has printed that its plant is there."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        feed, said = self._stdout.feed, _plant_of(self._lease.claim.job_id)

        def heard(chunk: bytes) -> None:
            feed(chunk)
            if b"PLANTED" in chunk:
                said.set()

        self._stdout.feed = heard  # type: ignore[method-assign]


class Attacked:
    """One way under attack. Attacks that measure processor time run by themselves, after the others."""

    def __init__(self, host: Host, attacks: Sequence[Attack], abstract_name: str) -> None:
        self._host = host
        self._abstract_name = abstract_name
        self._pool = ThreadPoolExecutor(_AT_ONCE)
        self._begun: dict[tuple[str, str], Future[Ended]] = {
            (attack.group, attack.name): self._pool.submit(self._run_aside, attack)
            for attack in attacks
            if not attack.runs_alone
        }

    def result_of(self, attack: Attack) -> Ended:
        """Wait for the end of one attack."""
        if attack.runs_alone:
            wait(self._begun.values())
            return self._run(attack)
        return self._begun[attack.group, attack.name].result()

    def close(self) -> None:
        """Begin no other attack, and wait for those that run."""
        self._pool.shutdown(cancel_futures=True)

    def _run_aside(self, attack: Attack) -> Ended:
        try:
            return self._run(attack)
        finally:
            self._host.launcher.close()  # this thread's connection

    def _run(self, attack: Attack) -> Ended:
        planted = ""
        if attack.before:
            before = self._host.run(attack.before, image=attack.image, limits=attack.limits)
            assert (before.outcome, "PLANTED" in before.stdout) == (Outcome.OK, True), everything_of(before)
            planted = before.stdout
        if not attack.beside:
            return Ended(self._attack(attack), planted)
        neighbours: list[JobResult] = []
        with self._beside(attack, neighbours):
            result = self._attack(attack)
        for neighbour in neighbours:  # still there, and ended by nobody but us
            assert neighbour.outcome is Outcome.CANCELLED, everything_of(neighbour)
            planted += neighbour.stdout
        return Ended(result, planted)

    def _attack(self, attack: Attack) -> JobResult:
        return self._host.run(
            attack.code,
            args=(self._abstract_name,),
            image=attack.image,
            limits=attack.limits,
            artifacts=attack.artifacts,
        )

    @contextmanager
    def _beside(self, attack: Attack, ended: list[JobResult]) -> Iterator[None]:
        """Run the attack's neighbour until the block is over; how it ended goes into ``ended``."""
        host, limits = self._host, {"timeout_s": 60, "memory_bytes": 1024 * MIB}
        with host.running(attack.beside, image=attack.image, limits=limits) as (job_id, wait_for_end):
            try:
                wait_until(_plant_of(job_id).is_set, 30, "the neighbour's plant")
                yield
            finally:
                host.ledger.cancel(job_id)
                host.heart.beat()
                ended.append(wait_for_end())


@contextmanager
def listening() -> Iterator[None]:
    """Neighbours are heard while the block runs."""
    with patch("cellblock_workers.worker.execution.Session", _ListeningSession):
        yield


@contextmanager
def abstract_socket() -> Iterator[str]:
    """The name of an abstract socket this process listens on, for the jobs not to find."""
    name = f"cellblock-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind("\0" + name)
        listener.listen()
        yield name


def everything_of(result: JobResult) -> str:
    """All that a result says."""
    error = f"{result.error.type} {result.error.message}" if result.error else ""
    files = [file.data.decode("utf-8", "replace") for file in result.artifacts]
    return "\n".join([result.stdout, result.stderr, error, *files])
