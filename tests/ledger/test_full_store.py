"""How full the store may become: who is refused, what leaves first, and that what was accepted goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from unittest.mock import Mock

import pytest
from redis import Redis

from cellblock import Client, InvalidJob, JobSpec, Outcome, RateLimited, StoreFull, UnknownJob
from cellblock.ledger import Claim, Ledger, connect
from cellblock.ledger.kept_lists import Page, Rules, Wanted
from cellblock.ledger.pressure import ADMITS_BELOW, LEAVE_ABOVE, TAKES_LARGE_BELOW, Pressure
from cellblock_config import Settings, load_settings
from ledger.kit import (
    OPEN,
    admit,
    claim,
    finish,
    lead,
    leave,
    manifest,
    once,
    operation,
    result_of,
    settings_of,
)
from parts import wait_until

pytestmark = pytest.mark.no_rerun

Store = tuple[Ledger, Redis]
LONG = "x" * 100_000


@pytest.fixture
def store(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A real one: the in-process Redis has no memory to fill. Injected: time enough on a busy host."""
    monkeypatch.setattr("cellblock.ledger.crowded_tenants._TENANT_WORK_S", 5.0)
    settings = load_settings(redis={"url": redis_url}, ledger={"fault_retries": 0, "result_least_s": 0})
    with connect(settings) as redis:
        yield Ledger(redis, settings), redis


def fill_to(ledger: Ledger, redis: Redis, percent: float) -> None:
    """Injected: the store's limit is what makes what it uses now this part of it."""
    used = int(redis.info("memory")["used_memory"])
    ledger._store.settings = ledger._store.settings.model_copy(
        update={"memory_bytes": round(100 * used / percent)}
    )
    redis.delete(ledger.keys.pressure)  # or the last measurement would hold for some seconds


def ended(ledger: Ledger, *names: str, stdout: str = "", tenant: str = "default") -> list[str]:
    """Jobs that have ended well, in this order."""
    for name in names:
        admit(ledger, name, tenant=tenant)
        held = claim(ledger, name)
        assert ledger.finish(held, result_of(held, stdout=stdout), operation()).word == "finished"
    return list(names)


def here(ledger: Ledger, names: list[str]) -> list[str]:
    found = []
    for name in names:
        try:
            ledger.reads.status(name)
            found.append(name)
        except UnknownJob:
            pass
    return found


def test_a_full_store_refuses_jobs_and_lets_those_it_has_go_on(store: Store) -> None:
    ledger, redis = store
    admit(ledger, "accepted")
    fill_to(ledger, redis, ADMITS_BELOW + 1)
    with pytest.raises(StoreFull, match=r"8\d %.*maxmemory.*CELLBLOCK_LEDGER_RESULT_TTL_S") as refused:
        ledger.admissions.admit("another", manifest())
    assert refused.value.retry_after_s == 1
    held = claim(ledger, "accepted")
    assert ledger.beat("w", [("accepted", held.fence)], {}) == {("accepted", held.fence): ("held", 0)}
    assert finish(ledger, held)
    fill_to(ledger, redis, ADMITS_BELOW - 2)
    admit(ledger, "another")


def test_what_is_admitted_within_one_measurement_counts(store: Store) -> None:
    ledger, redis = store
    admit(ledger)
    fill_to(ledger, redis, ADMITS_BELOW - 45)
    lead(ledger)
    with settings_of(ledger, tenant_percent=100), pytest.raises(StoreFull):
        for number in range(1000):
            ledger.admissions.admit(f"large{number}", manifest(tenant=f"t{number}", stdin=LONG))
    assert 0 < number < 60, "and not a megabyte more"


def test_without_a_leader_admission_measures_by_itself(store: Store) -> None:
    ledger, redis = store
    admit(ledger)
    long_ago = {"at_ms": 1, "used_bytes": 1, "limit_bytes": 1, "taken_bytes": 0}
    redis.hset(ledger.keys.pressure, mapping=long_ago)  # type: ignore[arg-type]
    admit(ledger, "another")
    assert redis.hget(ledger.keys.pressure, "limit_bytes") == "0", "this server has none"


