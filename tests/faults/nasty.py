"""What a tenant may think of to hurt its neighbours: the findings of a hostile reading, as jobs.

Each attack is an ordinary job of an ordinary plan. Some end as failed or rejected; what counts is what they
do to others meanwhile, and what they pay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cellblock import JobSpec
from cellblock.contract.evaluations import Check, Evaluation, FunctionCheck, StdioCase, StdioCheck, Trial
from judged import CALL, saying, taking_over

MIB = 2**20
RIGHT = "def f(x): return x if isinstance(x, list) else 2 * x + 1\n"
Make = Callable[[int], JobSpec]


@dataclass(frozen=True, slots=True)
class Attack:
    """``make``: its n-th job. ``finding``: where the hostile reading describes it."""

    name: str
    finding: str
    make: Make


def _code(code: str, **fields: object) -> Make:
    return lambda number: JobSpec.model_validate({"code": f"# {number}\n{code}", **fields})


def _evaluation(sources: Callable[[int], list[str]], check: Callable[[int], Check], **fields: object) -> Make:
    def make(number: int) -> JobSpec:
        trials = [Trial(id=str(n), source=one, check=0) for n, one in enumerate(sources(number))]
        evaluation = Evaluation(checks=(check(number),), trials=tuple(trials))
        return JobSpec.model_validate({"evaluation": evaluation, "limits": {"timeout_s": 5}, **fields})

    return make


def _judged(tests: str, answered: str = '["calls"]', program: str = RIGHT) -> Make:
    """Tests that are the judge; each job brings a check that no worker has seen."""
    takes_over = taking_over(tests, answered)
    return _evaluation(
        lambda number: [f"{program}# {number}.{n}" for n in range(4)],
        lambda number: FunctionCheck(setup=f"# {number}", functions=("f",), tests=takes_over),
    )


def _says(message: str, answered: str = '["calls"]') -> Make:
    return _judged(saying(message), answered)


def _files(program: str, **fields: object) -> Make:
    return _code(program, artifacts=["*.txt"], **fields)


#: Beginnings of well-known tokens in one run, none of which is whole.
PACKED = """
import base64, random, zlib
rng = random.Random(1)
begun = ["ghp_", "xoxb-1", "AKIA", "sk_live_", "glpat-", "SG.", "AIza", "npm_", "dop_v1_", "shpat_"]
text = "".join(rng.choice(begun) + rng.choice("abcdefg0123") for _ in range(400_000))
open("a.txt", "w").write(base64.b64encode(zlib.compress(text.encode(), 9)).decode())
"""
WIDE = """
import base64, os
for n in range(3):
    text = base64.b64encode(os.urandom(2_500_000)).decode()
    open(f"{n}.txt", "w").write(text + "\\U0001f600")
"""
SLOW_PASS = "import time\nprint(input())\ntime.sleep(0.5)\n"
GUEST_ENDS = """
import ctypes
ctypes.CDLL(None).prlimit(1, 7, (ctypes.c_uint64 * 2)(0, 0), None)
print("still here")
"""
QUEUES_SIGNALS = """
import ctypes, os, signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN})
libc = ctypes.CDLL(None)
queued = 0
while queued < 100_000 and libc.sigqueue(os.getpid(), int(signal.SIGRTMIN), None) == 0:
    queued += 1
time.sleep(1)
"""
READS_THE_DISK = """
import os, time
ends = time.monotonic() + 2
while time.monotonic() < ends:
    for folder, _, names in os.walk("/usr/lib"):
        for name in names:
            try:
                with open(os.path.join(folder, name), "rb") as file:
                    while file.read(1 << 20): pass
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            except OSError:
                pass
            if time.monotonic() > ends: raise SystemExit
"""
SHARES_MEMORY = """
import mmap, time
held = [mmap.mmap(-1, 32 << 20) for _ in range(32)]
for one in held:
    one.write(b"x" * (32 << 20))
