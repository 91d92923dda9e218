"""API keys: each belongs to one tenant and allows nothing but runs.

A key is ``cbk_<id>_<secret>``. Redis keeps its id, tenant, capabilities and the SHA-256 of the secret, so a
reader of Redis cannot use a key. The secret is 256 random bits, so no slower hash is needed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import Sequence
from typing import cast

from pydantic import BaseModel, ConfigDict, Field
from redis import Redis

from cellblock.admission.policy import Principal
from cellblock.admission.policy.decision import RUN
from cellblock.contract.names import check_tenant
from cellblock.errors import InvalidJob, PolicyDenied
from cellblock.ledger.connection import store_errors
from cellblock.ledger.keys import Keys

_TOKEN = re.compile(r"cbk_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
#: All capabilities that a key can carry: running, and tools. A key gives access to no other endpoint.
_CAPABILITY = re.compile(r"agent\.run\.invoke|tool\.[a-z][a-z0-9_-]{0,63}\.invoke")


_REPLACE = (
    "if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end\n"
    "redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) return 1"
)


class ApiKey(BaseModel):
    """A stored key, without its secret."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    tenant: str
    capabilities: tuple[str, ...]
    created: float = Field(description="Unix seconds.")
    digest: str = Field(exclude=True, repr=False)


class ApiKeys:
    """The keys of a fleet. Thread-safe. Raises :class:`StoreUnavailable`."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis = redis
        self._stored = keys.api_keys
        self._replace = redis.register_script(_REPLACE)

    def create(self, tenant: str, capabilities: Sequence[str] = (RUN,)) -> str:
        """A new key, shown only now. Raises :class:`InvalidJob` for a capability that no key can have."""
        check_tenant(tenant)
        if not capabilities:
            raise InvalidJob("capability", f"a key without any could do nothing; the usual one is {RUN}")
        for one in capabilities:
            if not _CAPABILITY.fullmatch(one):
                raise InvalidJob(
                    "capability", f"{one!r:.80}: a key carries {RUN} and tool.<name>.invoke only"
                )
        key_id = secrets.token_hex(8)
        token, stored = _issued(key_id, tenant, tuple(dict.fromkeys(capabilities)))
        with store_errors("storing an API key"):
            self._redis.hset(self._stored, key_id, stored)
        return token

    def list(self) -> list[ApiKey]:
        """All keys, oldest first."""
        with store_errors("listing API keys"):
            found = cast(dict[str, str], self._redis.hgetall(self._stored))
        return sorted((_parsed(text) for text in found.values()), key=lambda one: one.created)

    def rotate(self, key_id: str) -> str:
        """The key with a new secret; the old one is invalid from now on. Raises :class:`InvalidJob`."""
        known = self._find(key_id)
        if known is None:
            raise InvalidJob("KEY", "there is no key of this id; cellblock api-key list shows them")
        token, stored = _issued(known.id, known.tenant, known.capabilities)
        with store_errors("storing an API key"):
            # A key that was revoked meanwhile must not come back.
            if not self._replace(keys=[self._stored], args=[known.id, stored]):
                raise InvalidJob("KEY", "it was revoked meanwhile")
        return token

    def revoke(self, key_id: str) -> bool:
        """Revokes a key, named by its id or whole. Returns whether it existed."""
        match = _TOKEN.fullmatch(key_id)
        key_id = match[1] if match else key_id
        with store_errors("revoking an API key"):
            return bool(self._redis.hdel(self._stored, key_id))

    def principal(self, token: str) -> Principal:
        """The principal of this key. Raises :class:`PolicyDenied`, whose text does not show the key."""
        match = _TOKEN.fullmatch(token)
        known = self._find(match[1]) if match else None
        given = _digest(match[2] if match else "")
        if known is None or not hmac.compare_digest(known.digest, given):
            raise PolicyDenied("api_key", "no such key, or it was revoked or rotated")
        return Principal(key_id=known.id, tenant=known.tenant, capabilities=known.capabilities)

    def _find(self, key_id: str) -> ApiKey | None:
        with store_errors("looking for an API key"):
            text = cast(str | None, self._redis.hget(self._stored, key_id))
        return _parsed(text) if text is not None else None


def _issued(key_id: str, tenant: str, capabilities: tuple[str, ...]) -> tuple[str, str]:
    """A new token, and the text to store for it."""
    secret = secrets.token_urlsafe(32)
    stored = {
        "id": key_id,
        "tenant": tenant,
        "capabilities": capabilities,
        "created": time.time(),
        "digest": _digest(secret),
    }
    return f"cbk_{key_id}_{secret}", json.dumps(stored)


def _parsed(text: str) -> ApiKey:
    return ApiKey.model_validate_json(text)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