def test_jobs_that_have_ended_leave_when_memory_is_short_oldest_first(store: Store) -> None:
    ledger, redis = store
    names = ended(ledger, *(f"job{number}" for number in range(20)), stdout=LONG)
    fill_to(ledger, redis, LEAVE_ABOVE + 9)
    freed = ledger.retention.make_room(lead(ledger))
    left = here(ledger, names)
    assert 0 < len(left) < 20
    assert left == names[-len(left) :], "the youngest stay"
    assert freed >= (20 - len(left)) * 100_000
    assert int(redis.hget(ledger.keys.account("default"), "kept_bytes") or 0) == sum(
        int(redis.hget(ledger.keys.job(name), "kept") or 0) for name in left
    )
    assert set(redis.keys(f"{ledger.keys.prefix}:result:*")) == {ledger.keys.result(name) for name in left}


def test_bytes_of_jobs_that_redis_forgot_by_itself_do_not_shut_a_tenant_out_for_ever(store: Store) -> None:
    """Injected: the fleet was away for longer than a waiting job is kept."""
    ledger, redis = store
    admit(ledger)
    fill_to(ledger, redis, ADMITS_BELOW - 45)
    with settings_of(ledger, tenant_percent=1):
        names = []
        with pytest.raises(RateLimited, match="bytes_held"):
            for number in range(1000):
                names.append(admit(ledger, f"job{number}"))
        for name in ["job", *names]:
            redis.delete(ledger.keys.job(name), ledger.keys.spec(name))
        for index in (ledger.keys.line("default"), ledger.keys.deadlines):
            redis.zadd(index, dict.fromkeys(["job", *names], 1))
        admit(ledger, "afterwards")


def test_below_that_nobody_leaves_before_their_time(store: Store) -> None:
    ledger, redis = store
    names = ended(ledger, *(f"job{number}" for number in range(5)), stdout=LONG)
    fill_to(ledger, redis, LEAVE_ABOVE - 5)
    assert ledger.retention.make_room(lead(ledger)) == 0
    assert here(ledger, names) == names


# Far from the border: Redis gives back buffers of its own while the case runs.
@pytest.mark.parametrize(("percent", "stay"), [(TAKES_LARGE_BELOW - 4, True), (TAKES_LARGE_BELOW + 4, False)])
def test_who_has_just_ended_stays_until_there_is_no_other_way(store: Store, percent: int, stay: bool) -> None:
    ledger, redis = store
    names = ended(ledger, *(f"job{number}" for number in range(20)), stdout=LONG)
    fill_to(ledger, redis, percent)
    with settings_of(ledger, result_least_s=60):
        ledger.retention.make_room(lead(ledger))
    assert (here(ledger, names) == names) is stay


def test_a_job_that_is_due_leaves_with_all_that_is_kept_of_it(store: Store) -> None:
    ledger, redis = store
    ledger.admissions.admit("job", manifest(), once())
    finish(ledger, claim(ledger), Outcome.SANDBOX_ERROR)
    with settings_of(ledger, result_least_s=60):
        redis.hset(ledger.keys.job("job"), "finished_ms", 1)
        redis.zadd(ledger.keys.keepers, {f"default {ledger._store.settings.dead_ttl_s}": 1})
        ledger.retention.make_room(lead(ledger))
    prefix = ledger.keys.prefix
    rest = {str(key).removeprefix(f"{prefix}:").split(":")[0] for key in redis.keys("*")}
    assert rest == {"events", "leader", "pressure", "schema", "plan_shares", "upkeep"}


def test_names_of_tenants_take_nothing_once_their_jobs_have_left(store: Store) -> None:
    ledger, redis = store
    for number in range(20):
        job_id = admit(ledger, f"job{number}", tenant=f"t{number}")
        finish(ledger, claim(ledger, job_id))
        if number % 2:
            admit(ledger, f"waits{number}", tenant=f"t{number}")
            ledger.cancel(f"waits{number}")
        redis.hset(ledger.keys.job(job_id), "finished_ms", 1)
        redis.hset(ledger.keys.job(f"waits{number}"), "finished_ms", 1) if number % 2 else None
    admit(ledger, "goes on", tenant="t0")
    for keeper in redis.zrange(ledger.keys.keepers, 0, -1):
        redis.zadd(ledger.keys.keepers, {str(keeper): 1})
    ledger.retention.make_room(lead(ledger))
    assert redis.keys(ledger.keys.account("*")) == [ledger.keys.account("t0")]
    assert claim(ledger, "goes on").fence == 1


