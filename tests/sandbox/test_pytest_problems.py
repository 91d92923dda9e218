"""Tests for pytest: run outside by looking names up, or beside the program where that is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from attacks.pytest_cheats import CHEATS, HONEST
from cellblock.contract.evaluations import PytestCheck, TextFile, TrialResult
from cellblock.contract.results import JobResult
from sandbox.harness import Host, words

pytestmark = pytest.mark.no_rerun

RIGHT = "def f(n):\n    if n < 0:\n        raise ValueError('no')\n    return n * n + 7\n"
TESTS = """
import pytest
from solution import f

@pytest.mark.parametrize("n", [3, 4])
def test_of_a_number(n):
    assert f(n) == n * n + 7

def test_what_is_refused():
    with pytest.raises(ValueError, match="no"):
        f(-1)

class TestMore:
    def test_zero(self):
        assert f(0) == 7
"""


def check(
    tests: str | dict[str, str] = TESTS, files: dict[str, str] | None = None, **fields: Any
) -> PytestCheck:
    tests = tests if isinstance(tests, dict) else {"test_it.py": tests}
    given, more = (
        [TextFile(name=name, text=text) for name, text in some.items()] for some in (tests, files or {})
    )
    return PytestCheck(tests=tuple(given), files=tuple(more), **fields)


@pytest.fixture
def host(sandbox_hosts: dict[str, Host], evaluation_way: str) -> Host:
    return sandbox_hosts[evaluation_way]


def run(
    host: Host, trials: list[tuple[str, str, PytestCheck]], verdict: str = "split", **limits: float
) -> JobResult:
    return host.judge(trials, verdict, **{"timeout_s": 20.0, **limits})


def judge(
    host: Host,
    programs: dict[str, str],
    asked: PytestCheck | None = None,
    verdict: str = "split",
    **limits: float,
) -> dict[str, TrialResult]:
    trials = [(name, source, asked or check()) for name, source in programs.items()]
    return {trial.id: trial for trial in run(host, trials, verdict, **limits).trials}


@pytest.mark.parametrize("verdict", ["split", "inline"])
def test_each_is_judged_by_itself(host: Host, verdict: str) -> None:
    found = judge(
        host,
        {
            "right": RIGHT,
            "wrong": "def f(n):\n    print('I am', n)\n    return 0\n",
            "broken": "def f(n) return\n",
            "empty": "",
            "raises too much": "def f(n): raise ValueError('no idea')\n",
            "leaves": "import os\nos._exit(3)\n",
            "right again": RIGHT,
        },
        verdict=verdict,
    )
    said = words(found)
    assert said.pop("empty")[1].startswith("ImportError: test_it.py: cannot import name 'f' from 'solution'")
    assert said.pop("wrong") == (
        "failed",
        "AssertionError: test_it.py::test_of_a_number[3]: assert 0 == ((3 * 3) + 7)\n +  where 0 = f(3)",
    )
    assert said == {
        "right": ("passed", ""),
        "broken": ("failed", "SyntaxError: expected ':' (solution.py, line 1)"),
        "raises too much": ("failed", "ValueError: test_it.py::test_of_a_number[3]: no idea"),
        "leaves": ("failed", "Exit: Exited with code 3"),
        "right again": ("passed", ""),
    }
    assert {one.channel for one in found.values()} == {verdict}
    assert found["wrong"].stdout.startswith("I am 3\n")
    assert found["right"].stdout == "", "nobody reads what passed"


SUITE = {
    "conftest.py": "import pytest\n@pytest.fixture\ndef base(): return 3\n",
    "tests/__init__.py": "",
    "tests/test_more.py": """
import math, unittest
import shapes, solution
from support import told

def test_data_and_support(base):
    assert solution.area(base) == shapes.square(base) == 9
    assert solution.TABLE == {"pi": [math.pi, None]} and solution.secret() == told()

class TestOld(unittest.TestCase):
    def test_sub(self):
        for n in range(3):
            with self.subTest(n=n):
                self.assertEqual(solution.area(n), n * n)
""",
    "helper/support.py": "",
    "support.py": "def told(): return open('data/told.txt').read()\n",
}
SUITE_FILES = {"shapes.py": "def square(n): return n * n\n", "data/told.txt": "ü 42\n", "data/empty.csv": ""}
SUITE_PROGRAM = """
import math, os
from shapes import square
TABLE = {"pi": [math.pi, None]}
def area(n): return square(n)
def secret(): return open("data/told.txt", encoding="utf-8").read()
assert __name__ == "geometry" and __file__.endswith("/geometry.py")
"""


@pytest.mark.parametrize("verdict", ["split", "inline"])
def test_a_suite_of_several_files(host: Host, verdict: str) -> None:
    suite = {name: text.replace("solution", "geometry") for name, text in SUITE.items()}
    asked = check(suite, SUITE_FILES, module="geometry")
    found = judge(host, {"right": SUITE_PROGRAM, "wrong": SUITE_PROGRAM + "TABLE = {}\n"}, asked, verdict)
    assert found["right"].verdict.value == "passed", found
    assert found["wrong"].verdict.value == "failed"


LOOKS = """
import os
found = sorted(os.path.join(folder, name) for folder, _, names in os.walk('.') for name in names)
def f(): return found
"""


def test_the_tests_lie_where_no_program_is(host: Host) -> None:
    asked = check(
        "from solution import f\ndef test(): assert f() == ['./data.txt', './solution.py']\n",
        {"data.txt": "x"},
    )
    assert words(judge(host, {"looks": LOOKS}, asked)) == {"looks": ("passed", "")}


STATEFUL = {
    "test_it.py": """
