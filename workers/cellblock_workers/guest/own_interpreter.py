"""The interpreter as a program finds it: as if nothing ran below the program."""

from __future__ import annotations

import builtins
import ctypes
import importlib.machinery
import re
import sys
import threading
import types
from typing import Any

#: The depth of a program's own code where nothing is below it, as setrecursionlimit counts.
PLAIN_DEPTH = 2
#: Raises RecursionError with the depth of the code that runs it. An import here would be judged as the job's.
TELL_DEPTH, DEPTH_NAMES = compile("tell(1)", "depth", "exec"), {"tell": sys.setrecursionlimit}


def program_module(name: str, path: str, given: dict[str, Any]) -> types.ModuleType:
    """The module in which the program runs, with what an interpreter puts into it."""
    main = types.ModuleType(name)
    loader = importlib.machinery.SourceFileLoader(name, path)
    own = {"__annotations__": {}, "__builtins__": builtins, "__cached__": None, "__loader__": loader}
    main.__dict__.update(given, __file__=path, **own)
    return main


def be_main_thread() -> None:
    """Has ``threading`` know the kernel's number of this thread: it has that of a process before a fork."""
    main: Any = threading.main_thread()
    if hasattr(main, "_set_native_id"):
        main._set_native_id()


def leave_depth(of_program: int) -> None:
    """Gives the program the depth of recursion that frames below it have taken. ``of_program``: its depth.

    From 3.12 on the interpreter counts apart what its programming interface can change: there it is left.
    """
    leave = getattr(ctypes.pythonapi, "Py_LeaveRecursiveCall", None)
    if leave is not None and sys.version_info < (3, 12):
        for _ in range(of_program - PLAIN_DEPTH):
            leave()


def told_depth(error: RecursionError) -> int:
    """The depth in the words of an error of setrecursionlimit."""
    told = re.search(r"depth (\d+)", str(error))
    return int(told.group(1)) if told else PLAIN_DEPTH
