"""Notices are longer than what they stand for: a result stays within its bound, whatever is filtered."""

from __future__ import annotations

import re
from pathlib import Path

from cellblock.contract.outcomes import JobError, Outcome
from cellblock.contract.results import Artifact, JobResult, SkippedArtifact, Timings
from cellblock.egress import Governed, Outgoing, filter_outgoing
from cellblock.ledger.stored_results import stored
from cellblock_config import EgressSettings, load_settings
from cellblock_config.levels import MIB

BOUNDS = load_settings().ledger
PAGE = (Path(__file__).resolve().parents[3] / "docs/guarantees.md").read_text()
#: A notice is more than twice as long.
SHORT = "pw: Zx81kQ\n"
#: What a header of a file may take, and how many files that were left out are listed (worker/artifacts.py).
HEADER_BYTES, SKIPPED_MOST = 8 * 1024, 100


def _filled(piece: str, size: int) -> str:
    return (piece * (size // len(piece) + 1))[:size]


def _largest() -> Outgoing:
    """As much as a worker takes from a sandbox, with short secrets wherever they can stand."""
    name, reason = _filled("pw: Zx81kQ ", HEADER_BYTES - 1100), _filled("pw: Zx81kQ ", 1000)
    full, passwords = BOUNDS.artifact_bytes, _filled(SHORT, 40_000).encode()
    files = [Artifact(path=str(n), data=bytes(full)) for n in range(BOUNDS.artifacts_bytes // full - 1)]
    files += [Artifact(path="rest", data=bytes(full - 4 * len(passwords)))]
    files += [Artifact(path=f"short{n}", data=passwords) for n in range(4)]
    return Outgoing(
        stdout=Governed(_filled(SHORT, 4000), 0),
        stderr=Governed("\u202e" * 1333, 0),
        value=["v" * (BOUNDS.value_bytes - 60_000), *[SHORT.strip()] * 1900],
        value_kind="json",
        error=JobError(type="E", message=_filled(SHORT, 4000), traceback="\x01" * 16_000),
        artifacts=tuple(files),
        artifacts_skipped=tuple(
            SkippedArtifact(path=f"{n} {name}", reason=reason) for n in range(SKIPPED_MOST)
        ),
    )


def _result(kept: Outgoing) -> JobResult:
    return JobResult(
        job_id="a",
        outcome=Outcome.OK,
        level="standard",
        attempt=1,
        trace_id="a",
        timings=Timings(submitted=0.0, admitted=0.0),
        stdout=kept.stdout.text,
        stderr=kept.stderr.text,
        value=kept.value,
        value_kind=kept.value_kind,
        value_error=kept.value_error,
        error=kept.error,
        artifacts=kept.artifacts,
        artifacts_skipped=kept.artifacts_skipped,
        redactions=kept.redactions,
    )


def test_a_result_is_no_longer_than_the_page_says_whatever_is_filtered() -> None:
    most = int(re.findall(r"^\| its result.*\| (\d+) MiB", PAGE, re.MULTILINE)[0])
    kept = filter_outgoing(_largest(), EgressSettings())
    assert len(stored(_result(kept))) <= most * MIB
    assert "Zx81kQ" not in str(kept.artifacts_skipped)
    assert len(kept.artifacts) + len(kept.artifacts_skipped) == 8 + SKIPPED_MOST, "none without a word"
