"""The result of each sample, and the file that holds the results, from which a run can be resumed."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from cellblock.contract.evaluations import TrialResult, TrialVerdict
from cellblock.errors import InvalidJob
from cellblock.evaluation.samples import Sample

FILE = "results.jsonl"
RUN = "run.json"
SUMMARY = "summary.json"
#: The schema of the summary: increased whenever an older reader would misread it.
SCHEMA = 1

_WORDS = {
    TrialVerdict.PASSED: "passed",
    TrialVerdict.TIMED_OUT: "timed out",
    TrialVerdict.NEEDS_INLINE: "needs inline",
    TrialVerdict.UNJUDGED: "unjudged",
    TrialVerdict.UNUSABLE: "unusable tests",
}


@dataclass(frozen=True, slots=True)
class SampleResult:
    """One sample's line in the results, without its texts: the fields that figures are computed from."""

    index: int
    task_id: str
    verdict: TrialVerdict
    outcome: str
    error: str | None
    wall_ms: int
    peak_memory_bytes: int
    invalid: str | None = None  #: why it could not be run

    @property
    def passed(self) -> bool:
        """Whether the verdict is passed."""
        return self.verdict is TrialVerdict.PASSED

    @classmethod
    def of(cls, sample: Sample, result: TrialResult) -> SampleResult:
        """The fields of a trial's result that figures are computed from."""
        return cls(
            index=sample.index,
            task_id=sample.problem.task_id,
            verdict=result.verdict,
            outcome=result.outcome.value,
            error=result.error.type if result.error else None,
            wall_ms=result.usage.wall_ms,
            peak_memory_bytes=result.usage.peak_memory_bytes,
            invalid=sample.invalid.reason if sample.invalid else None,
        )


def _row(sample: Sample, result: TrialResult) -> dict[str, Any]:
    """A line of the results: the sample's own fields, HumanEval's ``result`` and ``passed``, and more."""
    error = result.error
    word = _WORDS.get(result.verdict) or f"failed: {error.message if error else ''}"
    return {
        **sample.fields,
        "task_id": sample.problem.task_id,
        "result": word,
        "passed": result.verdict is TrialVerdict.PASSED,
        "index": sample.index,
        "verdict": result.verdict.value,
        "channel": result.channel,
        "outcome": result.outcome.value,
        "error": error.model_dump(exclude={"traceback"}) if error else None,
        "invalid": sample.invalid.reason if sample.invalid else None,
        "stdout": result.stdout,
        "stderr": result.stderr,
        "isolation": result.isolation,
        "in_series": result.in_series,
        "usage": result.usage.model_dump(),
    }


