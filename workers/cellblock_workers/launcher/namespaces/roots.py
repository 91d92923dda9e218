"""Where a zygote finds its Python: an unpacked image, or a read-only view of the host's."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cellblock_config import Settings
from cellblock_workers.launcher.backend import StartFailed
from cellblock_workers.launcher.etc_files import etc_files
from cellblock_workers.launcher.user_ids import IdRange, id_ranges
from cellblock_workers.zygote.zygote import INSIDE_JOB

_PYTHONS = ("usr/local/bin/python3", "usr/bin/python3")
_NEEDED = ("dev", "proc", "tmp")
#: The host's programs and libraries. Nothing of /home, /root, /srv, /var, /run, /tmp or /etc's secrets.
_VIEWED = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
#: How the loader finds libraries: a file, and a folder of links.
_COPIED = ("/etc/ld.so.cache", "/etc/alternatives")
#: The files laid over it: the job's id is the same in every sandbox of a zygote.
_NAMES = etc_files(INSIDE_JOB)


@dataclass(frozen=True, slots=True)
class Root:
    """What boot.py builds a zygote's root from. ``folder``: an unpacked image; without one, the other fields.

    ``identity``: device, inode and change time of the folder, as an inode number alone is given again to a
    folder that replaces it. ``seats``: how many sandboxes can run at once. ``first_id``, ``ids``: the first
    and the number of the host's user ids that the zygote's ids, from 0 on, stand for.
    """

    mount_point: str
    folder: str | None
    seats: int
    identity: tuple[int, ...]
    python: str
    first_id: int
    ids: int
    views: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()
    links: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> str:
        """The root for boot.py's command line."""
        return json.dumps(asdict(self))


def find_root(settings: Settings, image: str, seats: int) -> Root:
    """The root of an image. Raises :class:`StartFailed` if it is missing or incomplete."""
    folder = _unpacked(settings, image)
    ids = id_ranges(settings.launcher.first_user_id)["namespaces"]
    if folder.is_dir():
        return _image_root(folder, seats, ids)
    if image == settings.sandbox.default_image:
        return _host_view(settings.launcher.state / "namespaces" / "root", seats, ids)
    raise StartFailed(f"namespaces: the image {image} is not unpacked at {folder}; run: make images")


def is_current(root: Root, settings: Settings, image: str) -> bool:
    """Whether :func:`find_root` would find the same. Called for every sandbox, so it makes one system
    call."""
    try:
        return _identity(_unpacked(settings, image)) == root.identity
    except OSError:
        return root.folder is None


def _identity(folder: Path) -> tuple[int, ...]:
    found = folder.stat()
    return found.st_dev, found.st_ino, found.st_ctime_ns


def _unpacked(settings: Settings, image: str) -> Path:
    return settings.launcher.image_roots / image / "rootfs"


def _image_root(folder: Path, seats: int, ids: IdRange) -> Root:
    for name in _NEEDED:
        if not (folder / name).is_dir():
            raise StartFailed(f"namespaces: {folder} has no folder {name}; remove it and run: make images")
    for name in _PYTHONS:
        # An absolute link inside an image points into the image, not into this host.
        if (folder / name).is_symlink() or (folder / name).is_file():
            return Root(
                mount_point=str(folder),
                folder=str(folder),
                seats=seats,
                identity=_identity(folder),
                python=f"/{name}",
                first_id=ids.first,
                ids=ids.count,
                files=_NAMES,
            )
    raise StartFailed(f"namespaces: {folder} has no python3; remove it and run: make images")


def _host_view(mount_point: Path, seats: int, ids: IdRange) -> Root:
    """The host's Python without the rest of the host."""
    try:
        mount_point.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StartFailed(
            f"namespaces: launcher.state cannot be used: {error}; set CELLBLOCK_LAUNCHER_STATE"
        ) from error
    python = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    links = {path.lstrip("/"): str(Path(path).readlink()) for path in _VIEWED if Path(path).is_symlink()}
    views = [path for path in _VIEWED if Path(path).exists() and path.lstrip("/") not in links]
    if not Path(sys.base_prefix).resolve().is_relative_to("/usr"):
        views.append(str(Path(sys.base_prefix).resolve()))
    return Root(
        mount_point=str(mount_point),
        folder=None,
        seats=seats,
        identity=(),
        python=str(python),
        first_id=ids.first,
        ids=ids.count,
        views=tuple(views),
        copies=_COPIED,
        links=links,
        files=_NAMES,
    )
