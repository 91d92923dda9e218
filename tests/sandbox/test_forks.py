"""Forks are made cheaply, and for what runs in them they are forks like any others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import cellblock_workers.zygote
from cellblock import Outcome
from cellblock.contract.evaluations import FunctionCheck, TrialVerdict
from sandbox.conftest import Run
from sandbox.harness import Host
from sandbox.judging import judge

#: Threads and random numbers of a process, and of a fork that it makes while it has a second thread.
LOOKS = """
import os, random, threading

def looks():
    main = threading.main_thread()
    found = [main is threading.current_thread(), main.ident == threading.get_ident(),
             threading.active_count() == 1, main.is_alive()]
    held = threading.Event()
    other = threading.Thread(target=held.wait)
    other.start()
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        main = threading.main_thread()
        alone = [threading.active_count(), main is threading.current_thread(), other.is_alive()]
        os.write(theirs, repr((alone, random.random())).encode())
        os._exit(0)
    os.waitpid(child, 0)
    alone, drawn = eval(os.read(ours, 1000))
    held.set()
    other.join()
    return [found, alone, drawn == random.random(), random.random()]
"""
EXPECTED = [[True] * 4, [1, True, False], False]


@pytest.mark.docker
def test_threads_forks_and_random_numbers_of_a_job_are_as_anywhere(run: Run, any_way: str) -> None:
    drawn = set()
    for _ in range(2):
        result = run(f"{LOOKS}\nlooks()", way=any_way)
        assert result.outcome is Outcome.OK, result.error
        assert result.value[:3] == EXPECTED
        drawn.add(result.value[3])
    assert len(drawn) == 2


#: The first process of a PID namespace, and three more of its making; as zygotes do, past pthread_atfork.
FIRST_PROCESSES = """
import ctypes, os, ssl, sys
from cellblock_workers.guest import preload

CLONE = {"x86_64": 56, "aarch64": 220}[os.uname().machine]

def first_process():
    return ctypes.CDLL(None).syscall(CLONE, 0x20000000 | 17, 0, 0, 0, 0)

if first_process() == 0:
    ssl.RAND_bytes(1)
    for _ in range(3):
        if first_process() == 0:
            if sys.argv[1] == "reseeded":
                preload.reseed()
            print(os.getpid(), ssl.RAND_bytes(8).hex(), flush=True)
            os._exit(0)
        os.wait()
    os._exit(0)
os.wait()
"""


@pytest.mark.parametrize(("how", "different"), [("as forked", 1), ("reseeded", 3)])
def test_openssl_draws_other_numbers_in_every_fork(how: str, different: int) -> None:
    command = [sys.executable, "-c", FIRST_PROCESSES, how]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.split()[0] for line in found] == ["1"] * 3
    assert len(set(found)) == different, "as forked they are the same: that is the danger"


@pytest.mark.way("namespaces")
def test_they_are_so_in_a_series(sandbox_hosts: dict[str, Host]) -> None:
    check = FunctionCheck(functions=("looks", "told"), tests=f"assert looks()[:3] == {EXPECTED}\ntold()")
    tells = "\ndef told(): raise ValueError(random.random())\n"
    programs = {str(number): LOOKS + tells for number in range(4)}
    found = judge(sandbox_hosts["namespaces"], programs, check)
    said = {one.error.message for one in found.values() if one.error and one.error.type == "ValueError"}
    assert {one.verdict for one in found.values()} == {TrialVerdict.FAILED}
    assert len(said) == 4, found


_COUNTS = """
import os, sys, types
package = "cellblock_workers.zygote"
folder = sys.argv[1]
for name in ("cellblock_workers", package, package + ".kernel", package + ".forks"):
    module = sys.modules[name] = types.ModuleType(name)
    if name.startswith(package + "."):
        piece = name.rpartition(".")[2]
        exec(compile(open(f"{folder}/{piece}.py").read(), name, "exec"), module.__dict__)
        setattr(sys.modules[package], piece, module)
hooks = module.import_threading()
ran = []
for hook in hooks:
    hook.hook = lambda own=hook.hook: (ran.append(own), own())

def ran_in(fork):
    pid = fork()
    if pid == 0:
        os._exit(len(ran))
    return os.waitpid(pid, 0)[1] >> 8

print(len(hooks), ran_in(module.Clone(0, hooks)), ran_in(os.fork), len(module.import_threading()))
"""


def test_threadings_hook_rests_in_a_zygotes_forks_alone(tmp_path: Path) -> None:
    folder = Path(cellblock_workers.zygote.__file__).parent
    command = [sys.executable, "-I", "-S", "-c", _COUNTS, str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "1 0 1 0\n", done.stderr
