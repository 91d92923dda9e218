"""`make demo`, with fewer HumanEval problems and all of the attacks."""

from __future__ import annotations

import subprocess
import sys

import pytest

from parts import REPOSITORY

pytestmark = pytest.mark.no_rerun


@pytest.mark.docker
@pytest.mark.long("184 jobs of the demo; its parts are tested one by one")
@pytest.mark.timeout(180)
def test_the_demo_solves_its_problems_and_stops_every_attack() -> None:
    done = subprocess.run(
        [sys.executable, "examples/demo/demo.py", "--problems", "6"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert "HumanEval: 6/6 ok" in done.stdout
    assert "attacks stopped: 20/20" in done.stdout
    assert "ESCAPED" not in done.stdout
