"""Events leave when all have read them or their time is over, and a reader that missed some is told."""

from __future__ import annotations

import pytest
from redis import Redis

from cellblock import Client, Event
from cellblock.ledger import Ledger
from cellblock.ledger.pressure import ADMITS_BELOW, LEAVE_ABOVE
from ledger.kit import admit, lead, settings_of
from ledger.test_full_store import fill_to

pytestmark = pytest.mark.no_rerun

GAP = "agent.events.gap"


def happen(ledger: Ledger, count: int) -> None:
    """Add ``count`` events."""
    for _ in range(count):
        admit(ledger, f"job{happen.number}")  # type: ignore[attr-defined]
        happen.number += 1  # type: ignore[attr-defined]


happen.number = 0  # type: ignore[attr-defined]


def trim(ledger: Ledger, **settings: object) -> int:
    """One round of the leader under these settings."""
    with settings_of(ledger, **settings):
        return ledger.upkeep.trim_events(lead(ledger))


def types(events: list[Event]) -> list[str]:
    return [event.type for event in events]


def test_what_every_group_has_read_leaves_and_what_one_has_not_stays(client: Client) -> None:
    ledger = client._ledger
    happen(ledger, 10)
    for group, count in (("fast", 10), ("slow", 4)):
        client.acknowledge(group, client.events(group=group, limit=count))
    assert trim(ledger, events_read_ttl_s=600) == 0, "others read without a group, for ten minutes"
    assert trim(ledger, events_read_ttl_s=0) == 4
    assert len(client.events(group="slow")) == 6
    assert trim(ledger, events_read_ttl_s=0) == 0, "delivered, and not acknowledged"
    client.acknowledge("slow", client.events(group="slow", redeliver_s=0.001))
    assert trim(ledger, events_read_ttl_s=0) == 6


def test_without_groups_they_stay_for_their_time(client: Client) -> None:
    happen(client._ledger, 3)
    assert trim(client._ledger, events_read_ttl_s=0) == 0
    assert trim(client._ledger, events_ttl_s=-10) == 3


def test_the_number_of_events_is_the_last_resort(client: Client) -> None:
    happen(client._ledger, 30)
    assert client.events(group="slow", limit=1)
    assert trim(client._ledger, events_kept=20) == 10
    assert len(client.events()) == 20


def test_a_reader_that_missed_some_is_told_and_goes_on_behind_them(client: Client) -> None:
    ledger = client._ledger
    happen(ledger, 6)
    (first,) = client.events(limit=1)
    trim(ledger, events_kept=2)
    gap, *rest = client.events(first.id)
    assert gap.type == GAP
    assert not gap.terminal
    assert [event.id for event in rest] == [event.id for event in client.events()]
    assert client.events(gap.id) == rest, "and is not told again"
    assert GAP not in types(client.events()), "who starts with the oldest has missed nothing it asked for"
    assert client.events(rest[-1].id) == []


def test_who_has_read_all_that_left_is_told_nothing(client: Client) -> None:
    ledger = client._ledger
    happen(ledger, 5)
    read = client.events()
    trim(ledger, events_kept=2)
    assert client.events(read[2].id) == read[3:]
    assert client.events(read[-1].id) == []


def test_a_group_that_missed_some_is_told_once(client: Client) -> None:
    ledger = client._ledger
    happen(ledger, 6)
    client.acknowledge("slow", client.events(group="slow", limit=1))
    trim(ledger, events_kept=2)
    (gap,) = client.events(group="slow")
    assert gap.type == GAP
    client.acknowledge("slow", [gap])
    assert types(client.events(group="slow")) == ["agent.run.queued"] * 2


def test_what_was_delivered_and_left_before_it_was_acknowledged_is_told_too(client: Client) -> None:
    ledger = client._ledger
    happen(ledger, 4)
    assert len(client.events(group="slow", consumer="died")) == 4
    trim(ledger, events_kept=2)
    again = client.events(group="slow", consumer="lives", redeliver_s=0.001)
    assert types(again) == [GAP, "agent.run.queued", "agent.run.queued"]


def test_where_memory_is_short_read_events_leave_at_once(client: Client, redis: Redis) -> None:
    ledger = client._ledger
    happen(ledger, 3)
    client.acknowledge("fast", client.events(group="fast"))
    fill_to(ledger, redis, LEAVE_ABOVE + 2)
    assert trim(ledger) == 3


def test_where_it_is_full_old_ones_leave_whoever_has_read_them(client: Client, redis: Redis) -> None:
    ledger = client._ledger
    happen(ledger, 3)
    assert client.events(group="slow", limit=1)
    fill_to(ledger, redis, ADMITS_BELOW + 2)
    assert trim(ledger, result_least_s=60) == 0
    assert trim(ledger, result_least_s=-10) == 3
