"""The module guard: an import that the job's level does not allow raises a clear error.

It is a policy, not a security boundary: a program can get around it, into the same sandbox. It wraps
``__import__`` instead of searching the source, because only the import that happens counts: one that the
program catches, or never reaches, is not an error. Only the job's own code is judged, so an allowed module
may import what it needs.
"""

from __future__ import annotations

import builtins
import importlib.machinery
import sys
from typing import Any


class ModuleNotAllowed(ImportError):
    """An import outside the level's list."""


def guard_imports(asked_level: str, allowed: list[str], folder: str) -> None:
    """Limits the job's own code, which lies in ``folder``, to these modules and its own files, from now
    on."""
    real_import = builtins.__import__
    names = {*allowed, "__future__", "__main__"}

    def judged_import(
        name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> Any:
        importer = sys._getframe(1).f_globals if globals is None else globals
        top = name.partition(".")[0]
        # A list is what the interpreter passes for an import by C code, which runs in the job's frame:
        # datetime.strptime needs _strptime. An import statement passes a tuple or nothing.
        by_c_code = isinstance(fromlist, list)
        judged = not (level or by_c_code or top in names) and is_jobs_own(importer, folder)
        if judged and not is_jobs_file(top, folder):
            listed = ", ".join(allowed) or "none"
            raise ModuleNotAllowed(f"{name} (level {asked_level} allows {listed})", name=name)
        return real_import(name, globals, locals, fromlist, level)

    builtins.__import__ = judged_import


def is_jobs_own(importer: dict[str, Any], folder: str) -> bool:
    """Whether code with these globals is the job's: one of its files, or text that it executes."""
    if importer is globals():
        return False  # the guest itself, which looks at the job's value
    file = importer.get("__file__")
    if file is None:
        return importer.get("__spec__") is None  # a module built into the interpreter has a spec
    return str(file).startswith(folder + "/")


def is_jobs_file(top: str, folder: str) -> bool:
    """Whether this module is, or would be, found among the job's own files."""
    module = sys.modules.get(top)
    spec = module.__spec__ if module else importlib.machinery.PathFinder.find_spec(top)
    if spec is None:
        return False
    places = [spec.origin, *(spec.submodule_search_locations or ())]
    return any(str(place).startswith(folder + "/") for place in places)