import builtins, os, sys, state
from solution import f
def test_state():
    assert state.seen == [] and not os.path.exists('left')
    assert 'LEFT' not in os.environ and sys.path[-1] != 'left'
    state.seen.append(f(1)); os.mkdir('left'); os.environ['LEFT'] = '1'; sys.path.append('left')
    open('state.py', 'a').write('seen = [1]')
    sys.stdout = None
    assert f(2) == 11
""",
}


def test_no_trial_hears_of_another(host: Host) -> None:
    asked = check(STATEFUL, {"state.py": "seen = []\n"})
    found = judge(host, {"one": RIGHT, "wrong": "def f(n): return 1\n", "two": RIGHT}, asked)
    assert [one.verdict.value for one in found.values()] == ["passed", "failed", "passed"], found


@pytest.mark.parametrize(
    ("tests", "said"),
    [
        ("from solution import Stack\ndef test(): assert Stack", "the tests use solution.Stack, a class"),
        (
            "import solution\ndef test(): assert solution.made.x == 1",
            "the tests use solution.made, a value of type Stack",
        ),
        (
            "import solution\ndef test(): assert list(solution.gen()) == [1]",
            "the function gives a value of type generator",
        ),
        ("from solution import *\ndef test(): assert f(0) == 7", "the tests use solution.__all__"),
        (
            "import solution\nsolution.N = 3\ndef test(): assert solution.f(0) == 7",
            "the tests set solution.N",
        ),
        ("import solution\ndef test(): assert 'f' in dir(solution)", "the tests list the names of solution"),
        (
            "import solution\ndef test(): assert vars(solution)['f'](0) == 7",
            "the tests use solution.__dict__",
        ),
        (
            "import importlib, solution\ndef test(): assert importlib.reload(solution).f(0) == 7",
            "the tests import solution anew",
        ),
        (
            "import solution\nfrom unittest import mock\ndef test():\n"
            "    with mock.patch('solution.f', lambda n: 7): assert solution.f(0) == 7",
            "the tests use solution.__dict__",
        ),
        (
            "from solution import says\ndef test_prints(capsys):\n    says()\n"
            "    assert capsys.readouterr().out == 'hi\\n'",
            "test_it.py::test_prints uses capsys",
        ),
        (
            "from solution import f\ndef test():\n    try: f(lambda: 1)\n    except BaseException: pass",
            "the tests pass a value of type function to f, which cannot cross",
        ),
    ],
)
def test_what_is_more_than_values_says_so(host: Host, tests: str, said: str) -> None:
    program = RIGHT.replace("n < 0", "not callable(n) and n < 0").replace(
        "return", "return 7 if callable(n) else"
    ) + ("class Stack: x = 1\nmade = Stack()\ndef gen(): yield 1\ndef says(): print('hi')\n")
    found = words(judge(host, {"it": program}, check(tests)))
    assert found == {"it": ("needs_inline", f"NotPlain: {said}")}
    assert words(judge(host, {"it": program}, check(tests), "inline")) == {"it": ("passed", "")}


@pytest.mark.parametrize(
    ("tests", "said"),
    [
        (
            "import no_such_module\nfrom solution import f\ndef test(): assert f(0) == 7",
            "No module named 'no_such_module'",
        ),
        ("from solution import f\ndef no_test(): assert f(0) == 7", "no test that has to be passed is there"),
        (
            "import pytest, solution\n@pytest.mark.skip\ndef test(): pass",
            "no test that has to be passed is there",
        ),
        ("from solution import f\nassert wrong\ndef test(): pass", "NameError in test_it.py: name 'wrong'"),
        ({"test_it.py": TESTS, "pytest.ini": "[pytest]\naddopts = --no-such-option"}, "pytest ended with 4"),
        ({"test_it.py": TESTS, "conftest.py": "while True: pass"}, "takes longer"),
    ],
)
def test_tests_that_cannot_be_used_are_nobodys_failure(
    host: Host, tests: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if said == "takes longer":
        monkeypatch.setattr("cellblock_workers.worker.evaluation.judge._LEARN_S", 2.0)
    for verdict in ("split", "inline"):
        found = words(judge(host, {"it": RIGHT}, check(tests), verdict))["it"]
        assert found[0] == "unusable"
        assert said in found[1]


def test_a_program_has_no_name_of_pythons(host: Host) -> None:
    found = words(judge(host, {"it": RIGHT}, check(TESTS.replace("solution", "pluggy"), module="pluggy")))[
        "it"
    ]
    assert found[0] == "unusable"
    assert "pluggy is a module of Python's or pytest's" in found[1]


def test_marks_excuse_tests_and_programs_do_not(host: Host) -> None:
    marked = """
