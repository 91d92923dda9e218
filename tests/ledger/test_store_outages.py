"""Redis out of reach or refusing: StoreUnavailable soon, nothing half-written, and then it goes on."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from redis import Redis

from cellblock import AcceptanceUnknown, Client, JobSpec, SchemaMismatch, StoreFull, StoreUnavailable
from cellblock.ledger import Ledger, connect
from cellblock.ledger.groups import EventGroups
from cellblock.ledger.replies import AdmitReply
from cellblock.ledger.server import check_schema
from cellblock_config import Settings, load_settings
from ledger.kit import admit, claim, dump, events_of, finish, manifest, once
from parts import RedisServer, free_port, wait_until

pytestmark = pytest.mark.no_rerun

PASSWORD = "hunter2-and-more"
SPEC = JobSpec(code="pass", idempotency_key="once")

CALLS: dict[str, Callable[[Client], object]] = {
    "submit": lambda client: client.submit(SPEC),
    "status": lambda client: client.status("job"),
    "cancel": lambda client: client.cancel("job"),
    "result": lambda client: client.result("job", timeout_s=30),
    "events": lambda client: client.events(),
    "map": lambda client: list(client.map([SPEC])),
}


OTHER_READERS: dict[str, Callable[[Client], object]] = {
    "counts": lambda client: client.counts(),
    "usage": lambda client: client.usage(),
    "dead": lambda client: client.dead(),
    "dead_ids": lambda client: client.dead_ids(),
    "dead_letter": lambda client: client.dead_letter("job"),
    "retry_dead": lambda client: client.retry_dead("job"),
    "drop_dead": lambda client: client.drop_dead("job"),
    "group": lambda client: client.events(group="billing"),
    "acknowledge": lambda client: client.acknowledge("billing", []),
    "rewind": lambda client: client.rewind("billing"),
    "forget_group": lambda client: client.forget_group("billing"),
    "estimate": lambda client: client.estimate(SPEC),
    "submit with a key": lambda client: client.submit(SPEC, api_key="no key"),
    "governance": lambda client: client.governance.audit(),
    "api_keys": lambda client: client.api_keys.list(),
}


@pytest.mark.parametrize("call", [*CALLS, *OTHER_READERS])
def test_every_call_on_a_store_of_another_schema_says_so(settings: Settings, redis: Redis, call: str) -> None:
    redis.set("{cellblock}:schema", "4")
    before = dump(redis)
    with Client(settings=settings) as client, pytest.raises(SchemaMismatch, match="holds schema 4"):
        {**CALLS, **OTHER_READERS}[call](client)
    assert dump(redis) == before


def impatient(url: str) -> Settings:
    return load_settings(redis={"url": url, "socket_timeout_s": 0.3, "connect_timeout_s": 0.3})


@pytest.mark.parametrize("call", CALLS)
def test_every_call_on_a_closed_port_is_store_unavailable_within_five_seconds(call: str) -> None:
    with Client(f"redis://:{PASSWORD}@127.0.0.1:{free_port()}/0") as client:
        started = time.monotonic()
        with pytest.raises(StoreUnavailable) as caught:
            CALLS[call](client)
        assert time.monotonic() - started < 5
    assert PASSWORD not in str(caught.value)


def test_a_wrong_password_is_store_unavailable_and_is_not_repeated(own_redis: RedisServer) -> None:
    with Redis.from_url(own_redis.url) as redis:
        redis.config_set("requirepass", "another")
    url = f"redis://:{PASSWORD}@127.0.0.1:{own_redis.port}/0"
    with Client(url) as client, pytest.raises(StoreUnavailable) as caught:
        client.submit(SPEC)
    assert PASSWORD not in str(caught.value)


def test_a_client_made_during_an_outage_works_once_it_is_over(own_redis: RedisServer) -> None:
    own_redis.stop()
    with Client(own_redis.url) as client:
        for call in CALLS.values():
            with pytest.raises(StoreUnavailable):
                call(client)
        own_redis.start()
        job = client.submit(SPEC)
        redis = connect(load_settings(redis={"url": own_redis.url}))
        ledger = Ledger(redis, load_settings())
        finish(ledger, claim(ledger, job.id))
        assert job.result(timeout_s=10).ok
        redis.close()


def test_a_wait_goes_on_after_an_outage(own_redis: RedisServer) -> None:
    """The subscription dies with the server; the next one hears of the end."""
    with Client(own_redis.url) as client:
        job = client.submit(SPEC)
        future = client.result_future(job.id)
        wait_until(lambda: _subscribers(own_redis, job.id), what="the subscription")
        own_redis.stop()
        own_redis.start()  # appendfsync always: what was acknowledged is still there
        settings = load_settings(redis={"url": own_redis.url})
        redis = connect(settings)
        ledger = Ledger(redis, settings)
        finish(ledger, claim(ledger, job.id))
        redis.close()
        assert future.result(timeout=15).ok


def _subscribers(server: RedisServer, job_id: str) -> int:
    with Redis.from_url(server.url, decode_responses=True) as redis:
        return int(redis.pubsub_numsub(f"{{cellblock}}:done:{job_id}")[0][1])


def test_a_submission_cut_off_in_the_middle_is_there_whole_or_not_at_all(own_redis: RedisServer) -> None:
    """The server is stopped by SIGSTOP: the call has been sent, and no answer comes."""
    process = own_redis.process
    assert process is not None
    with Client(settings=impatient(own_redis.url)) as client:
        client.events()  # connected
        os.kill(process.pid, signal.SIGSTOP)
        try:
            with pytest.raises(StoreUnavailable):
                client.submit(SPEC)
        finally:
            os.kill(process.pid, signal.SIGCONT)
        job = client.submit(SPEC)
        assert client.submit(SPEC).id == job.id
        redis = connect(load_settings(redis={"url": own_redis.url}))
        ledger = Ledger(redis, load_settings())
        jobs = [str(key).rpartition(":")[2] for key in redis.keys(ledger.keys.job("*"))]
        assert jobs == [job.id], "the retried call did not submit twice"
        assert redis.exists(ledger.keys.spec(job.id)) == 1
        assert redis.zrange(ledger.keys.ready("default"), 0, -1) == [job.id]
        assert [event.type for event in events_of(ledger, job.id)] == ["agent.run.queued"]
        redis.close()


@contextmanager
def stopped(server: RedisServer) -> Iterator[Callable[[], None]]:
    """A server that answers nothing until the block ends, or until it is told to go on."""
    process = server.process
    assert process is not None

    def go_on() -> None:
        os.kill(process.pid, signal.SIGCONT)

    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield go_on
    finally:
        go_on()


@pytest.mark.parametrize("key", [None, "order-7"])
def test_submission_without_an_answer_names_the_job_that_might_have_been_accepted(
    own_redis: RedisServer, key: str | None
) -> None:
    with Client(settings=impatient(own_redis.url)) as client:
        client.submit(JobSpec(code="first"))
        with stopped(own_redis), pytest.raises(AcceptanceUnknown) as caught:
            client._ledger.admissions.admit("0" * 32, manifest(), once() if key else None)
        told = str(caught.value)
        assert f"job {'0' * 32} might have been accepted" in told
        assert ("submit it again" in told) is (key is not None)
        assert wait_until(lambda: client.status(caught.value.job_id)).state == "queued"
        assert client.cancel(caught.value.job_id) == "cancelled"


@pytest.mark.parametrize("key", [None, "order-7"])
def test_submission_goes_through_a_short_outage_and_is_accepted_once(
    own_redis: RedisServer, key: str | None
) -> None:
    with Client(settings=impatient(own_redis.url)) as client:
        client.submit(JobSpec(code="first"))
        with stopped(own_redis) as go_on:
            timer = threading.Timer(0.8, go_on)
            timer.start()
            job = client.submit(JobSpec(code="pass", idempotency_key=key))
            timer.join()
        assert job.status().state == "queued"
        assert [event.type for event in client.events()] == ["agent.run.queued"] * 2


def test_batch_with_keys_waits_for_a_store_that_is_away_once(own_redis: RedisServer) -> None:
    specs = [JobSpec(code="pass", idempotency_key=f"order-{number}") for number in range(40)]
    with Client(settings=impatient(own_redis.url)) as client:
        client.submit(specs[0])
        started = time.monotonic()
        with stopped(own_redis):
            assert all(isinstance(answer, StoreUnavailable) for answer in client.submit_many(specs))
        assert time.monotonic() - started < 8


def test_answer_that_cannot_be_read_leaves_open_whether_the_job_was_accepted(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected: the script ran, and its reply lacks a number."""

    def unreadable(_: object) -> AdmitReply:
        raise ValueError("no number")

    with Client(settings=settings) as client:
        monkeypatch.setattr(AdmitReply, "read", unreadable)
        with pytest.raises(AcceptanceUnknown, match="no number") as caught:
            client.submit(JobSpec(code="pass"))
        assert client.status(caught.value.job_id).state == "queued"


