"""`cellblock plans` and `cellblock usage`: what tenants may, and what they have used."""

from __future__ import annotations

import csv
import getpass
import json
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from cellblock.admission.plans import PlanFile, amount
from cellblock.cli.option_groups import JsonOpt
from cellblock.cli.tenant_warnings import warn_of_tenant
from cellblock.client import Client
from cellblock.contract.job_spec import JobSpec
from cellblock.contract.job_status import DayUsage
from cellblock.governance import shown
from cellblock.ledger.stored_results import longest_bytes
from cellblock_config import Settings, load_settings
from cellblock_config.plans import EVERYBODY, MICROS, Override, Plan, PlanBook, PlansError, load_plans
from cellblock_config.prices import load_prices

KeyArg = Annotated[str, typer.Argument(metavar="KEY", help=f"One of {', '.join(Override.names())}.")]
TenantOpt = Annotated[str, typer.Option(help="Tenant it holds for. Default: all tenants.")]
ByOpt = Annotated[str | None, typer.Option("--by", help="Who makes the change; the login name by default.")]
Format = Literal["table", "json", "csv"]
_WIDE = 200


def register(app: typer.Typer) -> None:
    """Add the group and the command to the root."""
    group = typer.Typer(help="What each plan allows.", no_args_is_help=True)
    group.command("list")(list_plans)
    group.command()(show)
    group.command()(check)
    group.command("set")(set_override)
    group.command("unset")(unset_override)
    group.command()(audit)
    app.add_typer(group, name="plans")
    app.command()(usage)


def list_plans(json_output: JsonOpt = False) -> None:
    """List the plans in force.

    Example: cellblock plans list
    """
    settings = load_settings()
    book = load_plans(settings.plans.file)
    if json_output:
        typer.echo(book.model_dump_json(by_alias=False))
        return
    unit = load_prices(settings.plans.prices).table.unit
    table = Table(box=box.SIMPLE, show_edge=False)
    for header in ("plan", "parallel", "per s", "a day", "queue", "timeout", "vCPU", "memory", "weight"):
        table.add_column(header, no_wrap=True)
    for header in (f"{unit} a run", f"{unit} a day"):
        table.add_column(header, no_wrap=True)
    for name, plan in book.plans.items():
        table.add_row(name, *_row(plan))
    Console(width=None if sys.stdout.isatty() else _WIDE).print(table)


def show(
    name: Annotated[str | None, typer.Argument(metavar="PLAN", help="Name of the plan.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Show what holds for this tenant now.")] = None,
    role: Annotated[str | None, typer.Option(help="In this role of the plan.")] = None,
    json_output: JsonOpt = False,
) -> None:
    """Show one plan with all it says, or what holds for a tenant: under governance, its stake and a role.

    Example: cellblock plans show casual
    """
    if name is None and tenant is None:
        raise typer.BadParameter("which? name a plan, or --tenant")
    if tenant is None and role is not None:
        raise typer.BadParameter("a role is one of a tenant's; name that with --tenant")
    title, plan = _in_file(str(name)) if tenant is None else _holding(tenant, name, role)
    said = plan.model_dump(mode="json", by_alias=False)
    if json_output:
        typer.echo(json.dumps(said if tenant is None else {"plan": title, **said}))
        return
    if tenant is not None:
        typer.echo(f"{tenant}: {title}")
    for field, value in said.items():
        text = ", ".join(value) if isinstance(value, list) else value
        typer.echo(f"{field:<22} {'-' if text is None else text}")


def _in_file(name: str) -> tuple[str, Plan]:
    book = load_plans(load_settings().plans.file)
    if name not in book.plans:
        raise typer.BadParameter(f"there is no plan {name!r}; there are {', '.join(book.plans)}")
    return name, book.plans[name]


def _holding(tenant: str, name: str | None, role: str | None) -> tuple[str, Plan]:
    """What a job of this tenant would be held to. Without a fleet nothing was set at run time."""
    settings, spec = load_settings(), JobSpec(code="pass", tenant=tenant, plan=name, role=role)
    if settings.redis.url is None:
        found = PlanFile(settings).entitled(spec)
    else:
        with Client(settings=settings) as client:
            found = PlanFile(settings, client.governance.overrides).entitled(spec)
    if found is None:
        raise typer.BadParameter(f"{tenant!r} is on no plan: only the operator's bounds hold for it")
    return found.whose, found.plan


