"""Imports of the standard library from code that the launcher has read ahead (launcher/image_library.py).

Not a piece of the guest: it runs before them (launcher/guest_program.py), and imports nothing from a file.
Under gVisor an import from a file costs some 25 system calls of 50 µs each. Half of them read the clock, as
each lock of the import system does.
"""

import builtins
import marshal
import os
import sys
from _frozen_importlib import BuiltinImporter, ModuleSpec, module_from_spec
from _frozen_importlib_external import ExtensionFileLoader, SourceFileLoader

TYPE_CHECKING = False  # without an import of typing
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType


class LibraryImports:
    """While it is entered, imports take the library's modules from memory. They come out as from their files,
    and what a module lacks here is imported as ever."""

    def __init__(self, folder: str, modules: "dict[str, tuple[str, str, bytes]]") -> None:
        """``folder``: where the modules are from; an interpreter with its library elsewhere uses none.
        ``modules``: the kind of each ("module", "package", "extension"), its file and its code."""
        self.modules = modules if folder == os.path.dirname(os.__file__) else {}
        self.import_from_files = builtins.__import__

    def __enter__(self) -> None:
        builtins.__import__ = self.import_module

    def __exit__(self, *_: object) -> None:
        builtins.__import__ = self.import_from_files

    def import_module(
        self,
        name: str,
        globals: "Mapping[str, object] | None" = None,
        locals: "Mapping[str, object] | None" = None,
        fromlist: "Sequence[str] | None" = (),
        level: int = 0,
    ) -> "ModuleType":
        """``__import__``, which finds in sys.modules what is loaded here. Imports from above a package's own
        folder are left to it altogether."""
        if level < 2:
            full = f"{globals['__package__']}.{name}".rstrip(".") if level and globals else name
            self.load(full)
            for attribute in fromlist or ():
                self.load(f"{full}.{attribute}")
        return self.import_from_files(name, globals, locals, fromlist, level)

    def load(self, name: str) -> None:
        """Makes the module, after the package that holds it."""
        package, _, last = name.rpartition(".")
        if package and name in self.modules:
            self.load(package)
            if package not in sys.modules:
                return  # it comes from its file, and this with it
        if name in sys.modules or (spec := self.find_spec(name)) is None:
            return
        module = sys.modules[name] = module_from_spec(spec)
        try:
            if isinstance(spec.loader, SourceFileLoader):
                code = marshal.loads(self.modules[name][2])  # noqa: S302 - the image's own
                exec(code, module.__dict__)
            elif spec.loader is not None:
                spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        if package:
            setattr(sys.modules[package], last, module)

    def find_spec(self, name: str) -> "ModuleSpec | None":
        """The module's spec, as its finder would make it; None for a module that is not known here."""
        if name not in self.modules:
            return BuiltinImporter.find_spec(name)
        kind, file, _ = self.modules[name]
        loader = (ExtensionFileLoader if kind == "extension" else SourceFileLoader)(name, file)
        spec = ModuleSpec(name, loader, origin=file, is_package=kind == "package")
        spec.has_location = True
        if kind == "package":
            spec.submodule_search_locations = [os.path.dirname(file)]
        return spec
