"""Writing a job's files into a folder of the caller's. Their names are the job's choice.

Stops a path that leads out of the folder, by ``..`` or by a link that lies in it already: every part is
opened on its own, from the folder on, and no link is followed. Unless the caller asks for it, no file that
is there is replaced, and none is hidden: in a project's folder ``.git/config`` and ``.envrc`` are programs.
What is replaced is never written through, so that a hard link in the folder keeps what it holds elsewhere.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from cellblock.contract.paths import check_relative
from cellblock.contract.results import Artifact
from cellblock.errors import InvalidJob

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_REMEDY = "--overwrite allows it"
#: The part of a glob that stands for any number of folders.
_ANY_DEPTH = "**"


def prepare(folder: Path, globs: Iterable[str], *, overwrite: bool) -> None:
    """Makes the folder. Raises :class:`InvalidJob` if nothing can be written there, or if files that these
    globs name could not be: a job that has run cannot be asked for its files again."""
    os.close(_opened(folder))
    if overwrite:
        return
    patterns = [glob.split("/") for glob in globs]
    for parts in patterns:
        if any(part.startswith(".") for part in parts):
            raise InvalidJob("--artifact", f"{'/'.join(parts)!r} would be hidden in {folder}; {_REMEDY}")
    if (there := next(_in_the_way(folder, patterns), None)) is not None:
        raise InvalidJob(
            "--out", f"{there} is there already and would not be replaced: name another folder, or {_REMEDY}"
        )


def save(artifacts: Iterable[Artifact], folder: Path, *, overwrite: bool = False) -> dict[str, str]:
    """Writes below ``folder`` what can be written. Returns the paths of the others, with the reason.

    ``overwrite``: replaces files that are there, and writes hidden ones. Raises :class:`InvalidJob` where
    nothing can be written to the folder.
    """
    unwritten = {}
    root = _opened(folder)
    try:
        for artifact in artifacts:
            try:
                check_relative(artifact.path)
                if not overwrite and any(part.startswith(".") for part in artifact.path.split("/")):
                    raise ValueError(f"it would be hidden; {_REMEDY}")
                _save(artifact, root, overwrite)
            except (OSError, ValueError) as error:
                why = error.strerror if isinstance(error, OSError) else str(error)
                unwritten[artifact.path] = str(why)
    finally:
        os.close(root)
    return unwritten


def _in_the_way(folder: Path, patterns: Sequence[Sequence[str]]) -> Iterator[Path]:
    """What is in the folder and has a name that a job could give a file, by these globs in parts."""
    with suppress(OSError), os.scandir(folder) as entries:  # of what cannot be read nothing is known
        for entry in entries:
            below = [rest for parts in patterns for rest in _step(parts, entry.name)]
            whole = any(set(rest) <= {_ANY_DEPTH} for rest in below)
            if not entry.is_dir(follow_symlinks=False):
                if whole:
                    yield folder / entry.name
            elif below:
                yield from _in_the_way(folder / entry.name, below)


def _step(parts: Sequence[str], name: str) -> Iterator[Sequence[str]]:
    """The parts of a glob that are left for the path below this name; nothing if the name does not match."""
    if not parts:
        return
    if parts[0] == _ANY_DEPTH:
        yield parts
        yield from _step(parts[1:], name)
    elif fnmatchcase(name, parts[0]):
        yield parts[1:]


def _opened(folder: Path) -> int:
    """A descriptor of the folder, made if missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        why = f"{folder} is not a folder to write to ({error.strerror}); name another one"
        raise InvalidJob("--out", why) from None


def _save(artifact: Artifact, root: int, overwrite: bool) -> None:
    *parents, name = artifact.path.split("/")
    here = os.dup(root)
    try:
        for part in parents:
            above, here = here, _enter(here, part)
            os.close(above)
        _write(here, name, artifact.data, overwrite)
    finally:
        os.close(here)


def _enter(folder: int, part: str) -> int:
    """The folder below, made if missing."""
    with suppress(FileExistsError):  # whether it is a folder, and no link, is what opening it shows
        os.mkdir(part, 0o755, dir_fd=folder)
    return os.open(part, _FOLDER, dir_fd=folder)


def _write(folder: int, name: str, data: bytes, overwrite: bool) -> None:
    fresh = f".{secrets.token_hex(8)}" if overwrite else name
    try:
        file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=folder)
    except FileExistsError:
        raise ValueError(f"it is there already; {_REMEDY}") from None
    try:
        with os.fdopen(file, "wb") as out:
            out.write(data)
        if overwrite:
            os.rename(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        os.unlink(fresh, dir_fd=folder)
        raise
