"""What a worker does to Celery's transport, so that it costs less and nothing is lost by it."""

from __future__ import annotations

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
