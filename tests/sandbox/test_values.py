"""Variables in, a value out: plain ones and tables, from every way of making a sandbox.

What is decided in the guest alone is tried on one kernel of each kind.
"""

from __future__ import annotations

from typing import Any

import pandas
import pyarrow
import pytest

from cellblock import Outcome, TableValue
from sandbox.conftest import Run
from sandbox.harness import Host

pytestmark = pytest.mark.docker


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("6*7", 42),
        ("x = 1\nx + 1", 2),
        ("result = {'a': [1, 2.5, None, True, 'é']}\nprint('said')", {"a": [1, 2.5, None, True, "é"]}),
        ("result = 1\nresult + 1", 1),
        ("def f():\n    return (1, 2)\nf()", [1, 2]),
        ("'a' 'b'  # comment", "ab"),
        ("(yes :=\n    [\n  3\n])", [3]),
        ("2**200", 2**200),
        ("from __future__ import annotations\n'v'", "v"),
    ],
)
def test_the_value_is_the_result_or_the_last_expression(
    run: Run, kernel_way: str, code: str, value: Any
) -> None:
    result = run(code, way=kernel_way)
    assert (result.outcome, result.value, result.value_kind, result.value_error) == (
        Outcome.OK,
        value,
        "json",
        None,
    )


@pytest.mark.parametrize(
    "code", ["pass", "x = 1", "print(1)", "'a'; None", "def f(): 1", "result = None", "# 6"]
)
def test_a_program_that_computes_nothing_has_no_value(run: Run, kernel_way: str, code: str) -> None:
    result = run(code, way=kernel_way)
    assert (result.outcome, result.value, result.value_kind, result.value_error) == (
        Outcome.OK,
        None,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("{1, 2}", "set"),
        ("[1, {'a': float('nan')}]", "value[1]['a'] is nan"),
        ("a = []\na.append(a)\na", "contains itself"),
        ("object()", "builtins.object"),
        ("class C:\n    def __eq__(s, o): 1/0\n    def __repr__(s): 1/0\nC()", "__main__.C"),
        ("{1: 2}", "key 1"),
        ("'\\ud800'", "surrogate"),
        ("'x' * 2_000_000", "1048576"),
        ("list(range(2_000_000))", "1048576"),
        ("10**5000", "JSON"),
    ],
)
def test_a_value_without_a_form_is_explained_and_the_job_is_ok(
    run: Run, kernel_way: str, code: str, said: str
) -> None:
    result = run(code, way=kernel_way)
    assert (result.outcome, result.value, result.value_kind) == (Outcome.OK, None, None)
    assert said in str(result.value_error)


@pytest.mark.parametrize("ending", ["raise ValueError", "import sys; sys.exit(3)", "import os; os._exit(3)"])
def test_a_program_that_fails_has_no_value(run: Run, kernel_way: str, ending: str) -> None:
    result = run(f"result = 1\n{ending}", way=kernel_way)
    assert (result.outcome, result.value, result.value_error) == (Outcome.EXIT, None, None)


def test_a_failure_after_the_value_takes_it_back(run: Run, kernel_way: str) -> None:
    result = run("import atexit, os\natexit.register(os._exit, 3)\n42", way=kernel_way)
    assert (result.outcome, result.value) == (Outcome.EXIT, None)


def test_a_forked_childs_value_is_not_the_jobs(run: Run, kernel_way: str) -> None:
    code = "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\n'parent' if pid else 'child'"
    assert run(code, way=kernel_way).value == "parent"


def test_nor_is_that_of_a_child_that_leads_a_session_of_its_own(run: Run, kernel_way: str) -> None:
    code = """
import os
until_done, hold = os.pipe()
pid = os.fork()
if pid == 0:
    os.close(until_done)
    os.setsid()
else:
    os.close(hold)
    os.read(until_done, 1)
'parent' if pid else 'child'
"""
    result = run(code, way=kernel_way)
    assert (result.value, result.value_error) == ("parent", None)


@pytest.mark.parametrize("ending", ["", "import os; os._exit(0)", "raise ValueError"])
def test_what_a_program_wrote_and_did_not_close_comes_back(host: Host, ending: str) -> None:
    code = f"import atexit\nf = open('a.txt', 'w')\nf.write('written')\ndef g(): return f\n{ending}"
    [file] = host.run(code, artifacts=("*.txt",)).artifacts
    assert file.data == (b"" if "_exit" in ending else b"written")


