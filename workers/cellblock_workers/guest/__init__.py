"""The program inside a sandbox. :func:`guest_texts` is what the launcher hands to the interpreter."""

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
        "own_modules",
        "own_interpreter",
    ),
    *(
        "output",
        "calls",
        "program",
        "testing",
        "suites",
        "judging",
        "ending",
        "job",
        "guest",
        "series",
        "shared_kernel",
        "main",
    ),
)
_FUTURE = "from __future__ import annotations"


def guest_texts() -> dict[str, str]:
    """The whole guest program, of standard library only: the pieces by file name, in the order they run.

    Each piece is a module of its own that imports what it needs of the others by ``from .piece import``. In a
    sandbox all run in one namespace, so these lines are empty there, as is the docstring, which is for
    readers here. Every other line keeps its number, so that a traceback names it as it stands in the file.
    They are compiled under these names in angle brackets: a traceback must not show lines of a job's own file
    of that name.
    """
    folder = resources.files(__package__)
    texts = {}
    for piece in PIECES:
        head, future, rest = (folder / f"{piece}.py").read_text(encoding="utf-8").partition(_FUTURE)
        lines = ["" if line.startswith("from .") else line for line in rest.splitlines()]
        texts[f"guest/{piece}.py"] = "\n" * head.count("\n") + future + "\n".join(lines) + "\n"
    return texts
