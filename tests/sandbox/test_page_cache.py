"""Finding L12: a job must not drop from memory what others read."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import pytest

from cellblock import Outcome
from sandbox.conftest import Run
from sandbox.harness import Host

#: A module of the image that nothing imports here.
NAME = "turtle.py"
DROPS = f"""
import os, sysconfig
file = os.open(sysconfig.get_path("stdlib") + "/{NAME}", os.O_RDONLY)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
"""
ADVISES = """
import os, tempfile
with tempfile.TemporaryFile() as file:
    file.write(b"x" * 100_000)
    for name in ("NORMAL", "SEQUENTIAL", "RANDOM", "NOREUSE", "WILLNEED", "DONTNEED"):
        os.posix_fadvise(file.fileno(), 0, 0, getattr(os, "POSIX_FADV_" + name))
    file.seek(0)
    result = len(file.read())
"""


def pages_in_memory(file: Path) -> int:
    """How many pages of it the kernel holds; looking changes nothing."""
    size = file.stat().st_size
    descriptor = os.open(file, os.O_RDONLY)
    try:
        with mmap.mmap(
            descriptor, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE
        ) as held:
            count = -(-size // mmap.PAGESIZE)
            vector = (ctypes.c_ubyte * count)()
            begin = ctypes.c_char.from_buffer(held)
            libc = ctypes.CDLL(None, use_errno=True)
            failed = libc.mincore(ctypes.c_void_p(ctypes.addressof(begin)), ctypes.c_size_t(size), vector)
            del begin
            assert failed == 0, os.strerror(ctypes.get_errno())
            return sum(one & 1 for one in vector)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("name", ["namespaces", "runc-oci", "gvisor-oci"])
def test_what_others_read_stays_in_memory(sandbox_hosts: dict[str, Host], run: Run, name: str) -> None:
    roots = sandbox_hosts[name].settings.launcher.image_roots
    [file] = (roots / "python" / "rootfs").glob(f"usr/**/python3.*/{NAME}")
    file.read_bytes()
    before = pages_in_memory(file)
    assert before > 10
    assert run(DROPS, way=name).outcome is Outcome.OK
    assert pages_in_memory(file) > before // 2  # dropped, nearly all are gone; the host itself may take one


def test_programs_may_give_every_advice(run: Run, way: str) -> None:
    assert run(ADVISES, way=way).value == 100_000
