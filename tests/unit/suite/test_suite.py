"""The suite's own rules: what runs in which tier, in which process, and what it needs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import pytest

from cellblock_config import load_settings
from cellblock_workers.doctor.ways import known_ways
from parts import REPOSITORY
from suite.appearing import Appearing
from suite.tiers import _sample
from suite.turns import every_turn, turn
from suite.warm import CELLBLOCK, WarmPopen
from suite.ways import UNISOLATED, WAYS

pytest_plugins = ["pytester"]


def full(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    """The same command, started as a user does."""
    pipe = subprocess.PIPE
    return subprocess.Popen([CELLBLOCK, *arguments], stdin=pipe, stdout=pipe, stderr=pipe, **options)


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

@pytest.mark.quiet_host
@pytest.mark.parametrize("way", ["namespaces", "runc-oci"])
def test_quiet(way): pass

@pytest.mark.after_attacks
@pytest.mark.parametrize("way", ["namespaces", "systemd", "runc-oci"])
def test_after(way): pass

class Attack:
    def __init__(self, group): self.group = group

@pytest.mark.parametrize("way", ["systemd", "namespaces"])
@pytest.mark.parametrize("attack", [Attack("kernel"), Attack("kernel"), Attack("files")], ids="abc")
def test_attack(attack, way): pass

@pytest.mark.parametrize("evaluation_way", ["namespaces", "gvisor-oci"])
def test_judged(evaluation_way): pass

@pytest.mark.parametrize("evaluation_way", ["namespaces", "gvisor-oci"])
def test_judged_too(evaluation_way): pass
"""
IN_BOTH = {"test_after[systemd]"}
QUIET = {"test_quiet[namespaces]", "test_quiet[runc-oci]"}
REST = {
    *("test_second[systemd]", "test_of_one_way", "test_long", "test_attack[b-systemd]"),
    *("test_judged_too[gvisor-oci]", *IN_BOTH),
}
EVERY = {
    *(f"test_first[{way}]" for way in ("namespaces", "gvisor-oci", "systemd", "none")),
    *("test_second[namespaces]", "test_without_a_way[systemd]", "test_without_a_way[none]"),
    *(f"test_attack[{attack}-{way}]" for attack in "abc" for way in ("systemd", "namespaces")),
    *(
        "test_after[namespaces]",
        "test_judged[namespaces]",
        "test_judged[gvisor-oci]",
        "test_judged_too[namespaces]",
    ),
    *REST,
    *QUIET,
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
    assert chosen(pytester, "--tier", "quiet") == QUIET
    assert chosen(pytester, "--tier", "fast") == EVERY - REST - QUIET | IN_BOTH


def test_ci_runs_the_fast_tier_and_each_case_on_one_other_way(pytester: pytest.Pytester) -> None:
    found = chosen(pytester, "--tier", "ci")
    fast = EVERY - REST - QUIET | IN_BOTH
    assert found >= fast
    assert found - fast <= REST - {"test_long"}
    choices = [
        {"test_first[systemd]", "test_first[none]"},
        {"test_second[systemd]"},
        {"test_of_one_way"},
        *({f"test_attack[{attack}-systemd]"} for attack in "abc"),
    ]
    assert all(found & choice for choice in choices)


SPREAD = """
import pytest
WAYS = ["runc-oci", "gvisor-docker", "runc-docker", "systemd", "process", "none", "namespaces"]

@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("number", range(60))
def test_number(number, way): pass

@pytest.mark.parametrize("kind", ["nonesuch", "process-like", "a process"])
@pytest.mark.parametrize("way", ["none", "process", "systemd"])
def test_kind(way, kind): pass
"""
#: By the hashes of the names, so the same in each process and on each machine.
SPREAD_OVER = {
    "runc-oci": 4,
    "gvisor-docker": 12,
    "runc-docker": 14,
    "systemd": 13,
    "process": 8,
    "none": 9,
}


def test_the_sample_has_each_case_once_and_is_spread_over_the_ways(pytester: pytest.Pytester) -> None:
    cases = [case.partition("::")[2] for case in _sample(pytester.getitems(SPREAD))]
    numbers = [case.partition("[")[2].rstrip("]").partition("-")[::2] for case in cases if "number" in case]
    assert sorted(int(number) for number, _ in numbers) == list(range(60))
    assert Counter(way for _, way in numbers) == SPREAD_OVER
    kinds = sorted(case for case in cases if "kind" in case)
    assert len(kinds) == 3, "a way's name inside of another word is no way"


def test_a_way_that_is_named_leaves_out_the_others(pytester: pytest.Pytester) -> None:
    assert chosen(pytester, "--way", "systemd") == {
        "test_first[systemd]",
        "test_second[systemd]",
        "test_of_one_way",
        "test_after[systemd]",
        *(f"test_attack[{attack}-systemd]" for attack in "abc"),
    }
    assert chosen(pytester, "--way", "runc-oci") == {"test_quiet[runc-oci]"}
    assert chosen(pytester, "--way", "systemd", "-k", "without") == set(), "-k chooses afterwards"


def test_a_way_that_there_is_not_is_an_error(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
import pytest
@pytest.mark.parametrize("way", ["namespace"])
def test_one(way): pass
""")
    done = pytester.runpytest_inprocess("-p", "suite.tiers", "--collect-only", "-q")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert "way is 'namespace', none of gvisor-oci" in "\n".join((*done.errlines, *done.outlines))


def test_where_no_case_has_a_way_naming_one_changes_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_plain(): pass\n")
    done = pytester.runpytest_inprocess("-p", "suite.tiers", "--collect-only", "-q", "--way", "systemd")
    assert "1 test collected" in "\n".join(done.outlines)


def test_when_what_failed_last_is_gone_nothing_is_run_in_its_place(pytester: pytest.Pytester) -> None:
    failing = pytester.makepyfile(test_gone="def test_gone(): assert False")
    pytester.makepyfile(test_stays="def test_stays(): pass")
    lacking = ("-p", "suite.tiers", "--last-failed", "--last-failed-no-failures", "none")
    assert pytester.runpytest_inprocess("-p", "suite.tiers").ret == pytest.ExitCode.TESTS_FAILED
    assert pytester.runpytest_inprocess(*lacking).ret == pytest.ExitCode.TESTS_FAILED
    failing.unlink()
    assert pytester.runpytest_inprocess(*lacking).ret == pytest.ExitCode.NO_TESTS_COLLECTED


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
    of_systemd = {process for name, process in noted.items() if "systemd]" in name and "without" not in name}
    assert len(of_systemd) == 1


def test_a_case_that_ends_its_process_fails_once_and_the_others_run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY / "tests"))
    pytester.makepyfile("import os\ndef test_a(): pass\ndef test_b(): os._exit(0)\ndef test_c(): pass")
    done = pytester.runpytest_subprocess("-p", "suite.tiers", "-p", "suite.processes", "-n", "2")
    done.assert_outcomes(passed=2, failed=1)
    assert done.ret == 1


def test_every_way_that_a_launcher_can_build_is_one_that_tests_run() -> None:
    found = {(way.isolation, way.backend) for way in known_ways(load_settings())}
    assert found == set(WAYS.values())
    assert not set(WAYS) & set(UNISOLATED)


@pytest.fixture
def readable() -> Iterator[Path]:
    """A folder that every user can read: the user nobody cannot read the repository's."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        (Path(name) / "tests" / "sandbox").mkdir(parents=True)
        (Path(name) / "tests" / "unit" / "launcher").mkdir(parents=True)
        (Path(name) / "tests" / "unit" / "launcher" / "test_pool.py").touch()
        yield Path(name)


def test_a_user_without_rights_is_told_at_once_which_groups_cannot_run(readable: Path) -> None:
    code = (REPOSITORY / "tests" / "suite" / "needs.py").read_text()

    def asked(*chosen: str, as_nobody: bool = True) -> subprocess.CompletedProcess[str]:
        nobody: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []}
        return subprocess.run(
            ["/usr/bin/python3", "-c", code, *chosen],
            env={"PATH": "/usr/bin:/bin"},  # as without pyenv
            cwd=readable,
            capture_output=True,
            text=True,
            **(nobody if as_nobody and os.geteuid() == 0 else {}),
        )

    nobody = asked()
    assert nobody.returncode == 2
    assert "sandbox    not root" in nobody.stderr
    assert "run: sudo make test" in nobody.stderr
    assert "make test T='tests/unit tests/packaging" in nobody.stderr
    assert asked("tests/unit/launcher/test_pool.py::test_x").returncode == 0
    assert asked("tests/sandbox").returncode == 2
    nothing = asked("tests/unit/test_no_such.py", "-k", "any")
    assert (nothing.returncode, "There is no tests/unit/test_no_such.py" in nothing.stderr) == (2, True)
    assert asked("--docker", "tests/unit", "tests/ledger").returncode == 1
    assert asked("--docker", "tests/unit", "tests/e2e").returncode == 0
    assert asked("--docker").returncode == 0
    if os.geteuid() == 0:
        assert asked(as_nobody=False).returncode == 0


def test_names_are_counted_though_they_are_gone_a_moment_later(tmp_path: Path) -> None:
    with closing(Appearing([tmp_path])) as appearing:
        for name in ("one", "two", "one"):
            (tmp_path / name).mkdir()
            (tmp_path / name).rmdir()
    assert appearing.names == {"one": 2, "two": 1}


def warm(*arguments: str, **options: Any) -> WarmPopen:
    """A command of ours, started from the interpreter that has imported it already."""
    pipe = subprocess.PIPE
    return WarmPopen([CELLBLOCK, *arguments], stdin=pipe, stdout=pipe, stderr=pipe, **options)


@pytest.mark.parametrize("start", [warm, full])
def test_a_warm_command_is_one_like_any_other(start: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "settings").mkdir()
    environment = {"PATH": os.environ["PATH"], "CELLBLOCK_NONSENSE": "1"}
    with start("redact", "-", "--json", env=environment, cwd=tmp_path / "settings") as process:
        said, complained = process.communicate(b"nothing", timeout=30)
    assert process.returncode == 2, "the environment is its own, and so is the exit code"
    assert b"CELLBLOCK_NONSENSE" in complained
    del environment["CELLBLOCK_NONSENSE"]
    key = b"AKIA" + b"QYLPMN5HHHFPZAM2"
    with start("redact", "-", env=environment, cwd=tmp_path) as process:
        said, complained = process.communicate(b"key " + key + b", and no more", timeout=30)
    assert (process.returncode, complained) == (0, b""), complained
    assert key not in said
    assert b"and no more" in said


@pytest.mark.parametrize("start", [warm, full])
def test_a_warm_command_is_a_child_that_ends_by_signals(start: Callable[..., Any]) -> None:
    with start("redact", "-") as process:  # it waits for its input
        assert process.poll() is None
        stat = Path(f"/proc/{process.pid}/stat").read_text()
        assert int(stat.rpartition(")")[2].split()[1]) == os.getpid()
        process.kill()
        assert process.wait(timeout=10) == -signal.SIGKILL


def test_what_an_interpreter_reads_at_its_start_is_heard() -> None:
    with warm("--version", env={**os.environ, "PYTHONVERBOSE": "1"}) as process:
        _, complained = process.communicate(timeout=30)
    assert b"import 'cellblock'" in complained


HAS_TURN = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from suite.tiers import _sample
from suite.turns import turn
os.environ.pop("SUITE_HAS_TURN", None)
with turn(Path(sys.argv[2]), 1), turn(Path(sys.argv[2]), 1):  # the inner one is the same
    os.fork() or os._exit(0)
    print("has it", flush=True)
    sys.stdin.read()
print("gave it back", flush=True)
"""


def take(turns: AbstractContextManager[None], taken: list[float]) -> None:
    """Have these turns, and note when."""
    with turns:
        taken.append(time.monotonic())


@pytest.mark.parametrize(
    "turns",
    [lambda file: turn(file, 1), lambda file: every_turn(file, 1), lambda file: every_turn(file, 3)],
    ids=["the only turn", "every turn, of one", "every turn, of three"],
)
def test_a_turn_is_had_only_when_no_other_suite_has_it(
    turns: Callable[[Path], AbstractContextManager[None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SUITE_HAS_TURN", raising=False)
    file, taken = tmp_path / "turns", list[float]()
    command = [sys.executable, "-c", HAS_TURN, str(REPOSITORY / "tests"), str(file)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == "has it\n"
        waiting = threading.Thread(target=take, args=(turns(file), taken))
        waiting.start()
        waiting.join(0.5)
        assert not taken
        given_back = time.monotonic()
        other.stdin.close()
        waiting.join(10)
    assert taken[0] >= given_back
