"""How cellblock connects to Redis, and how Redis's own errors leave this package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from redis import Redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from cellblock.errors import NotConfigured, StoreUnavailable
from cellblock_config import Settings


def connect(settings: Settings) -> Redis:
    """Connect lazily to the ledger's Redis; every call fails within about four seconds.

    A broken connection is replaced and the command sent once more: it may have run already, but every
    script knows its own operation id. A server that does not answer in time is not asked again.
    """
    if settings.redis.url is None:
        raise NotConfigured(
            "no Redis is configured: set CELLBLOCK_REDIS_URL, for example redis://127.0.0.1:6379/0"
        )
    return Redis.from_url(
        settings.redis.url.get_secret_value(),
        decode_responses=True,
        socket_connect_timeout=settings.redis.connect_timeout_s,
        socket_timeout=settings.redis.socket_timeout_s,
        socket_keepalive=True,
        retry=Retry(ExponentialBackoff(cap=0.2, base=0.05), 1, supported_errors=(RedisConnectionError,)),
    )


@contextmanager
def store_errors(doing: str) -> Iterator[None]:
    """Turn Redis's exceptions into :class:`StoreUnavailable`, without the address's password."""
    try:
        yield
    except (RedisConnectionError, RedisTimeoutError) as error:
        # Its text names host, port and cause; a password is in the address only.
        raise StoreUnavailable(f"Redis cannot be reached while {doing}: {error}") from error
    except RedisError as error:
        raise StoreUnavailable(f"Redis refused while {doing}: {error}") from error
