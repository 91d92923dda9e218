"""The Python API: each name of ``cellblock.__all__`` and what its source says of it."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import cellblock
import cellblock.egress
import cellblock.evaluation
import cellblock.webhooks

_HEAD = """# Python API

What `import cellblock` offers, and behind it three modules that the other pages import:
`cellblock.evaluation`, `cellblock.egress` and `cellblock.webhooks`. Nothing else of the package is promised
to stay.
"""
#: A module, and the names of it that documents tell users to import.
_MODULES: dict[ModuleType, tuple[str, ...]] = {
    cellblock.evaluation: tuple(cellblock.evaluation.__all__),
    cellblock.egress: ("filter_text", "FilterReport", "Redaction"),
    cellblock.webhooks: ("verify", "SIGNATURE_HEADER", "EVENT_HEADER"),
}


def page(root: Path) -> str:
    """The whole page: instructions to mkdocstrings, which reads the sources."""
    names = [name for name in cellblock.__all__ if name != "__version__"]
    own = "".join(f"\n::: {getattr(cellblock, name).__module__}.{name}\n" for name in names)
    return _HEAD + own + "".join(_of(module, offered) for module, offered in _MODULES.items())


def _of(module: ModuleType, names: tuple[str, ...]) -> str:
    """The names of one more module; a constant and the name of a union have no module of their own."""
    found = ((name, getattr(getattr(module, name), "__module__", "")) for name in names)
    return "".join(
        f"\n::: {where if where.startswith('cellblock') else module.__name__}.{name}\n"
        for name, where in found
    )