def test_lists_that_wait_for_the_archive_do_not_stand_before_those_behind_them(store: Store) -> None:
    """Injected: they are kept for a shorter time than is hot; the archive has what ended 100 s ago, and
    nothing of the first hundred lists."""
    ledger, redis = store
    now_ms = round(1000 * time.time())
    with settings_of(ledger, result_ttl_s=60):
        for number in range(103):
            job_id = admit(ledger, f"job{number}", tenant=f"t{number}")
            finish(ledger, claim(ledger, job_id))
            is_old = number >= 101
            redis.hset(ledger.keys.job(job_id), "finished_ms", 1 if is_old else now_ms - 80_000)
            redis.zadd(ledger.keys.keepers, {f"t{number} 60": now_ms - 10_000 if is_old else now_ms - 20_000})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ledger.archiving, "is_known", lambda: True)
            patch.setattr(ledger.retention, "_archived_until", lambda: now_ms - 100_000)
            for _ in range(3):  # a round may end before it has looked at all
                ledger.retention.make_room(lead(ledger))
    assert not redis.exists(ledger.keys.job("job101"), ledger.keys.job("job102"))
    assert redis.exists(ledger.keys.job("job0"), ledger.keys.job("job100")) == 2


def test_one_tenant_is_refused_and_the_others_are_not(store: Store) -> None:
    ledger, redis = store
    admit(ledger, "first", tenant="greedy")
    fill_to(ledger, redis, 20)
    with settings_of(ledger, tenant_percent=10):
        says = r"bytes_held: tenant 'greedy'.*CELLBLOCK_LEDGER_TENANT_PERCENT"
        with pytest.raises(RateLimited, match=says) as refused:
            for number in range(1000):
                ledger.admissions.admit(f"greedy{number}", manifest(tenant="greedy", stdin=LONG))
        found = refused.value
        assert found.limit == "bytes_held"
        assert found.used is not None
        assert found.allowed is not None
        assert found.used <= found.allowed < found.used + 150_000
        admit(ledger, "modest", tenant="modest")
        assert not ledger.cancel("greedy0").wake
        admit(ledger, "again", tenant="greedy")


def test_what_a_refused_tenant_keeps_leaves_and_nothing_of_the_others(store: Store) -> None:
    ledger, redis = store
    modest = ended(ledger, "modest", tenant="modest")
    names = ended(ledger, *(f"greedy{number}" for number in range(10)), tenant="greedy", stdout=LONG)
    fill_to(ledger, redis, 50)
    with settings_of(ledger, tenant_percent=10):
        with pytest.raises(RateLimited):
            ledger.admissions.admit("more", manifest(tenant="greedy", stdin=LONG))
        ledger.retention.make_room(lead(ledger))
        ledger.admissions.admit("more", manifest(tenant="greedy", stdin=LONG))
    left = here(ledger, names)
    assert len(left) < 10
    assert left == names[10 - len(left) :]
    assert here(ledger, modest) == modest


def test_many_small_results_beyond_a_tenants_limit_leave_however_young(store: Store) -> None:
    ledger, redis = store
    narrow = replace(OPEN, bytes_held=300_000, result_ttl_s=86_400)
    for number in range(60):
        ledger.admissions.admit(f"job{number}", manifest(), gates=narrow)
    for _ in range(60):
        held = ledger.claims.claim_next(message="-", worker="w", operation=operation())
        assert isinstance(held, Claim)
        ledger.finish(held, result_of(held, stdout="x" * 20_000), operation())
    with settings_of(ledger, result_least_s=60):
        ledger.retention.make_room(lead(ledger))
    assert 250_000 < int(redis.hget(ledger.keys.account("default"), "kept_bytes") or 0) <= 300_000


