"""Connections to Redis, and the translation of Redis's errors into cellblock's."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from redis import Redis
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.client import NEVER_DECODE, Pipeline
from redis.exceptions import AuthenticationError, OutOfMemoryError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError, Sentinel

from cellblock.errors import NotConfigured, StoreFull, StoreUnavailable
from cellblock_config import RedisAddress, RedisSettings, Settings

_PIECE_BYTES = 1024 * 1024
_T = TypeVar("_T")
#: No further call begins after this time.
_CALL_AGAIN_S, _PAUSE_S = 2.0, 0.1


class NoAnswer(StoreUnavailable):
    """No answer came: whether the command ran is not known."""


#: No program listens on this port of this host.
_REFUSED_HERE = re.compile(r"\b(127\.0\.0\.1|localhost)\b.*\brefused\b", re.DOTALL)
_PIPELINED = re.compile(r"^Command # \d+ \(.*\) of pipeline caused error: ", re.DOTALL)


def address_of(settings: Settings, *, broker: bool = False) -> RedisAddress:
    """The address of the ledger, or (``broker``) of Celery's queues. Raises :class:`NotConfigured`."""
    url = settings.redis.broker_url if broker and settings.redis.broker_url else settings.redis.url
    if url is None:
        raise NotConfigured(
            "no Redis is configured: set CELLBLOCK_REDIS_URL, for example redis://127.0.0.1:6379/0"
        )
    return RedisAddress.parse(url.get_secret_value())


def connect(settings: Settings, *, broker: bool = False) -> Redis:
    """Connects to the ledger's Redis on the first call; every call fails within about four seconds.

    A broken connection is replaced and the command sent once more: it might have run already, but every
    script recognises its own operation id. A server that does not answer in time is not asked again. With
    sentinels each new connection asks them for the master.
    """
    address = address_of(settings, broker=broker)
    options: dict[str, Any] = {
        "decode_responses": True,
        "socket_connect_timeout": settings.redis.connect_timeout_s,
        "socket_timeout": settings.redis.socket_timeout_s,
        "socket_keepalive": True,
        "health_check_interval": 5,  # finds subscriptions whose server is gone
        "retry": Retry(ExponentialBackoff(cap=0.2, base=0.05), 1, supported_errors=(RedisConnectionError,)),
        **tls_options(address, settings.redis),
    }
    login: dict[str, Any] = {"db": address.db, "username": address.username, "password": address.password}
    if address.service is None:
        ((host, port),) = address.hosts
        return Redis(host=host, port=port, **login, **options)
    spoken = sentinel_options(address, settings.redis)
    sentinels = Sentinel(address.hosts, sentinel_kwargs=spoken, **options)  # type: ignore[no-untyped-call]
    return cast(Redis, sentinels.master_for(address.service, **login))  # type: ignore[no-untyped-call]


def tls_options(address: RedisAddress, settings: RedisSettings) -> dict[str, Any]:
    """Options of redis-py for TLS. The server's certificate and its name are always checked."""
    if not address.tls:
        return {}
    files = {
        "ssl_ca_certs": settings.tls_ca,
        "ssl_certfile": settings.tls_cert,
        "ssl_keyfile": settings.tls_key,
    }
    return {
        "ssl": True,
        "ssl_cert_reqs": "required",
        "ssl_check_hostname": True,
        **{name: str(path) for name, path in files.items() if path is not None},
    }


def sentinel_options(address: RedisAddress, settings: RedisSettings) -> dict[str, Any]:
    """Options of redis-py for connections to the sentinels, which have a login of their own."""
    password = settings.sentinel_password
    return {
        "retry": Retry(NoBackoff(), 0),  # there is another one to ask
        "socket_connect_timeout": settings.connect_timeout_s,
        "socket_timeout": settings.socket_timeout_s,
        "password": password.get_secret_value() if password else None,
        **tls_options(address, settings),
    }


