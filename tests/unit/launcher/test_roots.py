"""When a zygote's root is still the one that it was made from."""

from __future__ import annotations

import shutil
from pathlib import Path

from cellblock_config import load_settings
from cellblock_workers.launcher.namespaces.roots import find_root, is_current


def test_an_image_that_was_made_anew_under_the_old_ones_number_is_not_current(tmp_path: Path) -> None:
    """A file system gives an inode's number again; here the folder is the same, and what it holds is not."""
    rootfs = tmp_path / "images" / "python" / "rootfs"

    def make() -> None:
        for name in ("dev", "proc", "tmp", "usr/bin"):
            (rootfs / name).mkdir(parents=True)
        (rootfs / "usr/bin/python3").write_text("")

    make()
    settings = load_settings(launcher={"state": tmp_path / "state", "image_roots": tmp_path / "images"})
    root = find_root(settings, "python", seats=1)
    assert is_current(root, settings, "python")
    number = rootfs.stat().st_ino
    for child in rootfs.iterdir():
        shutil.rmtree(child)
    make()
    assert rootfs.stat().st_ino == number
    assert not is_current(root, settings, "python")
