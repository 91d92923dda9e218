"""Collects what the job left for its caller, after every process of the job is dead.

Runs in a child of the guest that has taken the job's uid, so that it can read nothing that the job could not.
Nothing changes any more while it walks. All the same it follows a name only if that is a folder or a regular
file when it is opened. Its output has a header for each file, JSON with path and size, and that many bytes;
for each file left out it has a header that says why. A header is one type byte, a big-endian u32 length, the
JSON.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import stat
from typing import Any, Sequence

from .messages import HEADER, ArtifactBounds
from .pipes import write_all

READ_BYTES = 64 * 1024
FOLDERS_LIMIT = 32
ENTRIES_LIMIT = 50_000
SKIPPED_LIMIT = 100
SHOWN_BYTES = 1000  # the bound on a path that is left out, whose header the host bounds
PATH_LIMIT_BYTES = 1024

Place = Any  # a folder's descriptor


class Globs:
    """Patterns of a path's parts; ``**`` stands for any number of folders, also for none."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self.patterns = [
            [None if part == "**" else re.compile(fnmatch.translate(part)) for part in pattern.split("/")]
            for pattern in patterns
        ]

    def start(self) -> frozenset[tuple[int, int]]:
        """The state above the first part: which patterns may go on, and where."""
        return self.beyond_stars({(which, 0) for which in range(len(self.patterns))})

    def step(self, state: frozenset[tuple[int, int]], name: str) -> frozenset[tuple[int, int]]:
        """The state after one more part of a path."""
        after = set()
        for which, place in state:
            pattern = self.patterns[which]
            if place == len(pattern):
                continue
            part = pattern[place]
            if part is None:
                after.add((which, place))
            elif part.match(name):
                after.add((which, place + 1))
        return self.beyond_stars(after)

    def beyond_stars(self, state: set[tuple[int, int]]) -> frozenset[tuple[int, int]]:
        """The state, with every ``**`` also taken for no folder at all."""
        reached, todo = set(), list(state)
        while todo:
            which, place = todo.pop()
            if (which, place) in reached:
                continue
            reached.add((which, place))
            if place < len(self.patterns[which]) and self.patterns[which][place] is None:
                todo.append((which, place + 1))
        return frozenset(reached)

    def matches(self, state: frozenset[tuple[int, int]]) -> bool:
        """Whether a path in this state is wanted."""
        return any(place == len(self.patterns[which]) for which, place in state)


