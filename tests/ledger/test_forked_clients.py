"""A client that was used before a fork works in the child too, and goes on in the parent."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from cellblock import AsyncClient, Client, JobResult, JobSpec, ResultTimeout
from cellblock.errors import BlobsUnavailable
from cellblock.ledger import Ledger, connect
from cellblock_config import Settings, load_settings
from cellblock_workers.archiver import Archiver
from ledger.kit import claim, finish
from parts import wait_until

pytestmark = pytest.mark.no_rerun

SPEC = JobSpec(code="pass")
#: A child that hangs is killed: it must not hold up the tests.
CHILD_S = 20


class Child:
    """A fork of this process that runs ``work`` and ends; its answer comes through a pipe."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._read, write = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(write)
            return
        try:
            answer: object = work()
        except BaseException as error:
            answer = repr(error)
        with os.fdopen(write, "wb") as pipe:
            pickle.dump(answer, pipe)
        os._exit(0)

    def answer(self) -> object:
        """What ``work`` returned, or the text of what it raised; None from a child that hung."""
        with os.fdopen(self._read, "rb") as pipe:
            hangs = not select.select([pipe], [], [], CHILD_S)[0]
            if hangs:
                os.kill(self.pid, signal.SIGKILL)
            sent = b"" if hangs else pipe.read()
        os.waitpid(self.pid, 0)
        return pickle.loads(sent) if sent else None


def ended(client: Client, ledger: Ledger) -> JobResult:
    """The result of a job that runs now."""
    job = client.submit(SPEC)
    finish(ledger, claim(ledger, job.id))
    return job.result(timeout_s=10)


def waits_for(client: Client, job_id: str) -> Callable[[], object]:
    return lambda: client.result(job_id, timeout_s=CHILD_S / 2).outcome


def test_client_that_waited_before_a_fork_hears_of_results_in_the_child(
    client: Client, ledger: Ledger
) -> None:
    ended(client, ledger)
    job = client.submit(SPEC)
    child = Child(waits_for(client, job.id))
    finish(ledger, claim(ledger, job.id))
    assert child.answer() == "ok"
    assert job.result(timeout_s=10).ok
    assert ended(client, ledger).ok, "the parent goes on"


def test_child_of_a_fork_submits_waits_and_closes_without_harm_to_the_parent(
    client: Client, ledger: Ledger
) -> None:
    ended(client, ledger)
    waited = client.submit(SPEC)
    future = client.result_future(waited.id)

    def work() -> object:
        with client:
            return client.submit(SPEC).id

    job_id = str(Child(work).answer())
    finish(ledger, claim(ledger, waited.id))
    finish(ledger, claim(ledger, job_id))
    assert future.result(timeout=10).ok
    assert client.result(job_id, timeout_s=10).ok


def test_client_works_in_a_process_of_multiprocessing(client: Client, ledger: Ledger) -> None:
    ended(client, ledger)
    context = multiprocessing.get_context("fork")
    job, answers = client.submit(SPEC), context.SimpleQueue()
    process = context.Process(
        target=lambda: answers.put(client.result(job.id, timeout_s=CHILD_S / 2).outcome)
    )
    process.start()
    finish(ledger, claim(ledger, job.id))
    process.join(CHILD_S)
    try:
        assert process.exitcode == 0
        assert answers.get() == "ok"
    finally:
        process.kill()


@contextmanager
def held(lock: AbstractContextManager[object]) -> Iterator[None]:
    """Injected: another thread is within this lock, as at an unlucky moment of a fork."""
    within, over = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            within.set()
            over.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    within.wait(10)
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("place", ["waiter", "pool", "subscription", "future", "registry"])
def test_lock_that_another_thread_holds_at_the_fork_does_not_hang_the_child(
    client: Client, ledger: Ledger, place: str
) -> None:
    ended(client, ledger)
    job = client.submit(SPEC)
    future = client.result_future(job.id)
    waiter = client._connections.waiter
    assert waiter._pubsub is not None
    lock: AbstractContextManager[object] = {
        "waiter": waiter._lock,
        "pool": client._redis.connection_pool._lock,
        "subscription": waiter._pubsub._lock,
        "future": future._condition,
        "registry": client._live._lock,
    }[place]  # type: ignore[assignment]

    def work() -> object:
        with pytest.raises(ResultTimeout, match="forked"):
            future.result(timeout=1)
        outcome = client.result(job.id, timeout_s=CHILD_S / 2).outcome
        client.close()
        return outcome

    with held(lock):
        child = Child(work)
    finish(ledger, claim(ledger, job.id))
    assert child.answer() == "ok"
    assert future.result(timeout=10).ok