def test_a_round_stays_short_however_many_tenants_are_crowded(store: Store) -> None:
    """Injected: a hundred tenants that were refused, and ten thousand others with lists."""
    ledger, redis = store
    ended(ledger, "one")
    late_ms = 10**15 - 1
    redis.zadd(ledger.keys.keepers, {f"tenant{number} 86400": late_ms for number in range(10_000)})
    redis.zadd(ledger.keys.crowded, {f"tenant{number}": 0 for number in range(100)})
    began = time.monotonic()
    ledger.retention.make_room(lead(ledger))
    assert time.monotonic() - began < 3
    assert not ledger.retention.crowded_tenants.any_waits()


def test_old_results_behind_many_young_lists_are_found(store: Store) -> None:
    """Injected: lists whose first job has just ended stand before all others."""
    ledger, redis = store
    names = ended(ledger, *(f"old{number}" for number in range(20)), stdout=LONG)
    for name in names:
        redis.hset(ledger.keys.job(name), "finished_ms", 1000 * (redis.time()[0] - 120))
    ended(ledger, "young", tenant="young")
    finished = redis.hget(ledger.keys.job("young"), "finished_ms")
    for number in range(300):
        redis.rpush(ledger.keys.kept(f"t{number}", 10), "young 1")
        redis.zadd(ledger.keys.keepers, {f"t{number} 10": 1})
    assert finished is not None
    fill_to(ledger, redis, LEAVE_ABOVE + 5)
    with settings_of(ledger, result_least_s=60):
        begun = lead(ledger)
        assert ledger.retention._relieve(begun.epoch, begun.pressure, time.monotonic() + 5) > 0
    assert len(here(ledger, names)) < 20


def test_names_count_as_what_they_take(store: Store) -> None:
    ledger, redis = store
    admit(ledger, "short", tenant="t")
    long = "t" * 128
    admit(ledger, "long", tenant=long)
    found = [redis.hget(ledger.keys.job(name), "bytes") for name in ("short", "long")]
    short_bytes, long_bytes = (int(value or 0) for value in found)
    assert long_bytes > short_bytes + 2000


def test_a_key_that_another_job_has_now_does_not_leave_with_the_first(store: Store) -> None:
    """Injected: the key of the first had run out before it left."""
    ledger, redis = store
    ledger.admissions.admit("first", manifest(), once())
    finish(ledger, claim(ledger, "first"))
    redis.delete(ledger.keys.idempotency("default", "key"))
    ledger.admissions.admit("second", manifest(), once())
    leave(ledger, redis, "first")
    assert ledger.admissions.admit("third", manifest(), once()).job_id == "second"


def test_a_plan_says_how_much_its_tenants_hold(store: Store) -> None:
    ledger, _ = store
    narrow = replace(OPEN, bytes_held=400_000)
    with pytest.raises(RateLimited, match=r"bytes_held: .*400000 bytes"):
        for number in range(10):
            ledger.admissions.admit(f"job{number}", manifest(stdin=LONG), gates=narrow)
    assert number == 2
    with pytest.raises(InvalidJob, match="never be admitted"):
        ledger.admissions.admit("huge", manifest(tenant="other", stdin=5 * LONG), gates=narrow)


def test_what_may_come_back_of_running_jobs_counts(store: Store) -> None:
    ledger, redis = store
    admit(ledger)
    before = int(redis.hget(ledger.keys.account("default"), "held_bytes") or 0)
    held = claim(ledger)
    assert int(redis.hget(ledger.keys.account("default"), "held_bytes") or 0) == before + 32768
    finish(ledger, held)
    assert redis.hget(ledger.keys.account("default"), "held_bytes") == "0"


def test_a_long_result_waits_for_room_and_a_short_one_does_not(store: Store) -> None:
    ledger, redis = store
    for name in ("long", "short"):
        admit(ledger, name)
    long, short = claim(ledger, "long"), claim(ledger, "short")
    fill_to(ledger, redis, TAKES_LARGE_BELOW + 1)
    assert ledger.finish(long, result_of(long, stdout=LONG), operation()).word == "no room"
    assert finish(ledger, short)
    assert ledger.reads.status("long").state == "running"
    fill_to(ledger, redis, 50)
    assert ledger.finish(long, result_of(long, stdout=LONG), operation()).word == "finished"
    result = ledger.reads.result("long")
    assert result is not None
    assert result.stdout == LONG


