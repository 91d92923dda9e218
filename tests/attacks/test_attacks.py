"""No attack gets out, none is believed, and none leaves anything behind, in any way."""

from __future__ import annotations

import json

import pytest

from attacks.conftest import AttackedOf, TracesOf
from attacks.running import everything_of
from attacks.table import ATTACKS, Attack
from cellblock import JobSpec
from cellblock.contract.results import JobResult
from cellblock_config import LEVELS
from parts import wait_until
from sandbox.harness import MIB
from suite.ways import WAYS

pytestmark = [pytest.mark.docker, pytest.mark.no_rerun]

EACH = [
    pytest.param(attack, way, id=f"{attack.group}: {attack.name} [{way}]")
    for way, (isolation, _) in WAYS.items()
    for attack in sorted(ATTACKS, key=lambda one: one.runs_alone)
    if isolation not in attack.not_on
]
#: The mark of a cut, and what a replaced byte may grow to.
MARK_BYTES, REPLACED_BYTES = 64, 3
#: The host ends a job two seconds after its guest should have; the rest is for a host that is busy.
AROUND_S = 10.0


@pytest.mark.parametrize(("attack", "way"), EACH)
def test_an_attack_is_held(attacked: AttackedOf, attack: Attack, way: str) -> None:
    ended = attacked(way).result_of(attack)
    _check(attack, ended.result, ended.planted)
    assert ended.result.isolation == WAYS[way][0]


def _check(attack: Attack, result: JobResult, planted: str) -> None:
    seen = everything_of(result)
    for word in attack.must_not_appear:
        assert word not in seen, seen
    for word in attack.must_appear:
        assert word in result.stdout, seen
    assert result.outcome in attack.outcomes, (result.outcome, result.evidence, seen)
    if attack.exit_code is not None:
        assert result.exit_code == attack.exit_code, seen
    if attack.truncated is not None:
        assert bool(result.truncated) == attack.truncated, (result.truncated, seen)
    if attack.collected is not None:
        assert [file.path for file in result.artifacts] == attack.collected, result.artifacts_skipped
    if attack.cpu_ms is not None:
        least, most = attack.cpu_ms
        assert least <= result.usage.cpu_ms <= most, result.usage
    if attack.differs:
        assert not set(planted.splitlines()) & set(result.stdout.splitlines()), (planted, result.stdout)
    timeout_s = attack.limits.get("timeout_s", LEVELS[JobSpec(code="0").level].timeout_s)
    assert result.usage.wall_ms < 1000 * (timeout_s + AROUND_S), "it outlasts its limit"
    _can_be_read(result)


def _can_be_read(result: JobResult) -> None:
    """A reader of the result gets text, not much of it, and JSON that reads back the same."""
    limit_bytes = 4000 * REPLACED_BYTES + MARK_BYTES
    for text in (result.stdout, result.stderr):
        assert len(text.encode()) <= limit_bytes
    kept = result.model_dump_json()
    assert "\n" not in kept
    assert "\x1b" not in kept
    assert "\0" not in kept
    assert JobResult.model_validate(json.loads(kept)) == result
    assert len(result.artifacts) <= 64
    assert sum(len(file.data) for file in result.artifacts) <= 16 * MIB


@pytest.mark.after_attacks
@pytest.mark.parametrize("way", WAYS)
def test_after_all_attacks_the_launcher_holds_nothing_and_runs_the_next_job(
    traces: TracesOf, way: str
) -> None:
    host = traces(way).host
    counts = wait_until(lambda: (host.launcher.probe().counts or {}).get("in_use") == 0, what="all jobs gone")
    assert counts
    assert host.run("print('still here')").stdout == "still here\n"


@pytest.mark.after_attacks
@pytest.mark.parametrize("way", WAYS)
def test_after_all_attacks_nothing_of_them_is_left_on_the_host(traces: TracesOf, way: str) -> None:
    left = traces(way)
    left.host.run("pass")  # so that there is something to look for, even if this case is run by itself
    assert left.sandboxes
    wait_until(lambda: not left.found(), 30, lambda: f"no trace of {left.sandboxes}: {left.found()}")
    # What others make and remove meanwhile goes again by itself.
    wait_until(lambda: not left.changed(), 30, lambda: f"the host as it was: {left.changed()}")


def test_every_group_has_attacks_and_every_attack_can_run_somewhere() -> None:
    assert {attack.group for attack in ATTACKS} == {
        "exhaustion",
        "files",
        "forgery",
        "kernel",
        "leakage",
        "lifetime",
        "network",
        "output",
    }
    assert len(ATTACKS) >= 125
    isolations = {isolation for isolation, _ in WAYS.values()}
    assert all(isolations - set(attack.not_on) for attack in ATTACKS)
    assert len({(attack.group, attack.name) for attack in ATTACKS}) == len(ATTACKS)
    assert len({attack.code + attack.before + attack.beside for attack in ATTACKS}) == len(ATTACKS)
