"""Programs of several files, and the environment they run in."""

from __future__ import annotations

import hashlib
import json

import pytest

from cellblock import Outcome
from sandbox.conftest import Run
from sandbox.harness import MIB

pytestmark = pytest.mark.docker


def test_an_entry_point_runs_as_main_and_finds_the_modules_beside_it(run: Run, way: str) -> None:
    files = {
        "app/run.py": "import sys, near, lib.far\nprint(__name__, __file__, sys.argv[1:], near.X, lib.far.Y)",
        "app/near.py": "X = 1",
        "app/lib/far.py": "Y = 2",
        "data.txt": "not imported",
    }
    result = run(None, way=way, files=files, entrypoint="app/run.py", args=("a",))
    assert (result.outcome, result.stdout) == (
        Outcome.OK,
        "__main__ /tmp/sandbox/app/run.py ['a'] 1 2\n",
    )


def test_code_finds_the_files_beside_it_byte_for_byte(run: Run, way: str) -> None:
    big = bytes(range(256)) * (4 * MIB // 256)
    code = """
import hashlib, json, helper, os
print(json.dumps({
    'big': hashlib.sha256(open('deep/er/big', 'rb').read()).hexdigest(),
    'empty': os.path.getsize('empty'), 'helper': helper.X, 'cwd': os.getcwd(),
    'text': open('é').read(), 'all': sorted(os.listdir()),
}))
"""
    files = {"deep/er/big": big, "empty": b"", "helper.py": "X = 7", "é": "é"}
    assert json.loads(run(code, way=way, files=files).stdout) == {
        "big": hashlib.sha256(big).hexdigest(),
        "empty": 0,
        "helper": 7,
        "cwd": "/tmp/sandbox",
        "text": "é",
        "all": ["deep", "empty", "helper.py", "main.py", "é"],
    }


def test_the_files_are_the_jobs_own_to_change(run: Run, way: str) -> None:
    code = "open('a/b', 'a').write('+')\nprint(open('a/b').read())\nimport os, shutil\nshutil.rmtree('a')"
    assert run(code, way=way, files={"a/b": "x"}).stdout == "x+\n"


def test_an_error_in_a_file_names_the_file_and_its_line(run: Run, way: str) -> None:
    files = {"app/run.py": "import near\nnear.fail()", "app/near.py": "def fail():\n    1/0"}
    result = run(None, way=way, files=files, entrypoint="app/run.py")
    assert result.outcome is Outcome.EXIT
    assert '"/tmp/sandbox/app/near.py", line 2' in result.stderr
    assert "guest/" not in result.stderr
    result = run(None, way=way, files={"x.py": "if:"}, entrypoint="x.py")
    assert result.error is not None
    assert result.error.type == "SyntaxError"


def test_an_entry_point_declares_its_own_encoding(run: Run, way: str) -> None:
    source = "# -*- coding: latin-1 -*-\nprint('é')".encode("latin-1")
    assert run(None, way=way, files={"x.py": source}, entrypoint="x.py").stdout == "é\n"


def test_more_files_than_memory_end_as_memory_and_harm_nobody(run: Run, way: str) -> None:
    result = run(
        "print(1)\nx = 'x' * 2**30", way=way, files={"a": b"x" * 8_000_000}, limits={"memory_bytes": 64 * MIB}
    )
    assert result.outcome is Outcome.MEMORY


def test_variables_arrive_beside_the_sandboxs_own_and_reach_children(run: Run, way: str) -> None:
    code = """
import os, subprocess
print(os.environ['MODE'], os.environ['lower_1'], os.environ['HOME'], len(os.environ))
print(subprocess.run(['sh', '-c', 'echo $MODE'], capture_output=True, text=True).stdout.strip())
"""
    result = run(code, way=way, env={"MODE": "fast é=\n", "lower_1": ""})
    assert result.stdout == "fast é=\n  /tmp/sandbox 9\nfast é=\n"


#: Which of these modules are the job's own, and how those of the library that use them come out.
OWN = """
import importlib, sys
def own(name):
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        return type(error).__name__
    return getattr(module, 'own', False)
result = {name: own(name) for name in NAMES}
"""


def test_a_jobs_own_modules_come_before_what_was_imported_ahead(run: Run, any_way: str) -> None:
    """All but those that an interpreter has before its program, or within itself."""
    own = ["random", "string", "queue", "textwrap", "calendar", "os", "abc", "io", "sys", "time", "heapq"]
    files = {f"{name}.py": "own = True\n" for name in own}
    code = f"NAMES = {own}\n{OWN}"
    result = run(code, way=any_way, files=files)
    stay = {"os", "abc", "io", "sys", "time"}
    assert result.value == {name: name not in stay for name in own}, result


def test_modules_that_use_a_jobs_own_get_it(run: Run, any_way: str) -> None:
    files = {
        "random.py": "own = True\n",
        "json/__init__.py": "own = True\n",
        "signal/readme.txt": "no package",
    }
    code = f"NAMES = ['tempfile', 'json', 'json.decoder', 'threading', 'signal', 'socket']\n{OWN}"
    result = run(code, way=any_way, files=files)
    plain = dict.fromkeys(("threading", "signal", "socket"), False)
    missing = {"tempfile": "ImportError", "json.decoder": "ModuleNotFoundError"}
    assert result.value == {"json": True, **missing, **plain}, result


def test_the_entrypoints_folder_is_the_one_that_counts(run: Run, kernel_way: str) -> None:
    files = {
        "tool/main.py": "import random, string\nprint(random.own, hasattr(string, 'own'))",
        "tool/random.py": "own = True",
        "string.py": "own = True",
    }
    assert run(None, way=kernel_way, files=files, entrypoint="tool/main.py").stdout == "True False\n"


def test_a_job_with_threads_and_modules_of_its_own_ends_well(run: Run, kernel_way: str) -> None:
    code = """
import threading, time, traceback, logging
def late():
    time.sleep(0.3)
    print('late')
threading.Thread(target=late).start()
raise ValueError('no')
"""
    files = {f"{name}.py": "own = True" for name in ("random", "calendar", "queue")}
    result = run(code, way=kernel_way, files=files)
    assert (result.exit_code, result.stdout) == (1, "late\n"), result


def test_the_time_zone_is_that_of_the_program_and_its_children(run: Run, any_way: str) -> None:
    code = """
import datetime, subprocess, time
print(time.localtime(0).tm_zone, time.tzname, datetime.datetime.fromtimestamp(0), time.ctime(0))
print(datetime.datetime.fromtimestamp(0, datetime.timezone.utc).astimezone().utcoffset())
print(subprocess.run(['date', '-d', '@0', '+%H:%M'], capture_output=True, text=True).stdout.strip())
"""
    result = run(code, way=any_way, env={"TZ": "XYZ-5:30"})
    assert result.stdout.splitlines() == [
        "XYZ ('XYZ', 'XYZ') 1970-01-01 05:30:00 Thu Jan  1 05:30:00 1970",
        "5:30:00",
        "05:30",
    ], result
    named = run("import time; print(time.localtime(0).tm_zone)", way=any_way, env={"TZ": "Asia/Kolkata"})
    assert named.stdout == "IST\n"


def test_a_folder_that_a_file_would_need_is_not_taken_by_the_code(run: Run, way: str) -> None:
    assert (
        run("print(open('main.py/x').read())", way=way, files={"other/main.py": "x"}).outcome is Outcome.EXIT
    )
