"""A job's own modules come before those that were imported ahead, as before any of the library's.

An import takes a module that is there already. So one that has the name of a job's own goes before the
program begins, and with it those of the library's that use it: the program imports them anew, as an
interpreter without anything ahead would. What such an interpreter imports by itself stays.
"""

from __future__ import annotations

import _imp
import importlib.machinery
import os
import sys
import types
from typing import Any

#: What an interpreter has before its program, and what the guest and the program have to share.
STARTED = (
    *("abc", "codecs", "encodings", "genericpath", "io", "os", "posixpath", "site", "sitecustomize", "stat"),
    *("usercustomize", "zipimport", "_collections_abc", "_sitebuiltins", "_weakrefset", "__main__"),
)
SHARED = ("importlib", "threading")
NAMED = (types.FunctionType, types.BuiltinFunctionType, type)


def put_own_first(folder: str) -> None:
    """Lets the program import its own modules in this folder, whatever was imported ahead."""
    hidden = {name for name in own_names(folder) if name in sys.modules and can_be_own(name)}
    if not hidden:
        return
    library = os.path.dirname(os.__file__) + os.sep
    used = {name: names_used(module) for name, module in sys.modules.items() if is_below(library, module)}
    size = 0
    while size != len(hidden):
        size = len(hidden)
        users = (name.partition(".")[0] for name, names in used.items() if names & hidden)
        hidden.update(name for name in users if name not in SHARED and can_be_own(name))
    for name in [name for name in sys.modules if name.partition(".")[0] in hidden]:
        del sys.modules[name]


def own_names(folder: str) -> set[str]:
    """The names under which files and packages of this folder can be imported."""
    names = set()
    suffixes = importlib.machinery.all_suffixes()
    for entry in os.listdir(folder):
        if entry in sys.modules and os.path.isfile(os.path.join(folder, entry, "__init__.py")):
            names.add(entry)
        for suffix in suffixes:
            if entry.endswith(suffix):
                names.add(entry[: -len(suffix)])
    return names


def can_be_own(name: str) -> bool:
    """Whether an interpreter would look for this module in the program's folder."""
    return not (name in STARTED or name in sys.builtin_module_names or _imp.is_frozen(name))


def is_below(library: str, module: object) -> bool:
    """Whether a module is the library's. Packages that were installed stay: many cannot be loaded twice."""
    file = str(getattr(module, "__file__", None))
    rest = file[len(library) :]
    return file.startswith(library) and not rest.startswith(("site-packages", "dist-packages"))


def names_used(module: Any) -> set[str]:
    """The modules that this one has, or has a function or class of."""
    names = set()
    for value in list(vars(module).values()):
        if isinstance(value, types.ModuleType):
            names.add(value.__name__.partition(".")[0])
        elif isinstance(value, NAMED):
            names.add(str(value.__module__).partition(".")[0])
    return names