class Collector:
    """Walks the work folder and writes what the globs ask for, within bounds."""

    def __init__(self, asked: ArtifactBounds, out: int) -> None:
        self.globs = Globs(asked.globs)
        self.count_left = asked.files_max
        self.each_bytes = asked.each_bytes
        self.bytes_left = asked.all_bytes
        self.entries_left = ENTRIES_LIMIT
        self.skipped = 0
        self.out = out

    def collect(self, folder: str) -> None:
        """Walks the whole folder. Raises OSError if it is not a folder any more."""
        # Checked first: gVisor of 2022 follows a link in spite of O_NOFOLLOW together with O_DIRECTORY.
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            raise NotADirectoryError(20, "not a folder any more", folder)
        root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        self.walk(root, "", self.globs.start(), 0)

    def walk(self, folder: Place, above: str, state: frozenset[tuple[int, int]], depth: int) -> None:
        """Walks one folder, its files first. Closes it."""
        folders = []
        try:
            for name in self.names(folder, above):
                path = above + name
                reached = self.globs.step(state, name)
                try:
                    mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
                except OSError as error:  # a folder that can be listed but not entered
                    self.skip(path, f"unreadable: {error.strerror}")
                    continue
                if stat.S_ISDIR(mode):
                    if reached:
                        folders.append((name, reached))
                elif self.globs.matches(reached):
                    self.take(folder, name, path, mode)
            for name, reached in folders:
                self.descend(folder=folder, name=name, path=above + name, state=reached, depth=depth + 1)
        finally:
            os.close(folder)

    def names(self, folder: Place, above: str) -> list[str]:
        """The names in a folder, sorted, until the walk has seen ``ENTRIES_LIMIT`` of them."""
        found = []
        with os.scandir(folder) as entries:
            for entry in entries:
                self.entries_left -= 1
                if self.entries_left < 0:
                    self.skip(
                        above or ".",
                        f"more than {ENTRIES_LIMIT} files and folders; the rest was not looked at",
                    )
                    break
                found.append(entry.name)
        return sorted(found)

    def descend(
        self, folder: Place, name: str, path: str, state: frozenset[tuple[int, int]], depth: int
    ) -> None:
        """Goes into a folder that may hold a wanted file."""
        if self.entries_left < 0:
            return
        if depth > FOLDERS_LIMIT:
            self.skip(path, f"deeper than {FOLDERS_LIMIT} folders")
            return
        try:
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
        except OSError as error:
            self.skip(path, f"unreadable folder: {error.strerror}")
            return
        self.walk(inner, path + "/", state, depth)

    def take(self, folder: Place, name: str, path: str, mode: int) -> None:
        """Sends the bytes of one wanted name, or why they are left out."""
        if (why := unfit(path, mode)) is not None:
            self.skip(path, why)
            return
        try:
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        except OSError as error:
            self.skip(path, f"unreadable: {error.strerror}")
            return
        try:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode):
                self.skip(path, "is not a regular file any more")
            elif self.fits(path, found.st_size):
                self.send_file(file, path, found.st_size)
        finally:
            os.close(file)

    def fits(self, path: str, size: int) -> bool:
        """Whether the bounds leave room for it."""
        why = None
        if size > self.each_bytes:
            why = f"{size} bytes; a file may have {self.each_bytes}"
        elif size > self.bytes_left:
            why = f"{size} bytes; only {self.bytes_left} are left of what all files may have"
        elif self.count_left < 1:
            why = "more files than may be returned"
        if why:
            self.skip(path, why)
        return not why

    def send_file(self, file: int, path: str, size: int) -> None:
        """Sends header and content. A file that ends early ends the collection: its size has been
        promised."""
        self.count_left -= 1
        self.bytes_left -= size
        self.say(b"F", {"path": path, "size": size})
        while size:
            piece = os.read(file, min(size, READ_BYTES))
            if not piece:
                os._exit(1)
            write_all(self.out, piece)
            size -= len(piece)

    def skip(self, path: str, why: str) -> None:
        """Reports a file that is left out; after ``SKIPPED_LIMIT`` only that there are more."""
        self.skipped += 1
        if self.skipped < SKIPPED_LIMIT:
            shown = path.encode("utf-8", "backslashreplace")[:SHOWN_BYTES].decode("utf-8", "ignore")
            self.say(b"S", {"path": shown, "reason": why})
        elif self.skipped == SKIPPED_LIMIT:
            self.say(b"S", {"path": "…", "reason": "there are more than can be listed"})

    def say(self, kind: bytes, header: dict[str, Any]) -> None:
        """Writes one header."""
        text = json.dumps(header, ensure_ascii=False).encode()
        write_all(self.out, HEADER.pack(kind, len(text)) + text)


def unfit(path: str, mode: int) -> str | None:
    """Why a name is not even opened; None if it can be."""
    try:
        if len(path.encode()) > PATH_LIMIT_BYTES:
            return f"its path is longer than {PATH_LIMIT_BYTES} bytes"
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    if stat.S_ISREG(mode):
        return None
    kinds = ((stat.S_ISLNK, "a symbolic link"), (stat.S_ISFIFO, "a named pipe"), (stat.S_ISSOCK, "a socket"))
    kind = next((word for test, word in kinds if test(mode)), "a device")
    return f"is {kind}, not a regular file"