import sys, unittest, pytest
from solution import f
def test(): assert f(0) == 7
@pytest.mark.skip(reason="slow")
def test_skipped(): assert False
@pytest.mark.skipif(sys.platform == "linux", reason="elsewhere")
def test_elsewhere(): assert False
@pytest.mark.xfail
def test_expected(): assert f(0) == 8
@pytest.mark.parametrize("n", [0, pytest.param(9, marks=pytest.mark.skip)])
def test_some(n): assert f(n) == 7
class TestOld(unittest.TestCase):
    @unittest.skip("never")
    def test_never(self): self.fail()
    @unittest.expectedFailure
    def test_fails(self): self.assertEqual(f(0), 8)
    def test_works(self): self.assertEqual(f(0), 7)
"""
    assert words(judge(host, {"it": RIGHT}, check(marked))) == {"it": ("passed", "")}
    assert words(judge(host, {"it": RIGHT}, check(marked), "inline")) == {"it": ("passed", "")}


def test_threads_of_the_tests_are_heard_one_by_one(host: Host) -> None:
    tests = """
import threading
from concurrent.futures import ThreadPoolExecutor
from solution import f
def test():
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(f, range(40))) == [n * n + 7 for n in range(40)]
    assert f(1) == 8
    threading.Thread(target=lambda: [f(n) for n in range(10000)], daemon=True).start()
"""
    found = judge(host, {"one": RIGHT, "two": RIGHT}, check(tests))
    assert words(found) == {"one": ("passed", ""), "two": ("passed", "")}


@pytest.mark.parametrize("verdict", ["split", "inline"])
def test_tests_may_import_pytest_whatever_a_level_allows(host: Host, verdict: str) -> None:
    guarded = Host(host.settings.launcher.socket, sandbox={"module_guard": True})
    found = judge(guarded, {"right": RIGHT, "imports": "import ctypes\n" + RIGHT}, verdict=verdict)
    guarded.launcher.close()
    assert {name: one.verdict.value for name, one in found.items()} == {
        "right": "passed",
        "imports": "failed",
    }


SWALLOWS = """
from solution import f
def test_swallows():
    while True:
        try:
            while True: f(1)
        except BaseException: break
    try:
        while True: pass
    except BaseException: pass
"""


def test_tests_that_catch_everything_still_end(host: Host) -> None:
    found = judge(
        host,
        {"one": RIGHT, "gone": "import os\ndef f(n): os._exit(0)\n", "two": RIGHT},
        check(SWALLOWS),
        timeout_s=1.0,
    )
    assert {name: one.verdict.value for name, one in found.items()} == {
        "one": "timed_out",
        "gone": "timed_out",
        "two": "timed_out",
    }


ONE_BY_ONE = pytest.mark.long("each cheat in a sandbox of its own; the same judge says the same in series")


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "evaluation_way",
    ["namespaces", *(pytest.param(way, marks=ONE_BY_ONE) for way in ("gvisor-oci", "runc-docker"))],
)
def test_no_cheat_passes_and_the_honest_do(host: Host) -> None:
    trials = [(name, source, check(tests)) for name, (tests, source) in CHEATS.items()]
    suites = {tests: name for name, (tests, _) in CHEATS.items()}
    trials += [(f"honest: {name}", HONEST, check(tests)) for tests, name in suites.items()]
    found = words({trial.id: trial for trial in run(host, trials).trials})
    passed = {name for name, (verdict, _) in found.items() if verdict == "passed"}
    assert passed == {f"honest: {name}" for name in suites.values()}, {
        name: found[name] for name in found if name.startswith("honest") != (found[name][0] == "passed")
    }
    assert not {name: said for name, said in found.items() if said[0] in ("unjudged", "unusable")}


def test_inline_is_bound_to_its_nonce(host: Host) -> None:
    forges = (
        "import os, struct\n"
        'text = b\'["", "passed", "", ""]\'\n'
        "os.write(102, struct.pack('>I', len(text)) + text)\n"
    )
    found = judge(
        host,
        {"forges": forges, "skips": "import pytest\ndef f(n): pytest.skip('no')\n", "right": RIGHT},
        verdict="inline",
    )
    assert {name: one.verdict.value for name, one in found.items()} == {
        "forges": "failed",
        "skips": "failed",
        "right": "passed",
    }
