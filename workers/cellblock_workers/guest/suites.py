"""Tests for pytest where no program is: its module is one whose names are looked up in its own sandbox.

Functions become calls, plain values cross (program.py). Tests that use anything else need an inline verdict:
they want more of a module than names, or share more with a program than values.

Which tests have to pass, and which a mark excuses, is found out before there is a program, with
:class:`StandIn` in place of everything that it has: no answer of a program can excuse a test.
"""

from __future__ import annotations

import ast
import dis
import os
import sys
import types
from typing import Any, Iterator

from .program import Anything, JudgedProgram, JudgeStops
from .testing import Record, function_of, run_pytest

#: Attributes of a module as a whole: it does not exist here.
WHOLE = ("__all__", "__dict__", "__file__", "__version__")


class TestsUnfit(Exception):
    """Tests that no program could pass."""


class StandIn(Anything):
    """A name of a program that does not exist yet. It records that tests made use of it."""

    def __init__(self, name: str, unseen: Unseen) -> None:
        self.__name__ = name
        self.unseen = unseen

    def __getattr__(self, name: str) -> Any:
        if is_pytests(name):
            raise AttributeError(name)
        self.unseen.used = True
        return self


def _noting(method: Any) -> Any:
    def noted(self: StandIn, *args: Any, **kwargs: Any) -> Any:
        self.unseen.used = True
        return method(self, *args, **kwargs)

    return noted


for _method in set(vars(Anything)) - {"__getattr__", "__module__", "__dict__", "__weakref__", "__doc__"}:
    setattr(StandIn, _method, _noting(getattr(Anything, _method)))


def looks_into(module: str, text: bytes) -> bool:
    """Whether this text, outside of the tests' bodies, does more with the program's names than import
    them."""
    nodes: list[ast.AST] = [ast.parse(text)]
    names = {module}
    for node in ast.walk(nodes[0]):
        if isinstance(node, ast.Import):
            names |= {one.asname or "" for one in node.names if one.name == module}
        elif isinstance(node, ast.ImportFrom) and node.module == module:
            names |= {one.asname or one.name for one in node.names}
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Name) and node.id in names:
            return True
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test"):
            nodes += [*node.decorator_list, node.args]  # its body runs when there is a program
        else:
            nodes += ast.iter_child_nodes(node)
    return False


class Unseen:
    """Stands for the program while tests are learnt: it has every name. It records whether a name was used,
    or asked for in another way than by an import."""

    used = looked = False

    def look_up(self, module: str, name: str) -> Any:
        asking = sys._getframe(2)
        what = dis.opname[asking.f_code.co_code[asking.f_lasti]]
        self.looked = self.looked or what != "IMPORT_FROM"
        return StandIn(name, self)

    def need_inline(self, why: str) -> Any:
        self.used = True
        raise JudgeStops


def is_pytests(name: str) -> bool:
    """Whether Python or pytest look for this name in any object: the program must not answer that."""
    return name.startswith(("__", "_pytest", "pytest"))


def module_of(name: str, program: Any) -> Any:
    """What tests get when they import the program."""

    def refuse(what: str, attribute: str = "") -> None:
        program.need_inline("the tests " + what.format(name, attribute))

    class Asked:
        __slots__ = ()
        __name__ = name

        def __getattr__(self, attribute: str) -> Any:
            if attribute in WHOLE:
                refuse("use {}.{}", attribute)
            if is_pytests(attribute):
                raise AttributeError(attribute)
            return program.look_up(name, attribute)

        def __setattr__(self, attribute: str, value: Any) -> None:
            refuse("set {}.{}", attribute)

        def __delattr__(self, attribute: str) -> None:
            refuse("delete {}.{}", attribute)

        def __dir__(self) -> Any:
            refuse("list the names of {}")

    return Asked()


def finder_of(module: str, program: Any) -> Any:
    """A finder for the program's module. It stops tests that import the module again."""

    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        if name == module:
            program.need_inline("the tests import {} anew".format(name))

    return types.SimpleNamespace(find_spec=find_spec)


