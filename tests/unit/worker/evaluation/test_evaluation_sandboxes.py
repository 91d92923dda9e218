"""How many sandboxes an evaluation asks for at once."""

from __future__ import annotations

from typing import Any, cast

import pytest

from cellblock import JobSpec
from cellblock.admission.resolve import resolve
from cellblock_config import load_settings
from cellblock_workers.worker.evaluation.sandboxes import EvaluationSandboxes

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("wanted", "memory_mib", "alone", "length"),
    [
        (100, 512, False, 32),
        (17, 512, False, 32),
        (16, 512, False, 16),
        (3, 512, False, 4),
        (2, 512, False, 0),
        (100, 256, False, 16),
        (100, 127, False, 4),
        (100, 64, False, 4),  # more that wait would take a part of it that is felt
        (100, 512, True, 0),
    ],
)
def test_a_series_is_as_long_as_is_wanted_and_memory_allows(
    wanted: int, memory_mib: int, alone: bool, length: int
) -> None:
    settings = load_settings()
    manifest = resolve(JobSpec(code="0", limits={"memory_bytes": memory_mib * MIB}), settings)
    places = EvaluationSandboxes(cast(Any, None), manifest, cast(Any, None), settings, cast(Any, None), 1.0)
    places.wanted, places.alone = wanted, alone
    assert places._length() == length
