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
#: What runs jobs on this machine, and what would do instead.
_HERE = {"embedded", "embedded-fleet"}
_ELSEWHERE = (
    " to run jobs on this machine, or set CELLBLOCK_REDIS_URL to the address of a fleet that runs them"
)


@contextmanager
def extra_named(name: str = "") -> Iterator[None]:
    """Raises :class:`NotConfigured` for a package that is not installed, with the extra that brings it.

    ``name``: of the function that needs it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(str(error.name), "worker")
        raise NotConfigured(
            f"this needs the package {error.name}: pip install 'cellblock[{extra}]'"
            f"{_ELSEWHERE if name in _HERE else ''}"
        ) from error


def load(name: str) -> Any:
    """The worker-side function of this name. Raises :class:`NotConfigured` without its extra."""
    for entry in entry_points(group="cellblock.commands", name=name):
        with extra_named(name), interrupts_held():
            return entry.load()
    raise NotConfigured(
        f"this needs cellblock's own workers ({name}): pip install 'cellblock[worker]'"
        f"{_ELSEWHERE if name in _HERE else ''}"
    )
