"""Does the suite notice a wrong line? ``with-docker.sh env PYTHONPATH=tests python -m suite.mutants``.

``tests/mutants.toml`` lists mutants: each is one line of the product made wrong, and the tests that should
notice it. They run in a copy of the repository, once on the product as it is, and then with the wrong line.

Exit code 1: fewer than 95 % are noticed, or one is missed without a ``why_not``, a written reason why no test
can notice it. Exit code 2: the table is wrong. All findings are in ``build/tests/mutants.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_REPOSITORY = Path(__file__).resolve().parents[2]
_RESULTS = _REPOSITORY / "build" / "tests" / "mutants.json"
_PACKAGES = {"config": "cellblock_config", "producer": "cellblock", "workers": "cellblock_workers"}
_PYTEST = ("-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider")
_DEADLINE_S, _LEAST_SHARE = 120.0, 0.95
_PASSED, _FAILED, _NOT_COLLECTED = 0, 1, 2  #: exit codes of pytest's; no other says anything of the product


class TableError(Exception):
    """The table does not fit the repository; the message says where."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One wrong line, ``to`` in place of ``line``. ``nth``: which of several equal lines, from 1."""

    name: str
    file: str
    line: str
    to: str
    noticed_by: tuple[str, ...]
    nth: int = 0
    why_not: str = ""

    def applied(self, text: str) -> str:
        """The file's text with the wrong line in it. Raises :class:`TableError`, SyntaxError."""
        line, to = self.line.strip(), self.to.strip()
        lines = text.split("\n")
        places = [number for number, one in enumerate(lines) if one.strip() == line]
        if len(places) < max(1, self.nth) or (not self.nth and len(places) > 1) or line == to:
            raise TableError(f"{self.name}: {self.file} has {len(places)} lines {line!r}")
        place = places[max(1, self.nth) - 1]
        lines[place] = lines[place].replace(line, to, 1)
        if self.file.endswith(".py"):
            compile("\n".join(lines), f"{self.file}: {self.name}", "exec", dont_inherit=True)
        return "\n".join(lines)


class Copy:
    """One copy of the repository, for one thread at a time. Raises :class:`TableError`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        # Python knows what it has compiled by the second of a file's last change: no two changes share one.
        self._second = int(time.time())
        command = ["git", "ls-files", "-coz", "--exclude-standard"]
        listed = subprocess.run(command, cwd=_REPOSITORY, capture_output=True, check=True).stdout.decode()
        for name in filter(None, listed.split("\0")):
            if (_REPOSITORY / name).exists():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(_REPOSITORY / name, folder / name, follow_symlinks=False)
        names = ", ".join(_PACKAGES.values())
        code, said = self._run("-c", f"import {names}\nfor one in ({names}): print(one.__file__)")
        if code != 0 or not all(Path(line).is_relative_to(folder) for line in said.splitlines()):
            raise TableError(f"the installed packages come before those of {folder} ({code}): {said}")

    def check(self, selection: Sequence[str]) -> str | None:
        """What is wrong with these tests on the product as it is."""
        code, said = self._run(*_PYTEST, *selection)
        if code == _PASSED and re.search(r"\b[1-9]\d* passed\b", said):
            return None
        return f"{' '.join(selection)}: exit code {code} without any mutant\n{said[-2000:]}"

    def find(self, mutant: Mutant) -> dict[str, Any]:
        """What its tests say of a mutant; their exit code is None if they had to be killed."""
        began, file = time.monotonic(), self._folder / mutant.file
        before = file.read_text()
        try:
            self._write(file, mutant.applied(before))
            code, said = self._run(*_PYTEST, *mutant.noticed_by)
        finally:
            self._write(file, before)
        took_s = round(time.monotonic() - began, 1)
        noticed = code in {None, _FAILED, _NOT_COLLECTED}
        word = "noticed" if noticed else "MISSED " if code == _PASSED else f"pytest's exit code is {code}:"
        print(f"{word} {took_s:5.1f} s  {mutant.name}", flush=True)
        told = {"name": mutant.name, "file": mutant.file, "why_not": mutant.why_not, "took_s": took_s}
        return {**told, "exit_code": code, "noticed": noticed, "end_of_output": said[-500:]}

    def kill(self) -> None:
        """End what runs here, and what it has left behind in its process group."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _run(self, *arguments: str) -> tuple[int | None, str]:
        """Run Python on the product of this copy: exit code, None at the deadline, and output."""
        paths = os.pathsep.join(str(self._folder / name) for name in (*_PACKAGES, "tests"))
        command, environment = [sys.executable, *arguments], {**os.environ, "PYTHONPATH": paths}
        with tempfile.TemporaryFile() as output:
            self._process = process = subprocess.Popen(
                command, cwd=self._folder, env=environment, stdout=output, stderr=output, process_group=0
            )
            with suppress(subprocess.TimeoutExpired):
                process.wait(_DEADLINE_S)
            code = process.returncode
            self.kill()
            output.seek(0)
            return code, output.read().decode(errors="replace")

    def _write(self, file: Path, text: str) -> None:
        file.write_text(text)
        self._second += 1
        os.utime(file, (self._second, self._second))


