"""What runs inside a sandbox. :func:`guest_source` is its text; the launcher hands it to the interpreter."""

from importlib import resources


def guest_source() -> str:
    """The guest program, whole: one file of standard library only."""
    return (resources.files(__package__) / "guest.py").read_text(encoding="utf-8")
