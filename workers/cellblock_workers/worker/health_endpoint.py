"""``GET /health`` of a worker: 200 while it consumes, 503 with the reason when it does not."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cellblock.errors import StoreUnavailable
from cellblock_workers.log import get_logger
from cellblock_workers.worker.liveness import Liveness

_log = get_logger(__name__)
_REQUEST_S = 5.0
_ARCHIVE_PROBLEM = "behind, another one, or without an archiver: cellblock status says why"


class Endpoint:
    """Serves the liveness on threads of its own. Says nothing of jobs except how many there are."""

    def __init__(self, address: str, port: int, check: Callable[[], Liveness]) -> None:
        """Raises :class:`OSError` when the address is not available."""
        self._server = ThreadingHTTPServer((address, port), _handler(check))
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="endpoint", daemon=True)

    def start(self) -> None:
        """Begins to answer."""
        self._thread.start()
        _log.info("health_endpoint", port=self.port)

    def stop(self) -> None:
        """Stops answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)


def _told(liveness: Liveness) -> dict[str, object]:
    """Anyone who reaches the port reads it: that the archive is behind, and not what is archived where."""
    told = asdict(liveness)
    return {**told, "archive": None if liveness.archive is None else _ARCHIVE_PROBLEM}


def _handler(check: Callable[[], Liveness]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _REQUEST_S  # bounds one silent client

        def do_GET(self) -> None:
            if self.path != "/health":
                self._answer(404, {"error": "there is only /health"})
                return
            try:
                liveness = _told(check())
            except StoreUnavailable as error:
                liveness = {"ok": False, "reason": str(error)}
            self._answer(200 if liveness["ok"] else 503, liveness)

        def _answer(self, code: int, content: dict[str, object]) -> None:
            body = json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Does nothing: probes come every few seconds, and the worker's log already has what they are
            told."""

    return Handler
