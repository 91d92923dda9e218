"""The rights of each kind of process in Redis, as users of its ACL (Redis 7).

Redis runs a script with the rights of its caller, so a process that admits jobs may write all that ``admit``
writes. These users keep each process away from the server's administration and from keys that other processes
need; signing.py protects the contents of a job.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from cellblock.errors import NotConfigured
from cellblock.ledger.keys import Keys, literal

_TALK = "auth hello ping quit select multi exec discard watch unwatch time"
_HEARS = "subscribe psubscribe unsubscribe punsubscribe"
#: Commands that run scripts. A script has the rights of its caller, and no more.
_SCRIPTS = "evalsha script|load script|exists"
_LOOKS = (
    "exists get hexists hget hgetall hkeys hmget llen lrange mget scard sismember smembers srandmember ttl "
    "xinfo xlen xpending xrange xrevrange zcard zcount zmscore zrandmember zrange zrevrange zscan zscore "
    "lindex pttl strlen getrange"
)
_CHANGES = (
    "del expire hdel hincrby hset hsetnx ltrim publish rpush sadd set srem xadd xtrim zadd zpopmin zrem "
    "zremrangebyscore"
)
_STREAM = "xack xautoclaim xgroup xread xreadgroup"
#: Celery's transport, kombu.
_QUEUES = (
    "brpop del get hdel hget hset lpush lrem publish rpop rpush sadd set smembers srem zadd zrem "
    "zrangebyscore zrevrangebyscore"
)

#: Celery's events. A user that subscribes to a pattern needs exactly this pattern in its rights.
_EVENTS = "<p>:broker:/<db>.celeryev/* <p>:broker:/*"
#: The channel on which Flower asks workers about their state.
_QUESTIONS = "<p>:broker:/<db>.celery.pidbox"
_JOBS = (
    "job:* spec:* result:* attempts:* delayed ready:* slots:* lane_turns lane_heads parked plan_shares "
    "leases deadlines dead upkeep leader store kept:* keepers crowded pressure blobs freed_blobs line:* "
    "account:* events schema broker:*"
)


@dataclass(frozen=True, slots=True)
class Role:
    """One user of Redis: the keys it writes, the keys it reads, its channels and its commands."""

    name: str
    changes: str
    reads: str
    channels: str
    commands: str

    def rules(self, prefix: str, db: int, password: str) -> str:
        """Its line of an ACL file, with a digest in place of the password."""
        mine = literal(prefix)
        words = ["user", f"cellblock-{self.name}", "reset", "on"]
        words.append(f"#{hashlib.sha256(password.encode()).hexdigest()}")
        words += [f"~{mine}:{one}" for one in self.changes.split()]
        words += [f"%R~{mine}:{one}" for one in self.reads.split()]
        words += [f"&{one.replace('<p>', mine).replace('<db>', str(db))}" for one in self.channels.split()]
        words += ["-@all", *(f"+{one}" for one in sorted(set(self.commands.split())))]
        return " ".join(words)


ROLES = (
    Role(
        "producer",
        changes=f"{_JOBS} workers rate:* idempotency:*",
        reads="governance api-keys worker:*",
        channels=f"<p>:done:* <p>:control {_EVENTS}",
        commands=f"{_TALK} {_HEARS} {_SCRIPTS} {_LOOKS} {_CHANGES} {_STREAM} {_QUEUES} info",
    ),
    Role(
        "worker",
        changes=f"{_JOBS} worker:* workers idempotency:*",
        reads="",
        channels=f"<p>:done:* <p>:control {_EVENTS} {_QUESTIONS}",
        commands=f"{_TALK} {_HEARS} {_SCRIPTS} {_LOOKS} {_CHANGES} {_QUEUES} info",
    ),
    Role(
        "webhooks",
        changes="events schema webhooks:*",
        reads="upkeep",
        channels="",
        commands=f"{_TALK} {_SCRIPTS} {_LOOKS} {_CHANGES} {_STREAM} info",
    ),
    Role(
        "archiver",
        changes="events schema upkeep blobs freed_blobs",
        reads="job:* result:* keepers kept:* account:*",
        channels="",
        commands=f"{_TALK} {_SCRIPTS} {_LOOKS} {_CHANGES} {_STREAM} info",
    ),
    Role(
        "monitor",
        changes="broker:_kombu.* broker:celeryev.* broker:*.reply.celery.pidbox* broker:unacked_mutex",
        reads="broker:* events upkeep",
        channels=_EVENTS,
        commands=(
            f"{_TALK} {_HEARS} {_SCRIPTS} {_LOOKS} xread "
            "brpop del publish sadd set srem zadd zrangebyscore zrem zrevrangebyscore info"
        ),
    ),
    Role(
        "operator",
        changes="*",
        reads="",
        channels="<p>:*",
        commands=(
            f"{_TALK} {_HEARS} {_SCRIPTS} {_LOOKS} {_CHANGES} {_STREAM} {_QUEUES} info scan script|kill "
            "acl|log acl|whoami slowlog memory|usage client|list"
        ),
    ),
    Role(  # a copy has the whole server, whichever keys its user may name
        "backup",
        changes="*",
        reads="",
        channels="",
        commands="auth hello ping quit select info get set del scan dump pttl restore psync replconf sync",
    ),
)


@dataclass(frozen=True, slots=True)
class Access:
    """``acl``: the text of the server's ACL file, without secrets. ``passwords``: by the user's name."""

    acl: str
    passwords: Mapping[str, str]


def new_access(keys: Keys, db: int) -> Access:
    """Users for this fleet with fresh passwords. ``db``: the database of its queues.

    Raises :class:`NotConfigured` for a prefix with blanks or quotes.
    """
    if any(one.isspace() or one in "\"'" for one in keys.prefix):
        raise NotConfigured(
            f"redis.key_prefix {keys.prefix!r} has a blank or a quote, which an ACL file cannot hold"
        )
    passwords = {role.name: secrets.token_urlsafe(32) for role in ROLES}
    lines = ["user default reset off", *(role.rules(keys.prefix, db, passwords[role.name]) for role in ROLES)]
    named = {f"cellblock-{name}": password for name, password in passwords.items()}
    return Access("".join(f"{line}\n" for line in lines), named)
