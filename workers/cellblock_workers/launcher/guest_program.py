"""The guest as the arguments of ``python3 -c``, compiled ahead.

Compiling it costs an interpreter under gVisor 45 ms of 340 at each start. So the guest gets its code beside
its text, which an interpreter of another version than the launcher's uses instead.
"""

from __future__ import annotations

import json
import marshal
import zlib
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from importlib.util import MAGIC_NUMBER
from typing import Any

from cellblock_workers.guest import guest_texts

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


def guest_program(options: Mapping[str, Any]) -> list[str]:
    """The arguments of a guest's command line after the interpreter and its own options."""
    packed = _packed()
    parts = [packed[start : start + _ARGUMENT_CHARS] for start in range(0, len(packed), _ARGUMENT_CHARS)]
    return ["-c", _START, *parts, json.dumps(options)]


@cache
def _packed() -> str:
    texts = list(guest_texts().items())
    codes = [compile(text, f"<{file}>", "exec", dont_inherit=True) for file, text in texts]
    return b64encode(zlib.compress(marshal.dumps((MAGIC_NUMBER, marshal.dumps(codes), texts), 2), 9)).decode()
