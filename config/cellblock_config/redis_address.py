"""The address of Redis: one server, or the master that a set of sentinels names."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

_PORT, _SENTINEL_PORT = 6379, 26_379
_SCHEMES = ("redis", "rediss", "redis+sentinel", "rediss+sentinel")
EXAMPLES = "redis://127.0.0.1:6379/0, or redis+sentinel://a:26379,b:26379/0?service=mymaster"


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """A parsed address. ``service``: the master's name, where ``hosts`` are sentinels; else None."""

    hosts: tuple[tuple[str, int], ...]
    db: int
    username: str | None
    password: str | None
    tls: bool
    service: str | None

    @classmethod
    def parse(cls, url: str) -> RedisAddress:
        """Parses an address. Raises :class:`ValueError` that says what is wrong, without any secret."""
        scheme, _, rest = url.partition("://")
        if scheme not in _SCHEMES:
            raise ValueError(f"must start with {', '.join(f'{one}://' for one in _SCHEMES)}: {EXAMPLES}")
        sentinels = scheme.endswith("+sentinel")
        place, _, query = rest.partition("?")
        netloc, _, path = place.partition("/")
        user, _, hosts = netloc.rpartition("@")
        name, _, password = user.partition(":")
        options = parse_qs(query)
        if unknown := sorted(set(options) - {"service"}):
            raise ValueError(f"has options that are not known: {', '.join(unknown)}; {EXAMPLES}")
        service = options.get("service", [""])[0]
        if sentinels and not service:
            raise ValueError(f"names sentinels and not the service they watch: {EXAMPLES}")
        db = path.strip("/") or "0"
        if not (db.isascii() and db.isdigit() and len(db) <= 5):
            raise ValueError(f"names a database that is not a number: {EXAMPLES}")
        default = _SENTINEL_PORT if sentinels else _PORT
        found = tuple(_host(one, default) for one in hosts.split(","))
        if len(found) > 1 and not sentinels:
            raise ValueError("names several hosts: only redis+sentinel:// takes more than one")
        return cls(
            hosts=found,
            db=int(db),
            username=unquote(name) or None,
            password=unquote(password) or None,
            tls=scheme.startswith("rediss"),
            service=service if sentinels else None,
        )


def _host(text: str, default: int) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    try:
        port = parts.port
    except ValueError:
        raise ValueError("names a port that is not a number from 0 to 65535") from None
    return parts.hostname or "localhost", default if port is None else port
