"""The ways of making a sandbox are there without what only one of them needs."""

from __future__ import annotations

import subprocess
import sys

BUILD = """
import sys
from cellblock_config import load_settings
from cellblock_workers.launcher.ownership import Ownership
from cellblock_workers.launcher.ways import build_backends
settings = load_settings()
docker = build_backends(settings, Ownership("test-ways"))["runc"][1]
"""


def seen(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", BUILD + program], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()


def test_a_launcher_imports_dockers_client_when_it_first_tries_that_way() -> None:
    assert seen("print(docker.name, 'docker' in sys.modules)") == "docker False"
    asked = "try:\n    docker.probe()\nexcept Exception:\n    pass\nprint('docker' in sys.modules)"
    assert seen(asked) == "True"


def test_the_first_sweep_leaves_out_docker_where_nothing_has_tried_it_and_the_second_does_not() -> None:
    first = "print(docker.sweep(), 'docker' in sys.modules)\n"
    second = "try:\n    docker.sweep()\nexcept Exception:\n    pass\nprint('docker' in sys.modules)"
    assert seen(first + second) == "0 False\nTrue"
