"""Deliveries that are under way or have failed for good, in Redis: a sender may die at any moment.

==============================  ======  ==========================================================
``<p>:webhooks:due``            zset    delivery ids, by when they may be tried (ms)
``<p>:webhooks:dead``           zset    those that failed for good, by when (ms); the last ``kept``
``<p>:webhooks:items``          hash    delivery id → JSON of the delivery; as long as in either set
==============================  ======  ==========================================================
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib import resources
from typing import cast

from redis import Redis

from cellblock.ledger.connection import store_errors

#: The bound on deliveries under way, for all addresses together.
DUE_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Item:
    """One event for one receiver. ``tries``: how often it was tried; ``why``: how the last try failed.

    ``receiver`` is :func:`receiver_of` its address. The address may hold a token, so it is not in Redis, and
    write access to Redis does not decide where a signed event goes. ``host`` is for people.
    """

    id: str
    receiver: str
    host: str
    event_id: str
    body: str
    tries: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class TakenItem:
    """An item, and until when (ms) it belongs to this taker."""

    item: Item
    until_ms: int


def receiver_of(url: str) -> str:
    """A hash that stands for an address where the address itself must not appear."""
    return hashlib.sha256(url.encode()).hexdigest()[:16]


class Outbox:
    """The deliveries in Redis. Raises :class:`StoreUnavailable`. Thread-safe; senders may share it."""

    def __init__(self, redis: Redis, prefix: str, kept: int) -> None:
        self._redis = redis
        self._due = f"{prefix}:webhooks:due"
        self._dead = f"{prefix}:webhooks:dead"
        self._items = f"{prefix}:webhooks:items"
        self._kept = kept
        folder = resources.files(__package__)
        self._put, self._take, self._settle, self._retry = (
            redis.register_script((folder / f"{name}.lua").read_text())
            for name in ("put", "take", "settle", "retry")
        )

    def full(self) -> bool:
        """Whether ``DUE_MAX`` deliveries are under way: then new events have to wait in the stream."""
        with store_errors("counting deliveries"):
            return self._redis.zcard(self._due) >= DUE_MAX

    def put(self, items: Sequence[Item]) -> None:
        """Accepts deliveries. The same id twice counts once, also when the first has failed for good."""
        if not items:
            return
        with store_errors("accepting deliveries"):
            now, keys = self._now_ms(), [self._due, self._dead, self._items]
            for item in items:
                self._put(keys=keys, args=[item.id, now, json.dumps(asdict(item))])

    def take(self, hold_s: float) -> TakenItem | None:
        """A delivery that is due; no other sender gets it for ``hold_s`` seconds. None if there is none."""
        while True:
            with store_errors("taking a delivery"):
                now = self._now_ms()
                until_ms = now + round(1000 * hold_s)
                found = cast(str | None, self._take(keys=[self._due, self._items], args=[now, until_ms]))
            if found is None:
                return None
            if found != "gone":
                return TakenItem(Item(**json.loads(found)), until_ms)

    def delivered(self, taken: TakenItem) -> bool:
        """Notes that the receiver has taken it. Returns False if another sender had it meanwhile."""
        return self._settled(taken, "delivered", taken.item)

    def failed(self, taken: TakenItem, why: str, again_s: float | None) -> bool:
        """Notes a failed try: again after a pause, or never. Returns False if another sender had it
        meanwhile."""
        item = replace(taken.item, tries=taken.item.tries + 1, why=why)
        return self._settled(taken, "dead" if again_s is None else "again", item, again_s or 0)

    def _settled(self, taken: TakenItem, word: str, item: Item, again_s: float = 0) -> bool:
        with store_errors("noting what became of a delivery"):
            now = self._now_ms()
            again_ms = now + round(1000 * again_s)
            args: list[str | int] = [item.id, taken.until_ms, now, word, again_ms]
            args += [json.dumps(asdict(item)), self._kept]
            return bool(self._settle(keys=[self._due, self._dead, self._items], args=args) == "settled")

    def dead(self, limit: int = 100) -> list[Item]:
        """The deliveries that failed for good, latest first; ``limit`` 0: all of them."""
        with store_errors("listing failed deliveries"):
            ids = cast(list[str], self._redis.zrange(self._dead, 0, limit - 1, desc=True))
            found = cast(list[str | None], self._redis.hmget(self._items, ids)) if ids else []
        return [Item(**json.loads(text)) for text in found if text]

    def retry(self, item_id: str) -> bool:
        """Lets a failed delivery be tried again from the start. Returns whether it was one."""
        with store_errors("trying a delivery again"):
            text = cast(str | None, self._redis.hget(self._items, item_id))
            if text is None:
                return False
            fresh = json.dumps(asdict(replace(Item(**json.loads(text)), tries=0)))
            keys = [self._due, self._dead, self._items]
            return bool(self._retry(keys=keys, args=[item_id, self._now_ms(), fresh]))

    def drop(self, item_id: str) -> bool:
        """Forgets a failed delivery. Returns whether it was one."""
        with store_errors("dropping a delivery"):
            pipe = self._redis.pipeline()
            pipe.zrem(self._dead, item_id)
            if not self._redis.zscore(self._due, item_id):
                pipe.hdel(self._items, item_id)
            return bool(pipe.execute()[0])

    def _now_ms(self) -> int:
        seconds, micros = self._redis.time()
        return int(seconds) * 1000 + int(micros) // 1000
