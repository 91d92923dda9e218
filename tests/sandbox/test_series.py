"""A sandbox of a series is as one that is alone: no trial finds, reaches or outlasts another."""

from __future__ import annotations

import ast

import pytest

from cellblock import JobSpec, Limits
from cellblock.contract.evaluations import (
    Evaluation,
    FunctionCheck,
    StdioCase,
    StdioCheck,
    Trial,
    TrialVerdict,
)
from cellblock.contract.outcomes import Outcome
from cellblock_config.prices import Rates
from sandbox.harness import MIB, Host
from sandbox.judging import CHECK, RIGHT, judge

PRICE = Rates(per_run=0, per_cpu_second=10**9, per_gib_second=0, percent=100)
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
    most = "none may use what others have left over; gVisor allows one more, and one is the output's"
    assert max(map(int, said)) <= 12, most
    assert min(map(int, said)) >= 5, "nor be refused what it may have"


@pytest.fixture(params=["namespaces", "gvisor-oci"])
def series_host(sandbox_hosts: dict[str, Host], request: pytest.FixtureRequest) -> Host:
    """One whose sandboxes come in series."""
    return sandbox_hosts[str(request.param)]


#: What a program leaves wherever one after it could find it, and the names of what it could leave.
LEAVES = r"""
import ctypes, fcntl, os, resource, signal, socket, sys, threading, time
left = []
def leave(name, action):
    try:
        action()
        left.append(name)
    except (OSError, AttributeError, ValueError): pass
libc = ctypes.CDLL(None, use_errno=True)
def checked(result):
    if result < 0: raise OSError(ctypes.get_errno(), 'refused')
held = []
def listen(family, place):
    one = socket.socket(family)
    one.bind(place)
    one.listen()
    held.append(one)
    if family == socket.AF_INET:  # a connection of this port that lingers: this end closes first
        other = socket.create_connection(place)
        one.accept()[0].close()
        other.recv(1)
        other.close()
for folder in ('/tmp', '/tmp/sandbox', '/dev/shm', '/dev', '/dev/pts', '/mnt', '/run', '/var/tmp', '/'):
    leave(f'a file in {folder}', lambda: open(folder + '/left', 'w').write('here'))
leave('a port', lambda: listen(socket.AF_INET, ('127.0.0.1', 4711)))
leave('an abstract socket', lambda: listen(socket.AF_UNIX, '\0left'))
leave('shared memory', lambda: checked(libc.shmget(4711, 4096, 0o1666)))
leave('a message queue', lambda: checked(libc.msgget(4711, 0o1666)))
leave('a semaphore', lambda: checked(libc.semget(4711, 1, 0o1666)))
leave('a POSIX queue', lambda: checked(libc.mq_open(b'/left', 0o102, 0o666, None)))
leave('a host name', lambda: checked(libc.sethostname(b'left', 4)))
leave('a terminal', lambda: held.append(os.openpty()))
leave('a lock', lambda: fcntl.flock(held.append(open('/etc/passwd')) or held[-1], fcntl.LOCK_EX))
leave('a priority', lambda: os.setpriority(os.PRIO_USER, 0, 19))
secret = 'left-' + 'behind' * 1000
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    leave('a signal', lambda: signal.signal(number, signal.SIG_IGN))
def outlive():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
            while True: time.sleep(0.01)
        os._exit(0)
leave('a process', outlive)
def f(): return sorted(set(left))
"""
#: Finds it, and looks for a way to others that run or wait.
LOOKS = r"""
import ctypes, fcntl, os, re, signal, socket
found = []
libc = ctypes.CDLL(None, use_errno=True)
def look(name, action):
    try:
        if action() is not False: found.append(name)
    except (OSError, AttributeError, ValueError): pass
def at_least_0(result):
    if result < 0: raise OSError(ctypes.get_errno(), 'refused')
for folder in ('/tmp', '/tmp/sandbox', '/dev/shm', '/dev', '/dev/pts', '/mnt', '/run', '/var/tmp', '/'):
    look(f'a file in {folder}', lambda: os.stat(folder + '/left'))
def bind_again():
    with socket.socket() as one:
        one.bind(('127.0.0.1', 4711))
    return False
try: bind_again()
except OSError as error: found.append(f'a port in use: {error}')
look('a port', lambda: socket.create_connection(('127.0.0.1', 4711), 1))
look('an abstract socket', lambda: socket.socket(socket.AF_UNIX).connect('\0left'))
look('shared memory', lambda: at_least_0(libc.shmget(4711, 4096, 0)))
look('a message queue', lambda: at_least_0(libc.msgget(4711, 0)))
look('a semaphore', lambda: at_least_0(libc.semget(4711, 1, 0)))
look('a POSIX queue', lambda: at_least_0(libc.mq_open(b'/left', 2)))
look('a host name', lambda: os.uname().nodename != 'sandbox')
look('a terminal', lambda: bool([name for name in os.listdir('/dev/pts') if name.isdigit()]))
look('a lock', lambda: fcntl.flock(open('/etc/passwd'), fcntl.LOCK_EX | fcntl.LOCK_NB) or False)
try: fcntl.flock(open('/etc/passwd'), fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError: found.append('a lock')
look('a priority', lambda: os.getpriority(os.PRIO_PROCESS, 0) != 0)
look('a signal', lambda: signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN)
ours = {str(os.getpid()), '1'}
look('processes', lambda: bool([name for name in os.listdir('/proc') if name.isdigit() and name not in ours]))
for pid in (*range(1, 200), -1):
    if pid == os.getpid(): continue
    look(f'a signal to {pid}', lambda: os.kill(pid, 0))
    if pid > 1: look(f'the memory of {pid}', lambda: open(f'/proc/{pid}/mem', 'rb'))
for descriptor in range(3, 1024):
    if descriptor not in (100, 101, 102): look(f'descriptor {descriptor}', lambda: os.fstat(descriptor))
for path in ('/proc/1/root', '/proc/self/root', '/proc/1/cwd/../..', '/mnt/0', '/mnt/1', '/../mnt/0'):
    look(f'the root of another at {path}', lambda: 'left' in os.listdir(path))
os.makedirs('/tmp/way/out', exist_ok=True)
look('a way out of its root', lambda: at_least_0(libc.chroot(b'/tmp/way')))
needle = re.compile(rb'lef[t]-behindbehind')
for line in list(open('/proc/self/maps')):
    if ' rw' not in line: continue
    low, high = (int(part, 16) for part in line.split()[0].split('-'))
    try:
        with open('/proc/self/mem', 'rb', 0) as memory:
            memory.seek(low)
            if needle.search(memory.read(high - low)): found.append('memory')
    except (OSError, OverflowError, ValueError): pass
def f(): return found
"""


