"""Consumer groups: each event to one consumer of each group, at least once, and again on demand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cellblock import Client, Event, InvalidJob
from cellblock.ledger import groups
from cellblock_config import Settings
from ledger.kit import admit, claim, finish, lead, settings_of
from parts import wait_until

pytestmark = pytest.mark.no_rerun


@pytest.fixture
def client(settings: Settings) -> Iterator[Client]:
    """A client on a store with one job's three events."""
    with Client(settings=settings) as opened:
        admit(opened._ledger)
        finish(opened._ledger, claim(opened._ledger))
        yield opened


def kinds(events: list[Event]) -> list[str]:
    return [event.type.removeprefix("agent.run.") for event in events]


def test_two_consumers_of_a_group_share_the_events_and_two_groups_do_not(client: Client) -> None:
    first = client.events(group="a", consumer="1", limit=2)
    second = client.events(group="a", consumer="2", limit=2)
    assert kinds(first) == ["queued", "started"]
    assert kinds(second) == ["succeeded"]
    assert kinds(client.events(group="b")) == ["queued", "started", "succeeded"]


def test_what_was_not_acknowledged_comes_again_to_whoever_asks(client: Client) -> None:
    lost = client.events(group="a", consumer="dies")
    assert client.events(group="a", consumer="lives") == [], "not before its time"
    again = wait_until(
        lambda: client.events(group="a", consumer="lives", redeliver_s=0.001), what="a millisecond later"
    )
    assert again == lost
    client.acknowledge("a", again)
    assert client.events(group="a", consumer="lives", redeliver_s=0.001) == []


def test_a_new_group_may_start_late_and_any_group_may_go_back(client: Client) -> None:
    latest = client.events()[-1].id
    assert client.events(latest, group="late") == []
    client.rewind("late")
    assert kinds(client.events(group="late")) == ["queued", "started", "succeeded"]
    client.rewind("late", latest)
    admit(client._ledger, "next")
    assert kinds(client.events(group="late")) == ["queued"]


def test_going_back_to_the_oldest_event_misses_nothing(client: Client) -> None:
    client.acknowledge("back", client.events(group="back"))
    with settings_of(client._ledger, events_ttl_s=-10):
        client._ledger.upkeep.trim_events(lead(client._ledger))
    admit(client._ledger, "next")
    client.rewind("back")
    assert kinds(client.events(group="back")) == ["queued"]


def test_an_empty_acknowledgement_is_nothing(client: Client) -> None:
    client.acknowledge("a", [])


def test_waiting_for_an_event_ends_with_it(client: Client) -> None:
    client.acknowledge("a", client.events(group="a"))
    assert client.events(group="a", wait_s=0.3) == []
    admit(client._ledger, "next")
    assert kinds(client.events(group="a", wait_s=5)) == ["queued"]


@pytest.mark.parametrize("after", ["", "-", "yesterday", "1-2-3", "0-0 ", "9" * 21, "\uff11"])
def test_what_is_no_event_id_is_named(client: Client, after: str) -> None:
    for call in (
        lambda: client.events(after),
        lambda: client.events(after, group="a"),
        lambda: client.rewind("a", after),
    ):
        with pytest.raises(InvalidJob, match="not an event id"):
            call()


@pytest.mark.parametrize("group", ["", "webhooks", "g" * 65])
def test_a_group_that_is_not_ones_own_is_refused(client: Client, group: str) -> None:
    for call in (
        lambda: client.events(group=group),
        lambda: client.rewind(group),
        lambda: client.acknowledge(group, []),
    ):
        with pytest.raises(InvalidJob, match="group: "):
            call()


def test_no_event_is_less_than_nothing(client: Client) -> None:
    with pytest.raises(InvalidJob, match="at least 1"):
        client.events(limit=0)


def test_consumers_of_long_ago_are_forgotten_unless_they_hold_events(
    client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.events(group="a", consumer="holds", limit=1)
    client.acknowledge("a", client.events(group="a", consumer="gone"))
    monkeypatch.setattr(groups, "_CONSUMER_IDLE_S", -1.0)  # injected: as if a day had passed
    with Client(settings=settings) as later:
        later.events(group="a", consumer="new")
        names = {one["name"] for one in later._redis.xinfo_consumers(later._ledger.keys.events, "a")}
    assert names == {"holds"}


def test_a_group_may_be_there_before_the_first_job(settings: Settings) -> None:
    with Client(settings=settings) as first:
        assert first.events(group="early") == []
        admit(first._ledger)
        assert kinds(first.events(group="early")) == ["queued"]
