"""Finding the worker side by entry point: the producer package never imports it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import Any

from cellblock.errors import NotConfigured
from cellblock.interrupts import interrupts_held

#: Which extra brings what a worker's does not, or not alone.
_EXTRAS = {"flower": "monitor", "sqlalchemy": "worker,archive", "alembic": "worker,archive"}


@contextmanager
def extra_named() -> Iterator[None]:
    """Raises :class:`NotConfigured` for a package that is not installed, with the extra that brings it."""
    try:
        yield
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(str(error.name), "worker")
        raise NotConfigured(
            f"this needs the package {error.name}: pip install 'cellblock[{extra}]'"
        ) from error


def load(name: str) -> Any:
    """The worker-side function of this name. Raises :class:`NotConfigured` without its extra."""
    for entry in entry_points(group="cellblock.commands", name=name):
        with extra_named(), interrupts_held():
            return entry.load()
    raise NotConfigured(f"this needs cellblock's own workers ({name}): pip install 'cellblock[worker]'")
