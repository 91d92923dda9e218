"""What is submitted again under its key is the job of the first time, whatever has changed meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from cellblock import Client, InvalidJob, JobSpec, Limits, PolicyDenied, RateLimited
from cellblock_config import Settings
from ledger.kit import claim, operation, result_of

pytestmark = pytest.mark.no_rerun

SPEC = JobSpec(code="1", plan="premium", idempotency_key="order-17", nested_cost_micros=1000)


@pytest.fixture
def client(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setattr("cellblock.governance._FRESH_S", 0.0)
    with Client(settings=settings) as opened:
        yield opened


def again(client: Client, spec: JobSpec = SPEC) -> str:
    return client.submit(spec).id


CHANGES: dict[str, Callable[[Client], object]] = {
    "a shorter timeout": lambda client: client.governance.set("*", "timeout_s", "3", "root"),
    "less for a run": lambda client: client.governance.set("*", "cost_per_run", "0.0001", "root"),
    "no runs left today": lambda client: client.governance.set("*", "runs_per_day", "1", "root"),
    "a budget that allows no run": lambda client: client.governance.set("*", "cost_per_run", "0", "root"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_plan_that_has_changed_makes_it_no_other_job(
    client: Client, change: Callable[[Client], object]
) -> None:
    first = again(client)
    change(client)
    assert again(client) == first


def test_what_a_plan_refuses_now_was_changed_indeed(client: Client) -> None:
    """The changes above matter: without the key each would be another job, or none."""
    for word in ("no runs left today", "a budget that allows no run"):
        again(client)
        CHANGES[word](client)
        with pytest.raises((RateLimited, PolicyDenied)):
            client.submit(SPEC.model_copy(update={"idempotency_key": None}))
        client.governance.unset("*", "runs_per_day" if "runs" in word else "cost_per_run", "root")


def test_another_job_under_the_key_is_refused_also_when_nothing_is_allowed_any_more(client: Client) -> None:
    first = again(client)
    CHANGES["a budget that allows no run"](client)
    other = SPEC.model_copy(update={"limits": Limits(timeout_s=7)})
    with pytest.raises(InvalidJob, match=f"idempotency_key: 'order-17' was used for another job, {first}"):
        client.submit(other)


def test_a_nested_run_is_found_again_when_its_parent_has_ended(client: Client) -> None:
    parent = client.submit(SPEC.model_copy(update={"idempotency_key": None, "tenant": "acme"}))
    held = claim(client._ledger, parent.id)
    nested = JobSpec(code="2", parent=parent.id, idempotency_key="step-1")
    first = again(client, nested)
    client._ledger.finish(held, result_of(held), operation())
    assert again(client, nested) == first
    with pytest.raises(PolicyDenied, match="is running"):
        client.submit(nested.model_copy(update={"idempotency_key": "step-2"}))


def test_the_order_in_which_files_are_named_makes_no_other_job(client: Client) -> None:
    files = {"a.txt": b"1", "b.txt": b"\xff"}
    first = again(client, JobSpec(code="1", files=files, idempotency_key="k"))
    turned = dict(reversed(files.items()))
    assert again(client, JobSpec(code="1", files=turned, idempotency_key="k")) == first
    with pytest.raises(InvalidJob, match="another job"):
        client.submit(JobSpec(code="1", files={**files, "b.txt": b"\xfe"}, idempotency_key="k"))


def test_a_key_of_the_api_finds_only_what_its_own_tenant_submitted(client: Client) -> None:
    spec = JobSpec(code="1", idempotency_key="order-17")
    first = again(client, spec.model_copy(update={"tenant": "acme"}))
    assert client.submit(spec, api_key=client.api_keys.create("acme")).id == first
    assert client.submit(spec, api_key=client.api_keys.create("other")).id != first