@pytest.mark.parametrize(
    "written",
    [
        "b'j42'",
        "b'j' + b'[' * 500000",
        "b'z'",
        "b'e' + bytes(70000)",
        "b'jNaN'",
        "b'x' * 3000000",
        "b't' * 99",
    ],
)
def test_a_job_that_writes_its_value_itself_fools_nobody_but_itself(
    run: Run, kernel_way: str, written: str
) -> None:
    code = f"import os\ndata = {written}\nwhile data: data = data[os.write(102, data):]\nos._exit(0)"
    result = run(code, way=kernel_way)
    assert result.outcome is Outcome.OK
    if written == "b'j42'":
        assert result.value == 42
    elif result.value_kind == "table":
        with pytest.raises(ValueError, match="Arrow"):
            result.value.to_table()
    else:
        assert result.value is None
        assert result.value_error


def test_plain_inputs_are_variables(run: Run, way: str) -> None:
    given = {"n": 21, "words": ["a", "é"], "deep": {"a": {"b": [None, 1.5]}}, "_x1": True}
    code = "result = [n * 2, words, deep, _x1]"
    assert run(code, way=way, inputs=given).value == [42, ["a", "é"], {"a": {"b": [None, 1.5]}}, True]


def test_inputs_of_megabytes_arrive(run: Run, way: str) -> None:
    given = {"text": "é" * 3_000_000, "more": list(range(100_000))}
    assert run("[len(text), sum(more)]", way=way, inputs=given).value == [3_000_000, sum(range(100_000))]


def frame() -> pandas.DataFrame:
    return pandas.DataFrame(
        {
            "n": [1, 2, 3],
            "f": [0.5, None, 1.5],
            "s": ["a", "é", None],
            "t": pandas.to_datetime(["2024-01-01", "2024-06-01", None]),
            "c": pandas.Categorical(["x", "y", "x"]),
        },
        index=pandas.Index(["p", "q", "r"], name="key"),
    )


LIMITS = {"timeout_s": 60}


@pytest.mark.timeout(120)
def test_a_dataframe_goes_in_and_out(run: Run, way: str) -> None:
    code = "assert type(df).__module__.startswith('pandas')\ndf.loc[df.n > 1]"
    result = run(code, way=way, image="datascience", inputs={"df": frame()}, limits=LIMITS)
    assert (result.outcome, result.value_kind) == (Outcome.OK, "table"), result
    assert isinstance(result.value, TableValue)
    pandas.testing.assert_frame_equal(result.value.to_pandas(), frame().loc[frame().n > 1])


@pytest.mark.timeout(120)
def test_a_table_goes_in_and_out(run: Run, way: str) -> None:
    table = pyarrow.table({"a": [[1], [2, 3]], "b": [b"x", None]})
    code = "import pyarrow\nassert isinstance(t, pyarrow.Table)\nresult = t.slice(1)"
    result = run(code, way=way, image="datascience", inputs={"t": table}, limits=LIMITS)
    assert result.outcome is Outcome.OK, result
    assert result.value.to_table().equals(table.slice(1))


@pytest.mark.timeout(120)
def test_what_pandas_computes_is_a_plain_number(run: Run, way: str) -> None:
    code = "import pandas\n[pandas.Series([1, 2, 6]).mean(), pandas.Series([1, 2]).sum()]"
    assert run(code, way=way, image="datascience", limits=LIMITS).value == [3.0, 3]


def test_a_table_in_an_image_that_cannot_read_it_is_a_clear_error_before_the_code_runs(
    run: Run, way: str
) -> None:
    result = run("print('ran')", way=way, inputs={"df": frame()})
    assert (result.outcome, result.stdout) == (Outcome.EXIT, "")
    assert result.error is not None
    assert result.error.type == "ImportError"
    for part in ("'df'", "pyarrow", "datascience"):
        assert part in result.error.message


def test_nothing_that_pickle_could_open_crosses(run: Run, way: str, host: Host) -> None:
    code = "class Evil:\n    def __reduce__(self): return (print, ('pwned',))\nEvil()"
    result = run(code, way=way)
    assert result.value is None
    assert "Evil" in str(result.value_error)
    assert result.stdout == ""
