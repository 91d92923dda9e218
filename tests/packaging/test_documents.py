"""What the documents point at is there: a table of controls is worth nothing when its tests have moved."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

from cellblock.cli.root import app
from cellblock.ledger.pressure import ADMITS_BELOW, LEAVE_ABOVE
from cellblock_config import LedgerSettings
from cellblock_config.levels import SERIES_MOST
from suite import event_schema

ROOT = Path(__file__).parents[2]
LEDGER = LedgerSettings()
DOCUMENTS = (
    "README.md",
    "ARCHITECTURE.md",
    "SECURITY.md",
    "CONTRIBUTING.md",
    *(str(page.relative_to(ROOT)) for page in sorted(ROOT.glob("docs/*.md"))),
    *(str(adr.relative_to(ROOT)) for adr in sorted(ROOT.glob("docs/adr/*.md"))),
    *(
        str(page.relative_to(ROOT))
        for part in ("config", "images", "seccomp")
        for page in (ROOT / part).rglob("*.md")
    ),
)
A_PATH = re.compile(
    r"`((?:tests|docs|config|images|seccomp|examples)/[\w./-]+)`|\]\((?!http)([\w./-]+)(?:#[\w-]+)?\)"
)

#: Files are named by the end of their path, as far as it tells them apart.
A_FILE = re.compile(r"`([\w./-]+\.(?:py|lua|toml))`")
#: A reader's own file, and a bad name that writing.md shows.
NOT_OURS = {"solution.py", "tally.py"}
FILES = [
    f"/{path.relative_to(ROOT)}"
    for folder in ("config", "docs", "examples", "images", "producer", "seccomp", "tests", "workers")
    for path in (ROOT / folder).rglob("*.*")
    if "__pycache__" not in path.parts
] + [f"/{path.name}" for path in ROOT.glob("*.toml")]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_file_that_a_document_names_is_there(document: str) -> None:
    named = set(A_FILE.findall((ROOT / document).read_text())) - NOT_OURS
    missing = {name for name in named if not any(path.endswith(f"/{name}") for path in FILES)}
    assert not missing


def test_most_documents_name_files() -> None:
    assert sum(bool(A_FILE.search((ROOT / document).read_text())) for document in DOCUMENTS) > 20


#: Numbers that stand in a document and in the code.
FIGURES = [
    ("SECURITY.md", r"up to (\d+) sandboxes forked", SERIES_MOST),
    ("docs/adr/0014-evaluations.md", r"up to (\d+) sandboxes, all forked", SERIES_MOST),
    ("docs/adr/0018-a-store-that-never-fills.md", r"From (\d+) on no job is admitted", ADMITS_BELOW),
    ("docs/fleet.md", r"above (\d+) % of `maxmemory`", LEAVE_ABOVE),
    ("docs/fleet.md", r"from\n?\s*(\d+) % on `submit` raises `StoreFull`", ADMITS_BELOW),
    ("docs/fleet.md", r"`CELLBLOCK_LEDGER_TENANT_PERCENT` \((\d+)\)", LEDGER.tenant_percent),
    ("docs/troubleshooting.md", r"fuller than (\d+) % of its memory", ADMITS_BELOW),
    ("ARCHITECTURE.md", r"ledger: lease runs out \((\d+) s\)", LEDGER.lease_s),
]


@pytest.mark.parametrize(("document", "pattern", "value"), FIGURES)
def test_a_figure_of_a_document_is_the_codes(document: str, pattern: str, value: float) -> None:
    found = re.findall(pattern, (ROOT / document).read_text())
    assert found, "the sentence is another: name it here"
    assert {float(one) for one in found} == {float(value)}


def test_the_schema_of_an_event_is_the_events() -> None:
    told = "to write it anew: PYTHONPATH=tests .venv/bin/python -m suite.event_schema"
    assert event_schema.FILE.read_text() == event_schema.text(), told


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_path_of_a_document_exists(document: str) -> None:
    text = (ROOT / document).read_text()
    named = [inside or linked for inside, linked in A_PATH.findall(text)]
    places = (ROOT, (ROOT / document).parent)
    missing = [path for path in named if not any((place / path).exists() for place in places)]
    assert not missing


def test_every_message_that_is_explained_is_one_of_the_programs() -> None:
    said = {
        node.value
        for part in ("config", "producer", "workers")
        for source in (ROOT / part).rglob("*.py")
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    page = (ROOT / "docs/troubleshooting.md").read_text()
    tables = re.findall(r"^\| message .*\n\|-.*\n((?:\|.*\n)+)", page, re.MULTILINE)
    messages = [message for table in tables for message in re.findall(r"^\| `(.+?)` \|", table, re.MULTILINE)]
    assert len(messages) == sum(table.count("\n") for table in tables) >= 20
    pieces = {piece.strip() for message in messages for piece in message.split("…") if piece.strip()}
    unknown = {piece for piece in pieces if not any(piece in one for one in said)}
    assert not unknown


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_command_of_a_document_is_one(document: str) -> None:
    text = (ROOT / document).read_text()
    fenced = "".join(re.findall(r"^```\w[^\n]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    written = re.findall(r"`cellblock ([a-z][^`]*)`", text) + re.findall(
        r"^cellblock (.*)$", fenced, re.MULTILINE
    )
    for line in written:
        command: Any = typer.main.get_command(app)
        for word in line.split():
            if not hasattr(command, "commands") or not re.fullmatch("[a-z][a-z-]*", word):
                break
            assert word in command.commands, f"cellblock {line}"
            command = command.commands[word]
