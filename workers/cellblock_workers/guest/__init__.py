"""The program inside a sandbox. :func:`guest_source` is its text; the launcher hands it to the
interpreter."""

from importlib import resources

#: The guest's files, each before those that use it.
PIECES = (
    *(
        "preload",
        "messages",
        "pipes",
        "processes",
        "syscall_filter",
        "context",
        "values",
        "artifacts",
        "module_guard",
    ),
    *("calls", "program", "testing", "suites", "judging", "job", "guest", "series", "main"),
)
_FUTURE = "from __future__ import annotations"


def guest_source() -> str:
    """The whole guest program: one text of standard library only, made by joining the pieces.

    Each piece is a module of its own that imports what it needs of the others by ``from .piece import``. The
    joined pieces share one namespace, so these lines are dropped, and the one future import moves to the top.
    The text before that import in a piece, its docstring, is for readers here.
    """
    folder = resources.files(__package__)
    lines = [_FUTURE]
    for piece in PIECES:
        text = (folder / f"{piece}.py").read_text(encoding="utf-8").partition(_FUTURE)[2]
        lines += [line for line in text.splitlines() if not line.startswith("from .")]
    return "\n".join(lines) + "\n"
