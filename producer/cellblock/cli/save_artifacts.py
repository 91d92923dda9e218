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
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from cellblock.contract.paths import check_relative
from cellblock.contract.results import Artifact
from cellblock.errors import InvalidJob

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_REMEDY = "--overwrite allows it"


def prepare(folder: Path) -> None:
    """Makes the folder. Raises :class:`InvalidJob` if nothing can be written there."""
    os.close(_opened(folder))


def save(artifacts: Iterable[Artifact], folder: Path, *, overwrite: bool = False) -> None:
    """Write them all below ``folder``. Raises :class:`InvalidJob` naming the first file that cannot be.

    ``overwrite``: replace files that are there, and write hidden ones.
    """
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
                raise InvalidJob(
                    "artifacts", f"{artifact.path!r} cannot be written to {folder}: {why}"
                ) from None
    finally:
        os.close(root)


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
