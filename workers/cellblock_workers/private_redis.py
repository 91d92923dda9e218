"""A Redis that one fleet has for itself, and the ports it is given."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from cellblock.errors import NotConfigured
from cellblock_workers.process_environment import REDIS_SERVER, environment_of
from cellblock_workers.supervisor import Service


def private_redis(folder: Path, port: int) -> tuple[Service, str]:
    """A Redis for this fleet alone: on loopback, with its own password; its data ends with it."""
    binary = shutil.which("redis-server")
    if binary is None:
        raise NotConfigured(
            "redis-server is not installed and CELLBLOCK_REDIS_URL is not set: apt-get install redis-server"
        )
    password = secrets.token_urlsafe(24)
    # Other users enter the fleet's folder, for its socket. They could read what Redis writes there.
    folder = folder / "redis"
    folder.mkdir(mode=0o700)
    config, log = folder / "redis.conf", folder / "redis.log"
    config.write_text(
        f"bind 127.0.0.1\nport {port}\nrequirepass {password}\ndir {folder}\n"
        'save ""\nappendonly yes\nmaxmemory 512mb\nmaxmemory-policy noeviction\nloglevel warning\n'
        f"logfile {log}\n"
    )
    # Redis takes an empty user name for `default`; redis-cli sends it as it is and is refused.
    url = f"redis://default:{password}@127.0.0.1:{port}/0"
    redis = Service(
        "redis",
        [sys.executable, "-P", "-m", "cellblock_workers.parent_death", binary, str(config)],
        environment_of(REDIS_SERVER, os.environ),
        essential=True,
        ready=lambda process: _wait_for_redis(url, process, log),
    )
    return redis, url


def _wait_for_redis(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 10
    with closing(Redis.from_url(url)) as redis:
        while True:
            try:
                redis.ping()
                return
            except RedisError:
                if process.poll() is not None or time.monotonic() > deadline:
                    said = log.read_text(errors="replace") if log.exists() else ""
                    why = said.strip().rpartition("\n")[2] or "its lines above may say why"
                    raise NotConfigured(f"the private Redis did not answer within 10 s: {why}") from None
                time.sleep(0.02)


def reserve_port() -> socket.socket:
    """A socket that keeps a free loopback port for a server that is about to start.

    It is bound and does not listen. Until it is closed, Linux gives the port to no process that asks for any
    port; a server that names the port and sets SO_REUSEADDR, as servers do, gets it.
    """
    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # only now: before, bind() may share a port
    return held


def port_of(held: socket.socket) -> int:
    """The port that a socket of :func:`reserve_port` keeps."""
    return int(held.getsockname()[1])
