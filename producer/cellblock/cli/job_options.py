"""The options that say what job to run: shared by ``run`` and ``submit``, and partly by ``eval``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from cellblock.cli import payloads
from cellblock.errors import InvalidJob
from cellblock.interrupts import interrupts_held
from cellblock_config import LevelName, PriorityClass
from cellblock_config.plans import COST_MOST_MICROS, MICROS

if TYPE_CHECKING:
    from cellblock.contract.job_spec import JobSpec

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMG]?)(?:i?B)?", re.IGNORECASE)
_FACTOR = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
_PROGRAM, _LIMITS, _ACCOUNT, _RESULT = "The program", "Isolation and limits", "Account", "The result"

FileArg = Annotated[
    Path,
    typer.Argument(
        metavar="FILE|DIR|-", help="Python source, or a folder with __main__.py; - reads standard input."
    ),
]
ArgsArg = Annotated[
    list[str] | None,
    typer.Argument(metavar="ARG", help="The program's arguments; its options go after --."),
]
LevelOpt = Annotated[LevelName, typer.Option(help="Isolation level.", rich_help_panel=_LIMITS)]
ImageOpt = Annotated[
    str | None, typer.Option(help="Image to run in, by its name in the settings.", rich_help_panel=_LIMITS)
]
TenantOpt = Annotated[str, typer.Option(help="Tenant to charge.", rich_help_panel=_ACCOUNT)]
PlanOpt = Annotated[
    str | None, typer.Option(help="The tenant's plan, such as casual.", rich_help_panel=_ACCOUNT)
]
OutOpt = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Where to write the artifacts; created if missing.",
        rich_help_panel=_RESULT,
    ),
]
OverwriteOpt = Annotated[
    bool,
    typer.Option(
        "--overwrite",
        help="With --out: replace files that are there, and write hidden ones.",
        rich_help_panel=_RESULT,
    ),
]


@dataclass(frozen=True)
class AccountOptions:
    """Who runs, where and on whose account: of jobs and evaluations."""

    level: LevelOpt = "standard"
    image: ImageOpt = None
    tenant: TenantOpt = "default"
    plan: PlanOpt = None


@dataclass(frozen=True)
class PayloadOptions:
    """What goes along with the program."""

    stdin: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What the program reads on stdin.", rich_help_panel=_PROGRAM),
    ] = None
    entrypoint: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Which file of DIR to run; __main__.py by default.",
            rich_help_panel=_PROGRAM,
        ),
    ] = None
    files: Annotated[
        list[str] | None,
        typer.Option(
            "--file",
            metavar="[NAME=]PATH",
            help="Put this file beside the program.",
            rich_help_panel=_PROGRAM,
        ),
    ] = None
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env", metavar="NAME=VALUE", help="An environment variable.", rich_help_panel=_PROGRAM
        ),
    ] = None
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input", metavar="NAME=JSON", help="A global variable of the job.", rich_help_panel=_PROGRAM
        ),
    ] = None
    context: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A file of any size, on the worker's host, seen as ctx.",
            rich_help_panel=_PROGRAM,
        ),
    ] = None
    artifacts: Annotated[
        list[str] | None,
        typer.Option(
            "--artifact",
            metavar="GLOB",
            help="Files to bring back, such as 'out/**/*.csv'.",
            rich_help_panel=_RESULT,
        ),
    ] = None


@dataclass(frozen=True)
class JobOptions:
    """What a job may use, what it may cost, and what happens to it."""

    timeout: Annotated[
        float | None,
        typer.Option(help="Wall-clock seconds; the level's by default.", rich_help_panel=_LIMITS),
    ] = None
    memory: Annotated[
        str | None,
        typer.Option(help="Memory limit, such as 256M; the level's by default.", rich_help_panel=_LIMITS),
    ] = None
    role: Annotated[str | None, typer.Option(help="Role within the plan.", rich_help_panel=_ACCOUNT)] = None
    max_cost: Annotated[
        float | None,
        typer.Option(
            "--max-cost",
            help="Stop the job when it has cost this much; the plan's limit by default.",
            rich_help_panel=_ACCOUNT,
        ),
    ] = None
    confidential: Annotated[
        bool,
        typer.Option(
            "--confidential",
            help="Seal program and result; see cellblock seal-key new.",
            rich_help_panel=_PROGRAM,
        ),
    ] = False
    priority: Annotated[
        PriorityClass, typer.Option(help="Among jobs of the same tenant.", rich_help_panel=_ACCOUNT)
    ] = "normal"
    retries: Annotated[
        int,
        typer.Option(
            help="How often to run it again when the program itself failed; at most 10.",
            rich_help_panel=_LIMITS,
        ),
    ] = 0
    expires: Annotated[
        float | None,
        typer.Option(
            "--expires", metavar="SECONDS", help="Reject it if not started by then.", rich_help_panel=_LIMITS
        ),
    ] = None


def job_spec(
    file: Path,
    args: list[str] | None,
    account: AccountOptions,
    payload: PayloadOptions,
    job: JobOptions,
    **more: Any,
) -> JobSpec:
    """The job that these options ask for; ``more``: fields that need no translation.

    Raises :class:`InvalidJob`.
    """
    with interrupts_held():
        from cellblock.contract.job_spec import JobSpec

    return JobSpec(
        **payloads.read(
            file,
            entrypoint=payload.entrypoint,
            files=payload.files,
            env=payload.env,
            inputs=payload.inputs,
            context=payload.context,
            artifacts=payload.artifacts,
            stdin=payload.stdin,
        ),
        args=tuple(args or ()),
        level=account.level,
        image=account.image,
        tenant=account.tenant,
        plan=account.plan,
        role=job.role,
        limits=cast(
            Any, {"timeout_s": job.timeout, "memory_bytes": _size(job.memory) if job.memory else None}
        ),
        max_cost_micros=None if job.max_cost is None else _micros(job.max_cost),
        priority=job.priority,
        confidential=job.confidential,
        retries=job.retries,
        expires_s=job.expires,
        **more,
    )


def _micros(amount: float) -> int:
    most = COST_MOST_MICROS / MICROS
    if not 1 / MICROS <= amount <= most:
        raise InvalidJob(
            "--max-cost", f"{amount:g} is not an amount from {1 / MICROS:f} to {most:.0f}, such as 0.02"
        )
    return round(amount * MICROS)


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise InvalidJob("limits.memory_bytes", f"{text!r} is not a size; write bytes or 256M, 1G")
    return round(float(match[1]) * _FACTOR[match[2].upper()])