def test_thread_that_waits_at_the_fork_goes_on_waiting_and_the_child_ends_at_once(
    client: Client, ledger: Ledger, settings: Settings
) -> None:
    job, heard = client.submit(SPEC), list[JobResult]()
    thread = threading.Thread(target=lambda: heard.append(job.result(timeout_s=30)))
    thread.start()
    with connect(settings) as redis:
        wait_until(lambda: redis.pubsub_numsub(ledger.keys.done(job.id))[0][1], what="a subscription")
    assert Child(lambda: client.status(job.id).state).answer() == "queued"
    finish(ledger, claim(ledger, job.id))
    thread.join(10)
    assert [result.ok for result in heard] == [True]


def test_wait_from_before_the_fork_says_in_the_child_what_to_do(client: Client, ledger: Ledger) -> None:
    job = client.submit(SPEC)
    future: Future[JobResult] = client.result_future(job.id)
    told: list[object] = []
    future.add_done_callback(told.append)

    def work() -> object:
        with pytest.raises(ResultTimeout, match=rf"client.result_future\('{job.id}'\)"):
            future.result(timeout=5)
        return len(told)

    assert Child(work).answer() == 0, "callbacks are the parent's"
    finish(ledger, claim(ledger, job.id))
    assert future.result(timeout=10).ok


def test_async_client_works_in_a_loop_of_the_child(settings: Settings, ledger: Ledger) -> None:
    client = AsyncClient(settings=settings)

    async def submitted() -> str:
        job = await client.submit(SPEC)
        finish(ledger, claim(ledger, job.id))
        assert (await job.result(timeout_s=10)).ok
        return (await client.submit(SPEC)).id

    job_id = asyncio.run(submitted())

    async def waits() -> object:
        return (await client.result(job_id, timeout_s=CHILD_S / 2)).outcome

    child = Child(lambda: asyncio.run(waits()))
    finish(ledger, claim(ledger, job_id))
    assert child.answer() == "ok"
    assert asyncio.run(waits()) == "ok"
    asyncio.run(client.close())


def test_blob_store_used_before_a_fork_says_in_the_child_what_to_do(redis_url: str, tmp_path: Path) -> None:
    settings = load_settings(
        redis={"url": redis_url}, blobs={"url": f"file://{tmp_path}/blobs", "least_bytes": 1024}
    )
    long = JobSpec(code="pass", stdin=b"x" * 4096)
    with Client(settings=settings) as client:
        client.submit(long)

        def work() -> object:
            client.submit(SPEC)  # without the blob store
            with pytest.raises(BlobsUnavailable, match=r"forked.*spawn"):
                client.submit(long)
            return "refused"

        assert Child(work).answer() == "refused"
        client.submit(long)


def test_blob_store_not_used_before_a_fork_works_in_the_child(redis_url: str, tmp_path: Path) -> None:
    program = (
        "import os, sys\n"
        "from cellblock import Client, JobSpec\n"
        "client = Client()\n"
        "if (pid := os.fork()) == 0:\n"
        "    client.submit(JobSpec(code='pass', stdin=b'x' * 4096))\n"
        "    os._exit(0)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    variables = {
        "CELLBLOCK_REDIS_URL": redis_url,
        "CELLBLOCK_BLOBS_URL": f"file://{tmp_path}/blobs",
        "CELLBLOCK_BLOBS_LEAST_BYTES": "1024",
    }
    environment = {**os.environ, **variables}
    done = subprocess.run([sys.executable, "-c", program], env=environment, timeout=CHILD_S, check=False)
    assert done.returncode == 0
    assert [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_archive_is_read_on_both_sides_of_a_fork(
    request: pytest.FixtureRequest, redis_url: str, tmp_path: Path, kind: str
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db" if kind == "sqlite" else request.getfixturevalue("postgres").url
    settings = load_settings(redis={"url": redis_url}, archive={"url": url})
    archiver = Archiver(settings)
    archiver.prepare()
    archiver.archive.close()

    with Client(settings=settings) as client:

        def listed() -> object:
            return [client.jobs().jobs for _ in range(3)]

        assert listed() == [[]] * 3
        for _ in range(2):
            assert Child(listed).answer() == [[]] * 3
            assert listed() == [[]] * 3
