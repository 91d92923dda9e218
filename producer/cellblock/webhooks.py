"""Signatures of webhooks: by them a receiver recognises our deliveries.

A delivery is a POST of one event as JSON with two headers: ``Cellblock-Event-Id``, the same for every try of
one event, and ``Cellblock-Signature: t=<unix seconds>,v1=<hex>``, HMAC-SHA256 over ``<t>.<body>``.
"""

from __future__ import annotations

import hashlib
import hmac
import time

SIGNATURE_HEADER = "Cellblock-Signature"
EVENT_HEADER = "Cellblock-Event-Id"


def sign(body: bytes, secret: str, at: float) -> str:
    """The signature header's value for a body sent at this time (unix seconds)."""
    return f"t={int(at)},v1={_digest(body, secret, str(int(at)))}"


def verify(
    body: bytes, header: str | None, secret: str, *, tolerance_s: float = 300, now: float | None = None
) -> bool:
    """Whether these bytes were signed with this secret within ``tolerance_s`` of now.

    False for a request without the header.

    >>> verify(b"{}", sign(b"{}", "a secret", time.time()), "a secret")
    True
    """
    fields = dict(part.partition("=")[::2] for part in (header or "").split(","))
    at, given = fields.get("t", ""), fields.get("v1", "")
    if not at.isascii() or not at.isdigit() or len(at) > 12 or not given.isascii():
        return False
    fresh = abs((time.time() if now is None else now) - int(at)) <= tolerance_s
    return hmac.compare_digest(_digest(body, secret, at), given) and fresh


def _digest(body: bytes, secret: str, at: str) -> str:
    return hmac.new(secret.encode(), at.encode() + b"." + body, hashlib.sha256).hexdigest()