class ResultFile:
    """``results.jsonl`` of one folder, to which a line is added whenever a sample ends. The folder is locked
    while it is open, so two processes cannot use it at once."""

    def __init__(self, folder: Path, asked: dict[str, Any], files: dict[str, str] | None = None) -> None:
        """``asked``: the options that identify this run. ``files``: the names of the files whose digests are
        among them. Raises :class:`InvalidJob` where the folder holds
        another run's results, or another process writes to them."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = os.strerror(error.errno or 0)
            raise InvalidJob("--out", f"{folder} cannot be made a folder: {why}; name another") from None
        self._path = folder / FILE
        self._file = self._locked()
        try:
            _check(folder / RUN, asked, files or {})
            self._cut_unfinished()
            self._drop_unjudged()
        except BaseException:
            self._file.close()
            raise

    def __iter__(self) -> Iterator[SampleResult]:
        """The results in the file."""
        with self._path.open("rb") as file:
            for number, text in enumerate(file, start=1):
                yield _read(self._path, number, text)[0]

    def write(self, sample: Sample, result: TrialResult) -> None:
        """Adds a line. When this returns, the operating system has it."""
        line = _row(sample, result)
        self._file.write(json.dumps(line, ensure_ascii=False, default=str).encode("utf-8", "replace") + b"\n")
        self._file.flush()

    def close(self) -> None:
        """Closes the file and unlocks the folder."""
        self._file.close()

    def _locked(self) -> BinaryIO:
        """The opened and locked file. It checks that the name still belongs to the locked file."""
        file = self._path.open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours = os.path.samestat(os.fstat(file.fileno()), self._path.stat())
        except OSError:
            ours = False
        if not ours:
            file.close()
            raise InvalidJob(
                "--out", f"{self._path.parent} is being written by another run; wait for it, or name another"
            )
        return file

    def _drop_unjudged(self) -> None:
        """Removes lines of samples that were not judged for a fault of ours: they are tried again."""
        with self._path.open("rb") as file:
            dropped = {n for n, one in enumerate(self) if one.verdict is TrialVerdict.UNJUDGED}
            if not dropped:
                return
            new = self._path.with_suffix(".new")
            with new.open("wb") as kept:
                kept.writelines(text for n, text in enumerate(file) if n not in dropped)
        replaced = new.open("ab")
        fcntl.flock(replaced, fcntl.LOCK_EX)
        new.replace(self._path)
        self._file.close()
        self._file = replaced

    def _cut_unfinished(self) -> None:
        """Removes the half line that a killed run can leave."""
        with self._path.open("rb+") as file:
            size = end = file.seek(0, os.SEEK_END)
            while end:
                step = min(end, 64 * 1024)
                file.seek(end - step)
                place = file.read(step).rfind(b"\n")
                if place >= 0:
                    end += place + 1 - step
                    break
                end -= step
            if end != size:
                file.truncate(end)


def rows(folder: Path) -> Iterator[tuple[SampleResult, dict[str, Any]]]:
    """The results in a folder, one at a time: a sample's figures, and its whole line.

    Half a line at the end, which a killed run can leave, is ignored. Raises :class:`InvalidJob` where there
    are no results, or another program wrote them.
    """
    path = folder / FILE
    try:
        with path.open("rb") as file:
            for number, text in enumerate(file, start=1):
                if text.endswith(b"\n"):
                    yield _read(path, number, text)
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise InvalidJob(str(path), f"cannot be read: {why}; name the --out of a `cellblock eval`") from None


def write_summary(folder: Path, summary: dict[str, Any]) -> None:
    """Writes the figures of a run that has ended: the whole file or nothing."""
    new = folder / f"{SUMMARY}.new"
    new.write_text(json.dumps(summary, indent=2) + "\n")
    new.replace(folder / SUMMARY)


def summary_of(folder: Path) -> dict[str, Any]:
    """The figures of the run in a folder. Raises :class:`InvalidJob` if it has not ended."""
    found = _object(folder / SUMMARY, "run the same `cellblock eval` again")
    if found.get("schema") != SCHEMA:
        raise InvalidJob(str(folder / SUMMARY), "is another release's; run the same `cellblock eval` again")
    return found


def asked_of(folder: Path) -> dict[str, Any]:
    """The options of the run in a folder, from its ``run.json``. Raises :class:`InvalidJob`."""
    return _object(folder / RUN, "name the --out of a `cellblock eval`")


def _object(path: Path, remedy: str) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        raise InvalidJob(str(path), f"cannot be read; {remedy}") from None


def _read(path: Path, number: int, text: bytes) -> tuple[SampleResult, dict[str, Any]]:
    try:
        line = json.loads(text)
        found = SampleResult(
            index=line["index"],
            task_id=line["task_id"],
            verdict=TrialVerdict(line["verdict"]),
            outcome=line["outcome"],
            error=line["error"]["type"] if line["error"] else None,
            wall_ms=line["usage"]["wall_ms"],
            peak_memory_bytes=line["usage"]["peak_memory_bytes"],
            invalid=line.get("invalid"),
        )
    except (ValueError, TypeError, KeyError):
        raise InvalidJob(
            f"{path}, line {number}", "is not a result of this program; remove it, and it is judged again"
        ) from None
    return found, line


def _check(path: Path, asked: dict[str, Any], files: dict[str, str]) -> None:
    if (
        not path.exists() or not (path.parent / FILE).stat().st_size
    ):  # the earlier options have no results yet
        new = path.with_suffix(".new")
        new.write_text(json.dumps({**asked, "files": files}, indent=2) + "\n")
        new.replace(path)
        return
    try:
        before = dict(json.loads(path.read_text()))
    except (ValueError, TypeError):
        raise InvalidJob("--out", f"{path} cannot be read; name another folder, or remove this one") from None
    for name, value in asked.items():
        if before.get(name) != value:
            was, now = f"{name} {before.get(name)!r:.80}", f"{value!r:.80} requested"
            if name in files:  # a digest tells nobody anything
                was = f"{name} from {dict(before.get('files', {})).get(name, 'another file')}"
                now = f"{files[name]} has other content"
            raise InvalidJob(
                "--out",
                f"{path.parent} holds a run with {was}; {now}: name another folder, or remove this one",
            )