class Suite:
    """One problem's tests and the files beside them."""

    def __init__(
        self, name: str, module: str, files: list[tuple[str, str]], tests: list[tuple[str, str]]
    ) -> None:
        self.folder = os.path.join(os.getcwd(), "tests-" + name[:16])
        self.module = module
        self.files = [(name, text.encode()) for name, text in (*files, *tests)]
        self.tests = [name for name, _ in tests]
        self.excused: set[str] = set()
        self.required: set[str] = set()

    def learn(self) -> None:
        """Collects them once. Raises :class:`TestsUnfit` if that fails and no program is to blame."""
        from importlib.util import find_spec

        if find_spec(self.module) is not None:
            raise TestsUnfit("{} is a module of Python's or pytest's".format(self.module))
        unseen, record = Unseen(), Record()
        options = ("--collect-only", "-o", "empty_parameter_set_mark=skip")
        try:
            status = self.session(unseen, record, *options)
        except JudgeStops:  # unseen has been used: so the program will be
            status = 0
        excused = record.excused or set()
        self.required = {function_of(item) for item in record.items if item.nodeid not in excused}
        texts = [text for name, text in self.files if name.endswith(".py")]
        looked = unseen.looked or any(looks_into(self.module, text) for text in texts)
        if not (unseen.used or looked):
            self.excused = excused | set(record.left_out)
        if unseen.used:  # what the tests are depends on the program
            return
        if record.wrong is not None:
            raise TestsUnfit("{} in {}".format(*record.wrong))
        if status or not self.required:
            raise TestsUnfit("no test that has to be passed is there; pytest ended with {}".format(status))

    def run(self, program: JudgedProgram) -> tuple[str, str] | None:
        """The exception's type and message if the program fails the tests, else None."""
        program.look_up(self.module, "__name__")  # a program that cannot be imported passes nothing
        record = Record(program, self.excused)
        return record.verdict(self.session(program, record, "-x"), self.required)

    def session(self, program: Any, record: Record, *options: str) -> int:
        """One run of pytest that leaves the interpreter as it was. Returns its exit status."""
        import importlib
        import random

        random.seed(0)
        sys.setrecursionlimit(1000)
        self.lay_out()
        known, environ = set(sys.modules), dict(os.environ)
        path, finders, streams, here = sys.path[:], sys.meta_path[:], (sys.stdout, sys.stderr), os.getcwd()
        sys.modules[self.module] = module_of(self.module, program)
        sys.meta_path.insert(0, finder_of(self.module, program))
        sys.path.insert(0, self.folder)
        importlib.invalidate_caches()
        os.chdir(self.folder)
        try:
            return run_pytest(self.folder, self.tests, record, *options)
        finally:
            os.chdir(here)
            sys.path[:], sys.meta_path[:], (sys.stdout, sys.stderr) = path, finders, streams
            os.environ.clear()
            os.environ.update(environ)
            sys.modules.pop(self.module, None)
            for name in set(sys.modules) - known:
                if any(place.startswith(self.folder) for place in places_of(sys.modules[name])):
                    del sys.modules[name]

    def lay_out(self) -> None:
        """Writes the files as they were given. Keeps what was compiled of them, which is known by size and
        time."""
        import shutil

        old = self.folder + "-old"
        if os.path.isdir(self.folder):
            os.rename(self.folder, old)
        for name, text in self.files:
            path = os.path.join(self.folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(text)
            os.utime(path, (0, 0))
        for place, folders, _ in os.walk(old):
            target = self.folder + place[len(old) :]
            if "__pycache__" in folders and os.path.isdir(target):
                os.rename(os.path.join(place, "__pycache__"), os.path.join(target, "__pycache__"))
        shutil.rmtree(old, ignore_errors=True)


def places_of(module: Any) -> Iterator[str]:
    """The paths that a module came from."""
    yield str(getattr(module, "__file__", None))
    yield from map(str, getattr(module, "__path__", ()))