def test_what_a_trial_of_a_series_can_leave_is_left(series_host: Host) -> None:
    tells = FunctionCheck(functions=("f",), tests="raise ValueError(f())")
    programs = {f"leaves {number}": f"{LEAVES}# {number}" for number in range(3)}
    left = judge(series_host, programs, tells)
    for one in left.values():
        assert one.in_series, one
        assert one.error is not None
        told = set(ast.literal_eval(one.error.message))
        assert {"a file in /tmp", "a file in /dev/shm", "a port", "a process", "a terminal", "a lock"} <= told


def test_no_trial_finds_what_another_left(sandbox_hosts: dict[str, Host], evaluation_way: str) -> None:
    check = FunctionCheck(functions=("f",), tests="assert f() == [], f()\n")
    programs = {"leaves": LEAVES, "looks": LOOKS, "leaves more": f"{LEAVES}#", "looks again": f"{LOOKS}#"}
    found = judge(sandbox_hosts[evaluation_way], programs, check)
    for name in ("looks", "looks again"):
        assert found[name].verdict is TrialVerdict.PASSED, found[name].error
        assert found[name].in_series == (evaluation_way != "runc-docker")


def test_a_trial_of_a_series_holds_no_memory_after_its_end(series_host: Host) -> None:
    """Each fills /tmp and /dev/shm and its own memory, with a third of what all of them have together."""
    fills = """
held = [bytearray(b'x' * 2**20) for _ in range(30)]
for path in ('/tmp/full', '/dev/shm/full'):
    with open(path, 'wb') as file:
        for _ in range(25): file.write(held[0])
"""
    programs = {str(number): f"{fills}{RIGHT}# {number}" for number in range(7)}
    found = judge(series_host, programs, memory_bytes=256 * MIB)
    assert [one.verdict for one in found.values()] == [TrialVerdict.PASSED] * 7
    assert all(one.in_series for one in found.values()), "none was tried again by itself"


