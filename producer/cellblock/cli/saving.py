"""Writing a job's files into a folder of the caller's. Their names are the job's choice.

Stops a path that leads out of the folder, by ``..`` or by a link that lies in it already: every part is
opened on its own, from the folder on, and no link is followed. An existing file is replaced, never written
through, so that a hard link in the folder keeps what it holds elsewhere.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from cellblock.errors import InvalidJob
from cellblock.models import Artifact
from cellblock.paths import check_relative

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def save(artifacts: Iterable[Artifact], folder: Path) -> None:
    """Write them all below ``folder``. Raises :class:`InvalidJob` naming the file that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise InvalidJob("artifacts", f"{folder} is no folder to write to: {error.strerror}") from None
    try:
        for artifact in artifacts:
            try:
                check_relative(artifact.path)
                _save(artifact, root)
            except (OSError, ValueError) as error:
                why = error.strerror if isinstance(error, OSError) else str(error)
                raise InvalidJob(
                    "artifacts", f"{artifact.path!r} cannot be written to {folder}: {why}"
                ) from None
    finally:
        os.close(root)


def _save(artifact: Artifact, root: int) -> None:
    *parents, name = artifact.path.split("/")
    here = os.dup(root)
    try:
        for part in parents:
            above, here = here, _enter(here, part)
            os.close(above)
        _write(here, name, artifact.data)
    finally:
        os.close(here)


def _enter(folder: int, part: str) -> int:
    """The folder below, made if missing."""
    with suppress(FileExistsError):  # whether it is a folder, and no link, is what opening it shows
        os.mkdir(part, 0o755, dir_fd=folder)
    return os.open(part, _FOLDER, dir_fd=folder)


def _write(folder: int, name: str, data: bytes) -> None:
    beside = f".{secrets.token_hex(8)}"
    file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=folder)
    try:
        with os.fdopen(file, "wb") as out:
            out.write(data)
        os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        os.unlink(beside, dir_fd=folder)
        raise
