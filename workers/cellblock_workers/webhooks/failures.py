"""Shows operators the deliveries that failed for good, and tries them again."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager

from cellblock.ledger import Keys, connect
from cellblock.ledger.server import check_schema
from cellblock_config import load_settings
from cellblock_workers.webhooks.outbox import Item, Outbox


def run_dead(*, limit: int, json_output: bool) -> int:
    """Prints the failed deliveries, latest first, with the address's host only. Raises
    :class:`StoreUnavailable`."""
    with _outbox() as outbox:
        items = outbox.dead(limit)
    if items and not json_output:
        print("id  event_id  host  tries  why")  # noqa: T201
    for item in items:
        shown = _shown(item)
        print(json.dumps(shown) if json_output else "  ".join(map(str, shown.values())))  # noqa: T201
    if not items and not json_output:
        print("no delivery has failed for good")  # noqa: T201
    return 0


def run_retry(ids: Sequence[str] | None, *, json_output: bool) -> int:
    """Lets these, or all, be tried again. Returns 0, or 2 if one of them is not a failed delivery."""
    with _outbox() as outbox:
        return _each(
            outbox=outbox, ids=ids, act=outbox.retry, what="will be tried again", json_output=json_output
        )


def run_drop(ids: Sequence[str] | None, *, json_output: bool) -> int:
    """Forgets these, or all. Returns 0, or 2 if one of them is not a failed delivery."""
    with _outbox() as outbox:
        return _each(outbox=outbox, ids=ids, act=outbox.drop, what="dropped", json_output=json_output)


def _each(
    outbox: Outbox, ids: Sequence[str] | None, act: Callable[[str], bool], what: str, json_output: bool
) -> int:
    done = {one: act(one) for one in (ids or [item.id for item in outbox.dead(limit=0)])}
    for one, was in done.items():
        if json_output:
            print(json.dumps({"id": one, "done": was}))  # noqa: T201
        elif not was:
            print(f"cellblock: {one} is no delivery that failed for good", file=sys.stderr)  # noqa: T201
    if not json_output:
        print(f"{sum(done.values())} {what}")  # noqa: T201
    return 0 if all(done.values()) else 2


@contextmanager
def _outbox() -> Iterator[Outbox]:
    settings = load_settings()
    with closing(connect(settings)) as redis:
        check_schema(redis, Keys(settings.redis.key_prefix), claim=False)
        yield Outbox(redis, settings.redis.key_prefix, settings.webhooks.dead_kept)


def _shown(item: Item) -> dict[str, object]:
    return {"id": item.id, "event_id": item.event_id, "host": item.host, "tries": item.tries, "why": item.why}
