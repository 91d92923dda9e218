"""The Redis that ``cellblock up`` starts: jobs of every tenant lie in its files."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest
from redis import Redis

from cellblock_workers.private_redis import port_of, private_redis, reserve_port

pytestmark = pytest.mark.no_rerun

READ_ALL = """
import os, sys
for folder, _, files in os.walk(sys.argv[1]):
    for file in files:
        try: print(open(os.path.join(folder, file), errors="replace").read())
        except OSError: pass
"""


def test_no_other_user_reads_what_it_writes(tmp_path: Path) -> None:
    folder = tmp_path / "fleet"
    folder.mkdir()
    for one in (folder, *list(folder.parents)[:3]):
        one.chmod(0o755)
    with reserve_port() as port:
        service, url = private_redis(folder, port_of(port))
        process = subprocess.Popen(service.command, stdout=subprocess.DEVNULL)
        try:
            assert service.ready is not None
            service.ready(process)
            with closing(Redis.from_url(url)) as redis:
                redis.set("job", "a tenant's code")
                found = [path for path in folder.rglob("*.aof") if b"a tenant's code" in path.read_bytes()]
                assert found, "it lies in a file"
                walk = [sys.executable, "-I", "-c", READ_ALL, str(folder)]
                other = 65534 if os.geteuid() == 0 else None
                seen = subprocess.run(walk, user=other, capture_output=True, text=True, check=True).stdout
                modes = {path.name: path.stat().st_mode & 0o077 for path in folder.iterdir()}
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=20)
    assert modes == {"redis": 0}
    if other is not None:
        assert seen == ""
