"""A field of a job that does not exist: the error names the one that was meant, and shows no payload."""

from __future__ import annotations

from typing import Any

import pytest

from cellblock import InvalidJob, JobSpec, Limits

MEANT: dict[str, tuple[dict[str, Any], str]] = {
    "a limit beside the limits": ({"timeout_s": 3}, "limits={'timeout_s': 3}"),
    "a limit without its unit": ({"timeout": 3}, "limits={'timeout_s': 3}"),
    "a misspelt field": ({"tennant": "acme"}, "tenant"),
    "a misspelt limit": ({"limits": {"memory": 5}}, "memory_bytes"),
    "a text": ({"timeout": "a secret"}, "limits={'timeout_s': …}"),
}


@pytest.mark.parametrize(("fields", "meant"), MEANT.values(), ids=MEANT)
def test_unknown_field_of_a_job_names_the_one_that_was_meant(fields: dict[str, Any], meant: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        JobSpec(code="print(1)", **fields)
    assert caught.value.problem == f"unknown field; did you mean {meant}?"


def test_unknown_limit_names_the_one_that_was_meant() -> None:
    with pytest.raises(InvalidJob, match=r"^timeout: unknown field; did you mean timeout_s\?$"):
        Limits(timeout=3)  # type: ignore[call-arg]


def test_unknown_field_like_no_other_is_named_alone() -> None:
    with pytest.raises(InvalidJob, match=r"^zebra: unknown field$"):
        JobSpec(code="print(1)", zebra=3)  # type: ignore[call-arg]
