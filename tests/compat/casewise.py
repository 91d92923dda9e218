"""Runs the tests of one target case by case and writes down what came of each, whatever the cases do.

    casewise.py REQUEST.json

Runs bare and inside alike, with the standard library alone. The request: ``kind`` (``unittest``: ``target``
is a module; ``pytest``: ``target`` is a list of files), ``results`` (a file), ``resources`` (that CPython's
tests may use besides), ``case_s``, ``all_s`` and, for a second look, ``only`` (cases). A child of it runs the
cases, so that one that ends its interpreter, hangs, or prints without end costs this one case: the next child
goes on behind it.

Each line of the results is JSON: ``{"start": id}``, then ``{"id", "status", "why"}``. A line ``{"module"}``
says that the target did not come to its end, and why.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import unittest
from typing import Any

#: How often a new child goes on behind a case that ended the last.
CHILDREN_MOST = 15
WHY_CHARS = 400
KEPT_BYTES = 2000
#: What CPython's tests may use of what they ask for; the network and gigabytes are not among it.
RESOURCES = ["subprocess", "decimal", "tzdata"]


class Lines:
    """The results' file, opened anew for each line: cases close descriptors, and fork."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._pid = os.getpid()
        # Cases replace what they find in modules.
        self._calls = (os.open, os.write, os.close, os.getpid)

    def write(self, **line: Any) -> None:
        """Append one line, if this is the process that runs the cases and not a child of a case."""
        opened, written, closed, own = self._calls
        if own() != self._pid:
            return
        descriptor = opened(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            # Where a case has filled the disk, a line may be cut short: the next one begins anew.
            written(descriptor, b"\n" + json.dumps(line).encode() + b"\n")
        finally:
            closed(descriptor)

    def read(self) -> list[dict[str, Any]]:
        """Every line so far."""
        with contextlib.suppress(FileNotFoundError), open(self.path, "rb") as file:
            return read_lines(file.read())
        return []


def read_lines(data: bytes) -> list[dict[str, Any]]:
    """Those that are whole."""
    found = []
    for line in data.split(b"\n"):
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found


def brief(text: str) -> str:
    """The last telling line of a traceback or a message."""
    told = [line.strip() for line in text.splitlines() if line.strip(" ^~|-")]
    return told[-1][:WHY_CHARS] if told else ""


# --- the child: unittest ---------------------------------------------------------------------------


class Noting(unittest.TestResult):
    """Notes of each case its worst end."""

    def __init__(self, lines: Lines, names: dict[int, str]) -> None:
        super().__init__()
        self.lines = lines
        self.names = names
        self.ends: dict[int, tuple[str, str]] = {}

    def startTest(self, test: Any) -> None:
        super().startTest(test)
        self.ends.pop(id(test), None)
        self.lines.write(start=self.names[id(test)])

    def stopTest(self, test: Any) -> None:
        super().stopTest(test)
        status, why = self.ends.get(id(test), ("pass", ""))
        self.lines.write(id=self.names[id(test)], status=status, why=why)

    def _end(self, test: Any, status: str, why: str) -> None:
        if id(test) in self.names:
            self.ends.setdefault(id(test), (status, why))
        else:  # a fixture of a class or a module: its cases will be missing, and this says why
            self.lines.write(fixture=str(test), status=status, why=why)

    def addError(self, test: Any, err: Any) -> None:
        self._end(test, "error", _error(err))

    def addFailure(self, test: Any, err: Any) -> None:
        self._end(test, "fail", _error(err))

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self._end(test, "fail", f"{subtest._subDescription()}: {_error(err)}"[:WHY_CHARS])

    def addSkip(self, test: Any, reason: str) -> None:
        self._end(test, "skip", brief(str(reason)))

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        self._end(test, "expected failure", "")

    def addUnexpectedSuccess(self, test: Any) -> None:
        self._end(test, "unexpected success", "")


def _error(err: Any) -> str:
    kind, value, trace = err
    frames = traceback.extract_tb(trace)
    own = [frame for frame in frames if "/test/" in frame.filename] or frames
    where = f" ({os.path.basename(own[-1].filename)}:{own[-1].lineno})" if own else ""
    return brief(f"{kind.__name__}: {value}".replace("\n", " | "))[: WHY_CHARS - 40] + where


def run_unittest(request: dict[str, Any], lines: Lines, done: set[str]) -> None:
    """Every case of a module that is not done."""
    from test import support  # type: ignore[import-not-found, unused-ignore]

    support.use_resources = [*RESOURCES, *request["resources"]]
    found = unittest.defaultTestLoader.loadTestsFromName(request["target"])
    names: dict[int, str] = {}
    seen: dict[str, int] = {}
    cases = []
    for case in _flat(found):
        name = case.id()
        seen[name] = seen.get(name, 0) + 1
        name = name if seen[name] == 1 else f"{name}#{seen[name]}"
        only = request.get("only")
        if name not in done and (only is None or name in only):
            names[id(case)] = name
            cases.append(case)
    unittest.TestSuite(cases).run(Noting(lines, names))


def _flat(suite: Any) -> list[Any]:
    if isinstance(suite, unittest.TestSuite):
        return [case for part in suite for case in _flat(part)]
    return [suite]


# --- the child: pytest -----------------------------------------------------------------------------


def run_pytest(request: dict[str, Any], lines: Lines, done: set[str]) -> None:
    """Every case that these words select and that is not done."""
    import pytest

    only = request.get("only")
    ends: dict[str, tuple[str, str]] = {}

    class Plugin:
        def pytest_collection_modifyitems(self, items: list[Any]) -> None:
            items[:] = [
                item for item in items if item.nodeid not in done and (only is None or item.nodeid in only)
            ]

        def pytest_collectreport(self, report: Any) -> None:
            if report.failed:
                lines.write(fixture=report.nodeid, status="error", why=brief(report.longreprtext))

        def pytest_runtest_logstart(self, nodeid: str) -> None:
            lines.write(start=nodeid)

        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed or report.skipped:
                text = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else report.longreprtext
                status = "fail" if report.failed else "skip"
                ends.setdefault(report.nodeid, (status, _telling(text)))

        def pytest_runtest_logfinish(self, nodeid: str) -> None:
            status, why = ends.pop(nodeid, ("pass", ""))
            lines.write(id=nodeid, status=status, why=why)

    words = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--disable-warnings", *request["target"]]
    if (code := pytest.main(words, plugins=[Plugin()])) not in (0, 1, 5):
        lines.write(module=f"pytest ended with {int(code)}")


def _telling(text: str) -> str:
    """pytest marks the lines of an error itself with an E."""
    marked = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
    return (marked[0] if marked else brief(text))[:WHY_CHARS]


def read_request(path: str) -> dict[str, Any]:
    """With the place of the results, whatever folder a case goes to."""
    with open(path, encoding="utf-8") as file:
        request: dict[str, Any] = json.load(file)
    request["results"] = os.path.abspath(request["results"])
    return request


# --- the parent ------------------------------------------------------------------------------------


def child(path: str) -> None:
    """Run the cases that the results do not name yet."""
    request = read_request(path)
    lines = Lines(request["results"])
    done = {line["id"] for line in lines.read() if "id" in line}
    os.chdir(tempfile.mkdtemp(prefix="cases-"))
    sys.argv[1:] = []
    {"unittest": run_unittest, "pytest": run_pytest}[request["kind"]](request, lines, done)
    lines.write(end=True)


def watch(path: str) -> None:
    """One child after the other, until the last case."""
    request = read_request(path)
    lines = Lines(request["results"])
    deadline = time.monotonic() + request["all_s"]
    for _ in range(CHILDREN_MOST):
        why, said = _run_child(path, lines, request["case_s"], deadline)
        last = lines.read()[-1:]
        if last and last[0].get("end"):
            return
        if time.monotonic() > deadline:
            lines.write(module=f"not over after {request['all_s']} s")
            return
        if last and "start" in last[0]:
            lines.write(id=last[0]["start"], status="ended", why=f"{why}: {said}"[:WHY_CHARS])
        else:
            lines.write(module=f"{why}: {said}"[:WHY_CHARS])
            return
    lines.write(module=f"{CHILDREN_MOST} children ended before their time")


def _run_child(path: str, lines: Lines, case_s: float, deadline: float) -> tuple[str, str]:
    """How it ended, and the last that it said."""
    command = [sys.executable, "-X", "faulthandler", os.path.abspath(__file__), "--child", path]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        bufsize=0,
    )
    kept = bytearray()
    reader = threading.Thread(target=_keep_last, args=(process.stdout, kept), daemon=True)
    reader.start()
    size, moved, why = -1, time.monotonic(), ""
    while not why:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.25)
            why = f"its interpreter ended with {process.returncode}"
        now = time.monotonic()
        with contextlib.suppress(FileNotFoundError):
            if (current := os.stat(lines.path).st_size) != size:
                size, moved = current, now
        if not why and (now - moved > case_s or now > deadline):
            why = f"hung, {case_s} s without a sign"
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)
    reader.join(1)
    return why, brief(bytes(kept).decode(errors="replace"))


def _keep_last(pipe: Any, kept: bytearray) -> None:
    while piece := pipe.read(65_536):
        kept += piece
        del kept[:-KEPT_BYTES]


if __name__ == "__main__":
    if sys.argv[1] == "--child":
        child(sys.argv[2])
    else:
        watch(sys.argv[1])
