"""A PostgreSQL of the tests' own: Debian's, on loopback, its data in a folder."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
from pathlib import Path

from parts import free_port, wait_until

PASSWORD = "a-password-of-tests"


def _binary(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        newest = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
        assert newest, "PostgreSQL is missing; run the tests with: make test"
        found = str(newest[-1])
    return str(Path(found).resolve())


class Postgres:
    """Can be killed and started again. Runs as an unprivileged user where the tests are root's."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.port = free_port()
        self.url = f"postgresql://cellblock:{PASSWORD}@127.0.0.1:{self.port}/postgres"
        self._log = folder / "postgres.log"
        self._folder = folder
        self._user = "postgres" if os.geteuid() == 0 else None
        self.process: subprocess.Popen[bytes] | None = None

    def create(self) -> None:
        """Make the data folder."""
        if self._user is not None:
            for parent in (self._folder, *self._folder.parents):
                if parent.stat().st_uid == 0 and parent != Path("/"):
                    parent.chmod(parent.stat().st_mode | 0o011)
            owner = pwd.getpwnam(self._user)
            os.chown(self._folder, owner.pw_uid, owner.pw_gid)
        password = self._folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        self._run(
            _binary("initdb"), "-D", str(self.data), "-U", "cellblock", "-A", "scram-sha-256",
            "--pwfile", str(password), "--no-sync", "-E", "UTF8", "--locale", "C",
        )  # fmt: skip

    def _run(self, *command: str) -> None:
        subprocess.run(command, check=True, user=self._user, stdout=subprocess.DEVNULL, cwd="/")

    def start(self) -> None:
        """Start it and wait until it answers."""
        options = ["-D", str(self.data), "-p", str(self.port), "-h", "127.0.0.1", "-k", ""]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [_binary("postgres"), *options], user=self._user, stdout=log, stderr=log, cwd="/"
            )
        wait_until(self._answers, 30, "PostgreSQL answering")

    def new_database(self) -> str:
        """Make an empty database, and return its address."""
        import psycopg

        name = f"jobs_{secrets.token_hex(4)}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.url.removesuffix("postgres") + name

    def stop(self) -> None:
        """End it at once, as a crash would."""
        if self.process is not None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait()
            self.process = None

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True