def side_by_side(copies: Sequence[Copy], work: Callable[[Copy, Any], Any], items: Iterable[Any]) -> list[Any]:
    """Do this work with all items, one at a time in each copy."""
    waiting = iter(list(items))  # the copy that asks first gets the next one
    with ThreadPoolExecutor(len(copies)) as pool:
        try:
            shares = pool.map(lambda copy: [work(copy, item) for item in waiting], copies)
            return [found for share in shares for found in share]
        finally:  # also where somebody interrupts
            list(waiting)
            for one in copies:
                one.kill()


def load_mutants(having: str) -> list[Mutant]:
    """Those with this in their name or file. Raises :class:`TableError` where one does not fit its file."""
    rows = tomllib.loads((_REPOSITORY / "tests" / "mutants.toml").read_text())["mutant"]
    mutants = [Mutant(**{**row, "noticed_by": tuple(row["noticed_by"])}) for row in rows]
    if len({mutant.name for mutant in mutants}) != len(mutants):
        raise TableError("two mutants have one name")
    for mutant in mutants:
        mutant.applied((_REPOSITORY / mutant.file).read_text())
    return [mutant for mutant in mutants if having in mutant.name or having in mutant.file]


def try_out(mutants: Sequence[Mutant], jobs: int) -> int:
    """Try these mutants and tell what came of them. The exit code. Raises :class:`TableError`."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        Path(folder).chmod(0o755)  # some tests start programs of the copy as another user
        copies = [Copy(Path(folder) / str(number)) for number in range(jobs)]
        selections = dict.fromkeys(mutant.noticed_by for mutant in mutants)
        if problems := [one for one in side_by_side(copies, Copy.check, selections) if one]:
            raise TableError("\n".join(problems))
        findings = side_by_side(copies, Copy.find, mutants)
    missed = [one for one in findings if not one["noticed"]]
    noticed, took_s = len(findings) - len(missed), round(time.monotonic() - began)
    _RESULTS.parent.mkdir(parents=True, exist_ok=True)
    _RESULTS.write_text(json.dumps({"noticed": noticed, "took_s": took_s, "findings": findings}, indent=1))
    killed = sum(one["exit_code"] is None for one in findings)
    endless = f"{killed} of them by not coming to an end"
    print(f"{len(findings)} mutants, {noticed} noticed ({endless}), {len(missed)} not, {took_s} s")
    if any(one["exit_code"] != _PASSED for one in missed):
        return 2
    return int(noticed < _LEAST_SHARE * len(findings) or not all(one["why_not"] for one in missed))


def main() -> int:
    """Do what the command line asks. The exit code."""
    parser = argparse.ArgumentParser(prog="suite.mutants", description="Does the suite notice a wrong line?")
    parser.add_argument("--only", default="", metavar="TEXT", help="mutants with this in their name or file")
    parser.add_argument("--list", action="store_true", help="name them, and try none")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at once")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        chosen = load_mutants(asked.only)
        if not chosen:
            raise TableError(f"no mutant has {asked.only!r} in its name or file; --list names them")
        if asked.list:
            print("\n".join(f"{mutant.file}: {mutant.name}" for mutant in chosen))
        return 0 if asked.list else try_out(chosen, max(1, asked.jobs))
    except (TableError, SyntaxError) as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
