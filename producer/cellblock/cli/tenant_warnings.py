"""Warnings about a tenant that an operator names: it might be mistyped, or on no plan."""

from __future__ import annotations

from contextlib import suppress

import typer

from cellblock.admission.plans import PlanFile
from cellblock.client import Client
from cellblock.contract.job_spec import JobSpec
from cellblock.errors import PolicyDenied
from cellblock_config import Settings


def warn_of_tenant(client: Client, settings: Settings, tenant: str) -> None:
    """Says where the store knows no job of this tenant, and where no plan bounds its jobs."""
    plans = PlanFile(settings, client.governance.overrides)
    if not client.has_seen(tenant) and tenant not in plans.book.tenants:
        typer.echo(
            f"cellblock: the store knows no job of tenant {tenant!r}: is the name right?",
            err=True,
        )
    with suppress(PolicyDenied):  # its plan is named and missing, which its jobs will say
        if plans.entitled(JobSpec(code="pass", tenant=tenant)) is None:
            typer.echo(
                f"cellblock: tenant {tenant!r} is on no plan: its jobs have no limits but the operator's, "
                "and no cost; name it in [tenants] of the file of plans, or set CELLBLOCK_PLANS_DEFAULT",
                err=True,
            )