time.sleep(1)
"""
FORKS = "import os, time\ntry:\n    while os.fork() or True: pass\nexcept OSError:\n    time.sleep(1)\n"

LONG_CALLS = """
for _ in range(200):
    judge.send(['call', '["f", ["t", "' + 'x' * 500_000 + '"], ["d"]]'])
    judge.receive()
"""

ATTACKS = (
    Attack("a judge that calls for ever", "H1", _says(f"['call', '{CALL}']")),
    Attack(
        "calls of 500 kB to a program that is gone",
        "H1",
        _judged(
            LONG_CALLS,
            program="import os\ndef f(x): os._exit(0)\n",
        ),
    ),
    Attack(
        "100,000 predicted calls, ever new checks",
        "H1",
        _says("['verdict', 'passed', '', '']", f"['calls', *['{CALL.replace(' ', '')}'] * 25_000]"),
    ),
    Attack("verdicts of a megabyte", "H1", _says("['verdict', 'failed', 'K' * 400_000, 'm' * 400_000]")),
    Attack(
        "a call more for everybody's program",
        "H2",
        _says("['verdict', 'passed', '', '']", f"['calls', '{CALL}', '[\"burn\", [\"t\"], [\"d\"]]']"),
    ),
    Attack("beginnings of tokens, packed", "H3", _files(PACKED)),
    Attack("10 MiB of base64 with an emoji", "H3", _files(WIDE)),
    Attack("a twentieth of a processor", "H5", _code("print(1)", limits={"cpus": 0.05}, level="strict")),
    Attack(
        "a twentieth of a processor, slow image",
        "H5",
        _code("print(1)", limits={"cpus": 0.05}, image="datascience"),
    ),
    Attack(
        "ever new limits",
        "H5",
        lambda number: JobSpec.model_validate(
            {"code": "print(1)", "limits": {"memory_bytes": 128 * MIB + 4096 * number}, "level": "strict"}
        ),
    ),
    Attack(
        "computes in the tests' set-up",
        "M1",
        _evaluation(
            lambda number: [f"{RIGHT}# {number}.{n}" for n in range(4)],
            lambda number: FunctionCheck(
                setup=f"for _ in range(10**8): pass\nraise ValueError({number})",
                functions=("f",),
                tests="f(1)\n",
            ),
        ),
    ),
    Attack("computes beyond its cap", "M1", _code("while True: pass", max_cost_micros=110)),
    Attack("a gigabyte of shared memory", "M2", _code(SHARES_MEMORY)),
    Attack(
        "a trial of a thousand slow cases",
        "M5",
        _evaluation(
            lambda number: [f"# {number}\n{SLOW_PASS}"],
            lambda number: StdioCheck(cases=(StdioCase(stdin="1\n", stdout="1\n"),) * 1000),
        ),
    ),
    Attack(
        "an image that cannot start with so little",
        "M6",
        _code("print(1)", image="datascience", limits={"memory_bytes": 64 * MIB}),
    ),
    Attack(
        "the largest job and the largest answer",
        "M7",
        lambda number: JobSpec.model_validate(
            {
                "code": "import sys\nfor n in range(3): open(f'{n}.txt', 'w').write('word ' * 800_000)\n"
                "print('line\\n' * 10**5)\nresult = 'v' * 900_000",
                "artifacts": ["*.txt"],
                "stdin": "x" * MIB,
            }
        ),
    ),
    Attack("as many processes as it can", "L2", _code(FORKS, limits={"pids": 64})),
    Attack("takes its guest's descriptors away", "L3", _code(GUEST_ENDS)),
    Attack("a byte at a time", "L10", _code("import os\nfor _ in range(300_000): os.write(1, b'x')")),
    Attack("reads the disk and drops the cache", "L12", _code(READS_THE_DISK, image="datascience")),
    Attack("queues every signal there is", "part 2", _code(QUEUES_SIGNALS)),
)
