"""The shape of the source in figures: modules, imports between rooms, lengths, habits of language.

``PYTHONPATH=tests python -m suite.structure [TREE] [--json]`` prints them for this tree or another checkout.
A room is a folder of modules. Nothing of the tree is imported.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Each source root with the package it holds.
SOURCES = ("config/cellblock_config", "producer/cellblock", "workers/cellblock_workers")
#: What docs/writing.md asks to avoid, as far as a pattern finds it.
HABITS = {
    "may not": r"\bmay (?:not|never)\b",
    "can not": r"\bcan not\b",
    "so many": r"\bso (?:many|much)\b",
    "what of": r"\bwhat of\b",
    "whoever": r"\bwhoever\b",
    "a sentence that begins with Of": r"(?:^\s*(?:#+:?|--|\"\"\"|)\s*|[.:] )(?-i:Of) [a-z]",
    "is none": r"(?<!there )\b(?:is|are) (?-i:none)\b(?! of)",
}
_TEXTS = (*SOURCES, "tests", "docs", "README.md", "ARCHITECTURE.md", "SECURITY.md", "CONTRIBUTING.md")


@dataclass(frozen=True, slots=True)
class Function:
    """A function with its length in lines and the number of its parameters."""

    name: str
    lines: int
    parameters: int


@dataclass(frozen=True, slots=True)
class Call:
    """A call with its number of positional arguments; an unpacked sequence counts as one."""

    place: str
    positional: int


@cache
def modules(tree: Path) -> dict[str, Path]:
    """Every module of the three packages by its dotted name; a package has the name of its folder."""
    found = {}
    for source in SOURCES:
        root = tree / source
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root.parent).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports(tree: Path) -> set[tuple[str, str]]:
    """Each pair of modules of which the first imports the second, also inside functions."""
    known = modules(tree)
    return {
        (importer, imported)
        for importer, path in known.items()
        for imported in _imported(importer, path, known)
        if imported != importer
    }


def _imported(importer: str, path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    package = importer if path.name == "__init__.py" else importer.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            above = package.rsplit(".", node.level - 1)[0] if node.level else ""
            base = ".".join(part for part in (above, node.module) if part)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                if inner in known or base in known:
                    yield inner if inner in known else base


def room(module: str, path: Path) -> str:
    """The folder of a module, dotted."""
    return module if path.name == "__init__.py" else module.rpartition(".")[0]


def room_imports(tree: Path) -> set[tuple[str, str]]:
    """Each pair of rooms of which the first imports something of the second."""
    known = modules(tree)
    pairs = {
        (room(importer, known[importer]), room(imported, known[imported]))
        for importer, imported in imports(tree)
    }
    return {(importer, imported) for importer, imported in pairs if importer != imported}


def circles(arrows: Iterable[tuple[str, str]]) -> list[list[str]]:
    """The groups of names that reach each other."""
    following = defaultdict(set)
    for start, end in arrows:
        following[start].add(end)
    reached = {name: _reached(name, following) for name in following}
    groups = {
        frozenset(other for other in beyond if name in reached.get(other, set()))
        for name, beyond in reached.items()
        if name in beyond
    }
    return sorted(sorted(group) for group in groups)


def _reached(start: str, following: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    left = [start]
    while left:
        new = following.get(left.pop(), set()) - seen
        seen |= new
        left += new
    return seen


def functions(tree: Path) -> Iterator[Function]:
    """Every function and method."""
    for module, path in modules(tree).items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = node.args
                count = len([*given.posonlyargs, *given.args, *given.kwonlyargs])
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                yield Function(name=f"{module}.{node.name}", lines=lines, parameters=count)


def calls(tree: Path) -> Iterator[Call]:
    """Every call that has a positional argument."""
    for path in modules(tree).values():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args:
                place = f"{path.relative_to(tree)}:{node.lineno}"
                yield Call(place=place, positional=len(node.args))


def settings_without_description(tree: Path) -> list[str]:
    """The fields of settings groups that have no ``description``."""
    found = []
    for path in sorted((tree / SOURCES[0]).glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and any(
                ast.unparse(base).endswith("Group") for base in node.bases
            ):
                found += [
                    f"{node.name}.{field.target.id}"
                    for field in node.body
                    if isinstance(field, ast.AnnAssign)
                    and isinstance(field.target, ast.Name)
                    and "description=" not in ast.unparse(field)
                ]
    return found


def habits(tree: Path) -> dict[str, int]:
    """How many lines of source, tests and documents have each habit."""
    lines = [line for path in _texts(tree) for line in path.read_text().splitlines()]
    return {
        name: sum(bool(re.search(pattern, line, re.IGNORECASE)) for line in lines)
        for name, pattern in HABITS.items()
    }


def _texts(tree: Path) -> Iterator[Path]:
    for name in _TEXTS:
        if (tree / name).is_file():
            yield tree / name
        for path in sorted((tree / name).rglob("*.*")):
            if path.suffix in {".py", ".lua", ".md"} and path.name not in {"structure.py", "test_writing.py"}:
                yield path


def figures(tree: Path) -> dict[str, object]:
    """All of it."""
    known = modules(tree)
    counts = Counter(room(module, path) for module, path in known.items())
    arrows, between = imports(tree), room_imports(tree)
    longest = max(functions(tree), key=lambda function: function.lines)
    widest = max(functions(tree), key=lambda function: function.parameters)
    call = max(calls(tree), key=lambda call: call.positional)
    return {
        "modules": len(known),
        "modules by room": dict(sorted(counts.items())),
        "imports between modules": len(arrows),
        "circles of modules": circles(arrows),
        "imports between rooms": len(between),
        "circles of rooms": circles(between),
        "modules over 250 lines": sum(len(path.read_text().splitlines()) > 250 for path in known.values()),
        "longest function": f"{longest.name}, {longest.lines} lines",
        "most parameters": f"{widest.name}, {widest.parameters}",
        "most positional arguments": f"{call.place}, {call.positional}",
        "lines with a habit": habits(tree),
        "settings without a description": len(settings_without_description(tree)),
        "lines of README": len((tree / "README.md").read_text().splitlines()),
    }


def main(arguments: list[str]) -> None:
    """Print the figures, as text or as JSON."""
    names = [argument for argument in arguments if not argument.startswith("--")]
    found = figures(Path(names[0]).resolve() if names else ROOT)
    if "--json" in arguments:
        print(json.dumps(found, indent=2))
        return
    for name, figure in found.items():
        print(f"{name}: {figure}")


if __name__ == "__main__":
    main(sys.argv[1:])
