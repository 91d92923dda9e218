"""Files a job leaves for its caller: the ones asked for come back, and no file, name or folder hurts."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cellblock import JobResult, Outcome
from cellblock.cli.save_artifacts import save
from sandbox.conftest import Run
from sandbox.harness import MIB, forget_peak_rss, peak_rss_bytes

pytestmark = pytest.mark.docker


def files(result: JobResult) -> dict[str, bytes]:
    return {file.path: file.data for file in result.artifacts}


def reasons(result: JobResult) -> dict[str, str]:
    return {one.path: one.reason for one in result.artifacts_skipped}


def test_files_that_match_come_back_byte_for_byte(run: Run, way: str) -> None:
    code = """
import os
os.makedirs('out/deep')
open('out/deep/all.bin', 'wb').write(bytes(range(256)) * 4096)
open('out/é.csv', 'w').write('a,b')
open('out/empty.csv', 'w').close()
open('other.txt', 'w').write('not asked for')
"""
    result = run(code, way=way, artifacts=("out/**/*.bin", "out/*.csv", "nothing/*"))
    assert files(result) == {
        "out/deep/all.bin": bytes(range(256)) * 4096,
        "out/empty.csv": b"",
        "out/é.csv": b"a,b",
    }
    assert (result.outcome, reasons(result)) == (Outcome.OK, {})


def test_without_globs_nothing_is_collected(run: Run, way: str) -> None:
    result = run("open('a', 'w').close()", way=way)
    assert (result.artifacts, result.artifacts_skipped) == ((), ())


@pytest.mark.parametrize(
    ("ending", "outcome"),
    [
        ("1/0", Outcome.EXIT),
        ("os.kill(os.getpid(), 9)", Outcome.SIGNAL),
        ("while True: pass", Outcome.WALL_TIMEOUT),
    ],
)
def test_what_a_failed_job_left_comes_back_too(run: Run, way: str, ending: str, outcome: Outcome) -> None:
    result = run(
        f"import os\nopen('a', 'w').write('kept')\n{ending}",
        way=way,
        artifacts=("*",),
        limits={"timeout_s": 1},
    )
    assert result.outcome is outcome
    assert files(result)["a"] == b"kept"


def test_links_pipes_sockets_and_sparse_files_neither_hurt_nor_leave_the_sandbox(run: Run, way: str) -> None:
    code = """
import os, socket
os.symlink('/etc/passwd', 'link')
os.symlink('/', 'root')
os.symlink('/proc/1/environ', 'environ')
os.symlink('/dev/zero', 'zero')
os.symlink('loop', 'loop')
os.mkfifo('pipe')
door = socket.socket(socket.AF_UNIX); door.bind('door')
open('sparse', 'wb').truncate(1 << 40)
for name, mode in (('device', 0o020666), ('block', 0o060666)):
    try: os.mknod(name, mode, os.makedev(1, 5)); print('made', name)
    except OSError: pass
open('closed', 'w').write('x'); os.chmod('closed', 0)
os.mkdir('shut'); open('shut/in', 'w').close(); os.chmod('shut', 0)
open('fine', 'w').write('fine')
os.chmod('.', 0o500)
"""
    result = run(code, way=way, artifacts=("**/*",))
    assert result.outcome is Outcome.OK
    assert result.stdout == ""
    found = files(result)
    del found["main.py"]
    assert found == {"fine": b"fine"}
    why = reasons(result)
    for name in ("link", "root", "environ", "zero", "loop"):
        assert why[name] == "is a symbolic link, not a regular file"
    assert why["pipe"] == "is a named pipe, not a regular file"
    assert why["door"] == "is a socket, not a regular file"
    assert why["sparse"].startswith(f"{1 << 40} bytes")
    assert why["closed"].startswith("unreadable")
    assert why["shut"].startswith("unreadable folder")


def test_a_deep_tree_and_names_that_are_not_text(run: Run, way: str) -> None:
    code = r"""
import os
open(b'bad\xff\xfe', 'w').close()
open('new\nline \x1b[31m', 'w').close()
open('-rf', 'w').close()
for n in range(500):
    os.mkdir('d' * 100); os.chdir('d' * 100)
    open('leaf', 'w').close()
"""
    result = run(code, way=way, artifacts=("**/leaf", "*"))
    assert result.outcome is Outcome.OK
    found = files(result)
    assert {"main.py", "new\nline \x1b[31m", "-rf"} <= found.keys()
    assert len(found) < 20
    why = reasons(result)
    assert why["bad\\udcff\\udcfe"] == "its name is not UTF-8"
    said = {one.reason for one in result.artifacts_skipped}
    assert {"its path is longer than 1024 bytes", "deeper than 32 folders"} <= said


def test_long_names_and_closed_folders_cost_no_other_file(run: Run, way: str) -> None:
    code = """
import os
os.mkdir('closed'); open('closed/x.txt', 'w').close(); os.chmod('closed', 0o444)
path = ''
for _ in range(18):
    path += '\\U0001f600' * 60 + '/'
    os.mkdir(path)
    os.chdir(path); path = ''
