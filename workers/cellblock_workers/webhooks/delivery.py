"""One try of one delivery."""

from __future__ import annotations

import time
from urllib.parse import urlsplit

import httpx

from cellblock.admission.policy.deadline import Deadline
from cellblock.webhooks import EVENT_HEADER, SIGNATURE_HEADER, sign
from cellblock_workers.webhooks.addresses import AddressRefused, permitted


class Delivery:
    """Posts events. Thread-safe."""

    def __init__(self, secret: str, *, timeout_s: float, allow_private: bool) -> None:
        self._secret = secret
        self._allow_private = allow_private
        self._timeout_s = timeout_s
        # No redirects: they would lead to addresses that were not checked. No proxies or .netrc from the
        # environment. A connection for each try: its deadline is the connection's.
        self._http = httpx.Client(
            timeout=timeout_s,
            follow_redirects=False,
            trust_env=False,
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    def post(self, url: str, event_id: str, body: bytes) -> str | None:
        """Tries once. Returns None for any 2xx, else why it failed, without the address's secrets."""
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        try:
            address = permitted(host, port, allow_private=self._allow_private)
            status = self._send(url=url, address=address, host=host, event_id=event_id, body=body)
        except AddressRefused as refusal:
            return str(refusal)
        except (httpx.HTTPError, OSError) as error:
            return f"{host} did not answer: {type(error).__name__}"
        return None if 200 <= status < 300 else f"{host} answered {status}"

    def close(self) -> None:
        """Closes every connection."""
        self._http.close()

    def _send(self, url: str, address: str, host: str, event_id: str, body: bytes) -> int:
        """Sends to the address that was checked, under the name that was asked for. Returns the status."""
        pinned = httpx.URL(url).copy_with(host=address)
        headers = {
            "Host": httpx.URL(url).netloc.decode(),
            "Content-Type": "application/json",
            "User-Agent": "cellblock-webhooks",
            EVENT_HEADER: event_id,
            SIGNATURE_HEADER: sign(body, self._secret, time.time()),
        }
        deadline = Deadline(self._timeout_s)
        extensions = {"sni_hostname": host, "trace": deadline.on_event}
        request = self._http.build_request(
            "POST", pinned, content=body, headers=headers, extensions=extensions
        )
        with deadline:
            answer = self._http.send(request, stream=True)
            answer.close()  # only the status of an answer counts
        return answer.status_code
