"""The guest starts from its compiled form in a like interpreter, and from its text in any other."""

from __future__ import annotations

import secrets
import subprocess
import sys
from importlib.util import MAGIC_NUMBER

import pytest

from cellblock_workers.launcher import guest_program as program


@pytest.mark.parametrize("magic", [MAGIC_NUMBER, b"some other version"])
def test_it_runs_from_code_or_from_text(monkeypatch: pytest.MonkeyPatch, magic: bytes) -> None:
    long = f"# {secrets.token_hex(200_000)}\n"  # more than one argument, however well it is packed
    text = f"{long}import json, sys\nprint(__name__, json.loads(sys.argv[1]))\n"
    monkeypatch.setattr(program, "guest_source", lambda: text)
    monkeypatch.setattr(program, "MAGIC_NUMBER", magic)
    program._packed.cache_clear()
    try:
        arguments = program.guest_program({"uid": 7})
    finally:
        program._packed.cache_clear()
    done = subprocess.run([sys.executable, "-I", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout == "__main__ {'uid': 7}\n"


def test_each_argument_is_one_the_kernel_takes() -> None:
    assert max(map(len, program.guest_program({"uid": 200_000, "rlimits": {"NPROC": 50}}))) < 128 * 1024
