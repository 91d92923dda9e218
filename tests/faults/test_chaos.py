"""The long runs of `make test-faults`, short: three hosts under random faults, and many jobs in a row."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from faults import chaos, soak

pytestmark = pytest.mark.no_rerun


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("jobs", "for_s"), [(40, 10), pytest.param(150, 40, marks=pytest.mark.long("150 jobs under faults"))]
)
def test_under_random_faults_every_accepted_job_ends_once_and_nothing_is_left(
    tmp_path: Path, jobs: int, for_s: float
) -> None:
    tmp_path.chmod(0o755)
    seed = random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")
    print(json.dumps(chaos.run(tmp_path, jobs=jobs, for_s=for_s, seed=seed)))


@pytest.mark.timeout(400)
@pytest.mark.long("3,000 jobs in a row")
def test_many_jobs_leave_no_key_and_no_memory(tmp_path: Path) -> None:
    print(json.dumps(soak.run(tmp_path, 3000)))
