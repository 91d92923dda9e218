"""A script that is called wrongly refuses by type and changes nothing; so does a store of another version."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis

from cellblock import SchemaMismatch
from cellblock.ledger import Ledger
from cellblock.ledger.declarations import BadCall, CallKeys, declaration_of, script_names
from cellblock.ledger.keys import JobOwner
from cellblock.ledger.server import SCHEMA, check_schema, concerns
from ledger.kit import STORES, admit, claim, dump, open_ledger

pytestmark = pytest.mark.no_rerun

Store = tuple[Ledger, Redis]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, redis_url: str) -> Iterator[Store]:
    with open_ledger(request.param, redis_url) as opened:
        yield opened


def argument(name: str) -> str:
    """What a script takes under a name."""
    return "succeeded" if name == "state" else "faults" if name == "counter" else "1"


def declared(name: str) -> tuple[list[str], list[str]]:
    """Keys and arguments that fit, one of each declared name."""
    declaration = declaration_of(name)
    return list(declaration.keys), [argument(one) for one in declaration.arguments]


def refused(ledger: Ledger, name: str, keys: list[str], arguments: list[str]) -> str:
    """What a script that is called past the wrapper says is wrong."""
    said, what = ledger._store.scripts._script(name)(keys=keys, args=arguments)
    assert said == "invalid"
    return str(what)


@pytest.mark.parametrize("name", script_names())
def test_a_script_with_too_few_or_too_many_of_anything_changes_nothing(store: Store, name: str) -> None:
    ledger, redis = store
    admit(ledger)
    claim(ledger)
    before = dump(redis)
    keys, arguments = declared(name)
    keys[: len(keys) - 1] = [f"{ledger.keys.prefix}:{key}" for key in keys[:-1]]
    assert refused(ledger, name, keys[:-2], arguments) == "keys"
    if not declaration_of(name).keys[-1].endswith("..."):
        assert refused(ledger, name, [*keys, "more"], arguments) == "keys"
    refused(ledger, name, keys, [])
    if not declaration_of(name).arguments[-1].endswith("..."):
        assert refused(ledger, name, keys, [*arguments, "more"]) == "count"
    assert dump(redis) == before


@pytest.mark.parametrize("name", script_names())
def test_a_call_names_exactly_what_the_script_declares(store: Store, name: str) -> None:
    declaration = declaration_of(name)
    keys: CallKeys = {one.removesuffix("..."): [] if "..." in one else "k" for one in declaration.keys}
    last, *_ = keys
    with pytest.raises(BadCall, match=rf"{name}: {last}: missing, or not declared"):
        declaration.key_list({one: key for one, key in keys.items() if one != last})
    with pytest.raises(BadCall, match=f"{name}: another: missing, or not declared"):
        declaration.key_list({**keys, "another": "k"})
    with pytest.raises(BadCall, match=f"{name}: {last}.* is a list and is not given one, or"):
        declaration.key_list({**keys, last: "k" if keys[last] == [] else ["k"]})
    assert len(declaration.key_list(keys)) == sum("..." not in one for one in declaration.keys)


@pytest.mark.parametrize("fence", ["", "x", "-1", "1.5", "1e3", "9" * 400, "nan", "0x1"])
def test_a_fence_that_is_no_number_is_refused(store: Store, fence: str) -> None:
    ledger, redis = store
    admit(ledger)
    held = claim(ledger)
    before = dump(redis)
    keys = list(ledger.keys.of_job("job", JobOwner("default")).values())
    for name in ("finish", "release"):
        names = declaration_of(name).arguments
        arguments = [fence if one == "fence" else argument(one) for one in names]
        assert refused(ledger, name, keys, arguments) == "fence"
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
    given = {name: argument(name) for name in declaration_of("finish").arguments}
    arguments = list((given | {"job_id": "job", "state": state, "counter": counter}).values())
    keys = list(ledger.keys.of_job("job", JobOwner("default")).values())
    assert refused(ledger, "finish", keys, arguments) == "state or counter"
    assert dump(redis) == before


@pytest.mark.parametrize("lease_ms", ["-5", "", "1.5", "x"])
def test_a_lease_that_is_none_is_refused(store: Store, lease_ms: str) -> None:
    ledger, redis = store
    for name in ("beat", "tick"):
        keys, _ = declared(name)
        names = [one for one in declaration_of(name).arguments if "..." not in one]
        arguments = [lease_ms if one == "lease_ms" else "1" for one in names]
        assert refused(ledger, name, keys[: len(keys) - (name == "beat")], arguments) == "lease_ms"
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
    assert [done.job_id for done in ledger.upkeep.reap()] == ["whole"]
    assert redis.zrange(ledger.keys.leases, 0, -1) == []


def test_a_beat_whose_keys_do_not_match_is_refused(store: Store) -> None:
    ledger, redis = store
    before = dump(redis)
    assert refused(ledger, "beat", ["w", "l", "n", "j"], ["w", "1000", "1000", "{}"]) == "attempts"
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
