"""The programs that people write print the same in every sandbox as without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock_config import load_settings
from compat.bare import run_bare
from compat.program_table import PROGRAMS, Program
from sandbox.harness import Host
from suite.ways import WAYS


def _named(program: Program) -> str:
    return program.name


@pytest.mark.parametrize("program", PROGRAMS, ids=_named)
@pytest.mark.parametrize("way", [*WAYS, "process"])
def test_a_program_runs_as_without_a_sandbox(
    program: Program, way: str, sandbox_hosts: dict[str, Host]
) -> None:
    limits = {"timeout_s": 60, "memory_bytes": 512 << 20}
    spec = {"image": program.image, "stdin": program.stdin, "level": "permissive", "limits": limits}
    result = sandbox_hosts[way].run(program.code, **spec)
    as_expected = (
        result.outcome == program.outcome
        and result.exit_code == program.exit_code
        and _is_stderr(program, result.stderr)
        and _is_stdout(program, result.stdout, result.truncated.get("stdout", 0))
    )
    said = (
        f"{result.outcome} {result.exit_code}\nstdout: {result.stdout[-800:]}\nstderr: {result.stderr[-800:]}"
    )
    assert as_expected == (way not in program.not_on), said


def _is_stderr(program: Program, stderr: str) -> bool:
    return all(words in stderr for words in program.stderr) and bool(program.stderr) == bool(stderr)


def _is_stdout(program: Program, stdout: str, left_out: int) -> bool:
    if not program.cut:
        return stdout == program.stdout and not left_out
    head, tail = program.begins, program.ends
    said = f"{left_out}" in stdout
    return stdout.startswith(head) and stdout.endswith(tail) and said and 0 < left_out < program.cut


@pytest.mark.parametrize("program", [one for one in PROGRAMS if not one.bare], ids=_named)
def test_it_prints_that_without_a_sandbox(program: Program, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    folder.joinpath("main.py").write_text(program.code)
    root = load_settings().launcher.image_roots / program.image / "rootfs"
    done = run_bare(root, folder, ["/usr/bin/python3", "main.py"], stdin=program.stdin.encode(), timeout_s=60)
    stdout, stderr = done.stdout.decode(), done.stderr.decode()
    assert done.returncode == program.exit_code, stderr
    assert all(words in stderr for words in program.stderr), stderr
    if program.cut:
        assert stdout.startswith(program.begins)
        assert stdout.endswith(program.ends)
        assert len(stdout) == program.cut
    else:
        assert stdout == (program.bare_stdout or program.stdout)
