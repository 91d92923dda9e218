"""Several jobs submitted in one call: of each its job, or what `submit` would raise for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from redis import Redis

from cellblock import AsyncClient, Client, InvalidJob, JobSpec, PolicyDenied, RateLimited
from cellblock.client import Job
from cellblock.queue import queue_key
from cellblock_config import Settings

pytestmark = pytest.mark.no_rerun


def messages(redis: Redis, settings: Settings) -> list[str]:
    """The jobs that are named to workers, in the order of the queue: of each tenant the first in line."""
    sent = redis.lrange(queue_key(settings), 0, -1)
    return [json.loads(str(message))["headers"]["id"] for message in reversed(sent)]


def ids(found: Sequence[object]) -> list[str]:
    return [one.id for one in found if isinstance(one, Job)]


def test_each_is_its_job_or_why_it_is_none(client: Client, redis: Redis, settings: Settings) -> None:
    wrong: Any = {"code": "1"}
    first, second, third, fourth = client.submit_many(
        [
            JobSpec(code="1"),
            wrong,
            JobSpec(code="1", parent="0123456789abcdef0123456789abcdef"),
            JobSpec(code="2", tenant="acme"),
        ]
    )
    assert isinstance(first, Job)
    assert isinstance(second, InvalidJob)
    assert "is a dict" in str(second)
    assert isinstance(third, PolicyDenied)
    assert isinstance(fourth, Job)
    assert (first.status().tenant, fourth.status().tenant) == ("default", "acme")
    assert messages(redis, settings) == [first.id, fourth.id]


def test_none_is_none(client: Client) -> None:
    assert client.submit_many([]) == []


def test_a_key_is_one_job_also_within_a_call(client: Client, redis: Redis, settings: Settings) -> None:
    once, other = JobSpec(code="1", idempotency_key="k"), JobSpec(code="2", idempotency_key="k")
    before = client.submit(JobSpec(code="0", idempotency_key="before"))
    found = client.submit_many([once, JobSpec(code="0", idempotency_key="before"), once, other])
    first, known, again, different = found
    assert isinstance(first, Job) and isinstance(again, Job) and isinstance(known, Job)
    assert first.id == again.id
    assert known.id == before.id
    assert isinstance(different, InvalidJob)
    assert len(messages(redis, settings)) == 2


def test_the_last_of_a_plan_refuse_the_rest(client: Client) -> None:
    client.governance.set("*", "runs_per_day", "2", "root")
    specs = [JobSpec(code="1", plan="premium", idempotency_key=f"{at}") for at in range(4)]
    found = client.submit_many(specs)
    assert [type(one) for one in found] == [Job, Job, RateLimited, RateLimited]
    assert str(found[2]).startswith("runs_per_day")
    again = client.submit_many(specs)
    assert [one.id for one in again if isinstance(one, Job)] == [
        one.id for one in found if isinstance(one, Job)
    ]


def test_an_api_key_speaks_for_its_own_tenant(client: Client) -> None:
    token = client.api_keys.create("acme")
    own, others = client.submit_many([JobSpec(code="1"), JobSpec(code="1", tenant="other")], api_key=token)
    assert isinstance(own, Job)
    assert own.status().tenant == "acme"
    assert isinstance(others, PolicyDenied)
    with pytest.raises(PolicyDenied, match="no such key"):
        client.submit_many([JobSpec(code="1")], api_key=token[:-1])


def test_the_queue_is_told_of_all_of_them(client: Client, redis: Redis, settings: Settings) -> None:
    found = client.submit_many(JobSpec(code=str(at)) for at in range(300))
    assert all(isinstance(one, Job) for one in found)
    assert len(messages(redis, settings)) == 300, "as many as can be claimed"
    assert client._ledger.figures.depth() == len(found) == 300


def test_the_same_for_asyncio(settings: Settings) -> None:
    async def submit() -> list[object]:
        async with AsyncClient(settings=settings) as client:
            found = await client.submit_many([JobSpec(code="1"), JobSpec(code="1", parent="0" * 32)])
            return [
                (await one.status()).tenant if not isinstance(one, Exception) else type(one) for one in found
            ]

    assert asyncio.run(submit()) == ["default", PolicyDenied]
