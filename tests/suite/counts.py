"""What a run of tests leaves behind: counts, failures, and which of those were unsteady."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

_REPOSITORY = Path(__file__).resolve().parents[2]
FOLDER = _REPOSITORY / "build" / "tests"
#: Most unsteady cases of a green run. More have a cause that is not the moment.
UNSTEADY_MAX = 3
_REMEMBERED_MAX = 500
OUTCOMES = ("passed", "skipped", "failed")  #: from the weakest to the strongest


@dataclass(frozen=True, slots=True)
class Failure:
    """A case that failed, with the first thing that it complained of.

    ``may_rerun``: False where a failure is red at once, see the marker ``no_rerun``.
    """

    case: str
    message: str
    may_rerun: bool


@dataclass(frozen=True, slots=True)
class Counts:
    """The cases of one run.

    ``unsteady``: those that failed once and passed alone, counted as passed. ``whole``: False for a run that
    was told to stop early, so that not every case ran.
    """

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    wall_s: float = 0.0
    failures: tuple[Failure, ...] = ()
    unsteady: tuple[Failure, ...] = ()
    whole: bool = True

    @classmethod
    def of(cls, outcomes: Counter[str]) -> Counts:
        """The counts of these outcomes."""
        return cls(outcomes["passed"], outcomes["failed"], outcomes["skipped"])

    @classmethod
    def read(cls, file: Path) -> Counts:
        """The counts in this file. Raises ``FileNotFoundError``."""
        content = json.loads(file.read_text())
        failures, unsteady = (
            tuple(Failure(**each) for each in content.pop(name)) for name in ("failures", "unsteady")
        )
        return cls(**content, failures=failures, unsteady=unsteady)

    def write(self, file: Path) -> None:
        """Keep them in this file."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(asdict(self), indent=1))

    @property
    def green(self) -> bool:
        """Whether nothing is red."""
        return not self.failed and len(self.unsteady) <= UNSTEADY_MAX

    def __str__(self) -> str:
        words = [f"{self.passed} passed", f"{self.failed} failed"]
        words += [f"{self.skipped} skipped"] if self.skipped else []
        words += [f"{len(self.unsteady)} unsteady"] if self.unsteady else []
        return ", ".join(words)


def print_unsteady(counts: Counts) -> None:
    """Name each unsteady case with its complaint, and say if there are too many."""
    for failure in counts.unsteady:
        print(f"unsteady: {failure.case}: failed once, passed alone: {failure.message}")
    if len(counts.unsteady) > UNSTEADY_MAX:
        print(f"red: {len(counts.unsteady)} unsteady cases, more than {UNSTEADY_MAX}")


def keep(counts: Counts, tier: str) -> None:
    """Write the counts of a tier, and add its unsteady cases to those of earlier runs."""
    try:
        counts.write(FOLDER / f"{tier}.json")
        if counts.unsteady:
            _remember(counts.unsteady, tier)
    except OSError as error:  # root has run the tests here before
        print(f"the counts are not kept: {error}")


def forget(tier: str) -> None:
    """Remove what an earlier run of this tier has left."""
    with suppress(OSError):
        (FOLDER / f"{tier}.json").unlink(missing_ok=True)


def _remember(unsteady: Sequence[Failure], tier: str) -> None:
    file = FOLDER / "unsteady.json"
    known: list[dict[str, str]] = []
    with suppress(FileNotFoundError, ValueError):  # a run that was killed has written half of it
        known = json.loads(file.read_text())
    describe = ["git", "describe", "--always", "--dirty"]
    commit = subprocess.run(describe, cwd=_REPOSITORY, capture_output=True, text=True).stdout.strip()
    run = {"tier": tier, "commit": commit, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    known += [{"case": failure.case, "message": failure.message, **run} for failure in unsteady]
    file.write_text(json.dumps(known[-_REMEMBERED_MAX:], indent=1))
