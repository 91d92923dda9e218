"""The module guard: a job imports what its level allows, and is told so when it tries more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import pytest

from cellblock import JobResult, Outcome
from cellblock_config import LEVELS
from sandbox.harness import Host


@pytest.fixture
def way(kernel_way: str) -> str:
    """The guard is the guest's alone: one kernel of each kind will do."""
    return kernel_way


class Guarded(Protocol):
    """Run one job on a fleet with the guard on."""

    def __call__(self, code: str | None, **spec: Any) -> JobResult: ...


@pytest.fixture
def guarded(host: Host) -> Iterator[Guarded]:
    strict = Host(host.settings.launcher.socket, sandbox={"module_guard": True})
    yield strict.run
    strict.launcher.close()


@pytest.mark.parametrize("level", LEVELS)
def test_a_module_outside_the_levels_list_is_named_with_the_list(guarded: Guarded, level: str) -> None:
    result = guarded("print('before')\nimport subprocess\nprint('after')", level=level)
    assert result.outcome is Outcome.EXIT
    assert result.stdout == "before\n"
    assert result.error is not None
    listed = ", ".join(LEVELS[level].modules)  # type: ignore[index]
    assert (result.error.type, result.error.message) == (
        "ModuleNotAllowed",
        f"subprocess (level {level} allows {listed})",
    )
    assert "line 2" in result.error.traceback


def test_a_traceback_shows_no_line_of_a_jobs_file_that_has_the_guards_name(guarded: Guarded) -> None:
    files = {"run.py": "import subprocess", "guest/module_guard.py": "MINE = 1\n" * 100}
    error = guarded(None, files=files, entrypoint="run.py").error
    assert error is not None
    assert 'File "<guest/module_guard.py>", line' in error.traceback
    assert "MINE" not in error.traceback


@pytest.mark.parametrize(
    "code",
    [
        "import os",  # loaded already, and still not the job's to import
        "import os.path as p",
        "from os import path",
        "import math, os",
        "def later():\n    import os\nlater()",
        "exec('import os')",
        "exec('import os', {})",
        "__import__('os')",
        "import importlib\nimportlib.import_module('os')",
        "import no_such_module",
    ],
)
def test_every_way_of_importing_is_judged(guarded: Guarded, code: str) -> None:
    error = guarded(code, level="strict").error
    assert error is not None
    assert error.type == "ModuleNotAllowed"


ALLOWED = """
from __future__ import annotations
import json, math, statistics
import math as m
from statistics import NormalDist
assert json.loads(json.dumps({"a": 1.5})) == {"a": 1.5}
assert m.isclose(statistics.fmean([1, 2]), 1.5)
assert len(NormalDist(0, 1).samples(3, seed=1)) == 3
print("ran")
"""


def test_allowed_modules_import_whatever_they_need_themselves(guarded: Guarded) -> None:
    assert guarded(ALLOWED, level="strict").stdout == "ran\n"


def test_what_an_allowed_module_imports_in_c_is_not_the_jobs_import(guarded: Guarded) -> None:
    code = "import datetime\nprint(datetime.datetime.strptime('2020-02-29', '%Y-%m-%d').strftime('%d.%m.%y'))"
    assert guarded(code, level="permissive").stdout == "29.02.20\n"


@pytest.mark.timeout(120)
def test_pandas_works_where_it_is_allowed(guarded: Guarded) -> None:
    code = "import pandas as p\nprint(p.DataFrame({'a': [1, 2]}).a.sum(), p.to_datetime('2020-01-01').year)"
    result = guarded(code, image="datascience", limits={"timeout_s": 60})
    assert (result.outcome, result.stdout) == (Outcome.OK, "3 2020\n"), result.stderr


def test_the_value_of_a_guarded_job_comes_back(guarded: Guarded) -> None:
    assert guarded("import math\n{'root': math.isqrt(17)}", level="strict").value == {"root": 4}


def test_a_program_can_do_without_a_module_it_is_refused(guarded: Guarded) -> None:
    code = "try:\n    import numpy\nexcept ImportError as error:\n    print(type(error).__name__, error.name)"
    result = guarded(code)
    assert (result.outcome, result.stdout) == (Outcome.OK, "ModuleNotAllowed numpy\n")


def test_the_jobs_own_files_are_its_own_to_import_and_judged_like_it(guarded: Guarded) -> None:
    code = (
        "open('mine.py', 'w').write('import math\\nhalf = math.pi / 2')\n"
        "open('theirs.py', 'w').write('import os')\n"
        "import mine\nprint(mine.half)\nimport theirs\n"
    )
    result = guarded(code)
    assert result.stdout == "1.5707963267948966\n"
    assert result.error is not None
    assert result.error.message.startswith("os (level standard allows")


def test_an_operators_list_takes_the_place_of_the_levels(host: Host) -> None:
    sandbox = {"module_guard": True, "modules": {"strict": ["typing"], "standard": []}}
    other = Host(host.settings.launcher.socket, sandbox=sandbox)
    assert other.run("from typing import List\nprint(List)", level="strict").outcome is Outcome.OK
    for level, listed in (("strict", "typing"), ("standard", "none")):
        error = other.run("import math", level=level).error
        assert error is not None
        assert error.message == f"math (level {level} allows {listed})"
    other.launcher.close()


def test_the_guard_is_off_unless_it_is_asked_for(host: Host) -> None:
    assert host.run("import os, subprocess\nprint('ran')", level="strict").stdout == "ran\n"
