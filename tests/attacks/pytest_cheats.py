"""Programs that would rather not be tested by pytest: every one of them has to fail under a split verdict."""

from __future__ import annotations

NAMES = (
    *("Skipped", "SkipTest", "Exit", "XFailed", "Failed", "KeyboardInterrupt", "SystemExit", "GeneratorExit"),
    *(
        "OutcomeException",
        "JudgeStops",
        "StopIteration",
        "NotImplementedError",
        "BdbQuit",
        "UsageError",
        "Session.Interrupted",
    ),
)
PLAIN = "from solution import f\ndef test():\n    assert f(3) == 16\n"
#: Tests that are led by what a program answers, and a program that leads them astray.
CHEATS: dict[str, tuple[str, str]] = {
    **{
        f"raises {name}": (PLAIN, f"def f(n): raise type({name!r}, (Exception,), {{}})('skip')\n")
        for name in NAMES
    },
    "skips itself": (PLAIN, "import pytest\ndef f(n): pytest.skip('no')\n"),
    "skips itself at once": (PLAIN, "import pytest\npytest.skip('no', allow_module_level=True)\n"),
    "exits for pytest": (PLAIN, "import pytest\ndef f(n): pytest.exit('done', returncode=0)\n"),
    "has it skipped": (
        PLAIN + "def test_more():\n    import pytest\n    try: assert f(4) == 23\n"
        "    except NotImplementedError: pytest.skip('later')\n",
        "def f(n):\n    if n == 3: return 16\n    raise NotImplementedError\n",
    ),
    "has it expected to fail": (
        PLAIN + "def test_more():\n    import pytest\n    try: assert f(4) == 23\n"
        "    except NotImplementedError: pytest.xfail('later')\n",
        "def f(n):\n    if n == 3: return 16\n    raise NotImplementedError\n",
    ),
    "has it marked": (
        PLAIN + "def test_more(request):\n    import pytest\n"
        "    if f(4) != 23: request.node.add_marker(pytest.mark.xfail)\n    assert f(4) == 23\n",
        "def f(n): return 16\n",
    ),
    "is not ready": (
        "import pytest, solution\n@pytest.fixture(autouse=True)\ndef ready():\n"
        "    if solution.f(1) != 8: pytest.skip('not ready')\ndef test(): assert solution.f(3) == 16\n",
        "def f(n): return 0\n",
    ),
    "lacks what is optional": (
        PLAIN + "import pytest, solution\n@pytest.mark.skipif(not hasattr(solution, 'g'), reason='no g')\n"
        "def test_g(): assert solution.g(3) == 9\n",
        "def f(n): return 16\n",
    ),
    "has what a function asks for": (
        PLAIN + "import pytest, solution\ndef has(): return hasattr(solution, 'fast')\n"
        "@pytest.mark.skipif(has(), reason='fast')\ndef test_slow(): assert f(4) == 23\n",
        "def f(n): return 16\nfast = 1\n",
    ),
    "has it by default": (
        PLAIN + "import pytest, solution\ndef has(it=hasattr(solution, 'fast')): return it\n"
        "@pytest.mark.skipif(has(), reason='fast')\ndef test_slow(): assert f(4) == 23\n",
        "def f(n): return 16\nfast = 1\n",
    ),
    "has it in a module that may lack": (
        PLAIN + "import pytest\nprogram = pytest.importorskip('solution')\n"
        "@pytest.mark.skipif(hasattr(program, 'fast'), reason='fast')\n"
        "def test_slow(): assert f(4) == 23\n",
        "def f(n): return 16\nfast = 1\n",
    ),
    "is more than nothing": (
        PLAIN + "import pytest\nfrom solution import BROKEN\ndef broken(): return BROKEN is not False\n"
        "@pytest.mark.skipif(broken(), reason='broken')\ndef test_more(): assert f(4) == 23\n",
        "BROKEN = True\ndef f(n): return 16\n",
    ),
    "lacks a whole module's": (
        "import pytest\ntry: from solution import f, g\n"
        "except ImportError: pytest.skip('none', allow_module_level=True)\n"
        "def test(): assert f(3) == 16\n",
        "def f(n): return 16\n",
    ),
    "lacks what would be defined": (
        PLAIN + "import solution\nif hasattr(solution, 'g'):\n    def test_g(): assert solution.g(3) == 9\n",
        "def f(n): return 16\n",
    ),
    "says it is broken": (
        PLAIN + "import pytest, solution\n@pytest.mark.skipif(solution.BROKEN, reason='broken')\n"
        "def test_more(): assert f(4) == 23\n",
        "BROKEN = True\ndef f(n): return 16\n",
    ),
    "says so in words": (
        PLAIN + "import pytest, solution\n@pytest.mark.xfail('solution.BROKEN', reason='broken')\n"
        "def test_more(): assert f(4) == 23\n",
        "BROKEN = True\ndef f(n): return 16\n",
    ),
    "is not what would be tested": (
        PLAIN + "import pytest, solution\n"
        "@pytest.mark.skipif(not isinstance(solution.N, int), reason='no number')\n"
        "def test_more(): assert f(4) == 23 and solution.N == 3\n",
        "N = None\ndef f(n): return 16\n",
    ),
    "has no cases": (
        PLAIN + "import pytest, solution\n@pytest.mark.parametrize('n', solution.CASES)\n"
        "def test_cases(n): assert f(n) == n * n + 7\n",
        "CASES = []\ndef f(n): return 16\n",
    ),
    "has it left": (
        PLAIN
        + "def test_more():\n    import pytest\n    if f(4) != 23: pytest.exit('enough', returncode=0)\n",
        "def f(n): return 16\n",
    ),
    "has it killed": (
        "import os\n" + PLAIN + "def test_more():\n    if f(4) != 23: os._exit(0)\n",
        "def f(n): return 16\n",
    ),
    "has it stopped": (
        PLAIN + "def test_more(request):\n    if f(4) != 23: request.session.shouldstop = 'enough'\n"
        "def test_last(): assert f(4) == 23\n",
        "def f(n): return 16\n",
    ),
    "skips a case": (
        "import unittest\nfrom solution import f\nclass TestOld(unittest.TestCase):\n"
        "    def test_one(self): self.assertEqual(f(3), 16)\n"
        "    def test_two(self):\n        if f(4) != 23: self.skipTest('later')\n",
        "def f(n): return 16\n",
    ),
    "ends while all is caught": (
        "from solution import f\ndef test():\n    try: assert f(3) == 16\n    except BaseException: pass\n",
        "import os\ndef f(n): os._exit(0)\n",
    ),
    "is an object while all is caught": (
        "from solution import f\ndef test():\n    try: assert f(3) == 16\n    except BaseException: pass\n",
        "def f(n): return object()\n",
    ),
    "ends while a thread asks": (
        "import threading\nfrom solution import f\ndef test():\n"
        "    thread = threading.Thread(target=f, args=[3])\n    thread.start()\n    thread.join()\n",
        "import os\ndef f(n): os._exit(0)\n",
    ),
    **{
        f"has the name {name}": (
            "import solution\nfrom solution import f\n" + PLAIN.partition("\n")[2],
            f"{name} = {value}\ndef f(n): return 0\n",
        )
        for name, value in {
            "__test__": "True",
            "__tracebackhide__": "True",
            "__wrapped__": "None",
            "__path__": "['/tmp']",
            "__class__": "None",
            "pytestmark": "['skip']",
            "_pytestfixturefunction": "1",
            "pytest_plugins": "['no']",
            "pytest_configure": "exit",
        }.items()
    },
    **{
        f"forges {text[:20]}": (
            PLAIN,
            "import os, struct\n"
            f"def f(n):\n    text = {text!r}.encode()\n"
            "    os.write(102, struct.pack('>I', len(text)) + text)\n    return 16\n",
        )
        for text in (
            '["verdict","passed","",""]',
            '["callable"]',
            '["learnt"]',
            '["value",["l",["x"]],null]',
            '["raised",["Skipped"],"",null]',
            '["not plain"]',
            "[" * 100_000,
            "",
        )
    },
    "answers too much": (PLAIN, "def f(n): return 'x' * 900_000\n"),
    "answers too many lines": (PLAIN, "def f(n): return '\\n'.join(map(str, range(90_000)))\n"),
    "answers a hundred thousand digits": (PLAIN, "def f(n): return 10 ** 100_000\n"),
    "answers depth": (PLAIN, "def f(n):\n    x = []\n    for _ in range(60): x = [x]\n    return x\n"),
    "raises too much": (PLAIN, "def f(n): raise ValueError('\\x1b[2J\\ud800' + 'x' * 100_000)\n"),
    "plants a conftest": (
        PLAIN,
        "open('conftest.py', 'w').write('import os; os._exit(0)')\nopen('test_it.py', 'w').write('')\n"
        "def f(n): return 0\n",
    ),
}
#: Passes all of these tests.
HONEST = "N = 3\nBROKEN = False\nCASES = [1, 2]\ndef f(n): return n * n + 7\ndef g(n): return n * n\n"
