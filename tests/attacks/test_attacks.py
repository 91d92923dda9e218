"""No attack gets out, none is believed, and none leaves anything behind, on any isolation."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from attacks.conftest import ATTACKS, Attack
from cellblock.models import JobResult
from parts import wait_until
from sandbox.harness import ISOLATIONS, Host

pytestmark = pytest.mark.docker

EACH = [
    pytest.param(attack, isolation, id=f"{attack.group}: {attack.name} [{isolation}]")
    for isolation in ISOLATIONS
    for attack in ATTACKS
    if isolation in attack.isolations
]


@pytest.fixture(scope="module")
def abstract_name() -> Iterator[str]:
    """The name of an abstract socket this process listens on, for the jobs not to find."""
    name = f"cellblock-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind("\0" + name)
        listener.listen()
        yield name


@pytest.mark.parametrize(("attack", "isolation"), EACH)
def test_an_attack_is_held(
    attacked: dict[str, Host], attack: Attack, isolation: str, abstract_name: str
) -> None:
    result = attacked[isolation].run(
        attack.code, args=(abstract_name,), image=attack.image, limits=attack.limits
    )
    seen = _everything_of(result)
    for word in attack.must_not_appear:
        assert word not in seen, seen
    for word in attack.must_appear:
        assert word in result.stdout, seen
    assert result.outcome in attack.outcomes, (result.outcome, result.evidence, seen)
    if attack.exit_code is not None:
        assert result.exit_code == attack.exit_code, seen
    assert result.isolation == isolation
    assert result.usage.wall_ms < 20_000


def _everything_of(result: JobResult) -> str:
    error = result.error
    return "\n".join([result.stdout, result.stderr, f"{error.type} {error.message}" if error else ""])


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_after_all_attacks_the_launcher_holds_nothing_and_runs_the_next_job(
    attacked: dict[str, Host], isolation: str
) -> None:
    host = attacked[isolation]
    counts = wait_until(lambda: (host.launcher.probe().counts or {}).get("in_use") == 0, what="all jobs gone")
    assert counts
    assert host.run("print('still here')").stdout == "still here\n"


def test_every_group_has_attacks_and_every_attack_can_run_somewhere() -> None:
    assert {attack.group for attack in ATTACKS} == {
        "exhaustion",
        "files",
        "forgery",
        "kernel",
        "lifetime",
        "network",
    }
    assert len(ATTACKS) >= 40
    assert all(set(attack.isolations) <= set(ISOLATIONS) and attack.isolations for attack in ATTACKS)
    assert len({(attack.group, attack.name) for attack in ATTACKS}) == len(ATTACKS)