def test_a_long_result_waits_for_its_own_tenants_others_to_leave(store: Store) -> None:
    ledger, redis = store
    ended(ledger, *(f"greedy{number}" for number in range(5)), tenant="greedy", stdout=LONG)
    admit(ledger, "last", tenant="greedy")
    last = claim(ledger, "last")
    account = ledger.keys.account("greedy")
    holds = sum(int(value or 0) for value in redis.hmget(account, "held_bytes", "kept_bytes"))
    memory_bytes = round((holds + len(LONG) / 2) * 2)  # of which it may have half
    with settings_of(ledger, memory_bytes=max(memory_bytes, 1), result_least_s=60, tenant_percent=50):
        redis.hset(ledger.keys.pressure, mapping={"used_bytes": 1, "limit_bytes": memory_bytes})
        assert ledger.finish(last, result_of(last, stdout=LONG), operation()).word == "no room"
        assert ledger.retention.crowded_tenants.any_waits()
        begun = replace(lead(ledger), pressure=Pressure(1, memory_bytes))
        ledger.retention.make_room(begun)
        redis.hset(ledger.keys.pressure, mapping={"used_bytes": 1, "limit_bytes": memory_bytes})
        assert ledger.finish(last, result_of(last, stdout=LONG), operation()).word == "finished"


def test_a_batch_waits_for_a_full_store(settings: Settings) -> None:
    """Injected: the store has room again after the first refusal."""
    with Client(settings=settings) as client:
        client.submit(JobSpec(code="1"))
        with connect(settings) as redis:
            fill_to(client._ledger, redis, ADMITS_BELOW + 5)
            future = None
            with pytest.raises(StoreFull):
                client.submit(JobSpec(code="2"))
            client._ledger._store.settings = client._ledger._store.settings.model_copy(
                update={"memory_bytes": 0}
            )
            future = client.start(JobSpec(code="3"))
            assert wait_until(lambda: client.counts().waiting == 2, 5, "the second job waiting")
            client.abandon(future)


def test_the_failed_jobs_of_a_plan_stay_no_longer_than_its_others(store: Store) -> None:
    ledger, redis = store
    admitted = ledger.admissions.admit("job", manifest(), gates=replace(OPEN, result_ttl_s=77))
    held = ledger.claims.claim_next(message=admitted.job_id, worker="w", operation=operation())
    assert isinstance(held, Claim)
    finish(ledger, held, Outcome.MEMORY)
    assert redis.zrange(ledger.keys.keepers, 0, -1) == ["default 77"]


def half_and_half(ledger: Ledger, redis: Redis, *, modest: int = 20) -> list[str]:
    """Injected, in this order: 2 tenants with 30 jobs each that failed, and then ``modest`` of a third."""
    for number in range(60):
        job_id = admit(ledger, f"greedy{number}", tenant=f"greedy{number % 2}")
        held = claim(ledger, job_id)
        ledger.finish(held, result_of(held, Outcome.EXIT, stdout=LONG), operation())
    return ended(ledger, *(f"modest{number}" for number in range(modest)), tenant="modest")


def test_results_of_a_modest_tenant_stay_when_two_others_fill_the_store(store: Store) -> None:
    """Those of the two are kept three times as long; by the time that jobs leave, theirs would go last."""
    ledger, redis = store
    names = half_and_half(ledger, redis)
    fill_to(ledger, redis, LEAVE_ABOVE + 5)
    assert ledger.retention.make_room(lead(ledger)) > 0
    assert here(ledger, names) == names
    fill_to(ledger, redis, TAKES_LARGE_BELOW + 2)
    for _ in range(3):
        ledger.retention.make_room(lead(ledger))
    assert here(ledger, names) == names


def test_two_tenants_with_waiting_jobs_leave_room_for_a_third_and_a_fourth(store: Store) -> None:
    ledger, redis = store
    admit(ledger)
    memory_bytes = 2 * int(redis.info("memory")["used_memory"]) + 20 * 1024 * 1024
    with settings_of(ledger, memory_bytes=memory_bytes):
        for tenant in ("first", "second", "third"):
            with pytest.raises(RateLimited) as refused:
                for number in range(2000):
                    redis.delete(ledger.keys.pressure)
                    ledger.admissions.admit(f"{tenant}{number}", manifest(tenant=tenant, stdin=LONG))
            assert refused.value.limit in {"bytes_held", "store_share"}
        assert number > 5, "a third got its part"
        redis.delete(ledger.keys.pressure)
        admit(ledger, "stranger's", tenant="fourth")


