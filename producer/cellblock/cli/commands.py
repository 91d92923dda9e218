"""Every command: its section of the help, its module and its summary, so that ``--help`` imports none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import typer

from cellblock.cli import examples
from cellblock.interrupts import interrupts_held

_JOBS, _FLEET, _TENANTS = "Jobs", "Running a fleet", "Tenants and money"
_SECRETS, _HISTORY, _EVALUATION = "Keys and secrets", "What is kept", "Evaluation"


@dataclass(frozen=True, slots=True)
class Command:
    """One line of the root's help. ``module``: below ``cellblock.cli``; its ``register`` adds the command."""

    section: str
    module: str
    summary: str


COMMANDS = {
    "run": Command(_JOBS, "run", "Run one program and show what came back."),
    "submit": Command(_JOBS, "jobs", "Enqueue one program and print its job id at once."),
    "status": Command(_JOBS, "jobs", "Say where a job is, or how many there are of each kind."),
    "result": Command(_JOBS, "jobs", "Wait for a job's end and show its result; exit codes as for run."),
    "cancel": Command(_JOBS, "jobs", "Stop a waiting or running job."),
    "events": Command(_JOBS, "jobs", "Print the event stream, oldest first."),
    "worker": Command(_FLEET, "fleet", "Run a worker on this host, with a launcher beside it."),
    "launcher": Command(_FLEET, "fleet", "Run only this host's launcher."),
    "monitor": Command(_FLEET, "fleet", "Run Flower: read-only, behind CELLBLOCK_MONITOR_PASSWORD."),
    "up": Command(_FLEET, "fleet", "Run a whole fleet on this machine."),
    "doctor": Command(
        _FLEET,
        "fleet",
        "Check this host: what it offers to hold a job, and what to do about what it lacks.",
    ),
    "archiver": Command(_FLEET, "archive", "Write every job that ends into the archive, until TERM."),
    "webhooks": Command(_FLEET, "webhooks", "Post events to the addresses of CELLBLOCK_WEBHOOKS_URLS."),
    "usage": Command(_TENANTS, "plans", "Say what tenants with a plan used: runs, and money spent and held."),
    "plans": Command(_TENANTS, "plans", "What each plan allows."),
    "api-key": Command(
        _TENANTS, "api_keys", "API keys: they carry agent.run.invoke and tools, nothing else."
    ),
    "redact": Command(_SECRETS, "redact", "Print a text as the filter lets a job's output leave."),
    "sign-key": Command(_SECRETS, "keys", "Keys that sign jobs."),
    "seal-key": Command(_SECRETS, "keys", "Keys of confidential jobs."),
    "store-users": Command(_SECRETS, "store_users", "Users of Redis, one for each kind of process."),
    "dead": Command(_HISTORY, "dead", "Jobs that ended through our fault: look, retry, drop."),
    "jobs": Command(_HISTORY, "archive", "Jobs that have ended."),
    "archive": Command(_HISTORY, "archive", "The database of CELLBLOCK_ARCHIVE_URL."),
    "store": Command(_HISTORY, "store", "Back up and restore the store of CELLBLOCK_REDIS_URL."),
    "eval": Command(_EVALUATION, "evaluate", "Judge samples and estimate pass@k; compare two runs."),
}


class ImportedCommands(Mapping[str, Any]):
    """The commands by name, each from its module, which is imported when the command is first used."""

    def __getitem__(self, name: str) -> Any:
        module = COMMANDS[name].module
        try:
            return commands_of(module)[name]
        except KeyError as error:  # a defect, not an unknown command
            raise AssertionError(f"cellblock.cli.{module} adds no command {name!r}") from error

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


@cache
def commands_of(module: str) -> Mapping[str, Any]:
    """The commands that a module adds to the root, by name."""
    app = typer.Typer(rich_markup_mode=None)
    with interrupts_held():
        import_module(f"cellblock.cli.{module}").register(app)
    examples.put_last(app)
    return typer.main.get_group(app).commands