@pytest.mark.way("gvisor-oci")
def test_a_trial_that_takes_gvisors_memory_harms_no_other(sandbox_hosts: dict[str, Host]) -> None:
    """It ends the kernel that all of a series share: it is judged again alone, and the others in another."""
    takes = "held = bytearray(b'x' * 2**30)\n"
    programs = {name: (takes if name == "b" else "") + RIGHT + f"# {name}" for name in "abcde"}
    found = judge(sandbox_hosts["gvisor-oci"], programs, memory_bytes=256 * MIB)
    assert [one.verdict is TrialVerdict.PASSED for one in found.values()] == [True, False, True, True, True]
    assert (found["b"].outcome, found["b"].in_series) == (Outcome.MEMORY, False)


#: Sockets that were sent through each other, with what is to stay: no one collects them in gVisor's kernel.
KEEPS = """
import array, fcntl, os, socket, sys
def keep(*descriptors):
    one, other = socket.socketpair(socket.AF_UNIX)
    passed = array.array('i', [one.fileno(), other.fileno(), *descriptors])
    one.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)])
locked = open('/etc/passwd')
fcntl.flock(locked, fcntl.LOCK_EX)
named = socket.socket(socket.AF_UNIX)
named.bind('/tmp/left-behind')
keep(locked.fileno(), named.fileno(), os.openpty()[1])
"""
#: A process that takes long to end.
ENDS_SLOWLY = """
import os, mmap, sys, threading
zeros = open('/dev/zero', 'rb', 0)
into = [memoryview(mmap.mmap(-1, 2 ** 21))] * 1024
if os.fork() == 0:
    for _ in range(20): threading.Thread(target=os.readv, args=(zeros.fileno(), into), daemon=True).start()
    os.readv(zeros.fileno(), into)
"""
FINDS = """
import fcntl, os, time
found = []
began = time.monotonic()
try: fcntl.flock(open('/etc/passwd'), fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError: found.append('a lock')
if 'left-behind' in open('/proc/net/unix').read(): found.append('a socket')
if [name for name in os.listdir('/dev/pts') if name.isdigit()]: found.append('a terminal')
def f(x): return found or (x if isinstance(x, list) else 2 * x + 1)
"""


@pytest.mark.parametrize("leaves", [KEEPS, ENDS_SLOWLY], ids=["in sent sockets", "a slow end"])
def test_what_no_end_takes_along_reaches_no_other_trial(series_host: Host, leaves: str) -> None:
    programs = {
        name: (leaves + RIGHT if name.startswith("leaves") else FINDS) + f"# {name}"
        for name in ("finds 0", "leaves 1", "finds 1", "leaves 2", "finds 2")
    }
    found = judge(series_host, programs, timeout_s=8)
    assert [one.verdict for one in found.values()] == [TrialVerdict.PASSED] * 5, found
    assert found["finds 0"].in_series


