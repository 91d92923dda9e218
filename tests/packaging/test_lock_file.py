"""The lock: every package with hashes, no address, and everything pyproject asks for."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from parts import REPOSITORY

LOCK = (REPOSITORY / "requirements.lock").read_text()
LOCKS = [REPOSITORY / "requirements.lock", *sorted((REPOSITORY / "images").glob("*/requirements.lock"))]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def entries(lock: str) -> dict[str, str]:
    """Each ``name==version`` entry with all that belongs to it."""
    found = re.split(r"^(?=[A-Za-z0-9])", lock.replace("\\\n", " "), flags=re.MULTILINE)
    return {normal(re.split(r"[=\[ ]", entry)[0]): entry for entry in found if "==" in entry}


def version_of(entry: str) -> tuple[int, ...]:
    pinned = re.match(r"\S+==(\d+(?:\.\d+)*)", entry)
    assert pinned, f"not pinned: {entry[:60]}"
    return tuple(map(int, pinned[1].split(".")))


@pytest.mark.parametrize("path", LOCKS, ids=[str(path.relative_to(REPOSITORY)) for path in LOCKS])
def test_every_package_is_pinned_with_hashes(path: Path) -> None:
    locked = entries(path.read_text())
    assert len(locked) > 3
    for entry in locked.values():
        assert version_of(entry)
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry), entry[:60]


@pytest.mark.parametrize("path", LOCKS, ids=[str(path.relative_to(REPOSITORY)) for path in LOCKS])
def test_no_lock_names_an_address_or_an_index(path: Path) -> None:
    text = path.read_text()
    for address in ("://", "git+", " @ ", "--index", "--extra-index", "--find-links", "--trusted-host"):
        assert address not in text


ASKED: list[str] = sum(PROJECT["optional-dependencies"].values(), PROJECT["dependencies"])


@pytest.mark.parametrize("requirement", ASKED)
def test_the_lock_covers_what_the_project_asks_for(requirement: str) -> None:
    wanted = re.match(r"([A-Za-z0-9_.-]+)(?:\[[^]]*\])?(.*)", requirement)
    assert wanted
    entry = entries(LOCK).get(normal(wanted[1]))
    assert entry, f"{wanted[1]} is not locked"
    have = version_of(entry)
    for operator, bound in re.findall(r"([<>=]=?)([\d.]+)", wanted[2]):
        limit = tuple(map(int, bound.split(".")))
        held = {">=": have >= limit, "<": have < limit, "==": have == limit}[operator]
        assert held, f"{requirement}: locked is {'.'.join(map(str, have))}"


def test_docker_is_asked_for_by_the_worker_alone() -> None:
    names = {normal(re.split(r"[\[<>=]", each)[0]) for each in PROJECT["dependencies"]}
    assert names & {"docker", "fakeredis", "sentry-sdk", "flower", "pytest"} == set()


@pytest.mark.parametrize("extra", ["archive", "monitor", "signing", "worker"])
def test_the_workers_image_has_what_its_services_import(extra: str) -> None:
    locked = entries((REPOSITORY / "images" / "worker" / "requirements.lock").read_text())
    asked = {normal(re.split(r"[\[<>=]", one)[0]) for one in PROJECT["optional-dependencies"][extra]}
    assert asked <= locked.keys()
