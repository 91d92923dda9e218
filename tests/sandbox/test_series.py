"""A sandbox of a series has the limits of one that is alone."""

from __future__ import annotations

import pytest

from cellblock.contract.evaluations import FunctionCheck
from sandbox.harness import Host
from sandbox.judging import judge

CROWDS = """
import os, time

def f():
    made = 1
    try:
        while made < 60:
            if os.fork() == 0:
                time.sleep(60)
            made += 1
    except BlockingIOError:
        pass
    return made
"""
COUNTS = FunctionCheck(functions=("f",), tests="raise ValueError(f())")


@pytest.mark.parametrize("trials", [1, 17])
def test_each_has_the_processes_of_a_single_one(
    sandbox_hosts: dict[str, Host], evaluation_way: str, trials: int
) -> None:
    programs = {str(number): f"{CROWDS}# {number}" for number in range(trials)}
    found = judge(sandbox_hosts[evaluation_way], programs, COUNTS, timeout_s=10, pids=10, memory_bytes=2**30)
    said = [one.error.message for one in found.values() if one.error is not None]
    assert len(said) == trials
    assert max(map(int, said)) <= 11, "no program may use what others have left over; gVisor allows one more"
    assert min(map(int, said)) >= 5, "nor be refused what it may have"
