"""What a job had in the blob store is removed when it lets go of it, and counts until then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from cellblock import BlobsUnavailable, NotConfigured, Outcome, RateLimited
from cellblock.admission.claim_check import checked_in
from cellblock.blobs import Blobs, open_blobs
from cellblock.ledger import Admission, Candidate, Claim, Ledger, connect
from cellblock.queue import Publisher
from cellblock_config import load_settings
from cellblock_workers.worker.blob_removal import BlobRemoval
from cellblock_workers.worker.blob_sweep import BlobSweep
from cellblock_workers.worker.reaper import Reaper
from ledger.kit import (
    OPEN,
    STORES,
    be_late,
    claim,
    expire_lease,
    leave,
    manifest,
    open_ledger,
    operation,
    result_of,
)
from parts import wait_until

pytestmark = pytest.mark.no_rerun

LONG = "x" * 100_000
PART_BYTES = len(LONG) + 4
LEAST = 32 * 1024
BOUNDED = replace(OPEN, plan="bounded", bytes_stored=250_000)


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    opened = open_blobs(load_settings(blobs={"url": f"file://{tmp_path}/blobs"}).blobs)
    assert opened is not None
    return opened


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, redis_url: str, blobs: Blobs) -> Iterator[tuple[Ledger, Redis]]:
    with open_ledger(request.param, redis_url) as (ledger, redis):
        ledger._store.blobs = blobs
        yield ledger, redis


def stored_bytes(folder: Path) -> int:
    """What the blob store holds."""
    files = [path for path in (folder / "blobs").rglob("*") if path.is_file() and path.name != "owner"]
    return sum(path.stat().st_size for path in files)


def counted_bytes(ledger: Ledger, redis: Redis) -> int:
    """What counts of it on the tenant's account."""
    live, freed = redis.hmget(ledger.keys.account("default"), "blob_bytes", "freed_blob_bytes")
    return int(live or 0) + int(freed or 0)


def candidate(ledger: Ledger, job_id: str, **fields: Any) -> Candidate:
    """A job with a long part."""
    blobs = ledger._store.blobs
    assert blobs is not None
    whole = manifest(**{"stdin": f"{job_id:4.4}{LONG}", **fields})
    stored, uploads = checked_in(job_id, whole, blobs, LEAST)
    return Candidate(job_id, stored, gates=BOUNDED, uploads=uploads)


def submit(ledger: Ledger, job_id: str = "job", **fields: Any) -> None:
    """Admits such a job, and puts its part into the blob store."""
    whole = candidate(ledger, job_id, **fields)
    (admitted,) = ledger.admissions.admit_many([whole])
    if not isinstance(admitted, Admission):
        raise admitted
    ledger.admissions.upload(whole)


