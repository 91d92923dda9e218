"""The job's own filter, judged by a reader of BPF that shares nothing with what wrote it."""

from __future__ import annotations

import ctypes
import struct

import pytest

from cellblock_workers.guest.syscall_filter import (
    FATAL_CALLS,
    MACHINES,
    PRLIMIT64,
    fatal_program,
    own_limits_program,
)

KILL, EPERM, ALLOW = 0x80000000, 0x00050001, 0x7FFF0000
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
PRCTL = {"x86_64": 157, "aarch64": 167}


def verdict(program: bytes, architecture: int, number: int, first: int = 0) -> int:
    """What a kernel would answer."""
    data = struct.pack("<IIQ6Q", number, architecture, 0, first, 0, 0, 0, 0, 0)
    lines = list(struct.iter_unpack("HBBI", program))
    at, accumulator = 0, 0
    while True:
        code, yes, no, value = lines[at]
        at += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif code == 0x15:
            at += yes if accumulator == value else no
        else:
            assert code == 0x06
            return int(value)


@pytest.mark.parametrize("machine", MACHINES)
def test_every_fatal_call_kills_and_every_other_is_left_to_the_sandbox(machine: str) -> None:
    program = fatal_program(machine)
    column = list(MACHINES).index(machine)
    fatal = {numbers[column] for numbers in FATAL_CALLS.values()} - {None}
    for number in range(600):
        expected = KILL if number in fatal else ALLOW
        assert verdict(program, AUDIT[machine], number) == expected, number


@pytest.mark.parametrize("machine", MACHINES)
def test_no_further_filter_may_be_laid(machine: str) -> None:
    program = fatal_program(machine)
    for option, expected in ((22, EPERM), (22 | 1 << 32, EPERM), (4, ALLOW), (38, ALLOW)):
        assert verdict(program, AUDIT[machine], PRCTL[machine], option) == expected


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_in_another_machines_numbers_kill(machine: str) -> None:
    for architecture in (0x40000003, 0x40000028, 0):
        assert verdict(fatal_program(machine), architecture, 39) == KILL


@pytest.mark.parametrize("machine", MACHINES)
def test_limits_are_one_s_own(machine: str) -> None:
    program = own_limits_program(machine)
    for process, expected in ((0, ALLOW), (1 << 32, ALLOW), (1, EPERM), (4242, EPERM)):
        assert verdict(program, AUDIT[machine], PRLIMIT64[machine], process) == expected
    assert {verdict(program, AUDIT[machine], number, 1) for number in range(600)} == {ALLOW, EPERM}
    assert verdict(program, AUDIT[machine], 39, 1) == ALLOW


def test_a_machine_whose_numbers_nobody_knows_gets_no_filter_and_no_job() -> None:
    with pytest.raises(KeyError):
        fatal_program("riscv64")


@pytest.mark.parametrize("machine", MACHINES)
def test_the_numbers_are_those_of_the_calls(machine: str) -> None:
    """As libseccomp has them; below zero: there is no such call on this machine."""
    resolve = ctypes.CDLL("libseccomp.so.2").seccomp_syscall_resolve_name_arch
    calls = {**FATAL_CALLS, "prlimit64": (PRLIMIT64["x86_64"], PRLIMIT64["aarch64"])}
    for name, numbers in calls.items():
        number = resolve(ctypes.c_uint32(AUDIT[machine]), name.encode())
        assert numbers[list(MACHINES).index(machine)] == (number if number >= 0 else None), name
