"""The list of decisions, from the titles of ``docs/adr``."""

from __future__ import annotations

from pathlib import Path


def page(root: Path) -> str:
    """The whole page."""
    titles = {
        adr.name: adr.read_text().split("\n", 1)[0] for adr in sorted((root / "docs/adr").glob("0*.md"))
    }
    rows = "\n".join(f"- [{title.removeprefix('# ')}]({name})" for name, title in titles.items())
    return f"# Decisions\n\nEach has its context, what was decided, and what follows from it.\n\n{rows}\n"
