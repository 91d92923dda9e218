"""A tenant that is refused for what it keeps itself: enough of it leaves for the job it was refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import cast
from unittest.mock import Mock

import pytest

from cellblock import RateLimited
from cellblock.admission.gates import Gates
from cellblock.ledger import Ledger, connect
from cellblock.ledger.pressure import Pressure
from cellblock_config import load_settings
from ledger.kit import OPEN, claim, lead, manifest, operation, result_of, settings_of
from ledger.test_full_store import here

pytestmark = pytest.mark.no_rerun

LIMIT_BYTES = 1_000_000
NARROW = replace(OPEN, plan="narrow", bytes_held=LIMIT_BYTES, result_ttl_s=86_400)


@pytest.fixture
def ledger(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    monkeypatch.setattr("cellblock.ledger.crowded_tenants._TENANT_WORK_S", 5.0)  # on a busy host too
    settings = load_settings(redis={"url": redis_url}, ledger={"fault_retries": 0})
    with connect(settings) as redis:
        yield Ledger(redis, settings)


def with_archive(ledger: Ledger, monkeypatch: pytest.MonkeyPatch, *, has: bool) -> None:
    """Injected: an archive, which has all that ended a second ago or earlier, or nothing yet."""
    monkeypatch.setattr(ledger._store, "hot_s", 600)
    monkeypatch.setattr(ledger.archiving, "is_known", lambda: True)
    until_ms = (lambda: ledger._store.now_ms() - 1000) if has else (lambda: 0)
    monkeypatch.setattr(ledger.retention, "_archived_until", until_ms)


def submit(ledger: Ledger, job_id: str, percent: float = 0.0, gates: Gates = NARROW) -> None:
    """A job that takes this part of its tenant's limit, and a little."""
    code = "#" * max(1, round(LIMIT_BYTES * percent / 100))
    ledger.admissions.admit(job_id, manifest(code=code), gates=gates)


def kept_percent(ledger: Ledger) -> float:
    kept = cast(str | None, ledger._store.redis.hget(ledger.keys.account("default"), "kept_bytes"))
    return 100 * int(kept or 0) / LIMIT_BYTES


