"""A guest's texts as they run when their arcs are noted (guest_tracer.py), and where each line is from.

Each piece of the guest is a text, each module of the zygote is one. They lie one behind the other
in one table of lines. They have some lines more, each for the line that follows: at the beginning of every
function, behind imports and behind what may have run other code for long, arcs begin to be noted again.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from cellblock_workers import guest, zygote
from cellblock_workers.guest import guest_texts
from cellblock_workers.launcher.namespaces import boot
from cellblock_workers.launcher.namespaces.fork_server import zygote_modules
from suite.guest_tracer import RESUME

#: The line of a text that is left out of those behind it, and in which noting begins.
FUTURE = "from __future__ import annotations"
_WORKERS, _ZYGOTE = Path(guest.__file__).parents[1], Path(zygote.__file__).parent
_TRACER = Path(__file__).with_name("guest_tracer.py")
_MAY_TAKE_LONG = (ast.Import, ast.ImportFrom, ast.For, ast.While, ast.If, ast.With, ast.Try)
_BEGINNING = """
import sys, types
if "guest_tracer" not in sys.modules:
    sys.modules["guest_tracer"] = types.ModuleType("guest_tracer")
    exec({tracer!r}, sys.modules["guest_tracer"].__dict__)
    sys.modules["guest_tracer"].recorder = sys.modules["guest_tracer"].open_recorder({chart!r})
sys.modules["guest_tracer"].recorder.record(globals(), {place!r}, sys._getframe(1))
"""


class Line(NamedTuple):
    """A line of a file, or of none."""

    file: Path | None
    number: int


class Table(NamedTuple):
    """Where every line of all texts is from, and after how many of them each text begins."""

    lines: tuple[Line, ...]
    places: dict[str, int]
    texts: dict[str, str]

    @property
    def digest(self) -> str:
        """Differs where any text, or the tracer, does."""
        texts = [_TRACER.read_text(), *self.texts.values()]
        return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


@cache
def table() -> Table:
    """The lines of all texts. Raises AssertionError where the product's are not what is expected here."""
    texts = {
        name: _with_resumptions(_same(_piece(_WORKERS / name), text)) for name, text in guest_texts().items()
    }
    for name, text in zygote_modules().items():
        whole = _same(_whole(_ZYGOTE / f"{name.rpartition('.')[2]}.py"), text)
        texts[name], texts[in_boot(name)] = _with_resumptions(whole), whole
    texts[in_boot(boot.__name__)] = list(_whole(Path(boot.__file__)))
    lines, places = [Line(None, 0)], {}
    for name, content in texts.items():
        places[name] = len(lines) - 1
        lines += [line for line, _ in content]
    return Table(tuple(lines), places, {name: _text(content) for name, content in texts.items()})


def in_boot(module: str) -> str:
    """The text of a module as it is imported by a zygote's boot."""
    return f"boot's {module}"


def traced(name: str, chart: str | int) -> str:
    """This text, noting its arcs. ``chart``: a path or an open descriptor, where it runs."""
    beginning = _BEGINNING.format(tracer=_TRACER.read_text(), chart=chart, place=table().places[name])
    # Not by the name exec: in the pieces' common names that is the tracer's own from the first piece on.
    begin = f"__import__('builtins').exec({beginning!r})"
    return table().texts[name].replace(FUTURE, f"{FUTURE}; {begin}", 1)


def _same(lines: Iterable[tuple[Line, str]], text: str) -> list[tuple[Line, str]]:
    found = list(lines)
    if _text(found) != text:
        raise AssertionError("the product makes a guest's text otherwise than guest_texts.py")
    return found


def _piece(file: Path) -> Iterator[tuple[Line, str]]:
    docstring = True
    for line, text in _whole(file):
        docstring = docstring and text != FUTURE
        yield line, "" if docstring or text.startswith("from .") else text


def _whole(file: Path) -> Iterator[tuple[Line, str]]:
    for number, text in enumerate(file.read_text().splitlines(), start=1):
        yield Line(file, number), text


def _text(lines: list[tuple[Line, str]]) -> str:
    return "".join(f"{text}\n" for _, text in lines)


def _with_resumptions(lines: list[tuple[Line, str]]) -> list[tuple[Line, str]]:
    indents = {}
    for node in _where_to_resume(ast.parse(_text(lines))):
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
        if not lines[first - 1][1][: node.col_offset].strip():  # no other statement is on its line
            indents[first] = node.col_offset
    found = []
    for number, (line, text) in enumerate(lines, start=1):
        if number in indents:
            found.append((line, f"{' ' * indents[number]}{RESUME}()"))
        found.append((line, text))
    return found


def _where_to_resume(tree: ast.Module) -> Iterator[ast.stmt]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from node.body[1:2] if ast.get_docstring(node) is not None else node.body[:1]
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            for before, after in pairwise(block if isinstance(block, list) else []):
                if isinstance(before, _MAY_TAKE_LONG):
                    yield after
