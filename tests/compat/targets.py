"""What runs, as ``selection.toml`` names it, and what came of it, bare or in a way."""

from __future__ import annotations

import json
import shutil
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from cellblock_config import load_settings
from compat.bare import run_bare
from compat.casewise import read_lines
from compat.inside import IMAGE, run_job
from sandbox.harness import Host

HERE = Path(__file__).parent
_WHEELS = "/usr/local/lib/python3.11/dist-packages"
#: Enough for the slowest on gVisor beside other work; a case that says nothing for so long hangs.
CASE_S = 120.0
ALL_S = 900.0
_RESULTS, _REQUEST, _PROGRAM = "results.jsonl", "request.json", "casewise.py"


@dataclass(frozen=True)
class Target:
    """One module of CPython's tests, or one group of files of a wheel's."""

    suite: str
    name: str
    quick: bool
    words: tuple[str, ...]
    resources: tuple[str, ...] = ()

    def request(self, only: Sequence[str] | None = None) -> bytes:
        """What casewise.py is to run."""
        unittest = self.suite == "cpython"
        return json.dumps(
            {
                "kind": "unittest" if unittest else "pytest",
                "target": f"test.{self.name}" if unittest else [_word(word) for word in self.words],
                "results": _RESULTS,
                "resources": self.resources,
                "case_s": CASE_S,
                "all_s": ALL_S,
                "only": list(only) if only is not None else None,
            }
        ).encode()


@dataclass(frozen=True)
class Found:
    """What came of each case; ``problems``: what kept others from having an end, by the place it was met."""

    cases: dict[str, tuple[str, str]]
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def passed(self) -> set[str]:
        """The cases that did."""
        return {name for name, (status, _) in self.cases.items() if status == "pass"}

    def why(self, case: str) -> str:
        """Why a case did not pass."""
        if case in self.cases:
            status, why = self.cases[case]
            return f"{status}: {why}" if why else status
        return "; ".join(["did not run", *(f"{place}: {why}" for place, why in self.problems.items())])


def _word(word: str) -> str:
    return word if word.startswith("-") else f"{_WHEELS}/{word}"


@cache
def targets() -> tuple[Target, ...]:
    """All of them, in order."""
    chosen = tomllib.loads((HERE / "selection.toml").read_text())
    cpython, data = chosen["cpython"], chosen["data"]
    return (
        *(
            Target("cpython", name, name in cpython["quick"], (), tuple(cpython["resources"].get(name, ())))
            for name in cpython["modules"]
        ),
        *(Target("data", name, name in data["quick"], tuple(files)) for name, files in data["files"].items()),
    )


def run_target_bare(target: Target, only: Sequence[str] | None = None) -> Found:
    """In the same root, as an ordinary user."""
    folder = Path(tempfile.mkdtemp(prefix="compat-bare-"))
    try:
        folder.joinpath(_REQUEST).write_bytes(target.request(only))
        shutil.copy(HERE / _PROGRAM, folder)
        root = load_settings().launcher.image_roots / IMAGE / "rootfs"
        command = ["/usr/bin/python3", _PROGRAM, _REQUEST]
        done = run_bare(root, folder, command, keep=[_RESULTS], timeout_s=ALL_S + 60)
        file = folder / _RESULTS
        return read_results(file.read_bytes() if file.exists() else b"", done.stderr.decode(errors="replace"))
    finally:
        shutil.rmtree(folder)


def run_target_inside(host: Host, target: Target, only: Sequence[str] | None = None) -> Found:
    """As a job of this host."""
    files = {_REQUEST: target.request(only), _PROGRAM: (HERE / _PROGRAM).read_bytes()}
    result = run_job(
        host,
        None,
        files=files,
        entrypoint=_PROGRAM,
        args=(_REQUEST,),
        image=IMAGE,
        artifacts=(_RESULTS,),
        timeout_s=ALL_S + 60,
    )
    data = b"".join(artifact.data for artifact in result.artifacts)
    error = f"{result.error.type}: {result.error.message}" if result.error else ""
    skipped = "; ".join(f"{one.path}: {one.reason}" for one in result.artifacts_skipped)
    said = (
        ""
        if result.ok and data
        else f"the job ended {result.outcome}: {error} {skipped} {result.stderr[-300:]}"
    )
    return read_results(data, said)


def read_results(data: bytes, said: str) -> Found:
    """What casewise.py has written; ``said``: what else is known of a run that did not come to its end."""
    cases: dict[str, tuple[str, str]] = {}
    problems: dict[str, str] = {"the run": said.strip()} if said.strip() else {}
    for note in read_lines(data):
        if "id" in note:
            cases[note["id"]] = (note["status"], note["why"])
        elif "fixture" in note:
            problems[note["fixture"]] = f"{note['status']}: {note['why']}"
        elif "module" in note:
            problems["the module"] = note["module"]
    return Found(cases, problems)
