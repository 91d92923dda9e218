"""What runs inside a sandbox. :func:`guest_source` is its text; the launcher hands it to the interpreter."""

from importlib import resources

#: The guest's files, each before those that use it.
PIECES = (
    *("ahead", "pipes", "processes", "filter", "context", "values", "artifacts", "modules"),
    *("calls", "judging", "job", "guest", "series", "main"),
)


def guest_source() -> str:
    """The guest program, whole: one text of standard library only, made by joining the pieces.

    Each piece is a module of its own that imports what it needs of the others by ``from .piece import``;
    joined, they share one namespace, so these lines go, and the one future import moves to the top.
    """
    folder = resources.files(__package__)
    lines = ["from __future__ import annotations"]
    for piece in PIECES:
        text = (folder / f"{piece}.py").read_text(encoding="utf-8")
        lines += [line for line in text.splitlines() if not line.startswith(("from __future__ ", "from ."))]
    return "\n".join(lines) + "\n"