def remove(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> int:
    """Injected: what was freed was freed long ago; and a round of its removal."""
    assert ledger._store.blobs is not None
    with monkeypatch.context() as patch:
        patch.setattr("cellblock.ledger.freed_blobs._STAY_MS", -1)
        return BlobRemoval(ledger, ledger._store.blobs).remove()


def test_tenant_that_submits_and_cancels_has_no_more_there_than_its_plan_allows(
    store: tuple[Ledger, Redis], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, redis = store
    refused = 0
    for number in range(20):
        try:
            submit(ledger, f"j{number}")
        except RateLimited as error:
            assert error.limit == "bytes_stored"
            assert (error.used, error.retry_after_s) == (2 * PART_BYTES, 5)
            refused += 1
        else:
            ledger.cancel(f"j{number}")
        assert stored_bytes(tmp_path) <= BOUNDED.bytes_stored
    assert refused == 18
    assert remove(ledger, monkeypatch) == 2
    assert stored_bytes(tmp_path) == 0
    assert counted_bytes(ledger, redis) == 0
    submit(ledger, "more")


def _cancelled(ledger: Ledger, redis: Redis) -> None:
    ledger.cancel("job")


def _expired(ledger: Ledger, redis: Redis) -> None:
    be_late(ledger, redis)
    list(ledger.upkeep.expire())


def _ended(ledger: Ledger, redis: Redis) -> None:
    held = claim(ledger)
    ledger.finish(held, result_of(held, stdout=LONG), operation(), long_bytes=LEAST)
    leave(ledger, redis)


def _dropped(ledger: Ledger, redis: Redis) -> None:
    _dead(ledger)
    ledger.upkeep.drop_dead("job", operation())
    leave(ledger, redis)


def _retried_dead(ledger: Ledger, redis: Redis) -> None:
    _dead(ledger)
    ledger.retry_dead("job", operation())
    ledger.cancel("job")


def _dead(ledger: Ledger) -> None:
    """A dead letter that said much."""
    held = claim(ledger)
    ledger.finish(held, result_of(held, Outcome.SANDBOX_ERROR, stdout=LONG), operation(), long_bytes=LEAST)


def _retried(ledger: Ledger, redis: Redis) -> None:
    for _ in range(3):
        held = claim(ledger)
        failed = result_of(held, Outcome.EXIT, stdout=LONG)
        again = ledger.finish(held, failed, operation(), long_bytes=LEAST)
        assert again.word == "retried"
        redis.zadd(ledger.keys.delayed, {"job": 1})
        ledger.upkeep.wake_delayed()
    ledger.cancel("job")


def _late_word(ledger: Ledger, redis: Redis) -> None:
    held = claim(ledger)
    expire_lease(ledger, redis)
    list(ledger.upkeep.reap())
    done = ledger.finish(held, result_of(held, stdout=LONG), operation(), long_bytes=LEAST)
    assert done.word == "stale"
    ledger.cancel("job")


def _fault_of_cancelled(ledger: Ledger, redis: Redis) -> None:
    held = claim(ledger)
    ledger.cancel("job")
    _dead_now = result_of(held, Outcome.SANDBOX_ERROR, stdout=LONG)
    assert ledger.finish(held, _dead_now, operation(), long_bytes=LEAST).word == "finished"


@pytest.mark.parametrize(
    "end",
    [_cancelled, _expired, _ended, _dropped, _retried_dead, _retried, _late_word, _fault_of_cancelled],
    ids=lambda end: end.__name__,
)
def test_nothing_of_a_job_stays_there_however_it_ends(
    store: tuple[Ledger, Redis],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    end: Callable[[Ledger, Redis], None],
) -> None:
    ledger, redis = store
    submit(ledger, retries=5)
    end(ledger, redis)
    assert counted_bytes(ledger, redis) == stored_bytes(tmp_path) > 0, "it counts while it lies there"
    assert remove(ledger, monkeypatch) > 0
    assert stored_bytes(tmp_path) == 0
    assert counted_bytes(ledger, redis) == 0
    assert redis.hgetall(ledger.keys.blobs) == {}
    assert redis.llen(ledger.keys.freed_blobs) == 0


def test_blobs_of_live_jobs_and_kept_results_stay(
    store: tuple[Ledger, Redis], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two jobs with the same bytes have a blob each: one lets go of its own alone."""
    ledger, _ = store
    submit(ledger, "one", stdin=LONG)
    submit(ledger, "two", stdin=LONG)
    held = claim(ledger, "one")
    ledger.finish(held, result_of(held, stdout=LONG), operation(), long_bytes=LEAST)
    assert remove(ledger, monkeypatch) == 1
    assert stored_bytes(tmp_path) > 2 * len(LONG)
    result = ledger.reads.result("one")
    assert result is not None
    assert result.stdout == LONG
    assert claim(ledger, "two").manifest.blobs


def test_blob_stays_for_as_long_as_a_crash_of_redis_can_take_back(
    store: tuple[Ledger, Redis], blobs: Blobs, tmp_path: Path
) -> None:
    ledger, _ = store
    submit(ledger)
    ledger.cancel("job")
    assert BlobRemoval(ledger, blobs).remove() == 0
    assert stored_bytes(tmp_path) == PART_BYTES


def test_removal_that_was_interrupted_is_done_again_and_counted_once(
    store: tuple[Ledger, Redis], blobs: Blobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected: the leader ends after it has removed the blobs; a sweep may have removed others."""
    ledger, redis = store
    for job_id in ("one", "two"):
        submit(ledger, job_id)
        ledger.cancel(job_id)
    monkeypatch.setattr("cellblock.ledger.freed_blobs._STAY_MS", -1)
    first, second = ledger.freed_blobs.due(10)
    blobs.remove([first.name])
    assert remove(ledger, monkeypatch) == 2
    ledger.freed_blobs.removed([first, second])
    assert (stored_bytes(tmp_path), counted_bytes(ledger, redis)) == (0, 0)
    submit(ledger, "three")
    assert counted_bytes(ledger, redis) == PART_BYTES


def test_parts_that_come_after_their_job_has_ended_are_removed(
    store: tuple[Ledger, Redis], blobs: Blobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected: the job is cancelled, and its blobs removed, while its caller puts them there."""
    ledger, redis = store
    put = blobs.put

    def slowly(data: bytes, name: str) -> None:
        ledger.cancel("job")
        remove(ledger, monkeypatch)
        put(data, name)

    with monkeypatch.context() as patch:
        patch.setattr(blobs, "put", slowly)
        submit(ledger)
    assert counted_bytes(ledger, redis) == stored_bytes(tmp_path) == PART_BYTES
    assert remove(ledger, monkeypatch) == 1
    assert (stored_bytes(tmp_path), counted_bytes(ledger, redis)) == (0, 0)


def test_result_that_the_archive_names_stays_though_its_worker_says_its_end_again(
    store: tuple[Ledger, Redis], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected: the job has left Redis for the archive before a lost reply was asked for again."""
    ledger, redis = store
    submit(ledger)
    held, said = claim(ledger), operation()
    result = result_of(held, stdout=LONG)
    ledger.finish(held, result, said, long_bytes=LEAST)
    redis.delete(ledger.keys.job("job"))
    assert ledger.finish(held, result, said, long_bytes=LEAST).word == "stale"
    assert remove(ledger, monkeypatch) == 1
    assert stored_bytes(tmp_path) > len(LONG)


def test_blobs_that_the_archive_lets_go_of_are_removed(
    store: tuple[Ledger, Redis], blobs: Blobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, redis = store
    name = blobs.name_of(b"a result", "job 1")
    blobs.put(b"a result", name)
    redis.hset(ledger.keys.blobs, name, 1)
    ledger.archiving.release_blobs([name])
    assert remove(ledger, monkeypatch) == 1
    assert stored_bytes(tmp_path) == 0


def test_no_store_removes_the_blobs_of_another_and_they_count_on(
    store: tuple[Ledger, Redis], blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a backup was restored: the store that was copied may live."""
    ledger, redis = store
    blobs.own("another")
    submit(ledger)
    ledger.cancel("job")
    with pytest.raises(NotConfigured, match="belong to the store 'another'"):
        remove(ledger, monkeypatch)
    assert counted_bytes(ledger, redis) == PART_BYTES


def test_blobs_wait_for_a_store_that_is_away(
    store: tuple[Ledger, Redis], blobs: Blobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected: it refuses once."""
    ledger, redis = store
    submit(ledger)
    ledger.cancel("job")
    with monkeypatch.context() as patch:
        patch.setattr(blobs, "remove", _refuse)
        with pytest.raises(BlobsUnavailable):
            remove(ledger, monkeypatch)
    assert counted_bytes(ledger, redis) == PART_BYTES
    assert remove(ledger, monkeypatch) == 1
    assert (stored_bytes(tmp_path), counted_bytes(ledger, redis)) == (0, 0)


def _refuse(names: object) -> None:
    raise BlobsUnavailable("it is away")


def test_list_of_freed_blobs_is_bounded_and_the_sweep_finds_the_others(
    store: tuple[Ledger, Redis], blobs: Blobs, tmp_path: Path
) -> None:
    """Injected: nobody has removed any for long."""
    ledger, redis = store
    redis.rpush(ledger.keys.freed_blobs, *[f"1 1 name{number} default" for number in range(50_000)])
    submit(ledger)
    ledger.cancel("job")
    assert redis.llen(ledger.keys.freed_blobs) == 50_000
    assert counted_bytes(ledger, redis) == 0
    assert redis.hgetall(ledger.keys.blobs) == {}, "the sweep may remove it"
    assert BlobSweep(ledger, blobs).sweep() == 0, "not yet: it is young"
    assert stored_bytes(tmp_path) == PART_BYTES


def test_account_of_a_tenant_without_a_plan_goes_although_its_blobs_are_still_to_be_removed(
    store: tuple[Ledger, Redis], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, redis = store
    whole = replace(candidate(ledger, "job"), gates=None)
    ledger.admissions.admit_many([whole])
    ledger.admissions.upload(whole)
    held = claim(ledger)
    assert isinstance(held, Claim)
    ledger.finish(held, result_of(held), operation())
    leave(ledger, redis)
    assert not redis.exists(ledger.keys.account("default"))
    assert remove(ledger, monkeypatch) == 1
    assert not redis.exists(ledger.keys.account("default"))
    assert stored_bytes(tmp_path) == 0


def test_leader_removes_what_is_due(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Injected: a blob store that refuses at first."""
    settings = load_settings(redis={"url": redis_url}, blobs={"url": f"file://{tmp_path}/blobs"})
    monkeypatch.setattr("cellblock.ledger.freed_blobs._STAY_MS", -1)
    monkeypatch.setattr("cellblock_workers.worker.blob_removal._AGAIN_S", 0.2)
    blobs = open_blobs(settings.blobs)
    assert blobs is not None
    with connect(settings) as redis:
        ledger = Ledger(redis, settings, blobs=blobs)
        reaper = Reaper(ledger, Publisher(redis, settings), redis, settings, worker="w", blobs=blobs)
        submit(ledger)
        ledger.cancel("job")
        with monkeypatch.context() as patch:
            patch.setattr(blobs, "remove", _refuse)
            reaper.tick()
            time.sleep(0.3)
            reaper.tick()
            assert stored_bytes(tmp_path) == PART_BYTES
            time.sleep(0.3)
        reaper.tick()
        wait_until(lambda: stored_bytes(tmp_path) == 0, what="its removal")
        wait_until(lambda: counted_bytes(ledger, redis) == 0, what="its account")
