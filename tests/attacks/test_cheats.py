"""No program passes under a split verdict without being right."""

from __future__ import annotations

from itertools import islice

import pytest

from attacks.cheats import CHEATS, CHECK, SOLUTION
from cellblock.contract.evaluations import TrialResult, TrialVerdict
from sandbox.harness import Host

pytestmark = pytest.mark.no_rerun

LIMITS = {"timeout_s": 2.0, "memory_bytes": 256 * 1024 * 1024}


@pytest.fixture(params=["namespaces", "gvisor-oci"])
def evaluation_way(request: pytest.FixtureRequest) -> str:
    """One whose sandboxes come in series, and one that makes a single one for each trial."""
    return str(request.param)


@pytest.fixture
def host(sandbox_hosts: dict[str, Host], evaluation_way: str) -> Host:
    return sandbox_hosts[evaluation_way]


def judged(host: Host, programs: dict[str, str], verdict: str = "split") -> dict[str, TrialResult]:
    """What came of these programs, several of them in one job."""
    found: dict[str, TrialResult] = {}
    names = iter(programs)
    while batch := list(islice(names, 32)):
        result = host.judge([(name, programs[name], CHECK) for name in batch], verdict, **LIMITS)
        found |= {trial.id: trial for trial in result.trials}
    return found


#: Some of these fool a judge that shares their interpreter: that is how this file can fail.
INLINE = ["equal to everything: object", "unittest believes", "AssertionError is no error"]


def test_inline_some_of_them_do(host: Host) -> None:
    found = judged(host, {name: CHEATS[name] for name in INLINE}, "inline")
    assert {name for name, one in found.items() if one.verdict is TrialVerdict.PASSED}
    assert {one.channel for one in found.values()} == {"inline"}


@pytest.mark.timeout(600)
@pytest.mark.long("a hundred evaluations")
def test_no_cheat_passes_and_the_honest_between_them_do(host: Host) -> None:
    programs: dict[str, str] = {}
    for number, (name, source) in enumerate(CHEATS.items()):
        if number % 8 == 0:
            programs[f"honest {number}"] = SOLUTION
        programs[name] = source
    found = judged(host, programs)
    verdicts = {name: result.verdict for name, result in found.items()}
    honest = {name for name in programs if name.startswith("honest")}
    assert {name for name, verdict in verdicts.items() if verdict is TrialVerdict.PASSED} == honest
    assert len(CHEATS) >= 100
    unjudged = {name: found[name].error for name in CHEATS if verdicts[name] is TrialVerdict.UNJUDGED}
    assert not unjudged, "a program must not choose to be left out of the score"