def test_tenant_that_is_refused_for_its_share_loses_what_was_fetched_and_goes_on(store: Store) -> None:
    ledger, redis = store
    names = ended(ledger, *(f"job{number}" for number in range(60)), stdout=LONG)
    fill_to(ledger, redis, 70)
    with settings_of(ledger, tenant_percent=100, result_least_s=60):
        with pytest.raises(RateLimited, match=r"store_share.*holds \d+ already"):
            ledger.admissions.admit("more", manifest())
        ledger.retention.make_room(lead(ledger))
        assert here(ledger, names) == names, "nobody has fetched them, and they are young"
        for name in names[20:50]:
            redis.hset(ledger.keys.job(name), "finished_ms", 1000 * (redis.time()[0] - 11))
            ledger.note_fetched(name)
        redis.delete(ledger.keys.pressure)
        with pytest.raises(RateLimited, match="store_share"):
            ledger.admissions.admit("more", manifest())
        ledger.retention.make_room(lead(ledger))
    left = here(ledger, names)
    assert len(left) < 60
    assert set(names) - set(left) <= set(names[20:50]), "only those that were fetched"


def test_result_that_a_waiting_caller_got_is_marked_as_fetched(client: Client, redis: Redis) -> None:
    ledger = client._ledger

    def end(job_id: str) -> str | None:
        held = claim(ledger, job_id)
        ledger.finish(held, result_of(held), operation())
        return redis.hget(ledger.keys.job(job_id), "fetched")  # type: ignore[return-value]

    job = client.submit(JobSpec(code="1"))
    assert end(job.id) is None
    job.result(timeout_s=5)
    assert redis.hget(ledger.keys.job(job.id), "fetched") == "1"
    waited_for = client.submit(JobSpec(code="2"))
    with ThreadPoolExecutor() as pool:
        result = pool.submit(waited_for.result, timeout_s=10)
        channel = ledger.keys.done(waited_for.id)
        wait_until(lambda: dict(redis.pubsub_numsub(channel)).get(channel), 5, "its caller listening")
        assert end(waited_for.id) == "1"
        assert result.result().ok


def test_idempotency_key_outlives_a_result_that_left_early(store: Store) -> None:
    ledger, redis = store
    ledger.admissions.admit("first", manifest(), once())
    finish(ledger, claim(ledger, "first"))
    ended(ledger, *(f"job{number}" for number in range(20)), stdout=LONG)
    fill_to(ledger, redis, LEAVE_ABOVE + 5)
    ledger.retention.make_room(lead(ledger))
    assert here(ledger, ["first"]) == []
    again = ledger.admissions.admit("second", manifest(), once())
    assert (again.job_id, again.fresh) == ("first", False)
    assert ledger.reads.accepted("default", once()) == "first"
    with pytest.raises(InvalidJob, match="was used for another job"):
        ledger.admissions.admit("third", manifest(code="other"), once(code="other"))
    kept = int(redis.hget(ledger.keys.account("default"), "kept_bytes") or 0)
    redis.zadd(ledger.keys.keepers, {"default 0": 1})
    entry = str(redis.lindex(ledger.keys.kept("default", 0), 0)).split(" ")
    over = " ".join([*entry[:2], "1", *entry[3:]])
    redis.lset(ledger.keys.kept("default", 0), 0, over)  # injected: its time is over
    fill_to(ledger, redis, 50)
    ledger.retention.make_room(lead(ledger))
    assert ledger.admissions.admit("second", manifest(), once()).job_id == "second"
    after = int(redis.hget(ledger.keys.account("default"), "kept_bytes") or 0)
    assert after == kept - int(entry[1]), "its bytes are given back"


def test_idempotency_key_of_an_ended_time_leaves_with_its_job(store: Store) -> None:
    ledger, redis = store
    ledger.admissions.admit("first", manifest(), once())
    finish(ledger, claim(ledger, "first"))
    leave(ledger, redis, "first")
    assert ledger.admissions.admit("second", manifest(), once()).job_id == "second"
    assert not redis.exists(ledger.keys.kept("default", 0))


