"""``ctx``: a job's access to a context file of any size, in memory that does not grow with the file."""

from __future__ import annotations

import os
import re
from typing import Any

CONTEXT_PATH = "/mnt/context_data"


class ContextHandle:
    """Reads and searches one file. Offsets and lengths are bytes; text is UTF-8, the rest shows as U+FFFD.

    A match may be up to 64 KiB long; a longer one is cut there.
    """

    CHUNK_BYTES = 1024 * 1024
    MATCH_BYTES = 64 * 1024
    BEHIND_BYTES = 4 * 1024  # how far a pattern may look back

    def __init__(self, path: str = CONTEXT_PATH, at_least: int = 0) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self._fd).st_size
        if self.size < at_least:  # an image's empty mount point must not be taken for the file
            raise OSError(f"the context has {at_least} bytes on the host and {self.size} here: not mounted")

    def __repr__(self) -> str:
        return f"<context of {self.size} bytes: size, read(start, length), search(pattern), snippet(offset)>"

    def read(self, start: int, length: int) -> str:
        """The text of ``length`` bytes from ``start`` on; less at the end of the file, empty beyond it."""
        return self._bytes(start, length).decode("utf-8", "replace")

    def snippet(self, offset: int, window: int = 500) -> str:
        """About ``window`` bytes of text around ``offset``."""
        if window < 1:
            raise ValueError(f"window must be at least 1 (got {window})")
        start = max(0, offset - window // 2)
        return self.read(start, window)

    def search(self, pattern: Any, max_results: int = 5) -> list[tuple[int, Any]]:
        """The first matches of a regular expression, as (offset, match), in the order of the file.

        A ``str`` pattern matches text, a ``bytes`` pattern bytes; a compiled one keeps its flags.
        """
        if max_results < 1:
            raise ValueError(f"max_results must be at least 1 (got {max_results})")
        compiled = re.compile(pattern)
        search = self._search_bytes if isinstance(compiled.pattern, bytes) else self._search_text
        return search(compiled, max_results)

    def _bytes(self, start: int, length: int) -> bytes:
        if start < 0 or length < 0:
            raise ValueError(f"start and length must not be negative (got {start}, {length})")
        pieces = []
        while length > 0:
            piece = os.pread(self._fd, length, start)
            if not piece:
                break
            pieces.append(piece)
            start += len(piece)
            length -= len(piece)
        return b"".join(pieces)

    def _search_bytes(self, compiled: Any, wanted: int) -> list[tuple[int, Any]]:
        found: list[tuple[int, Any]] = []
        position = 0  # where the next match may begin
        while True:
            base = max(0, position - self.BEHIND_BYTES)
            asked = position - base + self.CHUNK_BYTES + self.MATCH_BYTES
            window = self._bytes(base, asked)
            last = len(window) < asked
            # A match that begins before the border has all of MATCH_BYTES to end in; the rest waits.
            border = len(window) + 1 if last else len(window) - self.MATCH_BYTES
            end = 0
            for match in compiled.finditer(window, position - base):
                if match.start() >= border:
                    break
                found.append((base + match.start(), match.group()))
                end = match.end()
                if len(found) == wanted:
                    return found
            if last:
                return found
            position = base + max(border, end)

    def _search_text(self, compiled: Any, wanted: int) -> list[tuple[int, Any]]:
        """As for bytes, on windows cut between characters. Surrogates stand for bytes that are not text, so
        that every position in the decoded window has its place in the file."""
        found: list[tuple[int, Any]] = []
        position = 0
        while True:
            base = max(0, position - self.BEHIND_BYTES)
            asked = position - base + self.CHUNK_BYTES + self.MATCH_BYTES
            raw = self._bytes(base, asked)
            last = len(raw) < asked
            behind = decoded(raw[: position - base])
            ahead = decoded(
                raw[position - base :] if last else without_split_character(raw[position - base :])
            )
            window, start = behind + ahead, len(behind)
            if last:
                border = len(window) + 1
            elif window.isascii():
                border = len(raw) - self.MATCH_BYTES
            else:
                border = len(decoded(raw[: len(raw) - self.MATCH_BYTES]))
            counted, place = start, position
            end = 0
            for match in compiled.finditer(window, start):
                if match.start() >= border:
                    break
                place += encoded_length(window[counted : match.start()])
                counted = match.start()
                found.append((place, shown(match.group())))
                end = match.end()
                if len(found) == wanted:
                    return found
            if last:
                return found
            goes_on = max(border, end)
            position = place + encoded_length(window[counted:goes_on])


def decoded(raw: bytes) -> str:
    """Text in which every byte that is not UTF-8 has become one surrogate."""
    return raw.decode("utf-8", "surrogateescape")


def encoded_length(text: str) -> int:
    """How many bytes of the file this decoded text stands for."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogateescape"))


def shown(text: str) -> str:
    """Decoded text as a job sees it: printable, whatever the file holds."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def without_split_character(raw: bytes) -> bytes:
    """The bytes without the beginning of a character that the end of the window has cut."""
    for back in range(1, min(4, len(raw)) + 1):
        byte = raw[-back]
        if byte & 0xC0 != 0x80:
            width = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return raw[:-back] if width > back else raw
    return raw
