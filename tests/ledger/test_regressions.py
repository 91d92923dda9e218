"""Promises that once did not hold, each as it was found."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
import tracemalloc
from types import ModuleType
from typing import Any

import pytest

import cellblock
from cellblock import (
    AsyncClient,
    Client,
    InvalidJob,
    JobSpec,
    Limits,
    ResultTimeout,
    StoreUnavailable,
    waiting,
)
from cellblock.admission.resolve import resolve
from cellblock.egress import Governor
from cellblock.ledger import Keys, Ledger, connect
from cellblock.queue import Publisher, queue_key
from cellblock_config import EgressSettings, Settings, SettingsError, load_settings
from cellblock_workers.guest.messages import HEADER
from cellblock_workers.lease import Heart
from cellblock_workers.worker.frames import FrameReader, ProtocolViolation
from cellblock_workers.worker.reaper import Reaper
from ledger.kit import FakeWorker, admit, claim, finish
from parts import wait_until

pytestmark = pytest.mark.no_rerun

SPEC = JobSpec(code="pass")


@pytest.fixture
def silent():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"


@pytest.mark.parametrize(
    "call", [lambda c: c.submit(SPEC), lambda c: c.status("j"), lambda c: c.result("j", timeout_s=1)]
)
def test_a_store_that_never_answers_is_unavailable_within_five_seconds(silent, call):
    with Client(silent) as client:
        started = time.monotonic()
        with pytest.raises((StoreUnavailable, ResultTimeout)):
            call(client)
        assert time.monotonic() - started < 5


def test_code_alone_is_not_a_job_and_the_answer_says_how_to_write_one(settings: Settings):
    with Client(settings=settings) as client, pytest.raises(InvalidJob, match=r"write JobSpec\(code="):
        client.submit("print(1)")  # type: ignore[arg-type]


def test_events_waits_as_long_as_it_was_asked_to(settings: Settings):
    with Client(settings=settings) as client:
        assert client.events(wait_s=3) == []


def test_tenants_with_colons_do_not_share_idempotency_keys(settings: Settings):
    with Client(settings=settings) as client:
        one = client.submit(JobSpec(code="1", tenant="a:b", idempotency_key="c"))
        two = client.submit(JobSpec(code="1", tenant="a", idempotency_key="b:c"))
    assert one.id != two.id


def test_unordered_map_yields_one_result_for_each_spec(settings: Settings):
    specs = [JobSpec(code="1", idempotency_key="same")] * 3
    soon = time.monotonic() + 0.5  # the worker starts once all three are in flight
    with (
        FakeWorker(settings, lambda ids: ids if time.monotonic() > soon else []),
        Client(settings=settings) as client,
    ):
        assert len(list(client.map(specs, ordered=False))) == 3


def test_limits_out_of_bounds_are_an_invalid_job_also_when_built_first():
    with pytest.raises(InvalidJob, match="timeout_s"):
        Limits(timeout_s=-1)


@pytest.mark.parametrize(
    "read",
    [lambda: JobSpec.model_validate({"code": ""}), lambda: JobSpec.model_validate_json('{"code": ""}')],
)
def test_a_job_read_from_json_raises_invalid_job(read):
    with pytest.raises(InvalidJob, match="code"):
        read()


def test_code_given_as_bytes_is_refused():
    with pytest.raises(InvalidJob, match="code"):
        JobSpec(code=b"print(1)")  # type: ignore[arg-type]


def test_an_absurd_limit_is_an_invalid_job_not_an_overflow():
    with pytest.raises(InvalidJob, match=r"limits\.memory_bytes"):
        resolve(JobSpec(code="1", limits={"memory_bytes": 10**400}), load_settings())


def test_value_and_bound_can_be_told_apart_in_the_message():
    with pytest.raises(InvalidJob, match="2147483649 is above the bound of 2147483648"):
        resolve(JobSpec(code="1", limits={"memory_bytes": 2**31 + 1}), load_settings())


@pytest.mark.parametrize("sandbox", [{"timeout_max_s": 5}, {"memory_min_bytes": 2**29}])
def test_a_job_that_asks_for_nothing_is_accepted_or_the_settings_are_refused(sandbox):
    try:
        settings = load_settings(sandbox=sandbox)
    except SettingsError:
        return
    for level in ("permissive", "standard", "strict"):
        resolve(JobSpec(code="1", level=level), settings)


@pytest.mark.parametrize(
    ("name", "value"), [("REDIS", "{bad"), ("LAUNCHER_ALLOWED_UIDS", "1,2"), ("REDISS_URL", "redis://x")]
)
def test_every_wrong_variable_is_a_settings_error_naming_it(monkeypatch, name, value):
    monkeypatch.setenv(f"CELLBLOCK_{name}", value)
    with pytest.raises(SettingsError, match=rf"(?i)\b(CELLBLOCK_)?{name}"):
        load_settings()


def test_an_unknown_group_is_refused():
    with pytest.raises(SettingsError, match="reddis"):
        load_settings(reddis={"url": "redis://x"})


def test_a_url_with_a_nonsense_port_is_a_settings_error_naming_the_setting():
    with pytest.raises(SettingsError, match=r"redis\.url"):
        Client("redis://:sekrit@host:notaport/0").close()


def test_closing_the_async_client_ends_its_waits_like_the_sync_one(settings: Settings):
    async def run():
        client = AsyncClient(settings=settings)
        job = await client.submit(SPEC)
        wait = asyncio.create_task(job.result())
        while "cellblock-results" not in [t.name for t in threading.enumerate()]:
            await asyncio.sleep(0.01)
        await client.close()
        with pytest.raises(ResultTimeout, match="closed"):
            await wait

    asyncio.run(run())  # type: ignore[no-untyped-call]


def test_a_wait_on_a_closed_client_does_not_hang(settings: Settings):
    client = Client(settings=settings)
    job = client.submit(SPEC)
    with pytest.raises(ResultTimeout):
        job.result(timeout_s=0.1)
    client.close()
    with pytest.raises(ResultTimeout, match="closed"):
        job.result(timeout_s=3)


class NoChannel(Keys):
    def done(self, job_id: str) -> str:
        return "nobody"


def test_the_sweep_also_comes_while_other_jobs_end_all_the_time(
    settings: Settings, ledger: Ledger, monkeypatch
):
    monkeypatch.setattr(waiting, "_SWEEP_S", 0.4)
    with Client(settings=settings) as client, connect(settings) as redis:
        lost, busy = client.submit(SPEC), client.submit(SPEC)
        channel = ledger.keys.done(busy.id)
        client.result_future(busy.id)
        future = client.result_future(lost.id)
        wait_until(lambda: redis.pubsub_numsub(channel)[0][1])
        ledger.keys = NoChannel(ledger.keys.prefix)
        finish(ledger, claim(ledger, lost.id))

        def told():
            redis.publish(channel, "noise")
            return future.done()

        wait_until(told, 5, "the sweep")


QUICK = {"lease_s": 0.5, "beat_s": 0.1, "republish_after_s": 0.2, "reap_s": 0.05}


def test_after_an_outage_leases_are_extended_once_before_reaping(own_redis):
    settings = load_settings(redis={"url": own_redis.url}, ledger=QUICK)
    with connect(settings) as redis:
        ledger = Ledger(redis, settings)
        reaper = Reaper(ledger, Publisher(redis, settings), redis, settings, worker="w")
        admit(ledger)
        claim(ledger)
        reaper.tick()
        own_redis.stop()
        down = time.monotonic()
        with pytest.raises(StoreUnavailable):
            reaper.tick()
        wait_until(lambda: time.monotonic() - down > 0.7)
        own_redis.start()
        reaper.tick()
        assert ledger.reads.status("job").losses == 0


def test_a_submission_whose_first_reply_was_lost_still_wakes_a_worker(settings: Settings):
    """Injected: the admit script runs twice, as when redis-py resends after a lost reply."""
    with Client(settings=settings) as client, connect(settings) as redis:
        once = client._ledger._store.scripts.call_each

        def twice(reply: Any, calls: Any) -> Any:
            once(reply, calls)
            return once(reply, calls)

        client._ledger._store.scripts.call_each = twice  # type: ignore[method-assign]
        client.submit(SPEC)
        assert redis.llen(queue_key(load_settings())) == 1


def test_all_is_the_public_namespace():
    public = {
        name
        for name in dir(cellblock)
        if not name.startswith("_") and not isinstance(getattr(cellblock, name), ModuleType)
    }
    assert public == set(cellblock.__all__)


def test_a_lease_counts_from_when_its_renewal_was_sent(ledger: Ledger, settings: Settings):
    """Injected: the reply to the beat comes 0.3 s after the server renewed the lease."""
    heart = Heart(ledger, "w1", settings.ledger, dict)
    beat = ledger.beat

    def slow(*given: Any) -> Any:
        words = beat(*given)
        time.sleep(0.3)
        return words

    ledger.beat = slow  # type: ignore[method-assign,assignment]
    admit(ledger)
    with heart.hold(claim(ledger)) as lease:
        before = time.monotonic()
        heart.beat()
        assert 0 <= lease.renewed - before < 0.1


def test_an_oversized_frame_is_refused_before_its_docker_piece_is_complete():
    reader = FrameReader("docker")
    start = b"\1\0\0\0" + (2**31).to_bytes(4, "big") + HEADER.pack(b"O", 2**31 - 5)
    with pytest.raises(ProtocolViolation):
        list(reader.feed(start))


@pytest.mark.long("a million pieces are traced")
def test_the_governor_holds_no_more_than_the_limit_whatever_the_chunks():
    limit = 1024 * 1024
    governor = Governor(
        EgressSettings(output_limit_bytes=limit, output_head_bytes=0, output_tail_bytes=limit)
    )
    tracemalloc.start()
    for number in range(1_500_000):
        governor.feed(b"%d%d" % (number % 10, number % 7))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * limit
