"""What one tenant does to hurt the others, and how little they notice of it.

The figures are what `python -m faults.neighbours` prints; this holds what no load of a host explains.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.nasty import ATTACKS, Attack
from faults.neighbours import Fleet, Waits, fleet

pytestmark = [pytest.mark.quiet_host, pytest.mark.timeout(240)]
SECONDS = 4.0
#: Three is what `python -m faults.neighbours` has to show, which measures for longer.
TIMES = 8
#: A p95 that a slow host alone can reach.
LEAST_MS = 400


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, Waits]]:
    folder: Path = tmp_path_factory.mktemp("neighbours")
    folder.chmod(0o755)
    with fleet(folder) as made:
        yield made, made.alone(SECONDS)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda one: one.name)
def test_a_neighbour_hardly_notices(host: tuple[Fleet, Waits], attack: Attack) -> None:
    made, alone = host
    found = made.beside(attack, SECONDS)
    assert found.waits.failed == 0
    assert found.waits.p95_ms < max(LEAST_MS, TIMES * alone.p95_ms)
    assert found.outcomes, "the attack was made"
    assert made.worker_lives(), "no worker dies of it"