open('deep.txt', 'w').close()
os.chdir('/tmp/sandbox')
open('z.txt', 'w').write('here')
"""
    result = run(code, way=way, artifacts=("**/*.txt",))
    assert result.outcome is Outcome.OK, result
    assert [file.path for file in result.artifacts] == ["z.txt"]
    reasons = [one.reason for one in result.artifacts_skipped]
    assert any("longer than" in reason for reason in reasons)
    assert any("unreadable" in reason for reason in reasons)


@pytest.mark.timeout(120)
@pytest.mark.long("a hundred thousand files are written")
def test_a_hundred_thousand_files_neither_hang_nor_flood(run: Run, kernel_way: str) -> None:
    code = """
import os
count = 0
try:
    for folder in range(10):
        os.mkdir(str(folder))
        for n in range(10_000):
            os.close(os.open(f'{folder}/{n}', os.O_CREAT)); count += 1
except OSError: pass
print(count > 10_000)
"""
    before = forget_peak_rss()
    started = time.monotonic()
    result = run(code, way=kernel_way, artifacts=("**/*",), limits={"timeout_s": 60})
    assert (result.outcome, result.stdout) == (Outcome.OK, "True\n")
    assert len(result.artifacts) <= 64
    assert len(result.artifacts_skipped) <= 101
    assert time.monotonic() - started < 90
    assert peak_rss_bytes() - before < 32 * MIB


def test_more_bytes_than_may_come_back_are_left_out_in_bounded_memory(run: Run, way: str) -> None:
    code = """
for n in range(12): open(f'{n:02}', 'wb').write(bytes(4 << 20))
open('long', 'wb').write(bytes((4 << 20) + 1))
"""
    before = forget_peak_rss()
    result = run(code, way=way, artifacts=("*",))
    assert result.outcome is Outcome.OK, result
    assert sorted(files(result)) == ["00", "01", "02", "03"]
    assert reasons(result)["long"] == f"{(4 << 20) + 1} bytes; a file may have {4 << 20}"
    assert "only" in reasons(result)["11"]
    assert peak_rss_bytes() - before < 160 * MIB


def test_nobody_is_left_to_change_the_files_while_they_are_read(run: Run, way: str) -> None:
    code = """
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            for name in ('a', 'b'):
                try: os.unlink(name)
                except OSError: pass
                os.symlink('/etc/passwd', name)
                os.unlink(name)
                open(name, 'w').write('x')
    os._exit(0)
import time; time.sleep(0.2)
"""
    result = run(code, way=way, artifacts=("a", "b"))
    assert result.outcome is Outcome.OK
    assert set(files(result).values()) <= {b"x", b""}


def test_the_collector_reads_nothing_the_job_could_not(run: Run, way: str) -> None:
    code = """
import os
for n, path in enumerate(('/proc/1/environ', '/proc/1/mem', '/etc/shadow')):
    try: os.link(path, f'hard{n}'); print('linked', path)
    except OSError: pass
"""
    result = run(code, way=way, artifacts=("hard*",))
    assert (result.stdout, result.artifacts) == ("", ())


def test_a_work_folder_exchanged_for_a_link_is_not_followed(run: Run, way: str) -> None:
    code = "import os\nos.rename('/tmp/sandbox', '/tmp/x')\nos.symlink('/', '/tmp/sandbox')"
    result = run(code, way=way, artifacts=("etc/passwd", "**/main.py"))
    assert (result.outcome, result.artifacts) == (Outcome.OK, ())
    assert [one.reason for one in result.artifacts_skipped] == ["the collection broke off"]


def test_hostile_names_are_written_nowhere_but_below_the_folder(run: Run, way: str, tmp_path: Path) -> None:
    code = "import os\nos.makedirs('..a/...')\nopen('..a/.../~', 'w').write('x')\nopen('*', 'w').write('y')"
    result = run(code, way=way, artifacts=("**/~", "[*]"))
    save(result.artifacts, tmp_path / "out", overwrite=True)
    assert (tmp_path / "out/..a/.../~").read_text() == "x"
    assert (tmp_path / "out/*").read_text() == "y"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_nothing_of_a_job_runs_on_while_its_files_are_read(run: Run, way: str) -> None:
    """A daemon counts in the first and in the last file; the collector takes a while for those between."""
    code = """
import os, time
for n in range(12): open(f'b{n:02}', 'wb').write(bytes(1 << 20))
for name in 'az': open(name, 'w').write('%09d' % 0)
if os.fork() == 0:
    os.setsid()
    files, n = [os.open(name, os.O_WRONLY) for name in 'az'], 0
    while True:
        n += 1
        for file in files: os.pwrite(file, b'%09d' % n, 0)
time.sleep(0.2)
"""
    found = files(run(code, way=way, artifacts=("*",)))
    assert 0 <= int(found["a"]) - int(found["z"]) <= 1, (found["a"], found["z"])
