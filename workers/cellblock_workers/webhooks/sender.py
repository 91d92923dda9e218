"""`cellblock webhooks`: reads the event stream as one group and posts what operators asked for."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from urllib.parse import urlsplit

from cellblock.contract.events import Event
from cellblock.errors import NotConfigured, StoreUnavailable
from cellblock.ledger import Keys, connect
from cellblock.ledger.groups import WEBHOOKS_GROUP, EventGroups
from cellblock_config import Settings, load_settings
from cellblock_workers.log import get_logger
from cellblock_workers.parent_death import die_with_parent
from cellblock_workers.process_environment import keep_to_itself
from cellblock_workers.store import check_store, told_to_end
from cellblock_workers.telemetry import configure_logging
from cellblock_workers.webhooks.delivery import Delivery
from cellblock_workers.webhooks.outbox import Item, Outbox, receiver_of

_log = get_logger(__name__)

_READ = 100
_WAIT_S = 1.0
_REDELIVER_S = 60.0
_PAUSE_MAX_S = 3600.0
_AWAY_S = 2.0
_NAMES_S = 30.0  #: what looking up a name may take in addition


class Sender:
    """One thread moves events into the outbox, other threads empty it."""

    def __init__(self, settings: Settings) -> None:
        redis, hooks = connect(settings), settings.webhooks
        if not hooks.urls or hooks.secret is None:
            raise NotConfigured("webhooks need CELLBLOCK_WEBHOOKS_URLS and CELLBLOCK_WEBHOOKS_SECRET")
        self._hooks = hooks
        self._urls = {receiver_of(url): url for url in (one.get_secret_value() for one in hooks.urls)}
        self._groups = EventGroups(redis, Keys(settings.redis.key_prefix))
        self._outbox = Outbox(redis, settings.redis.key_prefix, hooks.dead_kept)
        self._delivery = Delivery(
            hooks.secret.get_secret_value(), timeout_s=hooks.timeout_s, allow_private=hooks.allow_private
        )
        self._name = f"{socket.gethostname()}-{id(self):x}"
        self._closing = threading.Event()
        self._threads = [threading.Thread(target=self._keep, args=(self.accept,), name="accept", daemon=True)]
        self._threads += [
            threading.Thread(target=self._keep, args=(self.send,), name=f"send-{number}", daemon=True)
            for number in range(hooks.parallel)
        ]

    def start(self) -> None:
        """Starts the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stops after the tries under way."""
        self._closing.set()
        for thread in self._threads:
            thread.join(timeout=2 * self._hooks.timeout_s + 5)
        self._delivery.close()

    def accept(self) -> bool:
        """Puts new events into the outbox, then acknowledges them. Returns whether there may be more at
        once."""
        if self._outbox.full():
            _log.warning(
                "webhooks_wait", reason="too many deliveries are under way; events wait in the stream"
            )
            return False
        events = self._groups.read(
            WEBHOOKS_GROUP, self._name, after="$", limit=_READ, wait_s=_WAIT_S, redeliver_s=_REDELIVER_S
        )
        self._outbox.put([item for event in events for item in self._items(event)])
        self._groups.acknowledge(WEBHOOKS_GROUP, [event.id for event in events])
        return True

    def send(self) -> bool:
        """Tries one delivery. Returns whether there was one."""
        taken = self._outbox.take(hold_s=4 * self._hooks.timeout_s + _NAMES_S)
        if taken is None:
            return False
        item = taken.item
        url = self._urls.get(item.receiver)
        if url is None:
            self._outbox.failed(taken, "its address is not among CELLBLOCK_WEBHOOKS_URLS any more", None)
            return True
        try:
            why = self._delivery.post(url, item.event_id, item.body.encode())
        except Exception as error:  # a defect, or an unforeseen address: a try like any other
            _log.exception("webhook_crashed", event_id=item.event_id)
            why = f"internal error: {type(error).__name__}"
        if why is None:
            self._outbox.delivered(taken)
            return True
        last = item.tries + 1 >= self._hooks.tries_max
        pause_s = min(_PAUSE_MAX_S, self._hooks.backoff_s * 2**item.tries) * random.uniform(0.8, 1.2)  # noqa: S311
        self._outbox.failed(taken, why, None if last else pause_s)
        _log.warning("webhook_failed", event_id=item.event_id, why=why, tries=item.tries + 1, given_up=last)
        return True

    def _keep(self, step: Callable[[], bool]) -> None:
        away = False
        while not self._closing.is_set():
            try:
                busy = step()
                away = False
            except StoreUnavailable as error:
                if not away:
                    _log.warning("webhooks_without_store", error=str(error))
                away, busy = True, False
                self._closing.wait(_AWAY_S)
            except Exception:  # a defect of ours must not end the deliveries
                _log.exception("webhooks_crashed")
                busy = False
            if not busy:
                self._closing.wait(_WAIT_S / 4)

    def _items(self, event: Event) -> Sequence[Item]:
        if event.type not in self._hooks.events:
            return []
        body = event.model_dump_json()
        return [
            Item(
                id=f"{event.id}-{receiver}",
                receiver=receiver,
                host=urlsplit(url).hostname or "",
                event_id=event.id,
                body=body,
            )
            for receiver, url in self._urls.items()
        ]


def main() -> None:
    """Sends until TERM or INT."""
    die_with_parent()
    keep_to_itself()
    settings = load_settings()
    configure_logging(settings.telemetry)
    with closing(connect(settings)) as redis:
        check_store(redis, settings, service="webhooks")
    sender = Sender(settings)
    ended = told_to_end()
    sender.start()
    _log.info("webhooks_started", urls=len(settings.webhooks.urls), events=list(settings.webhooks.events))
    ended.wait()
    sender.stop()


if __name__ == "__main__":
    main()
