"""What a command of the worker side says where its packages are not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cellblock import NotConfigured
from cellblock.cli import entry_points
from parts import REPOSITORY

EXAMPLES = REPOSITORY / "examples/evaluation"
MISSING = "raise ModuleNotFoundError('No module named fakeredis', name='fakeredis')"


@pytest.mark.parametrize(
    "command",
    [
        ("run", "program.py"),
        ("eval", EXAMPLES / "samples.jsonl", "--problems", EXAMPLES / "problems.jsonl", "--out", "out"),
    ],
    ids=["run", "eval"],
)
def test_command_without_the_worker_extra_says_that_an_address_would_do(
    tmp_path: Path, command: tuple[str | Path, ...]
) -> None:
    """Injected: fakeredis is missing, as where the base wheel alone is installed."""
    (tmp_path / "fakeredis.py").write_text(MISSING)
    (tmp_path / "program.py").write_text("print(6*7)")
    done = subprocess.run(
        [sys.executable, "-c", "from cellblock.cli import main; main()", *command],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 4
    last = done.stderr.splitlines()[-1]
    assert last.startswith("cellblock: this needs the package fakeredis: pip install 'cellblock[worker]'")
    assert "or set CELLBLOCK_REDIS_URL to the address of a fleet" in last
    assert "Traceback" not in done.stderr


def test_other_commands_name_their_extra_alone() -> None:
    with pytest.raises(NotConfigured) as caught, entry_points.extra_named("monitor"):
        raise ModuleNotFoundError("no module", name="flower")
    assert str(caught.value) == "this needs the package flower: pip install 'cellblock[monitor]'"
