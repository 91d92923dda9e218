"""A launcher of forked sandboxes: nothing grows, stays or is remembered, with root and without."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from cellblock import Outcome
from cellblock.contract.results import JobResult
from cellblock_workers.launcher.cgroup_tree import CgroupTree
from parts import LAUNCHER, REPOSITORY, launcher_process, wait_until
from sandbox.harness import MIB, Host
from sandbox.peer import Peer, descriptors

ENVIRONMENT = {
    "CELLBLOCK_SANDBOX_ISOLATIONS": '["namespaces"]',
    "CELLBLOCK_SANDBOX_CHAINS": '{"permissive": ["namespaces"], "standard": ["namespaces"], "strict": []}',
    "CELLBLOCK_LAUNCHER_WARM": "2",
    "CELLBLOCK_LAUNCHER_WARM_TOTAL": "2",
}
NOBODY = 65_534


@contextmanager
def launcher_in(
    folder: Path, program: Sequence[str] = LAUNCHER, **environment: str
) -> Iterator[tuple[Host, subprocess.Popen[bytes]]]:
    """A launcher with a state of its own, past its first probe."""
    state = {"CELLBLOCK_LAUNCHER_STATE": str(folder / "state")}
    with launcher_process(folder, program=program, **ENVIRONMENT, **state, **environment) as (path, process):
        host = Host(path)
        with closing(host.launcher):
            wait_until(lambda: host.launcher.probe().isolations, 60, "the probe")
            yield host, process


def family(pid: int) -> set[int]:
    """A process's descendants."""
    found: set[int] = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text(errors="replace").rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == pid:
            found |= {int(path.parent.name)} | family(int(path.parent.name))
    return found


def cgroups_of(sandboxes: set[str]) -> list[Path]:
    """What is there of these sandboxes' cgroups."""
    return [one for name in sandboxes for one in CgroupTree().find(name).folders if one.exists()]