def check(file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of plans.")]) -> None:
    """Say whether a file of plans can be used, before it is put in place.

    Example: cellblock plans check plans.toml
    """
    try:
        book = load_plans(file)
    except PlansError as error:
        typer.echo(f"cellblock: {error}", err=True)
        raise typer.Exit(2) from None
    for line in _beyond(book, load_settings()):
        typer.echo(f"cellblock: {line}", err=True)
    typer.echo(f"ok; plans: {len(book.plans)}, roles: {len(book.roles)}, tenants: {len(book.tenants)}")


def _beyond(book: PlanBook, settings: Settings) -> Iterator[str]:
    """What plans promise and this fleet refuses."""
    bounds, longest = settings.sandbox, longest_bytes(settings)
    for name, plan in book.plans.items():
        for field, value, word, bound in (
            ("timeout_s", plan.timeout_most_s or plan.timeout_s, "above", "timeout_max_s"),
            ("cpus", plan.cpus_most or plan.cpus, "above", "cpus_max"),
            ("cpus", plan.cpus, "below", "cpus_min"),
            ("memory_bytes", plan.memory_most_bytes or plan.memory_bytes, "above", "memory_max_bytes"),
            ("memory_bytes", plan.memory_bytes, "below", "memory_min_bytes"),
        ):
            allowed = getattr(bounds, bound)
            if value > allowed if word == "above" else value < allowed:
                yield (
                    f"{name}: {field} {amount(field, value)} is {word} what this fleet runs: "
                    f"{amount(field, allowed)} (CELLBLOCK_SANDBOX_{bound.upper()})"
                )
        for field in ("bytes_held", "bytes_stored"):
            value = getattr(plan, field)
            if value is not None and value < longest:
                yield (
                    f"{name}: {field} {amount('_bytes', value)} is below the longest result that a job can "
                    f"have: {amount('_bytes', longest)}. Longer ones than it are cut: raise it, or lower "
                    "CELLBLOCK_LEDGER_ARTIFACTS_BYTES"
                )
        for image in set(plan.images) - {"*"} - set(bounds.images):
            yield f"{name}: image {image!r} is not one of this fleet's: {', '.join(sorted(bounds.images))}"


def set_override(
    key: KeyArg,
    value: Annotated[str, typer.Argument(help="The new value.")],
    tenant: TenantOpt = EVERYBODY,
    by: ByOpt = None,
) -> None:
    """Set a limit in place of the plans', for one tenant or for everybody; it holds within a second.

    It stands where the plan's own word stood, be that more or less; no role and no stake raises it. Jobs
    already admitted keep what they have; `parallel` holds from the tenant's next job on.

    Example: cellblock plans set timeout_s 120 --tenant acme
    """
    settings = load_settings()
    with Client(settings=settings) as client:
        change = client.governance.set(tenant, key, value, by or getpass.getuser())
        for line in shown(change):
            typer.echo(line)
        if tenant != EVERYBODY:
            warn_of_tenant(client, settings, tenant)


def unset_override(key: KeyArg, tenant: TenantOpt = EVERYBODY, by: ByOpt = None) -> None:
    """Let the plan's own word hold again.

    Example: cellblock plans unset timeout_s --tenant acme
    """
    with Client() as client:
        change = client.governance.unset(tenant, key, by or getpass.getuser())
    for line in shown(change):
        typer.echo(line)


def audit(
    limit: Annotated[int, typer.Option(min=1, help="How many to list at most, latest first.")] = 50,
    json_output: JsonOpt = False,
) -> None:
    """Say who set what: when, before and after.

    Example: cellblock plans audit
    """
    with Client() as client:
        changes = client.governance.audit(limit=limit)
    if changes and not json_output:
        typer.echo(f"{'time':<25}  who  tenant  key: before -> after")
    for change in changes:
        for line in [change.model_dump_json()] if json_output else shown(change):
            typer.echo(line)


def usage(
    tenant: Annotated[
        str | None, typer.Option(help="Tenant whose usage to show. Default: all tenants.")
    ] = None,
    day: Annotated[datetime | None, typer.Option(formats=["%Y-%m-%d"], help="One day (UTC).")] = None,
    since: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%d"], help="From this day on; the archive has those before forty days ago."
        ),
    ] = None,
    output: Annotated[Format, typer.Option("--format", help="How to print it.")] = "table",
    json_output: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Say what tenants with a plan used: runs, and money spent and held.

    Example: cellblock usage --tenant acme --day 2026-11-21 --format csv
    """
    with Client() as client:
        found = client.usage(
            tenant,
            day.date() if day is not None else None,
            since.date() if since is not None else None,
        )
    _SHOWN["json" if json_output else output](found)


def _as_json(found: list[DayUsage]) -> None:
    for one in found:
        typer.echo(one.model_dump_json())


def _as_csv(found: list[DayUsage]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(DayUsage.model_fields)
    writer.writerows(one.model_dump(mode="json").values() for one in found)


def _as_table(found: list[DayUsage]) -> None:
    unit = load_prices(load_settings().plans.prices).table.unit
    table = Table(box=box.SIMPLE, show_edge=False)
    for header in ("day (UTC)", "tenant", "runs", f"spent ({unit})", f"held ({unit})"):
        table.add_column(header, no_wrap=True)
    for one in found:
        money = (f"{micros / MICROS:.6f}" for micros in (one.spent_micros, one.reserved_micros))
        table.add_row(one.day.isoformat(), one.tenant, str(one.runs), *money)
    Console(width=None if sys.stdout.isatty() else _WIDE).print(table if found else "nothing was used")


_SHOWN = {"json": _as_json, "csv": _as_csv, "table": _as_table}


def _row(plan: Plan) -> list[str]:
    return [
        _range(plan.parallel, plan.parallel_most),
        f"{plan.rate_per_s:g} (burst {plan.burst})",
        str(plan.runs_per_day),
        str(plan.queue_depth),
        _range(plan.timeout_s, plan.timeout_most_s) + " s",
        _range(plan.cpus, plan.cpus_most),
        _range(plan.memory_bytes / 1024**2, plan.memory_most_bytes and plan.memory_most_bytes / 1024**2)
        + "M",
        str(plan.weight),
        f"{plan.cost_per_run_micros / MICROS:g}",
        f"{plan.cost_per_day_micros / MICROS:g}",
    ]


def _range(usual: float, most: float | None) -> str:
    return f"{usual:g}" if most is None else f"{usual:g}-{most:g}"
