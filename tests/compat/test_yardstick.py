"""The suite's own parts: what the runner makes of cases that misbehave, and the list of its results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from compat import expected
from compat.__main__ import counts_of
from compat.expected import Reason, compare, second_look
from compat.targets import HERE, Found, Target, read_results, targets

CASES = """
import os, signal, subprocess, sys, time, unittest

class Cases(unittest.TestCase):
    def test_a_passes(self): pass
    def test_b_fails(self): self.assertEqual(1, 2)
    def test_c_is_skipped(self): self.skipTest('no such thing here')
    def test_d_leaves(self): os._exit(3)
    def test_e_kills_itself(self): os.kill(os.getpid(), signal.SIGKILL)
    def test_f_kills_its_group(self): os.killpg(0, signal.SIGTERM)
    def test_g_hangs(self): time.sleep(600)
    def test_h_prints_without_end(self):
        for _ in range(2000): print('x' * 10_000)
    def test_i_closes_everything(self): os.closerange(0, 500)
    def test_k_goes_on_as_its_child(self):
        if not os.fork(): return
        os.wait()
    def test_l_leaves_a_process(self): subprocess.Popen(['sleep', '600'])
    def test_m_fails_in_part(self):
        for number in range(3):
            with self.subTest(number=number): self.assertNotEqual(number, 1)
    def test_n_passes(self): pass
    def test_o_replaces_what_it_finds(self): os.write = os.open = os.close = None

class Fixture(unittest.TestCase):
    @classmethod
    def setUpClass(cls): raise OSError('no such fixture')
    def test_it(self): pass
