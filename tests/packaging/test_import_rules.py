"""Imports go one way, and importing does nothing else: no thread, no socket, no file, no heavy package."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cellblock.cli.commands import COMMANDS
from cellblock_workers.guest import PIECES, guest_texts
from parts import REPOSITORY

SOURCES = {
    "cellblock_config": REPOSITORY / "config/cellblock_config",
    "cellblock": REPOSITORY / "producer/cellblock",
    "cellblock_workers": REPOSITORY / "workers/cellblock_workers",
}
MAY_IMPORT = {
    "cellblock_config": {"cellblock_config"},
    "cellblock": {"cellblock_config", "cellblock"},
    "cellblock_workers": {"cellblock_config", "cellblock", "cellblock_workers"},
}


def imported(path: Path) -> Iterator[str]:
    """The top-level names of every import in a file, also those inside functions and by string."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").split(".")[0]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in {"import_module", "files"}:
            yield from (str(arg.value).split(".")[0] for arg in node.args if isinstance(arg, ast.Constant))


FILES = [(package, path) for package, folder in SOURCES.items() for path in sorted(folder.rglob("*.py"))]


@pytest.mark.parametrize(("package", "path"), FILES, ids=[path.name for _, path in FILES])
def test_imports_go_one_way(package: str, path: Path) -> None:
    ours = set(imported(path)) & set(SOURCES)
    assert ours <= MAY_IMPORT[package]


def test_the_rule_sees_every_kind_of_import(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text(
        "import cellblock.errors\n"
        "def later():\n    from cellblock_workers.fleet import up\n"
        "importlib.import_module('cellblock_config.levels')\n"
    )
    assert set(imported(source)) == {"cellblock", "cellblock_workers", "cellblock_config"}


#: What the guest looks for and can do without: tables and tests, in images that have them.
GUEST_MAY_MISS = {"pandas", "pyarrow", "pytest", "_pytest"}


@pytest.mark.parametrize("piece", PIECES)
def test_the_guest_needs_nothing_but_the_standard_library(piece: str) -> None:
    found = set(imported(SOURCES["cellblock_workers"] / f"guest/{piece}.py"))
    assert found - {"__future__"} - GUEST_MAY_MISS <= sys.stdlib_module_names


IN_IMAGES = sorted(
    path for room in ("guest", "zygote") for path in (SOURCES["cellblock_workers"] / room).glob("*.py")
)


@pytest.mark.parametrize("path", IN_IMAGES, ids=[f"{path.parent.name}/{path.name}" for path in IN_IMAGES])
def test_what_runs_in_an_image_is_python_3_8(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 8))


def test_the_pieces_of_the_guest_share_a_namespace_without_a_name_twice() -> None:
    body = [node for text in guest_texts().values() for node in ast.parse(text, feature_version=(3, 8)).body]
    names = [node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    for node in body:
        if isinstance(node, ast.Assign):
            names += [
                name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)
            ]
        assert not (isinstance(node, ast.ImportFrom) and node.level), "an import of a piece was left in"
    assert {name for name in names if names.count(name) > 1} == set()


#: The modules of the commands, which the root imports by name.
COMMAND_MODULES = sorted({f"cellblock.cli.{one.module}" for one in COMMANDS.values()})

PROBE = """
import json, sys, threading
seen = []
WATCHED = ("socket.", "subprocess.", "os.fork", "os.posix_spawn", "os.mkdir", "os.remove", "shutil.")
def watch(event, args):
    if event.startswith(WATCHED):
        seen.append(event)
    elif event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+"):
        seen.append(f"open {args[0]}")
sys.dont_write_bytecode = True
sys.addaudithook(watch)
import signal, importlib
handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]
for name in sys.argv[1:]:
    importlib.import_module(name)
changed = handlers != [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]
print(json.dumps({
    "seen": seen, "modules": sorted(sys.modules), "threads": threading.active_count(), "signals": changed,
}))
"""


def import_in_a_fresh_process(*names: str) -> dict[str, Any]:
    ran = subprocess.run([sys.executable, "-c", PROBE, *names], check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def packages_loaded_by(*names: str) -> set[str]:
    return {module.split(".")[0] for module in import_in_a_fresh_process(*names)["modules"]}


def test_the_probe_would_see_a_side_effect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "noisy.py").write_text(
        "import socket, threading, signal\n"
        "socket.socket().close()\n"
        "open('left', 'w').close()\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = import_in_a_fresh_process("noisy")
    assert found["seen"] == ["socket.__new__", "open left"]
    assert (found["threads"], found["signals"]) == (2, True)


@pytest.mark.parametrize(
    "name",
    [
        *("cellblock", "cellblock.client", "cellblock.cli.root", *COMMAND_MODULES),
        *(
            "cellblock_config",
            "cellblock_workers",
            "cellblock_workers.embedded",
            "cellblock_workers.embedded_host",
        ),
    ],
)
def test_importing_has_no_side_effects(name: str) -> None:
    found = import_in_a_fresh_process(name)
    assert found["seen"] == []
    assert (found["threads"], found["signals"]) == (1, False)


def test_importing_the_producer_loads_nothing_of_the_worker() -> None:
    loaded = packages_loaded_by("cellblock.client", *COMMAND_MODULES)
    assert {"cellblock", "cellblock_config", "redis"} <= loaded
    extras = {"celery", "kombu", "docker", "fakeredis", "sentry_sdk", "flower", "jinja2"}
    assert loaded & {"cellblock_workers", "hypothesis", "pytest", *extras} == set()


#: What takes longer to import than a first command may.
HEAVY = {
    *("asyncio", "celery", "docker", "email", "fakeredis", "httpx", "importlib.metadata", "kombu", "numpy"),
    *("pydantic", "pydantic_settings", "redis", "requests", "rich", "sqlalchemy", "structlog", "urllib3"),
    *("cellblock.client", "cellblock.contract", "cellblock_config.settings", "cellblock_workers"),
}


@pytest.mark.parametrize(
    "program",
    [
        "import cellblock",
        "import cellblock.cli.root",
        "import cellblock.cli, sys; sys.argv = ['cellblock', '--help']; cellblock.cli.main()",
    ],
)
def test_a_first_command_imports_nothing_heavy(program: str) -> None:
    show = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
    ran = subprocess.run([sys.executable, "-c", show + program], check=True, capture_output=True, text=True)
    loaded = set(ran.stderr.split())
    assert "cellblock" in loaded
    assert loaded & HEAVY == set()


def test_a_launcher_that_uses_no_docker_imports_no_client_of_it() -> None:
    loaded = packages_loaded_by("cellblock_workers.launcher.server")
    assert loaded & {"docker", "requests", "redis", "celery", "structlog", "rich", "numpy"} == set()


def test_what_starts_an_embedded_run_imports_little_before_it_forks() -> None:
    loaded = packages_loaded_by("cellblock.cli.run", "cellblock_workers.embedded")
    assert loaded & {"redis", "fakeredis", "celery", "numpy", "structlog", "rich"} == set()


def test_importing_the_settings_loads_neither_redis_nor_celery() -> None:
    loaded = packages_loaded_by("cellblock_config")
    assert loaded & {"redis", "celery", "kombu", "cellblock", "cellblock_workers"} == set()
