"""What a worker does to Celery's transport and events, so that they cost less and nothing is lost by it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cellblock_workers.worker.main import EventsTogether
from cellblock_workers.worker.transport import OneClient


class Channel:
    """Stands in for kombu's: makes a client for each message."""

    def __init__(self) -> None:
        self.pool: object = object()

    def _create_client(self, asynchronous: bool = False) -> object:
        return object()


class Thrifty(OneClient, Channel):
    """As a worker's channel is put together."""


def test_one_client_serves_until_the_connection_is_another() -> None:
    channel = Thrifty()
    first = channel._create_client()
    assert channel._create_client() is first
    assert channel._create_client(asynchronous=True) is not first, "that one listens"
    channel.pool = object()
    again = channel._create_client()
    assert again is not first
    assert channel._create_client() is again


class Consumer:
    """Stands in for Celery's: a loop with timers, and events that wait to be sent."""

    def __init__(self) -> None:
        self.hub = self.event_dispatcher = self
        self.timers: list[tuple[float, Callable[..., None], Any]] = []
        self.flushed = self.cancelled = 0

    def call_repeatedly(self, every_s: float, call: Callable[..., None], *args: Any) -> Consumer:
        self.timers.append((every_s, call, args))
        return self

    def flush(self) -> None:
        self.flushed += 1

    def cancel(self) -> None:
        self.cancelled += 1


def test_events_are_sent_soon_and_at_the_end() -> None:
    consumer = Consumer()
    step = EventsTogether(consumer)
    consumer.on_send_event_buffered()  # type: ignore[attr-defined]  # what Celery calls for each event
    assert consumer.flushed == 0, "not one by one"
    step.start(consumer)
    ((every_s, call, args),) = consumer.timers
    assert every_s <= 1
    call(*args)
    assert consumer.flushed == 1
    step.start(consumer)  # the connection was lost and is back
    assert (consumer.cancelled, len(consumer.timers)) == (1, 2), "one timer at a time"
    step.stop(consumer)
    assert consumer.cancelled == 2
    assert consumer.flushed == 3, "nothing is left unsent"