@pytest.mark.way("gvisor-oci")
def test_the_times_of_shared_devices_tell_no_other_trial(sandbox_hosts: dict[str, Host]) -> None:
    touches = """
import os
names = [f'/dev/{name}' for name in ('null', 'zero', 'full', 'random', 'urandom', 'tty', 'ptmx')]
times = [int(time) for name in names for time in (os.stat(name).st_mtime, os.stat(name).st_atime)]
for name in names: os.utime(name)
def f(): return times
"""
    check = FunctionCheck(functions=("f",), tests="assert set(f()) == {0}, f()\n")
    found = judge(sandbox_hosts["gvisor-oci"], {name: f"{touches}# {name}" for name in "abc"}, check)
    assert {one.verdict for one in found.values()} == {TrialVerdict.PASSED}, found
    assert {one.in_series for one in found.values()} == {True}


def test_a_trial_of_a_series_has_its_cpu_time_in_full(series_host: Host) -> None:
    """And on its bill alone: what jobs take to get ready beside each other is not the program's."""
    works = """
import time
began = time.process_time()
while time.process_time() - began < 0.7: pass
"""
    programs = {str(number): f"{works}{RIGHT}# {number}" for number in range(4)}
    found = judge(series_host, programs, cpu_s=1.0, memory_bytes=512 * MIB)
    assert [one.verdict for one in found.values()] == [TrialVerdict.PASSED] * 4, found
    quick = judge(
        series_host, {str(number): f"{RIGHT}# {number}" for number in range(16)}, memory_bytes=512 * MIB
    )
    assert sorted(one.usage.cpu_ms for one in quick.values())[8] <= 60


@pytest.mark.parametrize("priced", [False, True])
def test_memory_that_ends_a_series_is_no_trials_own(series_host: Host, priced: bool) -> None:
    """It also holds those that wait: each trial that might fit is judged alone."""
    takes = "held = bytearray(b'x') * (190 * 2**20)\n"
    programs = {str(number): f"{takes}{RIGHT}# {number}" for number in range(6)}
    if priced:
        trials = [Trial(id=name, source=text, check=0) for name, text in programs.items()]
        spec = JobSpec(
            evaluation=Evaluation(checks=(CHECK,), trials=tuple(trials)),
            limits=Limits(timeout_s=10.0, memory_bytes=256 * MIB),
        )
        found = {one.id: one for one in series_host.run_at_price(spec, PRICE, 10**15).trials}
    else:
        found = judge(series_host, programs, memory_bytes=256 * MIB)
    assert {one.verdict for one in found.values()} == {TrialVerdict.PASSED}, found


@pytest.mark.parametrize(
    ("does", "outcome"),
    [
        ("open('/tmp/full', 'wb').write(bytes(2**28))", Outcome.DISK),
        ("import os, time\nfor _ in range(60):\n    if os.fork() == 0: time.sleep(60)", Outcome.PIDS),
        ("import subprocess\nall = [subprocess.Popen(['sleep', '60']) for _ in range(60)]", Outcome.PIDS),
    ],
    ids=["folder", "fork", "child"],
)
def test_what_a_trial_was_refused_is_named(series_host: Host, does: str, outcome: Outcome) -> None:
    programs = {name: f"{does}\n{RIGHT}# {name}" for name in "abcdef"}
    found = judge(series_host, programs, memory_bytes=1024 * MIB, pids=10)
    assert {(one.outcome, one.in_series) for one in found.values()} == {(outcome, True)}, found


def test_a_trial_whose_checker_ran_alone_was_in_a_series(series_host: Host) -> None:
    checker = "import sys\nassert open(sys.argv[2]).read() == open(sys.argv[3]).read()\n"
    check = StdioCheck(cases=(StdioCase(stdin="", stdout="1\n"),), checker=checker)
    found = series_host.judge(
        [(name, f"import os\nprint(os.getpid())  # {name}", check) for name in "ab"]
    ).trials
    for one in found:
        assert (one.verdict is TrialVerdict.PASSED) == one.in_series, one
