"""The Python API: each name of ``cellblock.__all__`` and what its source says of it."""

from __future__ import annotations

from pathlib import Path

import cellblock

_HEAD = """# Python API

What `import cellblock` offers. Nothing else of the package is promised to stay.
"""


def page(root: Path) -> str:
    """The whole page: instructions to mkdocstrings, which reads the sources."""
    names = [name for name in cellblock.__all__ if name != "__version__"]
    return _HEAD + "".join(f"\n::: {getattr(cellblock, name).__module__}.{name}\n" for name in names)