def resident_bytes(pid: int) -> int:
    found = re.search(r"^VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) * 1024


def run_many(host: Host, jobs: int, at_once: int) -> None:
    """Run ``jobs`` jobs, ``at_once`` of them in parallel."""
    outcomes: list[Outcome] = []

    def work() -> None:
        for _ in range(jobs // at_once):
            outcomes.append(host.run("print(1)").outcome)
        host.launcher.close()

    threads = [threading.Thread(target=work) for _ in range(at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [Outcome.OK] * (jobs // at_once * at_once)


def quiet(host: Host) -> bool:
    counts = host.launcher.probe().counts or {}
    return counts == {"idle": 2, "starting": 0, "in_use": 0}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("jobs", [80, pytest.param(1000, marks=pytest.mark.long("a thousand jobs"))])
def test_many_jobs_in_parallel_leave_the_host_as_it_was(tmp_path: Path, jobs: int) -> None:
    with launcher_in(tmp_path, CELLBLOCK_LAUNCHER_STARTERS="4") as (host, process):

        def measure() -> dict[str, Any]:
            wait_until(lambda: quiet(host), 30, "the pool being quiet")
            mounts = Path("/proc/self/mountinfo").read_text()
            records = tmp_path / "state" / "namespaces" / "records"
            wait_until(lambda: len(list(records.iterdir())) == 2, what="the records of two warm ones")
            return {
                "processes": len(family(process.pid)),
                "mounts": sum(map(mounts.count, (str(tmp_path), "lowerdir=/dev/image"))),
                "cgroups": len(cgroups_of({path.stem for path in records.iterdir()})),
                "descriptors": descriptors(process.pid),
                "threads": len(list(Path(f"/proc/{process.pid}/task").iterdir())),
            }

        run_many(host, 48, 8)
        before, held_before = measure(), resident_bytes(process.pid)
        run_many(host, jobs, 8)
        wait_until(lambda: measure() == before, 30, f"everything being as before: {before}, now {measure()}")
        assert resident_bytes(process.pid) - held_before < 8 * MIB


def test_what_a_launcher_was_told_to_ignore_its_jobs_are_not(tmp_path: Path) -> None:
    ignoring = "import runpy, signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
    program = ("-c", ignoring + "runpy.run_module('cellblock_workers.launcher.server', run_name='__main__')")
    code = """
import signal
print([s.name for s in sorted(signal.valid_signals()) if signal.getsignal(s) == signal.SIG_IGN])
print(signal.getsignal(signal.SIGINT) == signal.default_int_handler)
print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
"""
    with launcher_in(tmp_path, program=program) as (host, _):
        assert host.run(code).stdout == "['SIGPIPE', 'SIGXFSZ']\nTrue\nset()\n", "as in any interpreter"


def test_a_launcher_that_is_killed_takes_everything_along_and_the_next_one_clears_its_cgroups(
    tmp_path: Path,
) -> None:
    owner = {"CELLBLOCK_LAUNCHER_OWNER": f"test-{secrets.token_hex(4)}"}
    with launcher_in(tmp_path, **owner) as (host, process):
        wait_until(lambda: quiet(host), 30, "two warm sandboxes")
        below = family(process.pid)
        sandboxes = {path.stem for path in (tmp_path / "state/namespaces/records").iterdir()}
        assert len(below) >= 6  # who waits for the zygote, the zygote, and a guest with a job process twice
        assert cgroups_of(sandboxes)
        process.kill()
        process.wait()
        wait_until(lambda: not [pid for pid in below if Path(f"/proc/{pid}").exists()], what="all gone")
    (tmp_path / "launcher.sock").unlink()
    with launcher_in(tmp_path, **owner):
        wait_until(lambda: not cgroups_of(sandboxes), what="the cgroups being swept")
        assert not [one for one in sandboxes if (tmp_path / f"state/namespaces/records/{one}.json").exists()]
    assert not list((tmp_path / "state/namespaces/records").iterdir())


def test_jobs_that_exhaust_their_sandbox_do_not_harm_its_zygote(tmp_path: Path) -> None:
    with launcher_in(tmp_path) as (host, process):
        wait_until(lambda: quiet(host), 30, "two warm sandboxes")

        def zygotes() -> set[int]:
            return {two for one in family(process.pid) for two in family(one) if _parent(two) == one} & {
                child for keeper in _children(process.pid) for child in _children(keeper)
            }

        before = zygotes()
        assert len(before) == 1
        bombs = {
            "x = 'x' * 2**30": (Outcome.MEMORY, 30),
            "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass": (Outcome.WALL_TIMEOUT, 1),
            "import os\nos.kill(os.getpid(), 9)": (Outcome.SIGNAL, 30),
        }
        for code, (outcome, timeout_s) in bombs.items():
            assert host.run(code, limits={"timeout_s": timeout_s}).outcome is outcome
        assert host.run("print('next')").stdout == "next\n"
        assert zygotes() == before


def _children(pid: int) -> set[int]:
    return {one for one in family(pid) if _parent(one) == pid}


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


#: Looks for words, given backwards, in everything this process can read of itself. Nothing is ever written
#: forwards here, or the search would find itself.
WALK = """
import sys
found = set()
for line in open('/proc/self/maps'):
    span, rights = line.split()[:2]
    if 'r' not in rights or line.rstrip().endswith(('[vvar]', '[vvar_vclock]', '[vsyscall]')): continue
    first, last = (int(word, 16) for word in span.split('-'))
    with open('/proc/self/mem', 'rb', 0) as memory:
        try: memory.seek(first); backwards = memory.read(last - first)[::-1]
        except OSError: continue
    found |= {word for word in sys.argv[1:] if word.encode() in backwards}
print(sorted(found))
"""


def test_a_job_that_walks_its_memory_finds_nothing_of_others(tmp_path: Path) -> None:
    marker, secret = (secrets.token_hex(12) for _ in range(2))
    with launcher_in(tmp_path, TEST_SECRET=secret) as (host, _):
        for _ in range(3):
            planted = f"mark = ['{marker}' + str(i) for i in range(1000)]\nprint(len(mark))"
            assert host.run(planted).stdout == "1000\n"
        own = secrets.token_hex(12)
        words = [
            marker,
            secret,
            str(host.settings.launcher.socket),
            str(tmp_path),
            str(REPOSITORY),
            "CELLBLOCK_",
            own,
        ]
        result = host.run(
            f"own = '{own[::-1]}'[::-1]\n" + WALK,
            args=tuple(word[::-1] for word in words),
        )
        assert result.stdout == f"{[own[::-1]]}\n", result.stderr


#: Runs jobs given as JSON lines, as the user it is started as.
RUNNER = """
import json, sys
from pathlib import Path
from sandbox.harness import Host
host = Host(Path(sys.argv[1]))
for line in sys.stdin:
    print(host.run(**json.loads(line)).model_dump_json(), flush=True)
"""


class Nobody:
    """A user without root, cgroups and Docker, with a launcher of its own."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o755)
        self._own = folder / "own"
        self._own.mkdir()
        os.chown(self._own, NOBODY, NOBODY)
        self._socket = self._own / "launcher.sock"
        self._environment = {
            **{key: value for key, value in os.environ.items() if key in {"PATH", "LANG"}},
            **ENVIRONMENT,
            "PYTHONPATH": str(REPOSITORY / "tests"),
            "HOME": str(self._own),
            "CELLBLOCK_SANDBOX_ISOLATIONS": '["gvisor", "runc", "namespaces"]',
            "CELLBLOCK_LAUNCHER_SOCKET": str(self._socket),
            "CELLBLOCK_LAUNCHER_STATE": str(self._own / "state"),
            "CELLBLOCK_LAUNCHER_IMAGE_ROOTS": str(folder / "no-images"),
        }
        self._launcher = self._start("-m", "cellblock_workers.launcher.server")
        wait_until(self._socket.is_socket, what="the launcher's socket")
        self._runner = self._start("-c", RUNNER, str(self._socket), pipes=subprocess.PIPE)

    def _start(self, *arguments: str, pipes: int | None = None) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, *arguments],
            env=self._environment,
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            cwd=self._own,
            stdin=pipes,
            stdout=pipes,
        )

    def run(self, code: str, **spec: Any) -> JobResult:
        """Run one job as nobody."""
        assert self._runner.stdin
        assert self._runner.stdout
        self._runner.stdin.write(json.dumps({"code": code, **spec}).encode() + b"\n")
        self._runner.stdin.flush()
        for line in self._runner.stdout:
            if line.startswith(b'{"job_id"'):
                return JobResult.model_validate_json(line)
        raise AssertionError("the runner ended")

    def stop(self) -> None:
        """End both processes."""
        for process in (self._runner, self._launcher):
            process.terminate()
            process.wait(timeout=30)
        for pipe in (self._runner.stdin, self._runner.stdout):
            assert pipe
            pipe.close()


@pytest.fixture(scope="module")
def nobody() -> Iterator[Nobody]:
    with tempfile.TemporaryDirectory(prefix="cellblock-test-") as name:
        started = Nobody(Path(name))
        yield started
        started.stop()


def test_without_root_and_docker_jobs_run_isolated(nobody: Nobody) -> None:
    seen = """
import os
print(os.getuid() > 1000, os.getpid() > 1, len([n for n in os.listdir('/proc') if n.isdigit()]))
for path in ('/x', '/etc/x', '/usr/x'):
    try: open(path, 'w'); print('written', path)
    except OSError: pass
print([line.split(':')[0].strip() for line in open('/proc/net/dev') if ':' in line])
kept = ('CapEff', 'CapBnd', 'Seccomp:')
print([line.split()[1] for line in open('/proc/self/status') if line.startswith(kept)])
print(os.listdir('/'), os.path.exists('/etc/shadow'))
"""
    result = nobody.run(seen)
    lines = result.stdout.splitlines()
    assert lines[:3] == ["True True 2", "['lo']", f"['{'0' * 16}', '{'0' * 16}', '2']"], result
    assert not {"home", "srv", "work", "var", "run"} & set(re.findall(r"\w+", lines[3]))
    assert result.isolation == "namespaces"


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("print(6*7)", Outcome.OK),
        ("import sys; sys.exit(3)", Outcome.EXIT),
        ("while True: pass", Outcome.WALL_TIMEOUT),
        ("x = []\nwhile True: x.append('x' * 2**22)", Outcome.MEMORY),
        ("import mmap; x = mmap.mmap(-1, 2**29)\nfor i in range(0, 2**29, 4096): x[i] = 1", Outcome.MEMORY),
        ("import os, time\nwhile True:\n    if os.fork() == 0: time.sleep(60)", Outcome.PIDS),
        ("import os; os.kill(os.getpid(), 11)", Outcome.SIGNAL),
    ],
)
def test_without_root_every_limit_has_its_word(nobody: Nobody, code: str, outcome: Outcome) -> None:
    limits = {"timeout_s": 2 if outcome is Outcome.WALL_TIMEOUT else 30, "memory_bytes": 256 * MIB}
    result = nobody.run(code, limits=limits)
    assert (result.outcome, result.isolation) == (outcome, "namespaces"), result


BOMBS = {
    "forks": "import os\nwhile True: os.fork()",
    "children": "import subprocess\nkept = [subprocess.Popen(['sleep', '60']) for _ in range(100)]",
    "a pool": "import multiprocessing, time\nmultiprocessing.Pool(100).map(time.sleep, [60] * 100)",
    "threads": "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(9,)).start()",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_without_root_whoever_is_refused_a_process_is_named(nobody: Nobody, bomb: str) -> None:
    """There is no counter of the kernel's to say it."""
    result = nobody.run(BOMBS[bomb], limits={"pids": 20, "timeout_s": 10})
    assert (result.outcome, "processes_refused_by" in result.evidence) == (Outcome.PIDS, True), result


def test_without_root_a_job_stays_on_its_processors_and_a_watch_says_that_it_killed(nobody: Nobody) -> None:
    code = """
import os
print(len(os.sched_getaffinity(0)))
try: os.sched_setaffinity(0, range(os.cpu_count()))
except PermissionError: print('bound')
"""
    assert nobody.run(code).stdout == "1\nbound\n"
    result = nobody.run("x = 'x' * 2**30\nprint('never')", limits={"memory_bytes": 256 * MIB})
    assert (result.outcome, result.evidence.get("watch_kills")) == (Outcome.MEMORY, 1)
    assert "oom_kills" not in result.evidence


#: Memory that no process's figures hold: what lies in sockets until somebody reads it.
IN_SOCKETS = {
    "many local ones": """
import resource, socket, time
held, kept = 0, []
for _ in range(400):
    ends = socket.socketpair()
    kept.append(ends)
    for end in ends:
        end.setblocking(False)
        try:
            while True: held += end.send(bytes(65536))
        except BlockingIOError: pass
time.sleep(5)
print('held', held)
""",
    "large local ones": """
import socket, time
held, kept = 0, []
for _ in range(30):
    for end in socket.socketpair():
        kept.append(end)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**23)
        end.setblocking(False)
        try:
            while True: held += end.send(bytes(65536))
        except BlockingIOError: pass
time.sleep(5)
print('held', held) if held > 60 * 2**20 else print('small', held)
""",
    "TCP": """
import socket, time
listener, held, kept = socket.create_server(('127.0.0.1', 0)), 0, []
for _ in range(20):
    near = socket.create_connection(listener.getsockname())
    far = listener.accept()[0]
    kept += [near, far]
    for end in (near, far):
        end.setblocking(False)
        for _ in range(200):
            try:
                while True: held += end.send(bytes(65536))
            except BlockingIOError: time.sleep(0.002)
time.sleep(5)
print('held', held)
""",
}


@pytest.mark.parametrize("which", IN_SOCKETS)
def test_without_root_memory_in_sockets_counts(nobody: Nobody, which: str) -> None:
    result = nobody.run(IN_SOCKETS[which], limits={"memory_bytes": 64 * MIB, "timeout_s": 30})
    assert "held" not in result.stdout, result.stdout
    assert result.outcome is Outcome.MEMORY or result.stdout.startswith("small"), result


def test_without_root_dev_shm_is_small_for_it_is_not_counted(nobody: Nobody) -> None:
    code = "import os\nwith open('/dev/shm/x', 'wb') as f:\n while True: f.write(bytes(2**20))"
    result = nobody.run(f"try:\n exec({code!r})\nexcept OSError as e:\n print(os.stat('/dev/shm/x').st_size)")
    assert int(result.stdout) <= 16 * MIB, result


def test_without_root_programs_with_many_files_and_sockets_run(nobody: Nobody) -> None:
    code = """
import asyncio, multiprocessing, tempfile
files = [tempfile.TemporaryFile() for _ in range(200)]
async def main():
    async def echo(reader, writer):
        writer.write(await reader.read(100)); await writer.drain(); writer.close()
    server = await asyncio.start_server(echo, '127.0.0.1', 0)
    port = server.sockets[0].getsockname()[1]
    async def ask(number):
        reader, writer = await asyncio.open_connection('127.0.0.1', port)
        writer.write(str(number).encode()); writer.write_eof()
        answer = int(await reader.read()); writer.close()
        return answer
    return sum(await asyncio.gather(*map(ask, range(50))))
print(asyncio.run(main()))
with multiprocessing.Pool(3) as pool: print(sum(pool.map(abs, range(100))))
"""
    result = nobody.run(code)
    assert (result.outcome, result.stdout) == (Outcome.OK, "1225\n4950\n"), result


def test_without_root_the_guardian_cannot_be_signalled_stopped_or_read(nobody: Nobody) -> None:
    code = """
import os
os.kill(1, 0)
for number in set(range(1, 65)) - {17}:
    try: os.kill(1, number)
    except OSError: pass
for name in ('mem', 'fd/0', 'fd/1', 'root', 'cwd', 'exe', 'environ', 'maps'):
    try: os.close(os.open(f'/proc/1/{name}', os.O_RDONLY)); print('opened', name)
    except OSError: pass
print('held')
"""
    result = nobody.run(code)
    assert (result.outcome, result.stdout) == (Outcome.OK, "held\n"), result


def test_without_root_the_guardian_s_limits_are_its_own(nobody: Nobody) -> None:
    code = """
import resource
for name in ('NOFILE', 'CPU', 'STACK', 'AS', 'FSIZE'):
    try: resource.prlimit(1, getattr(resource, f'RLIMIT_{name}'), (0, 0)); print('set', name)
    except PermissionError: pass
resource.prlimit(0, resource.RLIMIT_NOFILE, (64, 64))
resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""
    result = nobody.run(code)
    assert (result.outcome, result.stdout) == (Outcome.OK, "(32, 32)\n"), result


def test_without_root_a_level_that_needs_more_is_refused_with_the_reason(nobody: Nobody) -> None:
    result = nobody.run("print(1)", level="strict")
    assert result.outcome is Outcome.REJECTED, result
    assert result.error is not None
    assert "strict" in result.error.message


def test_a_job_that_comes_before_the_first_probe_has_ended_gets_one_sandbox(tmp_path: Path) -> None:
    """An embedded run does not wait for the probe first: a start that waits for it must not be made twice."""
    variables = {
        **ENVIRONMENT,
        "CELLBLOCK_LAUNCHER_STATE": str(tmp_path / "state"),
        "CELLBLOCK_LAUNCHER_WARM": "0",
    }
    with launcher_process(tmp_path, **variables) as (path, _), Peer(path) as peer:
        assert peer.ask(op="probe")["isolations"] == {}, "the probe took no time"
        reply = peer.acquire()
        assert (reply["ok"], reply["isolation"]) == (True, "namespaces")
        assert peer.counts() == {"idle": 0, "starting": 0, "in_use": 1}


def test_a_job_that_comes_before_a_first_probe_that_fails_is_told_why(tmp_path: Path) -> None:
    variables = {
        "CELLBLOCK_SANDBOX_ISOLATIONS": '["runc"]',
        "CELLBLOCK_LAUNCHER_BACKENDS": '["oci"]',
        "CELLBLOCK_LAUNCHER_STATE": str(tmp_path / "state"),
        "CELLBLOCK_LAUNCHER_IMAGE_ROOTS": str(tmp_path / "none"),
    }
    with launcher_process(tmp_path, **variables) as (path, _), Peer(path) as peer:
        reply = peer.acquire()
        assert reply["ok"] is False
        assert "is not unpacked at" in reply["message"]


def test_a_launcher_that_ends_during_a_probe_leaves_nothing_of_the_probe(tmp_path: Path) -> None:
    variables = {**ENVIRONMENT, "CELLBLOCK_LAUNCHER_STATE": str(tmp_path / "state")}
    records = tmp_path / "state/namespaces/records"
    with launcher_process(tmp_path, **variables) as (_, process):
        (record,) = wait_until(lambda: list(records.glob("probe-*")), 30, "a probe")
        process.terminate()
        process.wait(timeout=60)
    assert list(records.iterdir()) == []
    assert cgroups_of({record.stem}) == []
