"""Below the frames of a job is the guest, and nothing of who forked it that it could find or run on into."""

from __future__ import annotations

import pytest

from cellblock import Outcome
from cellblock.contract.evaluations import FunctionCheck, TrialVerdict
from sandbox.conftest import Run
from sandbox.harness import Host
from sandbox.judging import judge

#: Walks all that Python knows of, and says what it finds of a fork-server.
LOOKS = """
import gc, os, select, socket, stat, sys, threading

FUNCTIONS = {'spawn', 'become_sandbox', 'become_one_of_series', 'form_series', 'inner_steps', 'map_ids'}
CLASSES = {'Zygote', 'Clone', 'BpfProgram', 'FileRules', 'ForkRequest'}

def is_of_zygote(value):
    kind = type(value)
    if isinstance(value, (socket.socket, type(select.poll()))) or kind.__name__ in CLASSES:
        return True
    if kind is not dict or '__module__' in value or '__builtins__' in value:
        return False  # or the names of a class or a module, which is only text
    return 'seccomp' in value or 'canaries' in value or 'spawn' in value

def looks():
    found = []
    def note(place, value):
        found.append(place + ': ' + repr(value)[:200])
    try:
        raise KeyError
    except KeyError as error:
        chains = [error.__traceback__.tb_frame, sys._getframe(), *sys._current_frames().values()]
    frames = []
    for frame in chains:
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back
    for frame in frames:
        if frame.f_code.co_name in FUNCTIONS:
            note('function', frame.f_code)
        for place in (frame.f_locals, frame.f_globals):
            for name, value in list(place.items()):
                if name in CLASSES or is_of_zygote(value):
                    note('frame ' + frame.f_code.co_name, name)
    gc.unfreeze()  # what a zygote has hidden from the collector, too
    for one in gc.get_objects():
        if type(one).__name__ == 'frame' and one.f_code.co_name in FUNCTIONS:
            note('frame of the collector', one)
        if is_of_zygote(one):
            note('object', one)
    for kind in object.__subclasses__():
        if kind.__name__ in CLASSES and any(isinstance(one, kind) for one in gc.get_referrers(kind)):
            note('referrer', kind)
    found += [name for name in sys.modules if name.startswith('cellblock')]
    if len(threading.enumerate()) != 1 or len(sys._current_frames()) > 2:  # one writes output
        note('threads', threading.enumerate())
    for fd in range(1024):
        try: mode = os.fstat(fd).st_mode
        except OSError: continue
        if stat.S_ISSOCK(mode): note('descriptor', fd)
    return sorted(set(found))
"""

#: Takes away what ends the guest's process, and hears of every function that is run afterwards.
RUNS_ON = """
import os, sys
FUNCTIONS = {'serve', 'spawn', 'become_sandbox', 'become_one_of_series', 'form_series', 'bury', 'say'}
def spy(frame, event, argument):
    if frame.f_code.co_name in FUNCTIONS or 'Zygote' in frame.f_globals:
        os.write(1, b'ESCAPED ' + frame.f_code.co_name.encode() + b'\\n')
    return spy
frame = sys._getframe()
while frame is not None:
    frame.f_trace = spy
    if 'leave' in frame.f_globals: frame.f_globals['leave'].__code__ = (lambda status: None).__code__
    frame = frame.f_back
sys.settrace(spy)
sys.setprofile(spy)
"""

ENDINGS = {
    "its end": "",
    "SystemExit": "raise SystemExit(5)",
    "KeyboardInterrupt": "raise KeyboardInterrupt",
    "GeneratorExit": "raise GeneratorExit",
    "StopIteration": "raise StopIteration",
    "an exception that is none of ours": "class Odd(BaseException): pass\nraise Odd",
    "deep recursion": "def deeper(): deeper()\ndeeper()",
    "another exit": "sys.exit = os._exit = lambda status=0: None\nsys.exit(3)",
    "an excepthook that raises": "def hook(*_): raise SystemExit(4)\nsys.excepthook = hook\n1 / 0",
    "exit functions that raise": "import atexit\natexit.register(lambda: 1 / 0)",
    "a jump": """
def jumping(frame, event, argument):
    if event == 'line' and frame.f_lineno == last:
        frame.f_lineno = frame.f_code.co_firstlineno + 1
        sys.settrace(spy)
    return jumping
frame, last = sys._getframe().f_back, 0
while frame is not None:
    last = max(line or 0 for *_, line in frame.f_code.co_lines())
    frame.f_trace = jumping
    frame = frame.f_back
sys.settrace(jumping)
""",
}


@pytest.mark.docker
def test_a_job_finds_nothing_of_who_forked_it(run: Run, way: str) -> None:
    result = run(f"{LOOKS}\nlooks()", way=way)
    assert (result.outcome, result.value) == (Outcome.OK, []), result


def test_nor_does_a_program_of_a_series(sandbox_hosts: dict[str, Host]) -> None:
    check = FunctionCheck(functions=("looks",), tests="assert looks() == [], looks()\n")
    found = judge(sandbox_hosts["namespaces"], {str(n): f"{LOOKS}# {n}" for n in range(3)}, check)
    assert [one.verdict for one in found.values()] == [TrialVerdict.PASSED] * 3, found


@pytest.mark.parametrize("ending", ENDINGS)
def test_who_takes_away_the_guests_end_runs_on_into_nothing(run: Run, kernel_way: str, ending: str) -> None:
    result = run(f"{RUNS_ON}\n{ENDINGS[ending]}", way=kernel_way)
    assert "ESCAPED" not in result.stdout, result
    assert result.outcome in {Outcome.OK, Outcome.EXIT}, result
