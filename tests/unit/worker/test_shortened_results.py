"""A result that a full store has no room for: what is left of it, and that it is no fault of ours."""

from __future__ import annotations

import pytest

from cellblock import JobResult, Outcome, Timings
from cellblock.contract.evaluations import TrialResult
from cellblock.ledger.pressure import LARGE_BYTES
from cellblock.ledger.stored_results import stored
from cellblock_workers.worker.shortened_results import BEYOND_LIMITS, NO_ROOM, shortened

LONG = "x" * 100_000


def result(**fields: object) -> JobResult:
    return JobResult.model_validate(
        {
            "job_id": "job",
            "outcome": "ok",
            "level": "standard",
            "attempt": 1,
            "timings": Timings(submitted=1.0, admitted=1.0),
            "trace_id": "t",
            "cost_micros": 7,
            **fields,
        }
    )


def test_shortened_result_keeps_its_outcome_and_the_beginning_of_its_output() -> None:
    short = shortened(result(stdout=LONG, value=[1], value_kind="json"), NO_ROOM)
    assert (short.outcome, short.cost_micros) == (Outcome.OK, 7)
    assert short.stdout == LONG[:1024]
    assert short.truncated["stdout"] == len(LONG) - 1024
    assert "no room" in (short.value_error or "")


@pytest.mark.parametrize(
    "fields",
    [
        {"trials": (TrialResult(id="a", verdict="passed", channel="split", outcome="ok"),)},
        {"evidence": {"long": LONG}},
    ],
    ids=["evaluation", "other fields"],
)
def test_shortened_result_that_cannot_be_cut_is_the_tenants_loss_at_its_price(
    fields: dict[str, object],
) -> None:
    lost = shortened(result(stdout=LONG, **fields), NO_ROOM)
    assert (lost.outcome, lost.cost_micros, lost.trials) == (Outcome.OUTPUT_LIMIT, 7, ())
    assert lost.error is not None
    assert lost.error.type == "StoreFull"
    assert len(stored(lost)) < LARGE_BYTES


def test_shortened_result_names_the_limit_that_it_is_beyond() -> None:
    for limit, cut in BEYOND_LIMITS.items():
        short = shortened(result(stdout=LONG), cut)
        assert limit in str(short.evidence["cut_short"])
        lost = shortened(result(evidence={"long": LONG}), cut)
        assert lost.error is not None
        assert lost.error.type == "ResultTooLong"
