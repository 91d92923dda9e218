"""One try of one delivery."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import httpx

from cellblock.webhooks import EVENT_HEADER, SIGNATURE_HEADER, sign
from cellblock_workers.webhooks.addresses import AddressRefused, permitted


class Delivery:
    """Posts events. Thread-safe."""

    def __init__(self, secret: str, *, timeout_s: float, allow_private: bool) -> None:
        self._secret = secret
        self._allow_private = allow_private
        self._timeout_s = timeout_s
        # No redirects: they would lead where nobody looked. No proxies or .netrc from the environment. A
        # connection for each try: its deadline is the connection's.
        self._http = httpx.Client(
            timeout=timeout_s,
            follow_redirects=False,
            trust_env=False,
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    def post(self, url: str, event_id: str, body: bytes) -> str | None:
        """Try once. None if it was taken (any 2xx), else why not, without the address's secrets."""
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        try:
            address = permitted(host, port, allow_private=self._allow_private)
            status = self._send(url, address, host, event_id, body)
        except AddressRefused as refusal:
            return str(refusal)
        except (httpx.HTTPError, OSError) as error:
            return f"{host} did not answer: {type(error).__name__}"
        return None if 200 <= status < 300 else f"{host} answered {status}"

    def close(self) -> None:
        """Close every connection."""
        self._http.close()

    def _send(self, url: str, address: str, host: str, event_id: str, body: bytes) -> int:
        """To the address that was looked at, under the name that was asked for."""
        pinned = httpx.URL(url).copy_with(host=address)
        headers = {
            "Host": httpx.URL(url).netloc.decode(),
            "Content-Type": "application/json",
            "User-Agent": "cellblock-webhooks",
            EVENT_HEADER: event_id,
            SIGNATURE_HEADER: sign(body, self._secret, time.time()),
        }
        deadline = _Deadline(self._timeout_s)
        extensions = {"sni_hostname": host, "trace": deadline.on_event}
        request = self._http.build_request(
            "POST", pinned, content=body, headers=headers, extensions=extensions
        )
        with deadline:
            answer = self._http.send(request, stream=True)
            answer.close()  # of an answer nothing but its status counts
        return answer.status_code


class _Deadline:
    """Ends a try as a whole: httpx bounds each read of its own, and one byte is enough for it to go on."""

    def __init__(self, timeout_s: float) -> None:
        self._timer = threading.Timer(timeout_s, self._end)
        self._timer.daemon = True
        self._lock = threading.Lock()
        self._over = False
        self._socket: socket.socket | None = None

    def on_event(self, name: str, info: Mapping[str, Any]) -> None:
        """httpx's trace: hear of the connection as soon as there is one."""
        if name in {"connection.connect_tcp.complete", "connection.start_tls.complete"}:  # two objects
            with self._lock:
                self._socket = info["return_value"].get_extra_info("socket")
                if self._over:  # it came while the name and the connection took too long
                    self._cut()

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def _end(self) -> None:
        with self._lock:
            self._over = True
            self._cut()

    def _cut(self) -> None:
        if self._socket is not None:
            with suppress(OSError):  # it has ended by itself
                self._socket.shutdown(socket.SHUT_RDWR)