def test_jobs_that_were_not_sent_are_not_called_unknown(own_redis: RedisServer) -> None:
    with Client(settings=impatient(own_redis.url)) as client:
        client.submit(JobSpec(code="first"))
        with stopped(own_redis):
            answers = client.submit_many(JobSpec(code=str(number)) for number in range(80))
        kinds = [type(answer) for answer in answers]
        assert set(kinds[:64]) == {AcceptanceUnknown}
        assert AcceptanceUnknown not in kinds[64:]
        assert all(isinstance(answer, StoreUnavailable) for answer in answers)


def test_a_full_store_sheds_load_at_admission_and_lets_running_jobs_end(own_redis: RedisServer) -> None:
    """The server is out of memory, with the noeviction policy that compose sets."""
    settings = load_settings(redis={"url": own_redis.url})
    redis = connect(settings)
    ledger = Ledger(redis, settings)
    admit(ledger)
    groups = EventGroups(redis, ledger.keys)

    def read() -> list[str]:
        events = groups.read("billing", "c", after="0", limit=10, wait_s=0, redeliver_s=60)
        return [event.type.removeprefix("agent.run.") for event in events]

    assert read() == ["queued"]
    before = dump(redis)
    redis.config_set("maxmemory", 1)
    with pytest.raises(StoreFull, match="no memory left"):
        ledger.admissions.admit("another", manifest(), once())
    assert dump(redis) == before
    held = claim(ledger)
    assert ledger.beat("worker", [(held.job_id, held.fence)], {}) == {(held.job_id, held.fence): ("held", 0)}
    assert finish(ledger, held)
    check_schema(redis, ledger.keys)  # a worker that starts now
    assert read() == ["started", "succeeded"]
    redis.config_set("maxmemory", 0)
    redis.close()


def test_a_server_that_forgot_the_scripts_is_taught_again(own_redis: RedisServer) -> None:
    settings = load_settings(redis={"url": own_redis.url})
    redis = connect(settings)
    ledger = Ledger(redis, settings)
    admit(ledger)
    redis.script_flush()
    assert finish(ledger, claim(ledger))
    redis.close()
