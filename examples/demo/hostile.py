"""Twenty jobs that mean harm, and how each may end."""

from __future__ import annotations

from dataclasses import dataclass

from cellblock import JobSpec, Limits, Outcome

MIB = 1024 * 1024


@dataclass(frozen=True)
class Hostile:
    """One attack. If it succeeds it prints ESCAPED, whatever its outcome."""

    name: str
    code: str
    allowed: frozenset[Outcome]
    limits: Limits

    def spec(self) -> JobSpec:
        """The attack as a job."""
        return JobSpec(code=self.code, tenant="mallory", limits=self.limits, priority="low")


OK, EXIT, SIGNAL = Outcome.OK, Outcome.EXIT, Outcome.SIGNAL
TIMEOUTS = frozenset({Outcome.WALL_TIMEOUT, Outcome.CPU_TIMEOUT})


def _attack(name: str, code: str, *allowed: Outcome, **limits: float) -> Hostile:
    return Hostile(name, code, frozenset(allowed), Limits.model_validate({"timeout_s": 5, **limits}))


HOSTILE = (
    _attack(
        "socket connect",
        "import socket\nsocket.create_connection(('1.1.1.1', 80), timeout=3)\nprint('ESCAPED')",
        EXIT,
    ),
    _attack(
        "urlopen",
        "import urllib.request\nurllib.request.urlopen('http://google.com', timeout=3)\nprint('ESCAPED')",
        EXIT,
    ),
    _attack("DNS lookup", "import socket\nsocket.getaddrinfo('example.com', 80)\nprint('ESCAPED')", EXIT),
    _attack("read /etc/shadow", "print(open('/etc/shadow').read(), 'ESCAPED')", EXIT),
    _attack("write to the root", "open('/usr/bin/python3', 'wb').write(b'x')\nprint('ESCAPED')", EXIT),
    _attack(
        "1 GB string",
        "x = 'a' * (1 << 30)\nprint('ESCAPED')",
        Outcome.MEMORY,
        memory_bytes=256 * MIB,
        timeout_s=30,
    ),
    _attack(
        "memory in small steps",
        "print('filling', flush=True)\nx = []\nwhile True: x.append(bytes(1 << 20))",
        Outcome.MEMORY,
        memory_bytes=256 * MIB,
        timeout_s=30,
    ),
    _attack(
        "fork bomb",
        "import os, sys\ntry:\n  while True: os.fork()\nexcept OSError as e: print(e.errno)",
        OK,
        EXIT,
        Outcome.PIDS,
        *TIMEOUTS,
        pids=30,
    ),
    _attack(
        "thread bomb",
        "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        EXIT,
        Outcome.PIDS,
        *TIMEOUTS,
        pids=30,
    ),
    _attack("endless loop", "while True: pass", *TIMEOUTS, timeout_s=2),
    _attack(
        "endless loop deaf to signals",
        "import signal\nfor n in range(1, 64):\n  try: signal.signal(n, signal.SIG_IGN)\n  except (OSError, ValueError): pass\nwhile True: pass",
        *TIMEOUTS,
        timeout_s=2,
    ),
    _attack(
        "10 GB on stdout",
        "import sys\nblock = 'flood ' * 20000\nfor _ in range(10 * 1024**3 // len(block)): sys.stdout.write(block)\nprint('ESCAPED')",
        Outcome.OUTPUT_LIMIT,
        *TIMEOUTS,
        timeout_s=20,
    ),
    _attack(
        "kill PID 1",
        "import os\nfor pid in (1, -1):\n  try: os.kill(pid, 9)\n  except OSError as e: print(e.strerror)\nprint('still here')",
        OK,
        SIGNAL,
    ),
    _attack("read PID 1's memory", "open('/proc/1/mem', 'rb').read(1)\nprint('ESCAPED')", EXIT),
    _attack(
        "forge a result",
        "import os, json\nframe = b'X' + (60).to_bytes(4, 'big') + json.dumps(dict(code=0, signal=None, reason=None, cpu_ms=0, wall_ms=0)).encode()\n"
        "for fd in range(1, 256):\n  try: os.write(fd, frame)\n  except OSError: pass\nos._exit(7)",
        EXIT,
    ),
    _attack(
        "become root",
        "import os\nos.setuid(0)\nprint('ESCAPED')",
        EXIT,
    ),
    _attack(
        "outlive the job",
        "import os, time\nif os.fork() == 0:\n  os.setsid()\n  time.sleep(60)\n  print('ESCAPED')\nprint('parent done')",
        OK,
    ),
    _attack(
        "mount a file system",
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "if libc.mount(b'none', b'/tmp', b'tmpfs', 0, None) == 0: print('ESCAPED')\nraise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))",
        Outcome.SYSCALL,
    ),
    _attack(
        "new user namespace",
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "rc = libc.unshare(0x10000000 | 0x00020000)\nif rc == 0 and libc.mount(b'none', b'/usr', b'tmpfs', 0, None) == 0: print('root of a namespace of its own')\n"
        "open('/proc/sys/kernel/hostname', 'w').write('ESCAPED')\nprint('ESCAPED')",
        EXIT,
    ),
    _attack(
        "the Docker socket",
        "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('/var/run/docker.sock')\nprint('ESCAPED')",
        EXIT,
    ),
)
