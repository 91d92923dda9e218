"""What programs expect of a system: names that resolve, shared memory, streams by name, terminals."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock import Outcome
from cellblock.contract.evaluations import FunctionCheck
from sandbox.conftest import Run
from sandbox.harness import MIB, Host
from sandbox.judging import judge
from suite.ways import EVERY_WAY

NAMES = """
import getpass, os, pwd, socket
def addresses(name):
    return {found[4][0] for found in socket.getaddrinfo(name, 80)}
server = socket.create_server(('localhost', 0))
client = socket.create_connection(('localhost', server.getsockname()[1]))
me = pwd.getpwuid(os.getuid())
result = {
    'localhost': '127.0.0.1' in addresses('localhost'),
    'own name': '127.0.0.1' in addresses(socket.gethostname()),
    'user': [me.pw_name, getpass.getuser()],
    'home': me.pw_dir == os.path.expanduser('~job') == os.path.expanduser('~'),
    'root': pwd.getpwuid(0).pw_name,
    'service': [socket.getservbyname('http'), socket.getservbyport(25), socket.getprotobyname('tcp')],
}
try: socket.getaddrinfo('example.org', 80)
except socket.gaierror: result['others'] = 'unknown'
"""

SHARED = """
import multiprocessing, os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import shared_memory
def square(number): return number * number
def put(queue, value):
    with value.get_lock(): value.value += 1
    queue.put('x')
with ProcessPoolExecutor(2) as pool: first = list(pool.map(square, range(4)))
with multiprocessing.Pool(2) as pool: second = pool.map(square, range(4))
queue, value = multiprocessing.Queue(), multiprocessing.Value('i', 0)
workers = [multiprocessing.Process(target=put, args=(queue, value)) for _ in range(3)]
for worker in workers: worker.start()
said = [queue.get(timeout=10) for _ in workers]
for worker in workers: worker.join()
memory = shared_memory.SharedMemory(create=True, size=100_000)
memory.buf[:3] = b'abc'
other = shared_memory.SharedMemory(memory.name)
result = [first, second, said, value.value, bytes(other.buf[:3]).decode()]
other.close(); memory.close(); memory.unlink()
"""

STREAMS = """
import os, subprocess, sys
for path in ('/dev/stdout', '/dev/fd/1', '/proc/self/fd/1'):
    with open(path, 'w') as file: file.write(path + '\\n')
with open('/dev/stderr', 'a') as file: file.write('to stderr')
subprocess.run(['sh', '-c', 'echo from a shell > /dev/stdout'], check=True)
result = open('/dev/stdin').read()
"""

TERMINALS = """
import os, pty, sys, termios
ours, theirs = pty.openpty()
termios.tcsetwinsize(theirs, (30, 90))
mode = termios.tcgetattr(theirs)
mode[3] &= ~termios.ECHO
termios.tcsetattr(theirs, termios.TCSANOW, mode)
os.write(ours, b'typed\\n')
line = os.read(theirs, 100).decode()
pid, master = pty.fork()
if pid == 0:
    os.execvp('sh', ['sh', '-c', 'test -t 0 && echo terminal'])
said = b''
while not said.endswith(b'\\n'): said += os.read(master, 100)  # gVisor's kernel tells no reader of the end
os.waitpid(pid, 0)
size, said = list(termios.tcgetwinsize(theirs)), said.decode().strip()
result = [line, size, os.ttyname(theirs), said, sys.stdin.isatty()]
"""


def test_its_names_resolve_and_no_others(run: Run, way: str) -> None:
    assert run(NAMES, way=way).value == {
        "localhost": True,
        "own name": True,
        "user": ["job", "job"],
        "home": True,
        "root": "root",
        "service": [80, "smtp", 6],
        "others": "unknown",
    }


def test_its_loopback_has_both_addresses_and_nothing_else_has_any(run: Run, way: str) -> None:
    code = """
import os, socket
result = []
for family, address in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1')):
    server = socket.create_server((address, 0), family=family)
    client = socket.create_connection(server.getsockname()[:2])
    result.append(server.accept()[1][0])
try: lines = open('/proc/net/if_inet6').read().splitlines()
except OSError: lines = []
result += sorted({line.split()[-1] for line in lines} - {'lo'})
"""
    assert run(code, way=way).value == ["127.0.0.1", "::1"]


def test_processes_share_memory_locks_and_queues(run: Run, any_way: str) -> None:
    result = run(SHARED, way=any_way)
    squares = [0, 1, 4, 9]
    assert (result.outcome, result.value) == (Outcome.OK, [squares, squares, ["x"] * 3, 3, "abc"]), result


def test_as_many_processes_run_as_the_limit_says(run: Run, way: str) -> None:
    """Under gVisor each of them takes several threads of the host."""
    code = """
