"""A package whose public names are imported from its modules when they are first used (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def found_late(
    package: str, names_of: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The functions ``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: Its name. Its modules are found as attributes too, without being imported first.
        names_of: The public names, by the module that has them.
    """
    module_of = {name: module for module, names in names_of.items() for name in names}
    namespace = vars(sys.modules[package])

    def find(name: str) -> object:
        if name in module_of:
            return getattr(import_module(module_of[name]), name)
        if not name.startswith("_"):
            try:
                return import_module(f"{package}.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"{package}.{name}":
                    raise
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def get(name: str) -> object:
        value = namespace[name] = find(name)
        return value

    return get, lambda: sorted({*namespace, *module_of})
