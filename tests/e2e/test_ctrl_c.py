"""Ctrl-C at a terminal, at any moment of a command: 130, one line at most, and nothing left."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from parts import CELLBLOCK, NAMESPACES, descendants, wait_until

#: Through all that a run does before its program waits: 0.7 s on an idle host.
MOMENTS_S = [round(0.08 * step, 2) for step in range(13)]


def catches(pid: int, number: signal.Signals, kind: str = "SigCgt") -> bool:
    """Whether a process has a handler of its own for this signal; of the kind ``SigIgn``: ignores it."""
    found = re.search(rf"^{kind}:\s+(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return found is not None and bool(int(found[1], 16) & 1 << (number - 1))


@pytest.fixture
def folder() -> Iterator[Path]:
    """For the temporary files of a run; a socket's path must be short."""
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as made:
        yield Path(made)


@pytest.mark.parametrize("after_s", MOMENTS_S)
def test_ctrl_c_ends_a_run_at_any_moment(after_s: float, folder: Path, tmp_path: Path) -> None:
    program = tmp_path / "waits.py"
    program.write_text("import time; time.sleep(60)")
    process = subprocess.Popen(
        [CELLBLOCK, "run", program],
        stderr=subprocess.PIPE,
        start_new_session=True,  # so that its group is that of a terminal
        env={**os.environ, **NAMESPACES, "TMPDIR": str(folder)},
    )
    assert process.stderr is not None
    with process.stderr:
        # Before that the interpreter itself starts, and Ctrl-C is Python's.
        wait_until(lambda: catches(process.pid, signal.SIGTERM), 20, "the command's first line")
        time.sleep(after_s)
        below = descendants(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        code = process.wait(timeout=30)
        printed = process.stderr.read().decode()
    assert code == 130, printed
    assert printed in {"", "cellblock: cancelled; the sandbox is gone\n"}
    assert list(folder.iterdir()) == []
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below), 20, "the end of the others")


@pytest.mark.parametrize("command", ["status", "events", "usage"])
@pytest.mark.parametrize("after_s", [0.0, 0.04, 0.09, 0.2])
def test_ctrl_c_while_a_command_is_imported_is_not_lost(command: str, after_s: float) -> None:
    """The import system drops what its callbacks raise: then the command would go on, here without end."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        with subprocess.Popen(
            [CELLBLOCK, command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "CELLBLOCK_REDIS_URL": url},
        ) as process:
            wait_until(lambda: catches(process.pid, signal.SIGTERM), 20, "the command's first line")
            time.sleep(after_s)
            process.send_signal(signal.SIGINT)
            _, printed = process.communicate(timeout=60)
    assert (process.returncode, printed) == (130, "")


def test_ctrl_c_after_the_result_is_shown_changes_neither_the_exit_code_nor_what_is_taken_down(
    folder: Path, tmp_path: Path
) -> None:
    program = tmp_path / "fails.py"
    program.write_text("print(6*7); raise SystemExit(3)")
    with subprocess.Popen(
        [CELLBLOCK, "run", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, **NAMESPACES, "TMPDIR": str(folder)},
    ) as process:
        assert process.stdout is not None
        shown = process.stdout.readline()
        below = descendants(process.pid)
        wait_until(lambda: catches(process.pid, signal.SIGINT, "SigIgn") or process.poll() is not None, 20)
        assert process.returncode is None, (shown, process.stderr and process.stderr.read())
        os.killpg(process.pid, signal.SIGINT)
        _, printed = process.communicate(timeout=30)
    assert shown == "42\n"
    assert process.wait() == 1
    assert printed.startswith("cellblock: exit: ")
    assert len(printed.splitlines()) == 1
    assert list(folder.iterdir()) == []
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below), 20, "the end of the others")
