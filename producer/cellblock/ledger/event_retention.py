"""When events leave the stream, and how a reader is told that it has missed some.

==================  ==================================================================================
how full the store  an event leaves
==================  ==================================================================================
is not above 75 %   when every group has read it and it is ``events_read_ttl_s`` old (for readers without a
                    group); in any case at ``events_ttl_s``
above 75 %          at once when every group has read it; where no group reads, at ``events_read_ttl_s``
above 85 %          in any case at ``result_least_s``
==================  ==================================================================================

As a last resort, when there are more than ``events_kept`` events, the oldest leave. The ledger notes the
event that left last, so that a reader that had not read so far gets a gap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from redis import Redis
from redis.exceptions import ResponseError

from cellblock.contract.events import GAP, Event
from cellblock.ledger.connection import store_errors
from cellblock.ledger.keys import Keys
from cellblock.ledger.pressure import ADMITS_BELOW, LEAVE_ABOVE, Pressure
from cellblock_config import LedgerSettings

#: The most surplus events that leave in one round.
_PAGE = 10_000


def id_of(event_id: str) -> tuple[int, int]:
    """A stream id as two numbers, which sort as Redis sorts ids."""
    at_ms, _, number = event_id.partition("-")
    return int(at_ms), int(number or 0)


def gap_to(event_id: str) -> Event:
    """The gap event: it tells a reader that events up to this one are gone."""
    at = id_of(event_id)[0] / 1000
    return Event(id=event_id, type=GAP, job_id="", tenant="", at=at, attempt=0, trace_id="")


def trim_before(
    now_ms: int,
    pressure: Pressure,
    settings: LedgerSettings,
    *,
    read_by_all: str | None,
    oldest_kept: str | None,
) -> str:
    """The stream id before which all events leave now.

    ``read_by_all``: the first event that some group has not finished with; None without groups.
    ``oldest_kept``: the first of the last ``events_kept`` events; None where there are fewer.
    """
    read_ttl_s = 0 if pressure.above(LEAVE_ABOVE) else settings.events_read_ttl_s
    cuts = [f"{max(0, now_ms - 1000 * settings.events_ttl_s)}-0"]
    if read_by_all is None and pressure.above(LEAVE_ABOVE):
        cuts.append(f"{max(0, now_ms - 1000 * settings.events_read_ttl_s)}-0")  # no group reads
    if read_by_all is not None:
        cuts.append(min(read_by_all, f"{max(0, now_ms - 1000 * read_ttl_s)}-0", key=id_of))
    if pressure.above(ADMITS_BELOW):
        cuts.append(f"{max(0, now_ms - 1000 * settings.result_least_s)}-0")
    if oldest_kept is not None:
        cuts.append(oldest_kept)
    return max(cuts, key=id_of)


class EventStream:
    """The stream as a whole, and its groups. Raises :class:`StoreUnavailable`."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis = redis
        self._keys = keys

    def read_by_all(self) -> str | None:
        """The first event that some group has not finished with, or the next to come; None without groups."""
        firsts = [self._first_open(group) for group in self._groups()]
        return min(firsts, key=id_of) if firsts else None

    def first_open(self, group: str) -> str | None:
        """The first event that this group has not finished with, or the next one; None without the group."""
        found = self._group(group)
        return self._first_open(found) if found is not None else None

    def drop_group(self, name: str) -> bool:
        """Removes this group. Returns whether it existed."""
        if self._group(name) is None:
            return False
        with store_errors("dropping a group of the event stream"):
            return bool(self._redis.xgroup_destroy(self._keys.events, name))

    def done_until_ms(self, group: str, now_ms: int) -> int:
        """The time (ms) before which this group has finished with all events; 0 without the group."""
        found = self._group(group)
        if found is None:
            return 0
        with store_errors("looking at the event stream"):
            last = str(self._redis.xinfo_stream(self._keys.events)["last-generated-id"])
        if not found["pending"] and str(found["last-delivered-id"]) == last:
            return now_ms
        return id_of(self._first_open(found))[0]

    def _group(self, name: str) -> Mapping[str, Any] | None:
        return next((one for one in self._groups() if one["name"] == name), None)

    def _groups(self) -> list[Mapping[str, Any]]:
        with store_errors("looking at the groups of the event stream"):
            try:
                return cast(list[Mapping[str, Any]], self._redis.xinfo_groups(self._keys.events))
            except ResponseError as error:
                if "no such key" in str(error):
                    return []
                raise

    def _first_open(self, group: Mapping[str, Any]) -> str:
        """The first event delivered and not acknowledged; without one, the event after the last delivered."""
        if group["pending"]:
            with store_errors("looking at what a group has not acknowledged"):
                pending = self._redis.xpending(self._keys.events, group["name"])
            if pending["min"] is not None:
                return str(pending["min"])
        at_ms, number = id_of(str(group["last-delivered-id"]))
        return f"{at_ms}-{number + 1}"

    def oldest_of_last(self, count: int) -> str | None:
        """The first of the last ``count`` events, or an earlier one: one page of surplus is read. None where
        there are not more than ``count``."""
        with store_errors("measuring the event stream"):
            surplus = int(self._redis.xlen(self._keys.events)) - count
            if surplus <= 0:
                return None
            first = self._redis.xrange(self._keys.events, count=min(surplus + 1, _PAGE))
        return cast(list[tuple[str, dict[str, str]]], first)[-1][0]

    def beginning(self) -> str:
        """The id after which a new group starts to get all present events; earlier ones are not missed."""
        with store_errors("looking for the oldest event"):
            trimmed = self._redis.hget(self._keys.upkeep, "events_trimmed")
        return str(trimmed) if trimmed is not None else "0"

    def gap_after(self, event_id: str) -> Event | None:
        """The gap event for a reader that has read up to this id; None if it has missed nothing."""
        with store_errors("looking for a gap"):
            trimmed = cast(str | None, self._redis.hget(self._keys.upkeep, "events_trimmed"))
        if trimmed is None or id_of(event_id) >= id_of(trimmed):
            return None
        return gap_to(trimmed)

    def group_gap(self, group: str) -> Event | None:
        """The gap event for a group, which then goes on behind the gap; None if it has missed nothing."""
        found = self._group(group)
        gap = self.gap_after(str(found["last-delivered-id"])) if found is not None else None
        if gap is not None:
            with store_errors("moving a group behind a gap"):
                self._redis.xgroup_setid(self._keys.events, group, gap.id)
        return gap
