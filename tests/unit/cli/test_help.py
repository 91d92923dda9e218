"""What the command line says of itself: an example for every command, closed lists that complete."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.core import TyperOption
from typer.testing import CliRunner

from cellblock.cli.commands import COMMANDS, commands_of
from cellblock.cli.job_options import AccountOptions, JobOptions, PayloadOptions
from cellblock.cli.option_groups import takes
from cellblock.cli.root import app
from parts import REPOSITORY

COMPLETE = "import sys; from cellblock.cli import main; sys.argv = ['cellblock']; main()"


def commands(command: Any, path: tuple[str, ...] = ("cellblock",)) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, by what is typed; a hidden one has its group's name."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name, one in inner.items():
        yield from commands(one, path if one.hidden else (*path, name))


ROOT: Any = typer.main.get_command(app)
ALL = dict(commands(ROOT))


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_help_ends_in_an_example_of_the_command(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [*path[1:], "--help"])
    assert shown.exit_code == 0
    last = " ".join(shown.output[shown.output.rindex("\n\n") :].split())
    assert last.startswith("Example: ")
    assert " ".join(path) in last


@pytest.mark.parametrize("group", ["", *sorted({path[1] for path in ALL if len(path) > 2})])
def test_the_help_of_a_group_ends_in_an_example_too(group: str) -> None:
    shown = CliRunner().invoke(app, [*([group] if group else []), "--help"]).output
    assert shown[shown.rindex("\n\n") :].strip().startswith("Example: ")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_roots_line_for_a_command_is_the_first_of_its_help(name: str) -> None:
    assert COMMANDS[name].summary == ROOT.commands[name].get_short_help_str(limit=90)


def test_the_root_has_every_command_that_a_module_adds() -> None:
    folder = REPOSITORY / "producer/cellblock/cli"
    modules = [path.stem for path in folder.glob("*.py") if "\ndef register(" in path.read_text()]
    assert {added for module in modules for added in commands_of(module)} == set(COMMANDS)


def test_the_options_of_a_job_are_the_same_wherever_there_are_some() -> None:
    def options(*path: str) -> dict[str, Any]:
        found = [one for one in ALL["cellblock", *path].params if isinstance(one, TyperOption)]
        return {str(one.name): (one.opts, one.help, one.default) for one in found}

    run, submit, judge = options("run"), options("submit"), options("eval")
    for group in (AccountOptions, JobOptions, PayloadOptions):
        for name in group.__dataclass_fields__:
            assert run[name] == submit[name]
    assert all(judge[name] == run[name] for name in AccountOptions.__dataclass_fields__)


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("run --level s", {"standard", "strict"}),
        ("eval --verdict ", {"split", "inline"}),
    ],
)
def test_closed_lists_complete(words: str, offered: set[str]) -> None:
    typed = f"cellblock {words}"
    variables = {"_CELLBLOCK_COMPLETE": "complete_bash", "COMP_WORDS": typed}
    count = len(typed.split(" ")) - 1
    done = subprocess.run(
        [sys.executable, "-c", COMPLETE],
        env={**os.environ, **variables, "COMP_CWORD": str(count)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert set(done.stdout.split()) == offered, done.stderr


def test_what_is_not_in_a_closed_list_is_refused_with_the_list() -> None:
    said = CliRunner().invoke(app, ["run", "-", "--level", "loose"])
    assert said.exit_code == 2
    assert "--level" in said.output
    assert "'permissive', 'standard', 'strict'" in said.output


def test_help_shows_options_in_sections() -> None:
    said = CliRunner().invoke(app, ["run", "--help"]).output
    titles = [line for line in said.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == [
        "Arguments:",
        "The program:",
        "The result:",
        "Isolation and limits:",
        "Account:",
        "Options:",
    ]
    assert "--level <permissive|standard|strict>" in said


def test_an_option_of_two_groups_is_a_defect() -> None:
    with pytest.raises(ValueError, match="duplicate parameter name: 'level'"):

        @takes(AccountOptions)
        def twice(account: AccountOptions, level: str = "") -> None: ...
