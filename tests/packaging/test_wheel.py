"""The wheel: three packages with their data, and a base install that needs neither docker nor fakeredis."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from cellblock.ledger import Ledger
from parts import REPOSITORY

PACKAGES = {"cellblock", "cellblock_config", "cellblock_workers"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build: list[str | Path] = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        folder,
        REPOSITORY,
    ]
    subprocess.run(build, check=True, capture_output=True)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_top_level_is_the_three_packages_and_nothing_else(contents: dict[str, bytes]) -> None:
    tops = {name.split("/")[0] for name in contents}
    assert {top for top in tops if not top.endswith(".dist-info")} == PACKAGES
    assert len(tops) == 4


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_every_package_says_that_it_is_typed(contents: dict[str, bytes], package: str) -> None:
    assert f"{package}/py.typed" in contents


def test_every_source_file_is_in_the_wheel_as_it_is_here(contents: dict[str, bytes]) -> None:
    folders = ["config/cellblock_config", "producer/cellblock", "workers/cellblock_workers"]
    for folder in folders:
        for path in (REPOSITORY / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                name = str(path.relative_to((REPOSITORY / folder).parent))
                assert contents.get(name) == path.read_bytes(), name


@pytest.mark.parametrize(
    "script", ["admit", "beat", "cancel", "claim", "finish", "prelude/ending", "reap", "release"]
)
def test_the_ledgers_scripts_are_in_the_wheel(contents: dict[str, bytes], script: str) -> None:
    assert contents[f"cellblock/ledger/scripts/{script}.lua"].startswith(b"-- ")


def test_the_guest_is_in_the_wheel(contents: dict[str, bytes]) -> None:
    compile(contents["cellblock_workers/guest/guest.py"], "guest.py", "exec")


def test_the_seccomp_profile_is_in_the_wheel_itself_not_a_link(contents: dict[str, bytes]) -> None:
    profile = json.loads(contents["cellblock_config/data/seccomp-strict.json"])
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    assert profile["syscalls"]


def test_nothing_compiled_and_no_test_is_in_the_wheel(contents: dict[str, bytes]) -> None:
    assert [name for name in contents if name.endswith((".pyc", ".so")) or "test" in name.split("/")[0]] == []


def test_the_wheel_carries_the_licence_and_the_command(contents: dict[str, bytes]) -> None:
    (info,) = {name.split("/")[0] for name in contents if ".dist-info/" in name}
    assert b"Apache License" in contents[f"{info}/licenses/LICENSE"]
    assert b"cellblock = cellblock.cli:main" in contents[f"{info}/entry_points.txt"]


SUBMIT = """
import importlib.util, json
extras = ("docker", "fakeredis", "sentry_sdk", "flower")
absent = [name for name in extras if importlib.util.find_spec(name) is None]
from cellblock import Client, JobSpec
with Client() as client:
    job = client.submit(JobSpec(code="print(6*7)", tenant="acme"))
    print(json.dumps({"absent": absent, "job": job.id, "state": job.status().state}))
"""


@pytest.mark.timeout(300)
@pytest.mark.long("an environment is installed")
def test_a_base_install_in_an_empty_venv_submits_without_docker(
    wheel: Path, tmp_path: Path, redis_url: str, ledger: Ledger
) -> None:
    """The dependencies come from the package index; no extra is installed."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv/bin/python"
    foreign = ("PYTHON", "CELLBLOCK_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    install = ["-m", "pip", "install", "-qq", "--no-compile", "--disable-pip-version-check", str(wheel)]
    subprocess.run([str(python), *install], check=True, env=environment, cwd=tmp_path, timeout=240)

    ran = subprocess.run(
        [python, "-c", SUBMIT],
        cwd=tmp_path,
        env={**environment, "CELLBLOCK_REDIS_URL": redis_url},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    said = json.loads(ran.stdout)
    assert said["absent"] == ["docker", "fakeredis", "sentry_sdk", "flower"]
    assert said["state"] == "queued"
    assert ledger.reads.status(said["job"]).tenant == "acme"

    missing = subprocess.run(
        [python.parent / "cellblock", "run", "-"],
        cwd=tmp_path,
        input="print(1)",
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert missing.returncode != 0
    assert "cellblock[worker]" in missing.stderr, "the message names the extra that an embedded run needs"
    assert "Traceback" not in missing.stderr
