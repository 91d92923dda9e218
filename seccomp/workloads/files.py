# ruff: noqa: PTH101, PTH104, PTH105, PTH109, PTH115, PTH116, PTH123, S101, S202, T201  (a job may do as it likes)
"""Files in /tmp: every usual way to make, read, map, lock, copy, rename, walk, archive and remove them."""

import fcntl
import mmap
import os
import pathlib
import shutil
import sqlite3
import stat
import tarfile
import tempfile
import zipfile

with tempfile.TemporaryDirectory() as name:
    root = pathlib.Path(name)
    one = root / "one.txt"
    one.write_text("hello\n" * 1000)
    os.chmod(one, 0o640)
    os.utime(one, (1, 2))
    one.touch()
    os.chown(one, os.getuid(), os.getgid())
    shutil.copy2(one, root / "two.txt")
    shutil.copytree(root, root / "tree", ignore=shutil.ignore_patterns("tree"))
    (root / "three.txt").symlink_to(one)
    os.link(one, root / "four.txt")
    os.readlink(root / "three.txt")
    os.rename(root / "four.txt", root / "five.txt")
    os.replace(root / "five.txt", root / "six.txt")
    os.mkfifo(root / "pipe")
    assert stat.S_ISFIFO(os.stat(root / "pipe").st_mode)
    with open(one, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        fcntl.lockf(file, fcntl.LOCK_EX)
        with mmap.mmap(file.fileno(), 0) as mapped:
            mapped[0:1] = b"H"
            mapped.flush()
            mapped.madvise(mmap.MADV_WILLNEED)
        os.pread(file.fileno(), 4, 0)
        os.pwrite(file.fileno(), b"x", 1)
        os.preadv(file.fileno(), [bytearray(4)], 0)
        os.pwritev(file.fileno(), [b"ab"], 0)
        os.readv(file.fileno(), [bytearray(4)])
        os.writev(file.fileno(), [b"a", b"b"])
        os.posix_fallocate(file.fileno(), 0, 9000)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        os.truncate(one, 10)
        file.truncate(5)
        os.fsync(file.fileno())
        os.fdatasync(file.fileno())
        os.fchmod(file.fileno(), 0o600)
        os.dup2(os.dup(file.fileno()), 50)
        os.isatty(file.fileno())
    here = os.getcwd()
    os.chdir(root)
    folder = os.open(".", os.O_RDONLY)
    os.fchdir(folder)
    os.stat("one.txt", dir_fd=folder)
    os.access("one.txt", os.R_OK, dir_fd=folder)
    os.mkdir("sub", dir_fd=folder)
    os.rmdir("sub", dir_fd=folder)
    os.chdir(here)
    with tarfile.open(root / "all.tar.gz", "w:gz") as tar:
        tar.add(root / "tree", "tree")
    with tarfile.open(root / "all.tar.gz") as tar:
        tar.extractall(root / "out")
    with zipfile.ZipFile(root / "all.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(one, "one.txt")
    with sqlite3.connect(root / "data.db") as db:
        db.execute("pragma journal_mode=wal")
        db.execute("create table t (a)")
        db.executemany("insert into t values (?)", [(i,) for i in range(1000)])
        assert db.execute("select count(*) from t").fetchone() == (1000,)
    db.close()
    print(
        sorted(p.name for p in root.rglob("*")),
        shutil.disk_usage(root).total > 0,
        os.statvfs(root).f_bsize > 0,
    )
    os.umask(os.umask(0o22))