def test_young_results_leave_a_store_that_is_shut_only_from_tenants_above_an_even_part(store: Store) -> None:
    """Beside others; alone in it, a tenant shuts out only itself (above)."""
    ledger, redis = store
    heavy = ended(ledger, *(f"heavy{number}" for number in range(60)), stdout=LONG, tenant="heavy")
    modest = ended(ledger, *(f"modest{number}" for number in range(5)), stdout=LONG, tenant="modest")
    fill_to(ledger, redis, TAKES_LARGE_BELOW - 4)
    with settings_of(ledger, result_least_s=60):
        for _ in range(3):
            ledger.retention.make_room(lead(ledger))
    assert here(ledger, modest) == modest
    assert 5 < len(here(ledger, heavy)) < 60


def test_long_result_waits_while_its_tenant_shuts_the_store_for_others(store: Store) -> None:
    ledger, redis = store
    ended(ledger, *(f"heavy{number}" for number in range(40)), stdout=LONG, tenant="heavy")
    for tenant in ("heavy", "modest"):
        admit(ledger, tenant, tenant=tenant)
    held = {tenant: claim(ledger, tenant) for tenant in ("heavy", "modest")}
    fill_to(ledger, redis, ADMITS_BELOW + 4)
    with settings_of(ledger, result_least_s=60, tenant_percent=100):
        lead(ledger)
        words = {
            tenant: str(ledger.finish(held[tenant], result_of(held[tenant], stdout=LONG), operation()).word)
            for tenant in held
        }
    assert words == {"heavy": "no room", "modest": "finished"}


def test_round_that_ran_out_of_time_goes_on_behind_the_lists_it_looked_at(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected: pages of one list, and a round that is over after the first."""
    ledger, redis = store
    for tenant in ("a", "b"):
        ended(ledger, f"{tenant}-job", tenant=tenant)
    fill_to(ledger, redis, LEAVE_ABOVE + 9)
    monkeypatch.setattr("cellblock.ledger.retention._LISTS_PAGE", 1)
    seen: list[str] = []
    retention = ledger.retention

    def look(epoch: int, tenants: dict[str, None], *_: object, **__: object) -> int:
        seen.extend(tenants)
        return 0

    monkeypatch.setattr(retention, "_level", look)
    begun = lead(ledger)
    times = iter([0.0, 0.0, 9.0])
    monkeypatch.setattr("cellblock.ledger.retention.time", Mock(monotonic=lambda: next(times, 9.0)))
    retention._relieve(begun.epoch, begun.pressure, 1.0)
    first = set(seen)
    seen.clear()
    times = iter([0.0, 0.0, 9.0])
    retention._relieve(begun.epoch, begun.pressure, 1.0)
    assert len(first | set(seen)) == 2


def test_waiting_jobs_of_one_tenant_keep_no_result_of_others_from_leaving(store: Store) -> None:
    """It has one ended job, so that it is among those whose jobs could leave."""
    ledger, redis = store
    names = ended(ledger, *(f"job{number}" for number in range(20)), stdout=LONG)
    for number in range(30):
        ledger.admissions.admit(f"waits{number}", manifest(tenant="waits", stdin=LONG))
    ledger.cancel("waits0")
    fill_to(ledger, redis, LEAVE_ABOVE + 9)
    assert ledger.retention.make_room(lead(ledger)) > 0
    assert len(here(ledger, names)) < 20


def test_passes_without_effect_leave_time_for_the_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected: to look for fetched results takes all the time it is given."""
    ledger, redis = store
    ended(ledger, *(f"job{number}" for number in range(20)), stdout=LONG)
    fill_to(ledger, redis, LEAVE_ABOVE + 9)
    forget_early = ledger.retention._lists.forget_early

    def slow(epoch: int, keeper: str, wanted: Wanted, rules: Rules) -> Page:
        if not rules.unfetched:
            time.sleep(0.16)
            return Page()
        return forget_early(epoch, keeper, wanted, rules)

    monkeypatch.setattr(ledger.retention._lists, "forget_early", slow)
    assert ledger.retention.make_room(lead(ledger)) > 0
