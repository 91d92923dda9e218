"""Who may wait for room with a long result, by how many of a worker's threads wait already."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from cellblock_workers.worker.waiting_results import WaitingResults


@pytest.mark.parametrize(
    ("threads", "arrivals", "wait"),
    [
        (1, "a", ""),
        (2, "ab", "a"),
        (3, "aab", "a"),
        (4, "aab", "ab"),
        (8, "aaaabbbbcd", "aabc"),
        (8, "aaaabcd", "aabc"),
        (16, "aaaaaabbbbbcd", "aaaabbbc"),
    ],
)
def test_results_that_wait_hold_half_of_the_threads_and_one_tenants_a_quarter(
    threads: int, arrivals: str, wait: str
) -> None:
    results = WaitingResults(threads)
    with ExitStack() as places:
        assert "".join(tenant for tenant in arrivals if places.enter_context(results.place(tenant))) == wait
    with ExitStack() as places:
        again = [tenant for tenant in arrivals if places.enter_context(results.place(tenant))]
    assert "".join(again) == wait, "places were given back"
