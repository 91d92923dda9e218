"""API keys: only their hash is kept, they run for their tenant alone, and carry but runs and tools."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from cellblock import AsyncClient, Client, InvalidJob, JobSpec, PolicyDenied
from cellblock_config import Settings
from ledger.kit import dump
from parts import REPOSITORY

pytestmark = pytest.mark.no_rerun

SPEC = JobSpec(code="1", tenant="acme")


@pytest.fixture(params=[False, True], ids=["no policy", "our policies"])
def client(request: pytest.FixtureRequest, settings: Settings) -> Iterator[Client]:
    if request.param:
        policy = settings.policy.model_copy(update={"folder": REPOSITORY / "config" / "policies"})
        settings = settings.model_copy(update={"policy": policy})
    with Client(settings=settings) as opened:
        yield opened


def test_a_key_runs_for_its_tenant_and_for_no_other(client: Client) -> None:
    token = client.api_keys.create("acme")
    assert client.submit(SPEC, api_key=token).status().tenant == "acme"
    with pytest.raises(PolicyDenied, match="tenant: the API key belongs to tenant 'acme', not 'other'"):
        client.submit(SPEC.model_copy(update={"tenant": "other"}), api_key=token)


def test_a_job_that_names_no_tenant_is_its_keys(client: Client) -> None:
    token = client.api_keys.create("acme")
    assert client.submit(JobSpec(code="1"), api_key=token).status().tenant == "acme"


def test_the_async_client_submits_in_the_name_of_a_key_too(settings: Settings) -> None:
    async def submit(token: str, tenant: str) -> str:
        async with AsyncClient(settings=settings) as client:
            job = await client.submit(JobSpec(code="1", tenant=tenant), api_key=token)
            return (await job.status()).tenant

    with Client(settings=settings) as client:
        token = client.api_keys.create("acme")
    assert asyncio.run(submit(token, "acme")) == "acme"
    with pytest.raises(PolicyDenied, match="belongs to tenant 'acme'"):
        asyncio.run(submit(token, "other"))


def test_an_estimate_and_a_batch_are_bound_by_their_key_too(client: Client) -> None:
    token = client.api_keys.create("acme")
    assert client.estimate(JobSpec(code="1"), api_key=token).worst_micros > 0
    theirs = JobSpec(code="1", tenant="other")
    with pytest.raises(PolicyDenied, match="belongs to tenant 'acme'"):
        client.estimate(theirs, api_key=token)
    (refused,) = client.map([theirs], api_key=token)
    assert isinstance(refused, PolicyDenied)
    assert "belongs to tenant 'acme'" in str(refused)
    with pytest.raises(PolicyDenied, match="api_key"):
        next(client.map([theirs], api_key="cbk_unknown"))
    with pytest.raises(PolicyDenied, match="plan: 'premium' requested with an API key"):
        client.estimate(JobSpec(code="1", plan="premium"), api_key=token)


def test_the_holder_of_a_key_lifts_no_plan_by_naming_none(client: Client) -> None:
    token = client.api_keys.create("acme")
    for _ in range(3):
        client.submit(SPEC.model_copy(update={"plan": "freemium"}))
    client.submit(SPEC, api_key=token)
    account = client._ledger.keys.account("acme")
    assert client._redis.hget(account, "parallel") == "1"
    client.submit(SPEC)
    assert client._redis.hget(account, "parallel") is None, "its producer may"


def test_a_whole_key_can_be_revoked_and_is_not_shown(client: Client) -> None:
    token = client.api_keys.create("acme")
    assert client.api_keys.revoke(token)
    assert client.api_keys.list() == []
    with pytest.raises(InvalidJob) as error:
        client.api_keys.rotate(token)
    assert token[8:30] not in str(error.value)


def test_a_key_of_tools_alone_runs_nothing(client: Client) -> None:
    token = client.api_keys.create("acme", ["tool.math.invoke"])
    with pytest.raises(PolicyDenied, match="does not carry"):
        client.submit(SPEC, api_key=token)


def test_the_store_holds_no_secret(client: Client) -> None:
    token = client.api_keys.create("acme")
    secret = token.split("_", 2)[2]
    assert secret not in str(dump(client._redis))
    assert secret not in repr(client.api_keys.list())
    assert "digest" not in client.api_keys.list()[0].model_dump_json()


def test_a_rotated_and_a_revoked_key_are_worth_nothing(client: Client) -> None:
    old = client.api_keys.create("acme", ["agent.run.invoke", "tool.math.invoke"])
    (known,) = client.api_keys.list()
    new = client.api_keys.rotate(known.id)
    assert client.api_keys.principal(new).capabilities == known.capabilities
    with pytest.raises(PolicyDenied, match="no such key, or it was revoked or rotated"):
        client.submit(SPEC, api_key=old)
    assert client.api_keys.revoke(known.id)
    assert not client.api_keys.revoke(known.id)
    with pytest.raises(PolicyDenied, match="no such key"):
        client.submit(SPEC, api_key=new)
    with pytest.raises(InvalidJob, match="there is no key of this id"):
        client.api_keys.rotate(known.id)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: "",
        lambda t: t[:-1],
        lambda t: t + "A",
        lambda t: t[:-1] + "é",
        lambda t: "cbk_" + "0" * 16 + t[20:],
    ],
)
def test_what_is_not_exactly_a_key_is_none(client: Client, change: Callable[[str], str]) -> None:
    token = client.api_keys.create("acme")
    with pytest.raises(PolicyDenied, match="no such key") as refused:
        client.submit(SPEC, api_key=change(token))
    assert token[30:] not in str(refused.value)


@pytest.mark.parametrize(
    "capability",
    [
        "*",
        "tool.*",
        "wallet.transfer",
        "agent.run.*",
        "governance.set",
        "tool..invoke",
        "tool.x.invoke\n",
        "",
    ],
)
def test_no_key_carries_anything_else(client: Client, capability: str) -> None:
    with pytest.raises(InvalidJob, match="capability"):
        client.api_keys.create("acme", [capability])
    with pytest.raises(InvalidJob, match="capability"):
        client.api_keys.create("acme", [])
    with pytest.raises(InvalidJob, match="tenant"):
        client.api_keys.create("a b")
    assert client.api_keys.list() == []
