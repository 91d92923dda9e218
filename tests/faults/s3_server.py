"""A server that speaks S3, of the tests' own: moto's."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import httpx

from parts import free_port, wait_until

BUCKET = "blobs"


class S3Server:
    """Started with one bucket; what it holds ends with its process."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self._log = folder / "moto.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def variables(self) -> dict[str, str]:
        """What a process needs to use it."""
        return {
            "CELLBLOCK_BLOBS_URL": f"s3://{BUCKET}/jobs",
            "CELLBLOCK_BLOBS_TIMEOUT_S": "4",
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "a-secret-of-tests",
            "AWS_REGION": "us-east-1",
        }

    def start(self) -> None:
        """Start it, and make the bucket."""
        program = [str(Path(sys.executable).parent / "moto_server"), "-H", "127.0.0.1", "-p", str(self.port)]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(program, stdout=log, stderr=log)
        wait_until(self._answers, 30, "moto answering")

    def stop(self) -> None:
        """End it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def freeze(self) -> None:
        """It takes connections and answers none."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """It answers again."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def names(self) -> list[str]:
        """All it holds."""
        text = httpx.get(f"{self.endpoint}/{BUCKET}?list-type=2", timeout=5).text
        return [part.partition("</Key>")[0] for part in text.split("<Key>")[1:]]

    def _answers(self) -> bool:
        try:
            return httpx.put(f"{self.endpoint}/{BUCKET}", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False
