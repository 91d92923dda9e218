"""Consumer groups on the event stream: each event goes to one consumer of each group, at least once."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import cast

from redis import Redis
from redis.exceptions import ResponseError

from cellblock.contract.events import Event
from cellblock.errors import StoreUnavailable
from cellblock.ledger.connection import store_errors
from cellblock.ledger.event_retention import EventStream, gap_to, id_of
from cellblock.ledger.keys import Keys
from cellblock.ledger.reads import entries, readable
from cellblock.ledger.server import check_schema

#: The group of `cellblock webhooks`; no other reader may use it.
WEBHOOKS_GROUP = "webhooks"
#: One blocking read must not outlast the socket's own timeout.
_STEP_S = 1.0
#: A consumer that has been idle for this long is removed, and the pause between two searches for them.
_CONSUMER_IDLE_S = 86_400.0
_PRUNE_S = 3600.0


@dataclass(frozen=True, slots=True)
class Delivery:
    """Events for one consumer to acknowledge.

    ``again``: they were delivered before, to a consumer that did not acknowledge them: it may have ended over
    one of them.
    """

    events: list[Event]
    again: bool = False


class EventGroups:
    """Reads events in groups. Raises :class:`StoreUnavailable`, :class:`SchemaMismatch`. Thread-safe."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis = redis
        self._keys = keys
        self._stream = keys.events
        self._events = EventStream(redis, keys)
        self._prune = redis.register_script((resources.files(__package__) / "prune.lua").read_text())
        self._pruned: dict[str, float] = {}  # group → monotonic time

    def read(
        self, group: str, consumer: str, *, after: str, limit: int, wait_s: float, redeliver_s: float
    ) -> list[Event]:
        """The events of the next delivery (see :meth:`deliver`)."""
        return self.deliver(
            group, consumer, after=after, limit=limit, wait_s=wait_s, redeliver_s=redeliver_s
        ).events

    def deliver(
        self, group: str, consumer: str, *, after: str, limit: int, wait_s: float, redeliver_s: float
    ) -> Delivery:
        """Events that no consumer of the group has acknowledged, for this consumer to acknowledge.

        First come events that were delivered at least ``redeliver_s`` ago and never acknowledged, then new
        ones; waits up to ``wait_s`` for the first. A new group starts after the stream id ``after``. A group
        that has missed events gets ``agent.events.gap`` once.
        """
        deadline = time.monotonic() + wait_s
        gap = self._events.group_gap(group)
        if gap is not None:
            return Delivery([gap])
        while True:
            try:
                missed = self._missed(group, consumer, limit, redeliver_s)
                self._forget_consumers(group)
                left_s = deadline - time.monotonic()
                events = missed or self._new(group, consumer, limit, min(left_s, _STEP_S))
            except StoreUnavailable as error:
                # The group is created only if it is missing: a full store would refuse to create it.
                if not str(error.__cause__).startswith("NOGROUP"):
                    raise
                self._create(group, after)
                continue
            if events or left_s <= 0:
                return Delivery(events, again=bool(missed))

    def acknowledge(self, group: str, event_ids: Sequence[str]) -> int:
        """Marks events as done: no consumer of the group gets them again. Returns how many were open."""
        if not event_ids:
            return 0
        with store_errors("acknowledging events"):
            return int(self._redis.xack(self._stream, group, *event_ids))

    def rewind(self, group: str, after: str) -> None:
        """Makes the group read on after this stream id, whatever it has read; creates it if it is new."""
        self._create(group, after)
        start = self._start_after(after)
        with store_errors("rewinding a group"):
            self._redis.xgroup_setid(self._stream, group, start)

    def forget(self, group: str) -> bool:
        """Removes the group. Returns whether it existed."""
        return self._events.drop_group(group)

    def _missed(self, group: str, consumer: str, limit: int, redeliver_s: float) -> list[Event]:
        idle_ms, cursor = max(1, round(1000 * redeliver_s)), "0-0"
        while True:
            with store_errors("looking for missed events"):
                reply = self._redis.xautoclaim(
                    self._stream, group, consumer, min_idle_time=idle_ms, start_id=cursor, count=limit
                )
            cursor, found, *trimmed = cast(tuple[str, list[tuple[str, dict[str, str]]], list[str]], reply)
            events = self._parsed(group, found)
            if trimmed and trimmed[0]:  # delivered, not acknowledged, and trimmed meanwhile
                events.insert(0, gap_to(max(trimmed[0], key=id_of)))
            if events or cursor == "0-0":  # one call scans only a part of the pending events
                return events

    def _new(self, group: str, consumer: str, limit: int, wait_s: float) -> list[Event]:
        block = max(1, round(1000 * wait_s)) if wait_s > 0 else None
        with store_errors("reading a group's events"):
            reply = self._redis.xreadgroup(group, consumer, {self._stream: ">"}, count=limit, block=block)
        return self._parsed(group, entries(reply))

    def _parsed(self, group: str, found: Iterable[tuple[str, dict[str, str]]]) -> list[Event]:
        """The events that this version can read. Others are acknowledged, not delivered again."""
        events = []
        for name, fields in found:
            if not fields:  # trimmed meanwhile
                continue
            event = readable(name, fields)
            if event is not None:
                events.append(event)
            else:
                self.acknowledge(group, [name])
        return events

    def _forget_consumers(self, group: str) -> None:
        """Removes idle consumers: every process reads under a name of its own, so old names would pile up."""
        now = time.monotonic()
        if now - self._pruned.get(group, float("-inf")) > _PRUNE_S:
            with store_errors("forgetting consumers"):
                self._prune(keys=[self._stream], args=[group, round(1000 * _CONSUMER_IDLE_S)])
            self._pruned[group] = now

    def _create(self, group: str, after: str) -> None:
        check_schema(self._redis, self._keys)  # in a new store, this call creates the stream
        start = self._start_after(after)
        with store_errors("creating a group"):
            try:
                self._redis.xgroup_create(self._stream, group, id=start, mkstream=True)
            except ResponseError as error:
                if "BUSYGROUP" not in str(error):
                    raise

    def _start_after(self, after: str) -> str:
        """The id to start after. ``0`` means all present events: events that left earlier are not missed."""
        return self._events.beginning() if after == "0" else after
