"""Job ids name their tenant's bucket, by a hash that must never change."""

from __future__ import annotations

from collections import Counter

import pytest

from cellblock.contract.job_ids import BUCKETS, bucket_in, bucket_of, new_job_id


def test_the_buckets_are_fixed_for_ever() -> None:
    """A change of these numbers loses every job that is stored anywhere."""
    assert [bucket_of(tenant) for tenant in ("default", "acme", "a", "ünïcode")] == [3668, 3304, 481, 1005]


def test_an_id_says_its_tenants_bucket_and_nothing_else_of_it() -> None:
    ids = [new_job_id("acme") for _ in range(100)]
    assert {bucket_in(job_id) for job_id in ids} == {bucket_of("acme")}
    assert len(set(ids)) == 100
    assert {len(job_id) for job_id in ids} == {32}
    assert all(set(job_id) <= set("0123456789abcdef") for job_id in ids)


def test_tenants_are_spread_evenly() -> None:
    found = Counter(bucket_of(f"tenant{number}") for number in range(40_960))
    assert set(found) <= set(range(BUCKETS))
    assert len(found) > 4000
    assert max(found.values()) < 40


@pytest.mark.parametrize("wrong", ["", "abc", "x" * 32])
def test_what_is_no_id_names_no_bucket(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"id|literal"):
        bucket_in(wrong)
