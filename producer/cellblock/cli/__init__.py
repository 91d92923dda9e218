"""The ``cellblock`` command."""

from cellblock.cli.main import main

__all__ = ["main"]