def keep(ledger: Ledger, percent: int, *, fetched: range, ended_s_ago: int = 11) -> list[str]:
    """Injected: ended results of 5 % each up to this part of the limit, which ended so long ago.

    ``fetched``: which of them their callers got.
    """
    redis = ledger._store.redis
    names = [f"job{number:02}" for number in range(percent // 5)]
    for number, name in enumerate(names):
        submit(ledger, name)
        held = claim(ledger, name)
        ledger.finish(held, result_of(held, stdout="x" * (LIMIT_BYTES // 20 - 1500)), operation())
        now_s, _ = redis.time()
        redis.hset(ledger.keys.job(name), "finished_ms", 1000 * (now_s - ended_s_ago))
        if number in fetched:
            ledger.note_fetched(name)
    assert percent - 2 < kept_percent(ledger) <= percent
    return names


def refused(ledger: Ledger, percent: float, gates: Gates = NARROW) -> str | None:
    try:
        submit(ledger, "next", percent, gates)
    except RateLimited as error:
        return error.limit
    return None


def make_room(ledger: Ledger) -> None:
    ledger.retention.make_room(lead(ledger))


@pytest.mark.parametrize(("keeps", "needs"), [(90, 15), (95, 30), (80, 25), (70, 40)])
@pytest.mark.parametrize("archive", ["none", "has them", "is behind"])
def test_refused_tenant_has_room_for_its_job_after_one_round(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, keeps: int, needs: int, archive: str
) -> None:
    """Its results ended 11 seconds ago: with the second of a round, 12 from the end of the last of them."""
    names = keep(ledger, keeps, fetched=range(100))
    if archive != "none":
        with_archive(ledger, monkeypatch, has=archive == "has them")
    assert refused(ledger, needs) == "bytes_held"
    make_room(ledger)
    assert refused(ledger, needs) is None
    left = here(ledger, names)
    assert left == names[len(names) - len(left) :], "the oldest left"
    assert kept_percent(ledger) > 95 - needs - 5, "and no more than the job needs"


@pytest.mark.parametrize("archive", ["none", "is behind"])
def test_results_that_nobody_fetched_go_last(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, archive: str
) -> None:
    """The first ten of eighteen, and they ended long ago."""
    names = keep(ledger, 90, fetched=range(10, 18), ended_s_ago=100)
    if archive != "none":
        with_archive(ledger, monkeypatch, has=False)
    assert refused(ledger, 35) == "bytes_held"
    make_room(ledger)
    assert set(names[:10]) <= set(here(ledger, names))
    assert refused(ledger, 65) == "bytes_held"
    make_room(ledger)
    left = here(ledger, names)
    assert left
    assert left == names[10 - len(left) : 10], "then the oldest of them"
    assert refused(ledger, 65) is None


def test_young_result_that_nobody_fetched_stays_and_its_tenant_is_refused(ledger: Ledger) -> None:
    names = keep(ledger, 90, fetched=range(4), ended_s_ago=50)
    assert refused(ledger, 35) == "bytes_held"
    make_room(ledger)
    assert here(ledger, names) == names[4:]
    assert refused(ledger, 35) == "bytes_held"


def test_nothing_leaves_for_a_job_that_has_no_room_even_so(ledger: Ledger) -> None:
    """Half of the limit is held by jobs that wait."""
    names = keep(ledger, 40, fetched=range(100))
    submit(ledger, "waits", 50)
    assert refused(ledger, 55) == "bytes_held"
    make_room(ledger)
    assert here(ledger, names) == names


def be_full(ledger: Ledger, used_bytes: int, limit_bytes: int) -> None:
    """Injected: a measurement that holds for the next second."""
    at_ms = ledger._store.now_ms()
    figures = {"at_ms": at_ms, "used_bytes": used_bytes, "limit_bytes": limit_bytes, "taken_bytes": 0}
    ledger._store.redis.hset(ledger.keys.pressure, mapping=figures)  # type: ignore[arg-type]


@pytest.mark.parametrize(("fetched", "ended_s_ago"), [(range(100), 11), (range(0), 61)])
def test_large_job_gets_its_part_of_a_filling_store(ledger: Ledger, fetched: range, ended_s_ago: int) -> None:
    """Beside others that hold two thirds of it. The job is most of what its tenant may hold: what left for a
    small one would be too little. Results that nobody fetched leave too, a minute after their end."""
    names = keep(ledger, 90, fetched=fetched, ended_s_ago=ended_s_ago)
    limit_bytes = 10 * LIMIT_BYTES
    used_bytes = limit_bytes * 74 // 100
    with settings_of(ledger, tenant_percent=100):
        be_full(ledger, used_bytes, limit_bytes)
        assert refused(ledger, 85, OPEN) == "store_share"
        begun = replace(lead(ledger), pressure=Pressure(used_bytes, limit_bytes))
        freed_bytes = ledger.retention.make_room(begun)
        be_full(ledger, used_bytes - freed_bytes, limit_bytes)
        assert refused(ledger, 85, OPEN) is None
    assert here(ledger, names)


def test_what_a_refused_tenant_wanted_is_forgotten(ledger: Ledger) -> None:
    keep(ledger, 90, fetched=range(100))
    account = ledger.keys.account("default")
    assert refused(ledger, 30) == "bytes_held"
    assert int(ledger._store.redis.hget(account, "wanted_bytes") or 0) > 0.3 * LIMIT_BYTES
    assert refused(ledger, 15) == "bytes_held"
    make_room(ledger)
    assert refused(ledger, 30) is None, "the larger of the two"
    assert ledger._store.redis.hmget(account, "wanted_bytes", "wanted_stored_bytes") == [None, None]


@pytest.mark.parametrize("page", [1, 100])
def test_crowded_tenants_are_drawn_at_random(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    """Injected: rounds with time for one tenant, and all of twenty are refused again and again."""
    monkeypatch.setattr("cellblock.ledger.crowded_tenants._TENANTS_PAGE", page)
    redis, crowded = ledger._store.redis, ledger.keys.crowded
    names = [f"t{number:02}" for number in range(20)]
    served: set[str] = set()
    begun = lead(ledger)
    for _ in range(20):
        redis.zadd(crowded, dict.fromkeys(names, 0))
        times = iter([0.0, 0.0])
        with monkeypatch.context() as patch:
            clock = Mock(monotonic=lambda times=times: next(times, 9.0))
            patch.setattr("cellblock.ledger.crowded_tenants.time", clock)
            ledger.retention.crowded_tenants.relieve(begun.epoch, begun.pressure, 1.0)
        left = set(cast(list[str], redis.zrange(crowded, 0, -1)))
        assert len(left) == 19
        served |= set(names) - left
    assert len(served) >= 5, "in order it would be one, whatever the order"
