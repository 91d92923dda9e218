"""The guest starts from its compiled form in a like interpreter, and from its texts in any other."""

from __future__ import annotations

import secrets
import subprocess
import sys
from importlib.util import MAGIC_NUMBER
from pathlib import Path

import pytest

from cellblock_workers import guest
from cellblock_workers.guest import guest_texts
from cellblock_workers.launcher import guest_program as program


@pytest.mark.parametrize("magic", [MAGIC_NUMBER, b"some other version"])
def test_it_runs_from_code_or_from_text(monkeypatch: pytest.MonkeyPatch, magic: bytes) -> None:
    long = f"# {secrets.token_hex(200_000)}\n"  # more than one argument, however well it is packed
    texts = {
        "guest/first.py": f"{long}import json, sys\ndef told():\n    return json.loads(sys.argv[1])\n",
        "guest/last.py": "print(__name__, told())\n",
    }
    done = _run_guest(monkeypatch, texts, magic)
    assert (done.stdout, done.stderr) == ("__main__ {'uid': 7}\n", "")


@pytest.mark.parametrize("magic", [MAGIC_NUMBER, b"some other version"])
def test_a_traceback_names_the_guests_file_and_line(monkeypatch: pytest.MonkeyPatch, magic: bytes) -> None:
    """A fault is put into one function of the real guest, and the line is read from the file itself."""
    texts, file = guest_texts(), Path(guest.__file__).with_name("main.py")
    first = next(n for n, line in enumerate(file.read_text().splitlines(), 1) if line.startswith("def main("))
    lines = texts["guest/main.py"].splitlines()
    assert lines[first - 1] == file.read_text().splitlines()[first - 1]
    lines[first - 1] += " raise RuntimeError('injected')\ndef unused():"
    texts["guest/main.py"] = "\n".join(lines)
    done = _run_guest(monkeypatch, texts, magic)
    assert done.returncode == 1
    assert f'File "<guest/main.py>", line {first}, in main\n' in done.stderr
    assert done.stderr.endswith("RuntimeError: injected\n")


def _run_guest(
    monkeypatch: pytest.MonkeyPatch, texts: dict[str, str], magic: bytes
) -> subprocess.CompletedProcess[str]:
    monkeypatch.setattr(program, "guest_texts", lambda: texts)
    monkeypatch.setattr(program, "MAGIC_NUMBER", magic)
    program._packed.cache_clear()
    try:
        arguments = program.guest_program({"uid": 7})
    finally:
        program._packed.cache_clear()
    return subprocess.run([sys.executable, "-I", *arguments], capture_output=True, text=True, check=False)


def test_each_argument_is_one_the_kernel_takes() -> None:
    assert max(map(len, program.guest_program({"uid": 200_000, "rlimits": {"NPROC": 50}}))) < 128 * 1024
