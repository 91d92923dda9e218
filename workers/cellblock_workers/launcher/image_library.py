"""The code of an image's standard library, as far as a guest imports it, read from the image's files."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

#: What a guest imports of files of the library. A test compares them with what it imports.
IMPORTED = (
    *("__future__", "_ctypes", "_json", "_typing", "_weakrefset", "ast", "collections"),
    *("collections.abc", "contextlib", "copyreg", "ctypes", "ctypes._endian", "dis", "enum"),
    *("fnmatch", "functools", "importlib", "json", "json.decoder", "json.encoder", "json.scanner"),
    *("keyword", "linecache", "opcode", "operator", "re", "re._casefix", "re._compiler"),
    *("re._constants", "re._parser", "reprlib", "resource", "signal", "sre_compile"),
    *("sre_constants", "sre_parse", "struct", "textwrap", "threading", "token", "tokenize"),
    *("traceback", "types", "typing", "warnings"),
)
_PYTHONS = ("usr/local/bin/python3", "usr/bin/python3")
_HEADER_BYTES = 16  # of compiled code (PEP 552): magic number, flags, the source's time and size
_HASH_UNCHECKED = 1
_CODE_BYTES = 512 * 1024  # of a module: the longest of CPython's has 125 KiB


@dataclass(frozen=True, slots=True)
class LibraryModule:
    """One module. ``kind``: "module", "package" or "extension", whose code is in its file alone."""

    name: str
    kind: str
    file: str  # in the image
    code: bytes  # marshalled


@dataclass(frozen=True, slots=True)
class ImageLibrary:
    """Modules for an interpreter with this magic number that has its library in this folder of the image."""

    magic: bytes = b""
    folder: str = ""
    modules: tuple[LibraryModule, ...] = ()


@lru_cache(maxsize=16)
def read_library(root: Path) -> ImageLibrary:
    """Reads the library of the ``python3`` in an unpacked image, which is never changed once it is made.

    Args:
        root: The image's folder, without links in its own path.

    Returns:
        What was found, compiled and current. The guest imports the rest from files.
    """
    python = next((path for name in _PYTHONS if (path := root / name).is_symlink()), None)
    if python is None:
        return ImageLibrary()
    folder = Path("/") / python.parent.parent.relative_to(root) / "lib" / python.readlink().name
    library = root / folder.relative_to("/")
    compiled = [found for name in IMPORTED if (found := _compiled_module(root, library, name)) is not None]
    magics = {magic for magic, _ in compiled}
    if len(magics) != 1:
        return ImageLibrary()
    extensions = [
        LibraryModule(name, "extension", f"/{file.relative_to(root)}", b"")
        for name in IMPORTED
        for file in (library / "lib-dynload").glob(f"{name}.cpython-*.so")
        if _is_inside(root, file)
    ]
    return ImageLibrary(magics.pop(), str(folder), (*(module for _, module in compiled), *extensions))


def _compiled_module(root: Path, library: Path, name: str) -> tuple[bytes, LibraryModule] | None:
    """A module that is compiled from its source as it is, and the magic number of its code."""
    place = library / name.replace(".", "/")
    for kind, source in (("package", place / "__init__.py"), ("module", place.with_suffix(".py"))):
        for path in source.parent.glob(f"__pycache__/{source.stem}.cpython-*[0-9].pyc"):
            if not (_is_inside(root, path) and _is_inside(root, source)):
                continue
            with path.open("rb") as file:
                header = file.read(_HEADER_BYTES)
                code = file.read(_CODE_BYTES + 1) if _is_valid(header, source) else b""
            if 0 < len(code) <= _CODE_BYTES:
                return header[:4], LibraryModule(name, kind, f"/{source.relative_to(root)}", code)
    return None


def _is_inside(root: Path, path: Path) -> bool:
    """Whether it is a file of the image: a link in an image could name any file of this host."""
    return path.is_file() and path.resolve().is_relative_to(root)


def _is_valid(header: bytes, source: Path) -> bool:
    """Whether the interpreter would take compiled code with this header without a look at the source's
    content."""
    flags = int.from_bytes(header[4:8], "little")
    if flags == _HASH_UNCHECKED:
        return True
    status = source.stat()
    expected = struct.pack("<2I", int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF)
    return flags == 0 and header[8:] == expected
