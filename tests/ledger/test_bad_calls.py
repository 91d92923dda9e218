"""A script that is called wrongly refuses by type and changes nothing; so does a store of another version."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from cellblock import SchemaMismatch
from cellblock.ledger import Ledger
from cellblock.ledger.keys import JobOwner
from cellblock.ledger.scripts import NAMES, BadCall
from cellblock.ledger.server import SCHEMA, check_schema, concerns
from ledger.kit import STORES, admit, claim, dump, open_ledger

Store = tuple[Ledger, Redis]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, redis_url: str) -> Iterator[Store]:
    with open_ledger(request.param, redis_url) as opened:
        yield opened


#: Those that are not about one job count their arguments by their keys.
OF_NONE = {"beat", "tick", "pick", "resign", "forget", "trim", "owed", "release_blobs"}
#: As the prelude names them.
COMMON = ["default", 0, 10, 10, 10, 10, 10, 0, 0, "channel"]
OF_A_JOB = [name for name in NAMES if name not in OF_NONE]


@pytest.mark.parametrize("name", OF_A_JOB)
@pytest.mark.parametrize("args", [[], ["job"] * 40], ids=["too few", "too many"])
def test_a_script_with_the_wrong_number_of_arguments_changes_nothing(
    store: Store, name: str, args: list[str]
) -> None:
    ledger, redis = store
    admit(ledger)
    claim(ledger)
    before = dump(redis)
    with pytest.raises(BadCall, match=name):
        ledger._scripts.run(name, ledger.keys.of_job("job", JobOwner("default")), args)
    assert dump(redis) == before


@pytest.mark.parametrize("fence", ["", "x", "-1", "1.5", "1e3", "9" * 400, "nan", "0x1"])
def test_a_fence_that_is_no_number_is_refused(store: Store, fence: str) -> None:
    ledger, redis = store
    admit(ledger)
    held = claim(ledger)
    calls: list[tuple[str, list[Any]]] = [
        ("finish", ["op", "succeeded", "ok", "{}", "", 0, "faults", 0, 0, 0, 100, ""]),
        ("release", ["op", 1, "{}"]),
    ]
    before = dump(redis)
    for name, args in calls:
        with pytest.raises(BadCall, match="fence"):
            ledger._scripts.run(
                name, ledger.keys.of_job("job", JobOwner("default")), ["job", fence, *args, *COMMON]
            )
    assert dump(redis) == before
    assert ledger.release(held, "op").word == "released"


@pytest.mark.parametrize(
    ("state", "counter"),
    [("bananas", "faults"), ("running", "faults"), ("failed", "attempt"), ("failed", "")],
)
def test_an_end_that_is_none_is_refused(store: Store, state: str, counter: str) -> None:
    ledger, redis = store
    admit(ledger)
    claim(ledger)
    before = dump(redis)
    ending = [1, "op", state, "ok", "{}", "", 0, counter, 0, 0, 0, 100, "", *COMMON]
    with pytest.raises(BadCall, match="state or counter"):
        ledger._scripts.run("finish", ledger.keys.of_job("job", JobOwner("default")), ["job", *ending])
    assert dump(redis) == before


@pytest.mark.parametrize("name", OF_A_JOB)
def test_too_few_keys_are_refused(store: Store, name: str) -> None:
    ledger, redis = store
    admit(ledger)
    before = dump(redis)
    with pytest.raises(BadCall, match="keys"):
        ledger._scripts.run(name, ledger.keys.of_job("job", JobOwner("default"))[:-1], ["job"])
    assert dump(redis) == before


@pytest.mark.parametrize("lease_ms", ["-5", "", "1.5", "x"])
def test_a_lease_that_is_none_is_refused(store: Store, lease_ms: str) -> None:
    ledger, redis = store
    for name, keys, args in (
        ("beat", ["w", "l", "n"], ["w", lease_ms, 1000, "{}"]),
        ("tick", ["l", "u", "k", "w", "p"], ["name", 1000, lease_ms, 1, 0, 0]),
    ):
        with pytest.raises(BadCall):
            ledger._scripts.run(name, keys, args)
    assert dump(redis) == {}


def test_a_store_of_a_version_that_wrote_no_number_is_refused(store: Store) -> None:
    ledger, redis = store
    admit(ledger)
    redis.delete(ledger.keys.schema)
    with pytest.raises(SchemaMismatch, match="schema 1 "):
        check_schema(redis, ledger.keys)


def test_a_producer_refuses_a_store_of_another_version_too(store: Store) -> None:
    ledger, redis = store
    redis.set(ledger.keys.schema, 99)
    with pytest.raises(SchemaMismatch, match="schema 99"):
        admit(ledger)
    assert list(dump(redis)) == [ledger.keys.schema]


def test_a_record_that_is_not_whole_stops_nobody_from_judging_the_others(store: Store) -> None:
    ledger, redis = store
    for name in ("broken", "garbled", "odd", "whole"):
        admit(ledger, name)
        claim(ledger, name)
        redis.zadd(ledger.keys.leases, {name: 1})
    redis.hdel(ledger.keys.job("broken"), "level")
    redis.hset(ledger.keys.job("garbled"), "losses", "many")
    redis.hset(ledger.keys.job("odd"), "level", "unheard-of")
    assert [done.job_id for done in ledger.reap()] == ["whole"]
    assert redis.zrange(ledger.keys.leases, 0, -1) == []


def test_a_beat_whose_keys_do_not_match_is_refused(store: Store) -> None:
    ledger, redis = store
    before = dump(redis)
    with pytest.raises(BadCall):
        ledger._scripts.run("beat", ["w", "l", "n", "j"], ["w", 1000, 1000, "{}"])
    assert dump(redis) == before


def test_a_fresh_store_becomes_this_versions_and_anothers_is_refused(store: Store) -> None:
    ledger, redis = store
    check_schema(redis, ledger.keys)
    check_schema(redis, ledger.keys)
    redis.set(ledger.keys.schema, SCHEMA + 1)
    with pytest.raises(SchemaMismatch, match=f"schema {SCHEMA + 1} .* speaks {SCHEMA}: .*KEY_PREFIX"):
        check_schema(redis, ledger.keys)


def test_settings_that_lose_jobs_are_named_with_the_line_to_write(redis_url: str) -> None:
    with open_ledger("redis", redis_url) as (_, redis):
        assert {one.setting for one in concerns(redis)} == {"maxmemory"}
        assert concerns(redis, memory_bytes=10**9) == []
        redis.config_set("maxmemory", "1gb")
        assert concerns(redis) == []
        redis.config_set("maxmemory-policy", "allkeys-lru")
        redis.config_set("appendonly", "no")
        try:
            found = {concern.setting: concern.remedy for concern in concerns(redis)}
        finally:
            redis.config_set("maxmemory", 0)
            redis.config_set("maxmemory-policy", "noeviction")
            redis.config_set("appendonly", "yes")
    assert found == {"maxmemory-policy": "maxmemory-policy noeviction", "appendonly": "appendonly yes"}
