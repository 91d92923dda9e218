"""What stays in Redis, for how long, and that scripts touch only keys they declare."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from importlib import resources
from typing import Any

import pytest
from redis import Redis

from cellblock import Outcome, UnknownJob
from cellblock.contract.outcomes import OUR_FAULT
from cellblock.ledger import Dropped, Keys, Ledger
from cellblock.ledger.declarations import declaration_of
from cellblock.ledger.keys import JobOwner
from ledger.kit import (
    STORES,
    admit,
    be_late,
    claim,
    expire_lease,
    finish,
    lead,
    leave,
    manifest,
    once,
    open_ledger,
    result_of,
    settings_of,
    story,
)

pytestmark = pytest.mark.no_rerun

Store = tuple[Ledger, Redis]
TTLS = {
    "result_ttl_s": 100,
    "failed_ttl_s": 200,
    "job_ttl_s": 1000,
    "events_kept": 100,
    "expires_s": 300,
    "dead_ttl_s": 100,
    "fault_retries": 0,
}
FOLDER = resources.files("cellblock.ledger") / "scripts"
SCRIPTS = sorted(file.name for file in FOLDER.iterdir() if file.name.endswith(".lua"))


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, redis_url: str) -> Iterator[Store]:
    with open_ledger(request.param, redis_url, ledger=TTLS) as opened:
        yield opened


def _queue(ledger: Ledger, redis: Redis) -> None:
    ledger.admissions.admit("job", manifest(), once())


def _run(ledger: Ledger, redis: Redis) -> None:
    _queue(ledger, redis)
    ledger.beat("w1", [("job", claim(ledger).fence)], {"state": "ready"})


def _release(ledger: Ledger, redis: Redis) -> None:
    _queue(ledger, redis)
    ledger.release(claim(ledger), "op")


def _lose(ledger: Ledger, redis: Redis) -> None:
    _run(ledger, redis)
    expire_lease(ledger, redis)
    list(ledger.upkeep.reap())


def _lose_all(ledger: Ledger, redis: Redis) -> None:
    _lose(ledger, redis)
    for _ in range(2):
        claim(ledger)
        expire_lease(ledger, redis)
        list(ledger.upkeep.reap())


def _end(outcome: Outcome) -> Callable[[Ledger, Redis], None]:
    def end(ledger: Ledger, redis: Redis) -> None:
        _queue(ledger, redis)
        finish(ledger, claim(ledger), outcome)

    return end


def _cancel(ledger: Ledger, redis: Redis) -> None:
    _queue(ledger, redis)
    ledger.cancel("job")


def _expire(ledger: Ledger, redis: Redis) -> None:
    _queue(ledger, redis)
    be_late(ledger, redis)
    assert [done.word for done in ledger.upkeep.expire()] == ["expired"]


def _park(ledger: Ledger, redis: Redis) -> None:
    """The job "job" waits for the slot that another of its tenant has."""
    with settings_of(ledger, tenant_slots=1):
        admit(ledger, "first")
        claim(ledger, "first")
        _queue(ledger, redis)
        assert ledger.claims.claim_next(message="job", worker="w1", operation="op") == Dropped("parked")


def _promote(ledger: Ledger, redis: Redis) -> None:
    _park(ledger, redis)
    assert ledger.upkeep.look_at_parked() == ["job"]
    ledger.beat("w1", [("job", claim(ledger).fence)], {})


def _retry(ledger: Ledger, redis: Redis) -> None:
    with settings_of(ledger, fault_retries=1, retry_backoff_s=60):
        _queue(ledger, redis)
        held = claim(ledger)
        assert ledger.finish(held, result_of(held, Outcome.SANDBOX_ERROR), "op").word == "retried"


def _delay(ledger: Ledger, redis: Redis) -> None:
    _retry(ledger, redis)
    redis.zadd(ledger.keys.delayed, {"job": 1}, xx=True)  # Injected: the pause is over
    assert ledger.upkeep.wake_delayed() == ["job"]


def _retry_dead(ledger: Ledger, redis: Redis) -> None:
    _lose_all(ledger, redis)
    assert ledger.retry_dead("job", "op").wake == ("job",)


STORIES: dict[str, Callable[[Ledger, Redis], None]] = {
    "queued": _queue,
    "running": _run,
    "released": _release,
    "requeued": _lose,
    "worker_lost": _lose_all,
    "cancelled while waiting": _cancel,
    "expired": _expire,
    "parked": _park,
    "no longer parked": _promote,
    "retried": _retry,
    "delayed": _delay,
    "retried by an operator": _retry_dead,
    **{outcome.value: _end(outcome) for outcome in Outcome if outcome is not Outcome.WORKER_LOST},
}
UNDER_WAY = {
    "queued",
    "running",
    "released",
    "requeued",
    "parked",
    "no longer parked",
    "retried",
    "delayed",
    "retried by an operator",
}


@pytest.mark.parametrize("name", STORIES)
def test_every_key_of_a_job_expires(store: Store, name: str) -> None:
    ledger, redis = store
    STORIES[name](ledger, redis)
    keys = ledger.keys
    indices = {
        keys.delayed,
        keys.leases,
        keys.deadlines,
        keys.dead,
        keys.workers,
    }
    lasting = {
        *indices,
        keys.ready("default"),
        keys.lane_turns,
        keys.lane_heads,
        keys.plan_shares,
        keys.parked,
        keys.slots("default"),
        keys.line("default"),
        keys.account("default"),
        *(keys.kept("default", seconds) for seconds in (100, 200)),
        keys.keepers,
        keys.pressure,
        keys.events,
        keys.schema,
    }
    lives = {key: redis.ttl(key) for key in redis.keys("*") if key not in lasting}
    assert lives, "a job leaves something to look at"
    unled_s = 86_400  # what nobody leads out of the store leaves so much later
    longest_s = 1000 + 100 + unled_s  # job_ttl_s, and the pause of one that waits to be tried again
    assert {key: life for key, life in lives.items() if not 0 < life <= longest_s} == {}
    if name not in UNDER_WAY:
        ended = {ledger.keys.job("job"), ledger.keys.result("job"), ledger.keys.spec("job")} & set(lives)
        kept_s = 200 if redis.hget(keys.job("job"), "state") == "failed" and name not in OUR_FAULT else 100
        last_s = kept_s + unled_s
        assert {key: lives[key] for key in ended if not last_s - 5 <= lives[key] <= last_s} == {}
        (entry,) = redis.lrange(keys.kept("default", kept_s), 0, -1)
        assert entry == " ".join(["job", str(redis.hget(keys.job("job"), "kept"))])
        leaves_s = (redis.zscore(keys.keepers, f"default {kept_s}") or 0) / 1000 - redis.time()[0]
        assert kept_s - 5 <= leaves_s <= kept_s + 1
    assert redis.ttl(keys.account("default")) > 39 * 86_400


@pytest.mark.parametrize("name", STORIES)
def test_the_payload_is_kept_only_while_needed_or_when_the_fault_was_ours(store: Store, name: str) -> None:
    ledger, redis = store
    STORIES[name](ledger, redis)
    assert bool(redis.exists(ledger.keys.spec("job"))) is (name in OUR_FAULT | UNDER_WAY)


def test_an_ended_job_leaves_no_trace_of_itself_but_events(store: Store) -> None:
    ledger, redis = store
    _lose_all(ledger, redis)
    leave(ledger, redis)
    for key in redis.keys("*"):
        if redis.ttl(key) != -1:
            redis.delete(key)  # as time does
    redis.zadd(ledger.keys.workers, {"w1": 1}, xx=True)
    assert ledger.figures.workers() == {}
    lasting = {"events", "plan_shares", "schema", "upkeep", "pressure"}
    assert {str(key).split(":")[1] for key in redis.keys("*")} <= lasting, "empty sets go by themselves"
    with pytest.raises(UnknownJob):
        ledger.reads.result("job")


def test_a_job_whose_payload_has_gone_is_not_run_and_ends(store: Store) -> None:
    ledger, redis = store
    admit(ledger)
    redis.delete(ledger.keys.spec("job"))
    assert ledger.claims.claim_next(message="job", worker="w1", operation="op") == Dropped("terminal")
    assert story(ledger) == ["queued", "started", "rejected"]


def test_no_event_and_no_record_holds_code_or_stdin(store: Store) -> None:
    ledger, redis = store
    ledger.admissions.admit(
        "job",
        manifest(code="#sentinel-code", stdin="sentinel-stdin"),
        once(code="#sentinel-code", stdin="sentinel-stdin"),
    )
    finish(ledger, claim(ledger))
    stored = f"{redis.xrange(ledger.keys.events)} {redis.hgetall(ledger.keys.job('job'))}"
    assert "sentinel" not in stored
    assert "c2VudGluZWw" not in stored, "nor in base64"


def test_the_event_stream_stays_about_as_long_as_configured(store: Store) -> None:
    ledger, redis = store
    for number in range(150):
        admit(ledger, f"job{number}")
        ledger.cancel(f"job{number}")
    ledger.upkeep.trim_events(lead(ledger))
    assert 100 <= int(redis.xlen(ledger.keys.events)) <= 250


def test_old_events_are_forgotten_though_the_stream_is_short(store: Store) -> None:
    ledger, _ = store
    admit(ledger)
    begun = lead(ledger)
    ledger.upkeep.trim_events(begun)
    assert story(ledger) == ["queued"]
    with settings_of(ledger, events_ttl_s=-10):  # Injected: the clock is ten seconds on
        ledger.upkeep.trim_events(begun)
    assert story(ledger) == []


@pytest.mark.parametrize("prefix", ["{cellblock}", "{other}"])
def test_every_key_lives_under_the_prefix(redis_url: str, prefix: str) -> None:
    with open_ledger("redis", redis_url, redis={"url": redis_url, "key_prefix": prefix}) as (ledger, redis):
        _lose_all(ledger, redis)
        assert {str(key).split(":")[0] for key in redis.keys("*")} == {prefix}


CALL = re.compile(r"redis\.call\('(\w+)'(?:, *([^,)]+))?")
#: Names that hold a declared key: of a loop over a declared list, or over some keys.
HOLDERS = {"index", "list", "slots", "job_key", "account_key", "result_key", "idempotency_key"}


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_scripts_name_keys_only_from_what_is_declared(script: str) -> None:
    for command, key in CALL.findall((FOLDER / script).read_text()):
        if command not in {"TIME", "PUBLISH", "INFO"}:
            assert key in HOLDERS or re.search(r"\bkeys\.\w+$", key), f"{command} {key}"


def test_the_keys_that_are_passed_have_their_names() -> None:
    passed = Keys("p").of_job("j", JobOwner("t", "p"))
    assert list(passed) == list(declaration_of("free_slot").keys)
    differ = {name for name, key in passed.items() if key.split(":")[1] != name}
    assert differ == {"parent", "nested", "kept_failed", "kept_dead"}, "two more of job, slots and kept each"


def test_the_scripts_touch_no_key_they_did_not_declare(redis_url: str) -> None:
    """The same, seen from the server: every command a script ran, against the KEYS of its call."""
    with open_ledger("redis", redis_url) as (ledger, redis), redis.monitor() as monitor:  # type: ignore[no-untyped-call]
        for number, tell in enumerate(STORIES.values()):
            tell(ledger, redis)
            redis.flushall()
            redis.echo(f"end{number}")
        touched: list[tuple[str, str]] = []
        undeclared: list[str] = []
        declared: set[str] = set()
        seen: dict[str, Any] = {"command": ""}
        while seen["command"] != f"ECHO end{len(STORIES) - 1}":
            seen = monitor.next_command()
            words = shlex.split(seen["command"])
            if seen["client_type"] != "lua":
                declared = set(words[3 : 3 + int(words[2])]) if words[0].startswith("EVAL") else set()
            elif words[0] not in {"TIME", "PUBLISH", "INFO"}:
                touched.append((words[0], words[1]))
                undeclared += [seen["command"]] if words[1] not in declared else []
    assert len(touched) > 100
    assert undeclared == []


def test_the_prelude_names_every_field_of_a_record(redis_url: str) -> None:
    header = (FOLDER / "prelude/record.lua").read_text().split("\n\n")[0]
    known = set(re.findall(r"[a-z_]+", header))
    with open_ledger("redis", redis_url) as (ledger, redis):
        for tell in STORIES.values():
            tell(ledger, redis)
            assert set(map(str, redis.hkeys(ledger.keys.job("job")))) <= known
            redis.flushall()
