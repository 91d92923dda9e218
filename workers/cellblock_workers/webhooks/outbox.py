"""Deliveries that are under way or have failed for good, in Redis: a sender may die at any moment.

==============================  ======  ==========================================================
``<p>:webhooks:due``            zset    delivery ids, by when they may be tried (ms)
``<p>:webhooks:dead``           zset    those that failed for good, by when (ms); the last ``kept``
``<p>:webhooks:items``          hash    delivery id → JSON of the delivery; as long as in either set
==============================  ======  ==========================================================
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import cast

from redis import Redis

from cellblock.ledger.connection import store_errors

_TAKE = """
local id = redis.call('ZRANGE', KEYS[1], '-inf', ARGV[1], 'BYSCORE', 'LIMIT', 0, 1)[1]
if not id then return nil end
redis.call('ZADD', KEYS[1], ARGV[2], id)
return redis.call('HGET', KEYS[2], id) or id
"""


@dataclass(frozen=True, slots=True)
class Item:
    """One event for one address. ``tries``: how often it was tried; ``why``: how the last try failed."""

    id: str
    url: str
    event_id: str
    body: str
    tries: int = 0
    why: str = ""


class Outbox:
    """Raises :class:`StoreUnavailable`. Thread-safe; any number of senders may share it."""

    def __init__(self, redis: Redis, prefix: str, kept: int) -> None:
        self._redis = redis
        self._due = f"{prefix}:webhooks:due"
        self._dead = f"{prefix}:webhooks:dead"
        self._items = f"{prefix}:webhooks:items"
        self._kept = kept
        self._take = redis.register_script(_TAKE)

    def put(self, items: Sequence[Item]) -> None:
        """Accept deliveries; the same id twice is one."""
        if not items:
            return
        with store_errors("accepting deliveries"):
            now = self._now_ms()
            pipe = self._redis.pipeline()
            for item in items:
                pipe.hsetnx(self._items, item.id, json.dumps(asdict(item)))
                pipe.zadd(self._due, {item.id: now}, nx=True)
            pipe.execute()

    def take(self, hold_s: float) -> Item | None:
        """A delivery that is due; nobody else gets it for ``hold_s``. None if there is none."""
        with store_errors("taking a delivery"):
            now = self._now_ms()
            found = cast(
                str | None, self._take(keys=[self._due, self._items], args=[now, now + round(1000 * hold_s)])
            )
        if found is None:
            return None
        if not found.startswith("{"):  # its item is gone: an operator dropped it
            with store_errors("forgetting a delivery"):
                self._redis.zrem(self._due, found)
            return self.take(hold_s)
        return Item(**json.loads(found))

    def delivered(self, item: Item) -> None:
        """It was taken at the other end."""
        with store_errors("noting a delivery"):
            pipe = self._redis.pipeline()
            pipe.zrem(self._due, item.id)
            pipe.hdel(self._items, item.id)
            pipe.execute()

    def failed(self, item: Item, why: str, again_s: float | None) -> None:
        """A try failed: again after a pause, or never."""
        with store_errors("noting a failed delivery"):
            now = self._now_ms()
            pipe = self._redis.pipeline()
            pipe.hset(self._items, item.id, json.dumps(asdict(replace(item, tries=item.tries + 1, why=why))))
            if again_s is not None:
                pipe.zadd(self._due, {item.id: now + round(1000 * again_s)})
            else:
                pipe.zrem(self._due, item.id)
                pipe.zadd(self._dead, {item.id: now})
            pipe.execute()
            if again_s is None:
                self._forget_oldest()

    def dead(self, limit: int = 100) -> list[Item]:
        """Those that failed for good, latest first."""
        with store_errors("listing failed deliveries"):
            ids = cast(list[str], self._redis.zrange(self._dead, 0, limit - 1, desc=True))
            found = cast(list[str | None], self._redis.hmget(self._items, ids)) if ids else []
        return [Item(**json.loads(text)) for text in found if text]

    def retry(self, item_id: str) -> bool:
        """Let a failed one be tried again from the start. Whether it was one."""
        with store_errors("trying a delivery again"):
            text = cast(str | None, self._redis.hget(self._items, item_id))
            if text is None or not self._redis.zrem(self._dead, item_id):
                return False
            item = Item(**json.loads(text))
            pipe = self._redis.pipeline()
            pipe.hset(self._items, item_id, json.dumps(asdict(replace(item, tries=0))))
            pipe.zadd(self._due, {item_id: self._now_ms()})
            pipe.execute()
        return True

    def _forget_oldest(self) -> None:
        too_many = cast(list[str], self._redis.zrange(self._dead, 0, -1 - self._kept))
        if too_many:
            pipe = self._redis.pipeline()
            pipe.zrem(self._dead, *too_many)
            pipe.hdel(self._items, *too_many)
            pipe.execute()

    def _now_ms(self) -> int:
        seconds, micros = self._redis.time()
        return int(seconds) * 1000 + int(micros) // 1000
