"""Signed jobs on the way through the store: what was altered in Redis is rejected before any sandbox.

The runner is the worker's own. Its launcher's socket leads nowhere, so a job that is allowed to run is given
back at the first question for a sandbox: that a job was rejected proves that none was asked for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from cellblock import Client, JobResult, JobSpec, JobState, Outcome
from cellblock.admission.signing import new_key
from cellblock.ledger import Ledger, connect
from cellblock_config import Settings, load_settings
from cellblock_workers.launcher.client import LauncherClient
from cellblock_workers.lease import Heart
from cellblock_workers.worker.runner import JobRunner
from ledger.kit import claim, finish, operation, story

pytestmark = pytest.mark.no_rerun

KEY, TRUSTED = new_key("hmac")
PRODUCER = {"key": KEY, "key_id": "k1"}
WORKER = {"trusted": {"k1": TRUSTED}, "require_signature": True}


class Fleet:
    """A producer, the store, and a worker without sandboxes."""

    def __init__(self, redis_url: str, folder: Path) -> None:
        self._url = redis_url
        self._folder = folder
        self.settings = load_settings(redis={"url": redis_url})
        self.redis = connect(self.settings)
        self.ledger = Ledger(self.redis, self.settings)
        self.asked_for_sandboxes: list[str] = []

    def submit(self, signing: dict[str, Any] = PRODUCER, key: str | None = None, **spec: Any) -> str:
        """Through the public client, with these signing settings."""
        settings = load_settings(redis={"url": self._url}, signing=signing)
        with Client(settings=settings) as client:
            return client.submit(JobSpec(**{"code": "print(6*7)", "idempotency_key": key, **spec})).id

    def work(self, job_id: str, signing: dict[str, Any] = WORKER) -> JobResult | None:
        """One delivery to a worker with these signing settings; the result if the job has ended."""
        settings = load_settings(redis={"url": self._url}, signing=signing)
        with _runner(self.ledger, settings, self._folder, self.asked_for_sandboxes) as runner:
            runner.run(job_id)
        return self.ledger.reads.result(job_id)

    def document(self, job_id: str) -> dict[str, Any]:
        """The stored manifest."""
        return cast(dict[str, Any], json.loads(str(self.redis.get(self.ledger.keys.spec(job_id)))))

    def overwrite(self, job_id: str, document: object) -> None:
        """What somebody with access to Redis does."""
        text = document if isinstance(document, str) else json.dumps(document)
        self.redis.set(self.ledger.keys.spec(job_id), text, keepttl=True)


@contextmanager
def _runner(ledger: Ledger, settings: Settings, folder: Path, asked: list[str]) -> Iterator[JobRunner]:
    launcher = LauncherClient(folder / "nowhere.sock", timeout_s=1)
    heart = Heart(ledger, "worker", settings.ledger, lambda: {"state": "ready"})
    yield JobRunner(
        ledger,
        launcher,
        heart,
        settings,
        worker="worker",
        on_wake=lambda wakes: None,
        on_unavailable=asked.append,
    )
    launcher.close()


@pytest.fixture
def fleet(redis_url: str, tmp_path: Path) -> Iterator[Fleet]:
    started = Fleet(redis_url, tmp_path)
    yield started
    started.redis.close()


def rejected(fleet: Fleet, job_id: str, kind: str) -> None:
    """It ended once, by this name, and nobody asked for a sandbox."""
    result = fleet.work(job_id)
    assert result is not None, "the job was given back: a sandbox was asked for"
    assert (result.outcome, result.error.type if result.error else "") == (Outcome.REJECTED, kind)
    assert (result.isolation, result.stdout, result.exit_code) == (None, "", None)
    fleet.work(job_id)  # the same message again
    assert story(fleet.ledger, job_id)[0] == "queued"
    assert story(fleet.ledger, job_id)[-1] == "rejected"
    assert story(fleet.ledger, job_id).count("rejected") == 1
    assert fleet.ledger.reads.status(job_id).state is JobState.REJECTED
    assert fleet.asked_for_sandboxes == []
    assert fleet.redis.get(fleet.ledger.keys.spec(job_id)) is None, "the refused code is not kept"


def test_a_signed_job_goes_on_to_its_sandbox(fleet: Fleet) -> None:
    job_id = fleet.submit()
    assert fleet.work(job_id) is None
    assert len(fleet.asked_for_sandboxes) == 1
    assert fleet.ledger.reads.status(job_id).state is JobState.QUEUED, (
        "given back, as no sandbox was to be had"
    )


def test_an_unsigned_job_is_rejected_where_signatures_are_required(fleet: Fleet) -> None:
    rejected(fleet, fleet.submit(signing={}), "SignatureMissing")


def test_a_job_signed_with_an_unknown_key_is_rejected(fleet: Fleet) -> None:
    rejected(fleet, fleet.submit(signing={"key": new_key("hmac")[0], "key_id": "k2"}), "SignatureKeyUnknown")


def test_a_job_signed_with_another_key_of_the_same_name_is_rejected(fleet: Fleet) -> None:
    rejected(fleet, fleet.submit(signing={"key": new_key("hmac")[0], "key_id": "k1"}), "SignatureInvalid")


EVIL = "import os; os.system('id')"
TAMPERINGS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "code": (lambda d: {**d, "code": EVIL}, "SignatureInvalid"),
    "stdin": (lambda d: {**d, "stdin": "ZXZpbA=="}, "SignatureInvalid"),
    "args": (lambda d: {**d, "args": ["--evil"]}, "SignatureInvalid"),
    "level": (lambda d: {**d, "level": "permissive"}, "SignatureInvalid"),
    "tenant": (lambda d: {**d, "tenant": "victim"}, "SignatureInvalid"),
    "limits": (lambda d: {**d, "limits": {**d["limits"], "memory_bytes": 2**31}}, "SignatureInvalid"),
    "image": (lambda d: {**d, "image": "datascience"}, "SignatureInvalid"),
    "signature cut": (
        lambda d: {**d, "signature": {**d["signature"], "value": d["signature"]["value"][:8]}},
        "SignatureInvalid",
    ),
    "signature junk": (
        lambda d: {**d, "signature": {**d["signature"], "value": "ünicode\n"}},
        "SignatureInvalid",
    ),
    "signature removed": (lambda d: {**d, "signature": None}, "SignatureMissing"),
    "signature left out": (lambda d: {k: v for k, v in d.items() if k != "signature"}, "SignatureMissing"),
    "key renamed": (
        lambda d: {**d, "signature": {**d["signature"], "key_id": "none"}},
        "SignatureKeyUnknown",
    ),
    "a field more": (lambda d: {**d, "privileged": True}, "ManifestUnreadable"),
    "a method named": (
        lambda d: {**d, "signature": {**d["signature"], "algorithm": "none"}},
        "ManifestUnreadable",
    ),
    "a field of another type": (lambda d: {**d, "code": {"$": 1}}, "ManifestUnreadable"),
    "a path as the key's name": (
        lambda d: {**d, "signature": {**d["signature"], "key_id": "../../k1"}},
        "ManifestUnreadable",
    ),
    "no JSON": (lambda d: "\x00", "ManifestUnreadable"),
    "deep JSON": (lambda d: "[" * 100_000, "ManifestUnreadable"),
    "code given twice": (
        lambda d: json.dumps(d)[:-1] + f', "code": {json.dumps(EVIL)}}}',
        "SignatureInvalid",
    ),
}


@pytest.mark.parametrize(("tamper", "kind"), TAMPERINGS.values(), ids=TAMPERINGS)
def test_a_job_altered_in_redis_is_rejected(
    fleet: Fleet, tamper: Callable[[dict[str, Any]], object], kind: str
) -> None:
    job_id = fleet.submit()
    fleet.overwrite(job_id, tamper(fleet.document(job_id)))
    rejected(fleet, job_id, kind)


@pytest.mark.parametrize("name", ["code", "stdin", "args", "level", "tenant", "limits", "image"])
def test_the_same_alterations_would_run_without_signatures(fleet: Fleet, name: str) -> None:
    job_id = fleet.submit(signing={})
    tamper, _ = TAMPERINGS[name]
    fleet.overwrite(job_id, tamper(fleet.document(job_id)))
    assert fleet.work(job_id, signing={}) is None
    assert len(fleet.asked_for_sandboxes) == 1


def test_signatures_swapped_between_two_jobs_are_rejected(fleet: Fleet) -> None:
    one, two = fleet.submit(), fleet.submit(code="print('other')")
    first, second = fleet.document(one), fleet.document(two)
    fleet.overwrite(one, {**first, "signature": second["signature"]})
    fleet.overwrite(two, {**second, "signature": first["signature"]})
    rejected(fleet, one, "SignatureInvalid")
    rejected(fleet, two, "SignatureInvalid")


def test_a_signed_job_replayed_under_another_id_is_rejected(fleet: Fleet) -> None:
    one, two = fleet.submit(), fleet.submit(code="print('other')")
    fleet.overwrite(two, fleet.document(one))
    fleet.ledger.cancel(one)
    rejected(fleet, two, "SignatureInvalid")


def test_a_signed_job_that_is_too_old_is_rejected(fleet: Fleet) -> None:
    job_id = fleet.submit()
    result = fleet.work(job_id, {**WORKER, "max_age_s": 11})
    assert result is None, "young enough"
    document = fleet.document(job_id)
    old = {**document, "submitted": document["submitted"] - 60}
    fleet.overwrite(job_id, old)
    assert fleet.work(job_id, {**WORKER, "max_age_s": 11}), "and its age cannot be changed"
    assert fleet.ledger.reads.status(job_id).state is JobState.REJECTED


def test_a_rejection_says_nothing_of_the_code_or_the_keys(fleet: Fleet) -> None:
    job_id = fleet.submit(code="marker = 'its-own-code'")
    fleet.overwrite(job_id, {**fleet.document(job_id), "level": "strict"})
    result = fleet.work(job_id)
    assert result is not None
    shown = result.model_dump_json() + str(fleet.ledger.reads.events())
    assert "its-own-code" not in shown
    assert KEY.partition(":")[2] not in shown


def test_a_signed_job_sent_again_under_its_idempotency_key_is_the_first_one(fleet: Fleet) -> None:
    first = fleet.submit(key="order-17")
    assert fleet.submit(key="order-17") == first
    assert fleet.submit(key="order-17", signing={}) == first, "the key is not part of what the job is"
    assert fleet.work(first) is None
    assert len(fleet.asked_for_sandboxes) == 1, "the stored signature is the first one's, and holds"


def test_an_unreadable_manifest_ends_its_job_under_its_own_fence_only(fleet: Fleet) -> None:
    job_id = fleet.submit()
    held = claim(fleet.ledger, job_id)
    fleet.overwrite(job_id, "{}")
    assert fleet.work(job_id) is None, "another attempt runs: a second delivery is dropped"
    assert finish(fleet.ledger, held)
    assert fleet.ledger.release(held, operation()).word == "stale"
    assert story(fleet.ledger, job_id) == ["queued", "started", "succeeded"]