import subprocess
running = [subprocess.Popen(["sleep", "60"]) for _ in range(220)]
result = sum(process.poll() is None for process in running)
for process in running: process.kill()
"""
    ended = run(code, way=way, limits={"pids": 250, "memory_bytes": 1024 * MIB, "timeout_s": 60})
    assert (ended.outcome, ended.value) == (Outcome.OK, 220), ended.error


def test_streams_are_opened_by_name(run: Run, any_way: str) -> None:
    result = run(STREAMS, way=any_way, stdin="given")
    assert (result.value, result.stderr) == ("given", "to stderr"), result
    assert result.stdout.splitlines() == ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "from a shell"]


def test_a_job_has_terminals_of_its_own(run: Run, any_way: str) -> None:
    line, size, name, said, is_terminal = run(TERMINALS, way=any_way).value
    assert (line, size, said, is_terminal) == ("typed\n", [30, 90], "terminal", False)
    assert name.startswith("/dev/pts/")


@pytest.mark.parametrize("what", ["bytes", "files"])
def test_shared_memory_is_bounded(run: Run, way: str, what: str) -> None:
    """Its own bound, and the job that runs into it is told as with /tmp."""
    some = "os.write(file, bytes(1 << 20))" if what == "bytes" else "open(f'/dev/shm/{n}', 'w').close()"
    code = f"import os\nfile = os.open('/dev/shm/x', os.O_WRONLY | os.O_CREAT)\nfor n in range(5000): {some}"
    result = run(code, way=way, limits={"memory_bytes": 512 * MIB, "timeout_s": 20})
    # Debian 12's runsc counts no inodes (SECURITY.md): there the memory limit holds them.
    unbounded = what == "files" and EVERY_WAY[way][0] == "gvisor"
    assert result.outcome is (Outcome.OK if unbounded else Outcome.DISK), result


def test_shared_memory_is_the_jobs_memory(run: Run, way: str) -> None:
    code = "file = open('/dev/shm/x', 'wb')\nwhile True: file.write(bytes(1 << 20)); file.flush()"
    assert run(code, way=way, limits={"memory_bytes": 64 * MIB}).outcome is Outcome.MEMORY


def test_nothing_in_shared_memory_can_be_run(run: Run, way: str) -> None:
    code = """
import os, subprocess
with open('/dev/shm/x', 'w') as file: file.write('#!/bin/sh\\necho ESCAPED')
os.chmod('/dev/shm/x', 0o755)
try: subprocess.run(['/dev/shm/x'])
except PermissionError: print('HELD')
"""
    assert run(code, way=way).stdout == "HELD\n"


def test_what_tells_of_the_hosts_devices_is_closed(run: Run, way: str) -> None:
    code = """
import os
places = [f'/proc/{name}' for name in ('acpi', 'bus', 'driver', 'fs', 'irq', 'scsi')]
result = [place for place in places if os.path.isdir(place) and os.listdir(place)]
"""
    assert run(code, way=way).value == []


def test_what_tells_this_host_from_others_is_closed(run: Run, way: str) -> None:
    """gVisor has such files of its own making."""
    files = [f"/proc/{name}" for name in ("cmdline", "version", "sys/kernel/random/boot_id")]
    code = f"""
import os
def read(path):
    try: return open(path).read()
    except OSError: return ''
result = [[read(path) for path in {files}],
          os.listdir('/proc/pressure') if os.path.isdir('/proc/pressure') else []]
"""
    texts, pressure = run(code, way=way).value
    assert [one for one in files if texts.pop(0) == Path(one).read_text()] == []
    assert pressure == []


def test_each_of_a_series_has_shared_memory_of_its_own(sandbox_hosts: dict[str, Host]) -> None:
    """Programs of one series find nothing that those before them have left."""
    program = """
import os
def f():
    found = sorted(os.listdir('/dev/shm'))
    open('/dev/shm/mine', 'w').close()
    return found
"""
    check = FunctionCheck(functions=("f",), tests="assert f() == [], f()\n")
    found = judge(sandbox_hosts["namespaces"], {str(n): f"{program}# {n}" for n in range(3)}, check)
    assert [one.verdict.value for one in found.values()] == ["passed"] * 3, found


REPLACED = {
    "os._exit": "import os\nos._exit = lambda status: None",
    "json": "import json, sys\njson.dumps = json.loads = json.JSONEncoder = None\nsys.modules['json'] = None",
    "struct": "import struct, sys\nstruct.Struct = struct.pack = None\nsys.modules['struct'] = None",
    "traceback": "import traceback\ntraceback.format_exception = traceback.print_exception = None",
}


@pytest.mark.parametrize("what", REPLACED)
def test_who_replaces_what_the_guest_uses_ends_as_it_says(run: Run, kernel_way: str, what: str) -> None:
    result = run(f"{REPLACED[what]}\nimport sys\nresult = 1\nsys.exit(5)", way=kernel_way)
    assert (result.outcome, result.exit_code) == (Outcome.EXIT, 5), result
    assert run(f"{REPLACED[what]}\n[1, 2]", way=kernel_way).value == [1, 2]


def test_an_exception_is_told_where_json_and_traceback_are_gone(run: Run, kernel_way: str) -> None:
    lines = "\n".join((REPLACED["json"], REPLACED["traceback"], "raise KeyError('mine')"))
    result = run(lines, way=kernel_way)
    assert result.exit_code == 1
    assert result.error is not None and result.error.type == "KeyError", result