def server_ms(redis: Redis) -> int:
    """The server's clock, in milliseconds since 1970: the only clock by which the ledger decides."""
    seconds, micros = redis.time()
    return int(seconds) * 1000 + int(micros) // 1000


def get_bytes(redis: Redis | Pipeline, key: str) -> Any:
    """GET of a payload or a result, as bytes; in a pipeline, its reply comes with the others.

    As text it would be four times as long in memory with one character beyond U+FFFF, and tenants write it.
    """
    return redis.execute_command("GET", key, **{NEVER_DECODE: True})  # type: ignore[no-untyped-call]


def get_in_pieces(redis: Redis, key: str) -> bytearray:
    """The value of a key in one piece of memory: a reply as long as the value would be held several times."""
    value = bytearray(redis.strlen(key))
    for start in range(0, len(value), _PIECE_BYTES):
        end = start + _PIECE_BYTES - 1
        piece = redis.execute_command("GETRANGE", key, start, end, **{NEVER_DECODE: True})  # type: ignore[no-untyped-call]
        value[start : start + len(piece)] = piece
    return value


def until_answered(call: Callable[[], _T]) -> _T:
    """What this call returns. Where no answer comes, calls again for two seconds, and ends within about four.

    For calls that change nothing when they are repeated.
    """
    last = time.monotonic() + _CALL_AGAIN_S
    while True:
        try:
            return call()
        except NoAnswer:
            if time.monotonic() > last:
                raise
            time.sleep(_PAUSE_S)


@contextmanager
def store_errors(doing: str) -> Iterator[None]:
    """Turns Redis's exceptions into :class:`StoreUnavailable`, without the address's password."""
    try:
        yield
    except (AuthenticationError, MasterNotFoundError) as error:
        raise StoreUnavailable(_out_of_reach(doing, error)) from error
    except (RedisConnectionError, RedisTimeoutError) as error:
        raise NoAnswer(_out_of_reach(doing, error)) from error
    except OutOfMemoryError as error:
        raise StoreFull(
            f"Redis has no memory left while {doing}: give it more maxmemory, or keep results for a shorter "
            "time (CELLBLOCK_LEDGER_RESULT_TTL_S)"
        ) from error
    except RedisError as error:
        error.args = (_without_command(error),)  # also in a traceback
        raise StoreUnavailable(f"Redis refused while {doing}: {error}{_remedy(error)}") from error


def _without_command(error: RedisError) -> str:
    """Redis's own text. redis-py puts a pipeline's command before it, and a command can hold a payload."""
    return _PIPELINED.sub("", str(error))


def _remedy(error: RedisError) -> str:
    if "DB index is out of range" not in str(error):
        return ""
    return "; the number at the end of CELLBLOCK_REDIS_URL names no database of it: /0 is always there"


def _out_of_reach(doing: str, error: RedisError) -> str:
    """The message with its remedy. The error's text names host, port and cause, never the password."""
    text = str(error)
    if isinstance(error, AuthenticationError) or "HELLO must be called" in text:
        return f"Redis refused the login while {doing}: check user and password in CELLBLOCK_REDIS_URL"
    if isinstance(error, MasterNotFoundError):  # its own text describes redis-py's internals
        return (
            f"no sentinel named a master while {doing}: check the addresses and the service's name in "
            "CELLBLOCK_REDIS_URL, and CELLBLOCK_REDIS_SENTINEL_PASSWORD"
        )
    remedy = "is it running, and is CELLBLOCK_REDIS_URL its address (rediss:// for TLS)?"
    if _REFUSED_HERE.search(text):
        remedy += " If `cellblock up` printed it, that fleet has ended: unset CELLBLOCK_REDIS_URL"
    if "CERTIFICATE" in text:
        remedy = "set CELLBLOCK_REDIS_TLS_CA to the file of the authority that signed it"
    return f"Redis cannot be reached while {doing}: {text.rstrip('.')}; {remedy}"
