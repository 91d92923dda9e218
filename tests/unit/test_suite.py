"""The suite's own rules: what runs in which tier, in which process, and what it needs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from cellblock_config import load_settings
from cellblock_workers.doctor.ways import known_ways
from parts import REPOSITORY
from suite.appearing import Appearing
from suite.ways import UNISOLATED, WAYS

pytest_plugins = ["pytester"]

CASES = """
import pytest

@pytest.mark.parametrize("any_way", ["namespaces", "gvisor-oci", "systemd", "none"])
def test_first(any_way): pass

@pytest.mark.parametrize("any_way", ["namespaces", "systemd"])
def test_second(any_way): pass

@pytest.mark.parametrize("kind", ["systemd", "none"])
def test_without_a_way(kind): pass

@pytest.mark.way("systemd")
def test_of_one_way(): pass

@pytest.mark.long("takes an hour")
def test_long(): pass
"""
REST = {"test_second[systemd]", "test_of_one_way", "test_long"}
EVERY = {
    *(f"test_first[{way}]" for way in ("namespaces", "gvisor-oci", "systemd", "none")),
    *("test_second[namespaces]", "test_without_a_way[systemd]", "test_without_a_way[none]"),
    *REST,
}


def chosen(pytester: pytest.Pytester, *options: str) -> set[str]:
    """The cases that these options choose from ``CASES``."""
    pytester.makepyfile(CASES)
    done = pytester.runpytest_inprocess("-p", "suite.tiers", "--collect-only", "-q", *options)
    return {line.partition("::")[2] for line in done.outlines if "::" in line}


def test_every_case_is_in_one_tier_and_other_ways_have_one_of_each_module_in_the_fast_one(
    pytester: pytest.Pytester,
) -> None:
    assert chosen(pytester) == EVERY
    assert chosen(pytester, "--tier", "rest") == REST
    assert chosen(pytester, "--tier", "fast") == EVERY - REST


def test_a_way_that_is_named_leaves_out_the_others(pytester: pytest.Pytester) -> None:
    assert chosen(pytester, "--way", "systemd") == {
        "test_first[systemd]",
        "test_second[systemd]",
        "test_of_one_way",
    }
    assert chosen(pytester, "--way", "runc-oci") == set()
    assert chosen(pytester, "--way", "systemd", "-k", "without") == set(), "-k chooses afterwards"


def test_where_no_case_has_a_way_naming_one_changes_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_plain(): pass\n")
    done = pytester.runpytest_inprocess("-p", "suite.tiers", "--collect-only", "-q", "--way", "systemd")
    assert "1 test collected" in "\n".join(done.outlines)


def test_cases_of_one_way_share_a_process(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY / "tests"))
    pytester.makepyfile(
        CASES
        + "@pytest.fixture(autouse=True)\ndef note(request):\n"
        + "    open(request.config.rootpath / 'noted', 'a').write(\n"
        + "        f'{request.node.name}@{request.config.workerinput[\"workerid\"]}\\n')\n"
    )
    options = ("-p", "suite.tiers", "-p", "suite.processes", "-n", "3", "--no-loadscope-reorder")
    assert pytester.runpytest_subprocess(*options).ret == 0
    noted = dict(line.split("@") for line in (pytester.path / "noted").read_text().split("\n") if line)
    assert set(noted) == EVERY
    of_systemd = {noted[name] for name in ("test_first[systemd]", "test_second[systemd]", "test_of_one_way")}
    assert len(of_systemd) == 1


def test_every_way_that_a_launcher_can_build_is_one_that_tests_run() -> None:
    found = {(way.isolation, way.backend) for way in known_ways(load_settings())}
    assert found == set(WAYS.values())
    assert not set(WAYS) & set(UNISOLATED)


def test_a_user_without_rights_is_told_at_once_which_groups_cannot_run() -> None:
    code = (REPOSITORY / "tests" / "suite" / "needs.py").read_text()  # nobody may read this folder

    def asked(*chosen: str, uid: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/usr/bin/python3", "-c", code, *chosen],
            env={"PATH": "/usr/bin:/bin"},  # as without pyenv and sudo
            user=uid,
            group=uid,
            extra_groups=[],
            cwd="/",
            capture_output=True,
            text=True,
        )

    nobody = asked(uid=65534)
    assert nobody.returncode == 2
    assert "sandbox    not root" in nobody.stderr
    assert "run: sudo make test" in nobody.stderr
    assert "make test T='tests/unit tests/packaging" in nobody.stderr
    assert asked("tests/unit/test_pool.py::test_x", uid=65534).returncode == 0
    assert asked("tests/sandbox", uid=65534).returncode == 2
    if os.geteuid() == 0:
        assert asked(uid=0).returncode == 0


def test_names_are_counted_though_they_are_gone_a_moment_later(tmp_path: Path) -> None:
    with Appearing([tmp_path]) as appearing:
        for name in ("one", "two", "one"):
            (tmp_path / name).mkdir()
            (tmp_path / name).rmdir()
    assert appearing.names == {"one": 2, "two": 1}
