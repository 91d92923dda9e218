"""The guest as the arguments of ``python3``, compiled ahead.

Compiling it costs an interpreter under gVisor 45 ms of 340 at each start. So the guest gets its code beside
its text, which an interpreter of another version than the launcher's uses instead. It comes in arguments, or
in a file, which gVisor reads in a tenth of the time and which has room for the library's code too.
"""

from __future__ import annotations

import json
import marshal
import zlib
from base64 import b64encode
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib import resources
from importlib.util import MAGIC_NUMBER
from types import CodeType
from typing import Any

from cellblock_workers.guest import guest_texts
from cellblock_workers.launcher.image_library import ImageLibrary

#: The kernel takes no argument of more than 128 KiB.
_ARGUMENT_CHARS = 96 * 1024
_START = """
import sys
from binascii import a2b_base64
from marshal import loads
from zlib import decompress
from _frozen_importlib_external import MAGIC_NUMBER
packed, sys.argv[1:-1] = "".join(sys.argv[1:-1]), []
magic, marshalled, texts = loads(decompress(a2b_base64(packed)))
if magic == MAGIC_NUMBER: pieces = loads(marshalled)
else: pieces = [compile(text, "<" + file + ">", "exec") for file, text in texts]
for piece in pieces: exec(piece)
"""
#: The pieces but the last, which runs the guest, find the library's modules in memory.
_START_FROM_FILE = """
def start():
    import sys
    from marshal import loads
    from _frozen_importlib_external import MAGIC_NUMBER
    with open(sys.argv.pop(1), "rb", 0) as file: magic, marshalled, texts, library = loads(file.read())
    if magic == MAGIC_NUMBER: codes = loads(marshalled)
    else: codes = [compile(text, "<" + file + ">", "exec") for file, text in texts]
    exec(codes[0], globals())
    with LibraryImports(*(library[1:] if library[0] == MAGIC_NUMBER else ("", {}))):
        for piece in codes[1:-1]: exec(piece, globals())
    return codes[-1]
exec(start())
"""


def guest_program(options: Mapping[str, Any]) -> list[str]:
    """The arguments of a guest's command line after the interpreter and its own options."""
    packed = _packed()
    parts = [packed[start : start + _ARGUMENT_CHARS] for start in range(0, len(packed), _ARGUMENT_CHARS)]
    return ["-c", _START, *parts, json.dumps(options)]


def guest_program_in_file(path: str, options: Mapping[str, Any]) -> list[str]:
    """The same for a guest that finds :func:`guest_file` at this path."""
    return ["-c", _START_FROM_FILE, path, json.dumps(options)]


@lru_cache(maxsize=16)
def guest_file(library: ImageLibrary) -> bytes:
    """The content of the file for :func:`guest_program_in_file`: the guest, and what it imports."""
    loader = (resources.files("cellblock_workers.guest") / "library.py").read_text(encoding="utf-8")
    texts = {"guest/library.py": loader, **guest_texts()}
    modules = {module.name: (module.kind, module.file, module.code) for module in library.modules}
    return marshal.dumps((*_compiled(texts), (library.magic, library.folder, modules)), 2)


@cache
def _packed() -> str:
    return b64encode(zlib.compress(marshal.dumps(_compiled(guest_texts()), 2), 9)).decode()


def _compiled(texts: Mapping[str, str]) -> tuple[bytes, bytes, list[tuple[str, str]]]:
    """The magic number of their code, their code, and the texts themselves by file name."""
    codes: list[CodeType] = [
        compile(text, f"<{file}>", "exec", dont_inherit=True) for file, text in texts.items()
    ]
    return MAGIC_NUMBER, marshal.dumps(codes), list(texts.items())
