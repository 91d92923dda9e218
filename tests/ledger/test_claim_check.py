"""Long payloads and results are in the blob store, each as long as a job names it; Redis holds names."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from cellblock import BlobLost, Client, JobSpec, NotConfigured, Outcome
from cellblock.admission.claim_check import checked_in, fetched, names_of
from cellblock.admission.resolve import Manifest
from cellblock.blobs import Blobs, ObjectBlobs, open_blobs
from cellblock.contract.evaluations import Evaluation
from cellblock.ledger import Claim, Ledger
from cellblock_config import Settings, load_settings
from cellblock_config.blobs import BlobSettings
from cellblock_workers.worker.blob_sweep import BlobSweep
from ledger.kit import STORES, be_late, claim, leave, manifest, open_ledger, operation, result_of

pytestmark = pytest.mark.no_rerun

LONG = "x" * 100_000
LEAST = 32 * 1024


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


WHOLE: dict[str, dict[str, Any]] = {
    "code": {"code": f"print({LONG!r})"},
    "stdin": {"stdin": LONG},
    "files": {"files": {"a.txt": LONG.encode(), "b.txt": b"short"}},
    "inputs": {"inputs": {"numbers": list(range(20_000)), "one": 1}},
    "an entry point": {"code": None, "files": {"start.py": LONG.encode()}, "entrypoint": "start.py"},
    "all": {"code": f"#{LONG}", "stdin": LONG, "files": {"a/b": LONG.encode()}, "inputs": {"x": [LONG]}},
}


def kept(whole: Manifest, blobs: Blobs, job_id: str = "job") -> Manifest:
    """The manifest as the ledger has it, its long parts in the blob store."""
    stored, uploads = checked_in(job_id, whole, blobs, LEAST)
    for name, data in uploads.items():
        blobs.put(data, name)
    return stored


@pytest.mark.parametrize("name", WHOLE)
def test_a_manifest_comes_back_as_it_was(blobs: Blobs, name: str) -> None:
    whole = manifest(**WHOLE[name])
    stored = kept(whole, blobs)
    text = stored.model_dump_json()
    assert len(text) < LEAST
    again = fetched(type(stored).model_validate_json(text), blobs)
    assert again.model_copy(update={"long_results": False}) == whole


def test_short_parts_stay_where_they_are(blobs: Blobs, tmp_path: Path) -> None:
    whole = manifest(code="print(1)", files={"a.txt": b"a"})
    assert kept(whole, blobs).blobs == {}
    assert not list((tmp_path / "blobs").rglob("*/*"))


def test_the_same_part_of_a_job_is_one_blob(blobs: Blobs, tmp_path: Path) -> None:
    kept(manifest(files={"a.txt": LONG.encode(), "b.txt": LONG.encode()}), blobs)
    assert len([path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]) == 1


def put(ledger: Ledger, blobs: Blobs, job_id: str, **fields: Any) -> list[str]:
    """Accept a job whose stdin is long; returns the blobs it names."""
    stored = kept(manifest(**{"stdin": LONG, **fields}), blobs, job_id)
    assert ledger.admissions.admit(job_id, stored).fresh
    return names_of(stored)


def test_a_blob_is_named_as_long_as_a_job_needs_it(store: tuple[Ledger, Redis], blobs: Blobs) -> None:
    ledger, redis = store
    (one,), (two,) = put(ledger, blobs, "one"), put(ledger, blobs, "two")
    put(ledger, blobs, "one")  # resent
    held = claim(ledger, "one")
    assert redis.hgetall(ledger.keys.blobs) == {one: "1", two: "1"}
    assert ledger.finish(held, result_of(held), operation()).word == "finished"
    assert ledger.reads.named_blobs([one, two]) == {two}
    ledger.cancel("two")
    assert ledger.reads.named_blobs([one, two]) == set()


def test_a_dead_letter_keeps_its_payload_and_loses_it_when_it_is_dropped(
    store: tuple[Ledger, Redis], blobs: Blobs
) -> None:
    ledger, _ = store
    (name,) = put(ledger, blobs, "job")
    held = claim(ledger, "job")
    ledger.finish(held, result_of(held, Outcome.SANDBOX_ERROR), operation())
    assert ledger.reads.named_blobs([name]) == {name}
    ledger.retry_dead("job", operation())
    assert fetched(claim(ledger, "job").manifest, blobs).stdin == LONG.encode()
    held = Claim("job", 2, "w1", manifest(), 0, 0)
    ledger.finish(held, result_of(held, Outcome.SANDBOX_ERROR), operation())
    assert ledger.upkeep.drop_dead("job", operation())
    assert ledger.reads.named_blobs([name]) == set()


def test_a_job_that_is_rejected_names_nothing_any_more(store: tuple[Ledger, Redis], blobs: Blobs) -> None:
    ledger, redis = store
    (name,) = put(ledger, blobs, "job")
    be_late(ledger, redis)
    assert [done.word for done in ledger.upkeep.expire()] == ["expired"]
    assert ledger.reads.named_blobs([name]) == set()


def test_a_long_result_is_elsewhere_as_long_as_its_job_is_kept(
    store: tuple[Ledger, Redis], blobs: Blobs
) -> None:
    ledger, redis = store
    put(ledger, blobs, "job")
    held = claim(ledger, "job")
    ledger.finish(held, result_of(held, stdout=LONG), operation(), long_bytes=LEAST)
    name = str(redis.hget(ledger.keys.job("job"), "result_blob"))
    assert len(str(redis.get(ledger.keys.result("job")))) < 200
    result = ledger.reads.result("job")
    assert result is not None
    assert result.stdout == LONG
    assert ledger.reads.named_blobs([name]) == {name}
    leave(ledger, redis)
    assert ledger.reads.named_blobs([name]) == set()


def bucket(folder: Path, *, days_on: float = 0) -> ObjectBlobs:
    """The blob store in this folder; injected: its clock is ``days_on`` days ahead."""
    opened = open_blobs(BlobSettings.model_validate({"url": f"file://{folder}"}))
    assert isinstance(opened, ObjectBlobs)
    return ObjectBlobs(opened._store, BlobSettings(), now=lambda: time.time() + 86_400 * days_on)


def orphan_in(opened: Blobs, data: bytes) -> str:
    """A blob that nobody names."""
    name = opened.name_of(data, "nobody")
    opened.put(data, name)
    return name


def born(ledger: Ledger, redis: Redis) -> None:
    """Injected: the store is a week old."""
    redis.set(
        ledger.keys.store, f"{ledger.upkeep.identity().name} {round(1000 * (time.time() - 7 * 86_400))}"
    )


def test_the_sweep_removes_what_no_job_names(store: tuple[Ledger, Redis], tmp_path: Path) -> None:
    ledger, redis = store
    born(ledger, redis)
    opened, later = bucket(tmp_path / "old"), bucket(tmp_path / "old", days_on=1)
    (named,) = put(ledger, opened, "job")
    orphan = orphan_in(opened, b"nobody's")
    assert BlobSweep(ledger, later).sweep() == 1
    assert opened.get(named, len(LONG)) == LONG.encode()
    with pytest.raises(BlobLost):
        opened.get(orphan, 8)
    ledger.cancel("job")
    assert BlobSweep(ledger, later).sweep() == 1


def test_no_store_sweeps_the_blobs_of_another(
    store: tuple[Ledger, Redis], redis_url: str, tmp_path: Path
) -> None:
    ledger, redis = store
    born(ledger, redis)
    opened, later = bucket(tmp_path / "shared"), bucket(tmp_path / "shared", days_on=1)
    (named,) = put(ledger, opened, "job")
    with open_ledger("redis", redis_url, redis={"url": redis_url, "key_prefix": "{other}"}) as (
        other,
        second,
    ):
        born(other, second)
        assert BlobSweep(ledger, later).sweep() == 0
        with pytest.raises(
            NotConfigured, match=r"give each store a path of its own.*remove the object 'owner'"
        ):
            BlobSweep(other, later).sweep()
    assert opened.get(named, len(LONG)) == LONG.encode()


def test_a_store_that_was_lost_leaves_what_it_cannot_know_until_no_job_can_name_it(
    store: tuple[Ledger, Redis], tmp_path: Path
) -> None:
    """The archive may name it."""
    ledger, _ = store
    before = orphan_in(bucket(tmp_path / "lost", days_on=-1), LONG.encode())
    assert BlobSweep(ledger, bucket(tmp_path / "lost", days_on=1)).sweep() == 0
    assert bucket(tmp_path / "lost").get(before, len(LONG)) == LONG.encode()
    assert BlobSweep(ledger, bucket(tmp_path / "lost", days_on=40)).sweep() == 1


def test_names_of_blobs_that_are_too_old_are_forgotten_too(
    store: tuple[Ledger, Redis], tmp_path: Path
) -> None:
    ledger, redis = store
    (named,) = put(ledger, bucket(tmp_path / "old"), "job")
    assert ledger.reads.named_blobs([named]) == {named}
    assert BlobSweep(ledger, bucket(tmp_path / "old", days_on=40)).sweep() == 1
    assert redis.hgetall(ledger.keys.blobs) == {}


def test_a_result_is_long_by_its_bytes_not_by_its_characters(
    store: tuple[Ledger, Redis], blobs: Blobs
) -> None:
    ledger, redis = store
    ledger.admissions.admit("job", manifest())
    held = claim(ledger)
    smiles = "\N{GRINNING FACE}" * (LEAST // 4)
    ledger.finish(held, result_of(held, stdout=smiles), operation(), long_bytes=LEAST)
    assert redis.hget(ledger.keys.job("job"), "result_blob") is not None


def test_a_client_without_a_blob_store_is_told_what_it_misses(settings: Settings, tmp_path: Path) -> None:
    with_one = settings.model_copy(
        update={"blobs": load_settings(blobs={"url": f"file://{tmp_path}/blobs"}).blobs}
    )
    with Client(settings=with_one) as client, Client(settings=settings) as poor:
        job = client.submit(JobSpec(code="1", stdin=LONG))
        held = client._ledger.claims.claim_next(message=job.id, worker="w", operation=operation())
        assert isinstance(held, Claim)
        assert held.manifest.long_results
        client._ledger.finish(held, result_of(held, stdout=LONG), operation(), long_bytes=LEAST)
        assert job.result(timeout_s=5).stdout == LONG
        with pytest.raises(BlobLost, match="CELLBLOCK_BLOBS_URL"):
            poor.result(job.id, timeout_s=5)


def test_an_evaluation_comes_back_as_it_was(blobs: Blobs) -> None:
    evaluation = Evaluation.model_validate(
        {
            "trials": [
                {"id": str(number), "source": f"#{LONG}\ndef f(): return {number}", "check": 0}
                for number in range(2)
            ],
            "checks": [{"kind": "function", "functions": ["f"], "tests": "assert f() == 1"}],
        }
    )
    whole = manifest(code=None, evaluation=evaluation)
    stored = kept(whole, blobs)
    assert stored.evaluation is None
    again = fetched(type(stored).model_validate_json(stored.model_dump_json()), blobs)
    assert again.evaluation == evaluation
