"""`faults.store_chaos`, short; and a full store, short."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cellblock import JobSpec
from faults import archive_soak, full_store, store_chaos

pytestmark = pytest.mark.no_rerun


@pytest.mark.timeout(300)
@pytest.mark.long("each store dies once")
def test_whatever_store_dies_every_accepted_job_ends_once_and_is_archived(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    before = dict(os.environ)
    print(json.dumps(store_chaos.run(tmp_path, 200, least_s=26)))
    assert dict(os.environ) == before, "the next test of this process would use its stores"


@pytest.mark.timeout(200)
@pytest.mark.long("4,000 jobs through a small store into the archive")
def test_jobs_at_default_retention_are_found_in_the_archive_and_memory_is_flat(tmp_path: Path) -> None:
    found = archive_soak.run(tmp_path, 4000, "6mb", "sqlite")
    print(json.dumps(found))
    assert found["found"] == 4000
    assert found["most_mb"] < 6.1


@pytest.mark.timeout(200)
@pytest.mark.long("2,500 jobs through a full store")
def test_a_fleet_with_a_full_store_loses_nothing_and_never_stands_still(tmp_path: Path) -> None:
    """Injected: results may leave after seconds, for the store is a hundredth of a real one."""
    course = full_store.run(tmp_path, 2500, memory="5mb", most_s=150, CELLBLOCK_LEDGER_RESULT_LEAST_S="3")
    found = full_store.report(course)
    print(json.dumps(found))
    assert found["refused"], "it was full"
    assert (found["accepted"], found["ended"], found["lost"], found["twice"]) == (2500, 2500, 0, 0)
    assert found["longest_standstill_s"] < 10
    assert found["most_mb"] < 5.1


@pytest.mark.timeout(200)
@pytest.mark.long("large results of one tenant, and another beside it")
def test_one_tenants_largest_results_leave_the_others_their_room(tmp_path: Path) -> None:
    """Eight results of a megabyte on their way take 8 MB for a moment: less than 85 % of this store."""
    spec = JobSpec(code="1", args=("1000000",), tenant="greedy")
    course = full_store.run(
        tmp_path,
        150,
        memory="24mb",
        spec=lambda _: spec,
        most_s=120,
        CELLBLOCK_LEDGER_RESULT_LEAST_S="60",
    )
    found = full_store.report(course)
    print(json.dumps(found))
    assert found["lost"] == 0
    assert found["most_mb"] < 24.1
    assert found["beside"] > 3 * found["beside_refused"], "the others are not refused for it"
    assert found["beside_p50_ms"] < 3000
