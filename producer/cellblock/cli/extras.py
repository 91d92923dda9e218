"""Finding the worker side by entry point: the producer package never imports it."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from cellblock.errors import NotConfigured


def load(name: str) -> Any:
    """The worker-side function of this name. Raises :class:`NotConfigured` without its extra."""
    for entry in entry_points(group="cellblock.commands", name=name):
        try:
            return entry.load()
        except ModuleNotFoundError as error:
            extra = "monitor" if error.name == "flower" else "worker"
            raise NotConfigured(
                f"'{name}' needs the package {error.name}: pip install 'cellblock[{extra}]'"
            ) from error
    raise NotConfigured(f"'{name}' is not installed: pip install 'cellblock[worker]'")
