"""Who asks in a tenant's name hears of that tenant's jobs alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from cellblock import AsyncClient, Client, JobSpec, UnknownJob
from cellblock_config import Settings

pytestmark = pytest.mark.no_rerun

ASK: dict[str, Callable[[Client, str, str], object]] = {
    "status": lambda client, job, tenant: client.status(job, tenant=tenant),
    "result": lambda client, job, tenant: client.result(job, timeout_s=5, tenant=tenant),
    "result_future": lambda client, job, tenant: client.result_future(job, tenant=tenant),
    "cancel": lambda client, job, tenant: client.cancel(job, tenant=tenant),
}


@pytest.mark.parametrize("question", ASK)
def test_another_tenants_job_is_as_unknown_as_none(settings: Settings, question: str) -> None:
    with Client(settings=settings) as client:
        job = client.submit(JobSpec(code="1", tenant="acme"))
        with pytest.raises(UnknownJob) as another:
            ASK[question](client, job.id, "other")
        with pytest.raises(UnknownJob) as none:
            ASK[question](client, "0" * 32, "other")
        assert str(another.value).replace(job.id, "0" * 32) == str(none.value)
        assert not client.status(job.id).cancel_requested
        client.cancel(job.id)
        ASK[question](client, job.id, "acme")


def test_the_async_client_asks_alike(settings: Settings) -> None:
    async def ask(tenant: str) -> None:
        async with AsyncClient(settings=settings) as client:
            job = await client.submit(JobSpec(code="1", tenant="acme"))
            await client.status(job.id, tenant=tenant)
            await client.cancel(job.id, tenant=tenant)
            await client.result(job.id, timeout_s=5, tenant=tenant)

    asyncio.run(ask("acme"))
    with pytest.raises(UnknownJob):
        asyncio.run(ask("other"))