"""


def run_cases(folder: Path, code: str, **request: object) -> Found:
    """A module of unittest cases through the runner."""
    (folder / "own_cases.py").write_text(code)
    (folder / "casewise.py").write_bytes((HERE / "casewise.py").read_bytes())
    asked = {"kind": "unittest", "target": "own_cases", "results": "out.jsonl", "resources": []}
    (folder / "request.json").write_text(json.dumps({**asked, "case_s": 10, "all_s": 120, **request}))
    command = [sys.executable, "casewise.py", "request.json"]
    subprocess.run(command, cwd=folder, check=True, timeout=150, env={"TMPDIR": str(folder)})
    return read_results((folder / "out.jsonl").read_bytes(), "")


@pytest.mark.long("cases hang, and are waited for")
def test_each_case_costs_itself_alone(tmp_path: Path) -> None:
    found = run_cases(tmp_path, CASES)
    ends = {name.rpartition("_test_")[2].rpartition(".test_")[2]: end for name, end in found.cases.items()}
    assert {name: status for name, (status, _) in ends.items()} == {
        "a_passes": "pass",
        "b_fails": "fail",
        "c_is_skipped": "skip",
        "d_leaves": "ended",
        "e_kills_itself": "ended",
        "f_kills_its_group": "ended",
        "g_hangs": "ended",
        "h_prints_without_end": "pass",
        "i_closes_everything": "pass",
        "k_goes_on_as_its_child": "pass",
        "l_leaves_a_process": "pass",
        "m_fails_in_part": "fail",
        "n_passes": "pass",
        "o_replaces_what_it_finds": "pass",
    }
    assert ends["b_fails"][1].startswith("AssertionError: 1 != 2")
    assert "ended with 3" in ends["d_leaves"][1]
    assert "ended with -9" in ends["e_kills_itself"][1]
    assert "hung" in ends["g_hangs"][1]
    assert [why for place, why in found.problems.items() if "Fixture" in place] == [
        "error: OSError: no such fixture (own_cases.py:27)"
    ]


def test_some_cases_by_themselves(tmp_path: Path) -> None:
    assert set(run_cases(tmp_path, CASES, only=["own_cases.Cases.test_n_passes"]).cases) == {
        "own_cases.Cases.test_n_passes"
    }


def test_a_module_that_cannot_be_imported_is_told(tmp_path: Path) -> None:
    found = run_cases(tmp_path, "import os\nos._exit(9)\n")
    assert not found.cases
    assert "ended with 9" in found.problems["the module"]


def test_a_module_has_a_time(tmp_path: Path) -> None:
    found = run_cases(tmp_path, "import time\ntime.sleep(600)\n", all_s=2)
    assert found.problems == {"the module": "not over after 2 s"}


TARGET = Target("cpython", "test_x", False, ())
BARE = Found(
    {"a": ("pass", ""), "b": ("pass", ""), "c": ("pass", ""), "d": ("skip", "no"), "e": ("pass", "")}
)
INSIDE = Found({"a": ("pass", ""), "b": ("fail", "EPERM"), "c": ("skip", "none here"), "d": ("fail", "x")})
NOTHING = Found({})


def test_what_is_not_listed_is_a_problem() -> None:
    compared = compare(TARGET, "namespaces", BARE, INSIDE, NOTHING)
    assert (compared.bare, compared.inside) == (4, 1)
    assert compared.unlisted == {"b": "fail: EPERM", "c": "skip: none here", "e": "did not run"}
    assert len(compared.problems) == 3


def test_what_is_listed_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    listed(monkeypatch, "b", "c", "e")
    compared = compare(TARGET, "namespaces", BARE, INSIDE, NOTHING)
    assert compared.listed == {"b": "seccomp", "c": "seccomp", "e": "seccomp"}
    assert not compared.problems
    assert len(compare(TARGET, "gvisor-oci", BARE, INSIDE, NOTHING).problems) == 3


def test_what_is_listed_and_passes_is_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    listed(monkeypatch, "a", "b", "c", "e", "gone")
    compared = compare(TARGET, "namespaces", BARE, INSIDE, NOTHING)
    assert compared.stale == ("a", "gone")
    assert len(compared.problems) == 2


def test_what_fails_by_chance_may_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    listed(monkeypatch, "a", "b", "c", "e", by_chance=True)
    compared = compare(TARGET, "namespaces", BARE, INSIDE, NOTHING)
    assert compared.listed == {"b": "seccomp", "c": "seccomp", "e": "seccomp"}
    assert not compared.problems


def test_what_fails_once_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    listed(monkeypatch, "c")
    assert second_look(TARGET, "namespaces", BARE, INSIDE) == ["b", "e"]
    again = Found({"b": ("pass", ""), "e": ("fail", "again")})
    compared = compare(TARGET, "namespaces", BARE, INSIDE, again)
    assert compared.unlisted == {"e": "fail: again"}
    assert compared.unsteady == {"b": "fail: EPERM"}, "named, though it passes alone"


def test_what_came_of_all_ways_is_counted_as_a_tier_of_tests_is() -> None:
    again = Found({"b": ("pass", ""), "c": ("pass", ""), "e": ("pass", "")})
    unsteady = compare(TARGET, "systemd", BARE, INSIDE, again)
    red = compare(TARGET, "namespaces", BARE, INSIDE, Found({"b": ("pass", ""), "e": ("fail", "again")}))
    counts = counts_of({"systemd": [unsteady]}, 1.0)
    assert (counts.passed, counts.failed, counts.green) == (4, 0, True)
    (failure,) = counts.unsteady
    assert (failure.case, failure.message) == ("systemd test_x", "b: fail: EPERM, and 2 others")
    counts = counts_of({"systemd": [unsteady], "namespaces": [red]}, 1.0)
    assert (counts.failed, len(counts.unsteady), counts.green) == (2, 1, False)


def test_a_selection_that_passes_nothing_bare_is_a_problem() -> None:
    assert compare(TARGET, "namespaces", NOTHING, NOTHING, NOTHING).problems


def listed(monkeypatch: pytest.MonkeyPatch, *cases: str, by_chance: bool = False) -> None:
    """In place of the file's reasons this one."""
    named = frozenset(("test_x", case) for case in cases)
    reason = Reason("seccomp", "why", ("namespaces",), named, by_chance)
    monkeypatch.setattr(expected, "reasons", lambda: (reason,))


def test_the_list_names_what_is_selected() -> None:
    names = {target.name for target in targets()}
    for reason in expected.reasons():
        assert {name for name, _ in reason.cases} <= names
        assert "unknown" not in reason.control.lower()
