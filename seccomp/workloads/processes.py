# ruff: noqa: D103, E501, S101, S602, S605, T201  (a job may do as it likes)
"""Child processes: subprocess, pipes, shell tools, fork, signals, timers, limits, process groups."""

import ctypes
import ctypes.util
import multiprocessing
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time

print(
    subprocess.run(
        [sys.executable, "-c", "print(input())"], input="hi", text=True, capture_output=True, check=True
    ).stdout
)
script = """
set -e
cd "$(mktemp -d)"
seq 1 1000 | sort -rn | uniq | head -n 5 | tee top | wc -l
cp top copy; mv copy moved; ln -s moved link; install -m 600 moved again; cat link | tr 0-9 a-j | sed s/a/b/ | awk '{print NR}'
mkdir -p a/b; touch a/b/c; find . -type f -print0 | xargs -0 ls -la; du -s .; df . >/dev/null; stat top; date; id; nproc; env >/dev/null
tar czf all.tgz a; tar xzf all.tgz; grep -r x . || true; dd if=/dev/zero of=z bs=1k count=4 status=none; truncate -s 9 z; md5sum z
sleep 0.01 & wait; timeout 5 true; nice true; nohup true 2>/dev/null; mkfifo f; split -n 2 top; rm -rf a; cmp top moved; diff top moved
ulimit -n 100; (trap 'echo term' TERM; kill -TERM $BASHPID); [[ -r /etc/passwd ]]; read -r x < <(echo y)
"""
subprocess.run(["bash", "-c", script], check=True, stdout=subprocess.DEVNULL)
subprocess.run("exit 0", shell=True, check=True, start_new_session=True)
os.system("true")
child = subprocess.Popen(["sleep", "30"], process_group=0)
os.getpgid(child.pid), os.getsid(0), os.getppid(), os.getpriority(os.PRIO_PROCESS, 0)
child.terminate()
child.wait()
killed = subprocess.Popen(["sleep", "30"])
os.killpg(os.getpgid(0), 0)
os.kill(killed.pid, signal.SIGKILL)
os.waitid(os.P_PID, killed.pid, os.WEXITED)

reader, writer = os.pipe2(os.O_CLOEXEC)
pid = os.fork()
if pid == 0:
    os.setpgid(0, 0)
    os.write(writer, b"child")
    os._exit(0)
assert select.select([reader], [], [], 10)[0]
poller = select.poll()
poller.register(reader, select.POLLIN)
assert poller.poll(10)
assert os.read(reader, 9) == b"child"
os.wait4(pid, 0)
os.sched_getaffinity(0)
os.sched_yield()
os.nice(1)
os.getrandom(8)
os.times(), os.uname(), os.getloadavg(), os.cpu_count(), os.sysconf("SC_PAGE_SIZE")
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.getrusage(resource.RUSAGE_CHILDREN)

woken = []
signal.signal(signal.SIGALRM, lambda *_: woken.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.02)
while not woken:
    signal.pause()
signal.alarm(0)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
signal.raise_signal(signal.SIGUSR1)
assert signal.sigtimedwait([signal.SIGUSR1], 5)
signal.siginterrupt(signal.SIGALRM, False)

libc = ctypes.CDLL(None)
compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
numbers = (ctypes.c_int * 3)(3, 1, 2)
libc.qsort(numbers, 3, 4, compare(lambda a, b: a[0] - b[0]))
assert list(numbers) == [1, 2, 3]


def double(n: int) -> int:
    return n * 2


if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    worker = context.Process(target=lambda: theirs.send(double(21)))
    worker.start()
    assert ours.recv() == 42
    worker.join()
    try:  # needs /dev/shm, which not every sandbox mounts
        with context.Pool(2) as pool:
            assert pool.map(double, range(10)) == [n * 2 for n in range(10)]
    except OSError as error:
        print("no shared semaphores:", error)
    with tempfile.TemporaryFile() as file:
        os.sendfile(file.fileno(), os.open("/etc/passwd", os.O_RDONLY), 0, 10)
    time.sleep(0.01)
