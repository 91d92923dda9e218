"""Every script is sent again when its reply is lost; the second run changes nothing and answers the same."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any
from unittest.mock import Mock

import pytest
from redis import Redis

from cellblock import Outcome
from cellblock.ledger import Candidate, Ledger, connect
from cellblock.ledger.claims import Picked
from cellblock.ledger.declarations import script_names
from cellblock.ledger.keys import JobOwner
from cellblock.ledger.transitions import Transition
from cellblock_config import load_settings
from ledger.kit import (
    admit,
    be_late,
    claim,
    dump,
    expire_lease,
    finish,
    lead,
    manifest,
    once,
    operation,
    result_of,
)

pytestmark = pytest.mark.no_rerun


class ReplyEater:
    """Injected: a proxy in front of Redis that swallows the reply to one script and hangs up."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.hungry = False
        self.ate: list[dict[str, Any]] = []
        self.look: Callable[[], dict[str, Any]] = dict
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                ours, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(ours,), daemon=True).start()

    def _carry(self, ours: socket.socket) -> None:
        theirs = socket.create_connection(self._target)
        asked = [b""]
        threading.Thread(target=self._answer, args=(ours, theirs, asked), daemon=True).start()
        with suppress(OSError):
            while request := ours.recv(1 << 20):
                asked[0] = request
                theirs.sendall(request)
            theirs.shutdown(socket.SHUT_RDWR)

    def _answer(self, ours: socket.socket, theirs: socket.socket, asked: list[bytes]) -> None:
        with ours, theirs, suppress(OSError):
            while reply := theirs.recv(1 << 20):
                if self.hungry and b"EVALSHA" in asked[0] and not reply.startswith(b"-NOSCRIPT"):
                    self.hungry = False
                    self.ate.append(self.look())
                    ours.shutdown(socket.SHUT_RDWR)
                    return
                ours.sendall(reply)


Setting = tuple[Ledger, Redis, ReplyEater]


@pytest.fixture
def behind(redis_url: str) -> Iterator[Setting]:
    """A ledger behind the proxy, and its store seen past it."""
    port = int(redis_url.rsplit(":", 1)[1].split("/")[0])
    eater = ReplyEater(("127.0.0.1", port))
    rules = {"tenant_slots": 1, "fault_retries": 1, "retry_backoff_s": 60}
    with closing(Redis.from_url(redis_url, decode_responses=True)) as direct:
        eater.look = lambda: dump(direct)
        settings = load_settings(redis={"url": f"redis://127.0.0.1:{eater.port}/0"}, ledger=rules)
        with connect(settings) as redis:
            yield Ledger(redis, settings), direct, eater
    eater.close()


def _finish(ledger: Ledger, outcome: Outcome) -> Callable[[], Any]:
    held, op = claim(ledger), operation()
    return lambda: ledger.finish(held, result_of(held, outcome), op)


def _lose(ledger: Ledger, redis: Redis) -> Callable[[], Any]:
    claim(ledger)
    expire_lease(ledger, redis)
    return lambda: [done.word for done in ledger.upkeep.reap()]


def _late(ledger: Ledger, redis: Redis) -> Callable[[], Any]:
    be_late(ledger, redis)
    return lambda: [done.word for done in ledger.upkeep.expire()]


def _pause(ledger: Ledger, redis: Redis) -> Callable[[], Any]:
    _finish(ledger, Outcome.SANDBOX_ERROR)()
    redis.zadd(ledger.keys.delayed, {"job": 1})
    return ledger.upkeep.wake_delayed


def _die(ledger: Ledger, redis: Redis) -> Callable[[], Any]:
    for _ in range(2):
        held = claim(ledger)
        ledger.finish(held, result_of(held, Outcome.SANDBOX_ERROR), operation())
        redis.zadd(ledger.keys.delayed, {"job": 1}, xx=True)
        ledger.upkeep.wake_delayed()
    op = operation()
    return lambda: ledger.retry_dead("job", op)


def _drop(ledger: Ledger, redis: Redis) -> Callable[[], Any]:
    _die(ledger, redis)
    op = operation()
    return lambda: ledger.upkeep.drop_dead("job", op)


def _refresh_lane(ledger: Ledger, redis: Redis) -> Callable[[], Any]:
    """Injected: the slot of the running job is gone, and nobody looked."""
    claim(ledger)
    admit(ledger, "parked")
    ledger.claims.claim_next(message="parked", worker="w1", operation=operation())
    redis.delete(ledger.keys.slots("default"))
    return ledger.upkeep.look_at_parked


def _free_slot(ledger: Ledger, redis: Redis) -> Callable[[], Any]:
    """Injected: the lease of the running job is gone, and its slot is not."""
    claim(ledger)
    redis.delete(ledger.keys.leases)
    return lambda: ledger.upkeep._free_slots("default")


def _tick(ledger: Ledger, redis: Redis) -> Callable[[], Any]:
    claim(ledger)
    redis.hset(ledger.keys.upkeep, "ticked_ms", 1)
    return lambda: ledger.upkeep.tick("w")


def _resign(ledger: Ledger, redis: Redis) -> Callable[[], Any]:
    ledger.upkeep.tick("w")
    return lambda: ledger.upkeep.resign("w")


def _forget(ledger: Ledger, redis: Redis) -> Callable[[], Any]:
    """Injected: the job's time is over."""
    finish(ledger, claim(ledger))
    epoch = lead(ledger).epoch
    lists, late_ms = ledger.retention._lists, 10**14
    return lambda: lists.forget_due(epoch, f"default {ledger._store.settings.result_ttl_s}", late_ms)


def _release(ledger: Ledger) -> Callable[[], Any]:
    held, op = claim(ledger), operation()
    return lambda: ledger.release(held, op)


def _beat(ledger: Ledger) -> Callable[[], Any]:
    held = claim(ledger)
    return lambda: ledger.beat("w1", [("job", held.fence)], {})


def _claim(ledger: Ledger) -> Callable[[], Any]:
    op = operation()
    return lambda: ledger.claims._claim_each([Picked("job", JobOwner("default"))], "w1", op)


MANIFEST = manifest()


#: What leads up to a call, and the call; a job "job" has been admitted before.
def _trim(ledger: Ledger, redis: Redis) -> Callable[[], Any]:
    """Injected: the job's event is older than events live."""
    ledger._store.settings = ledger._store.settings.model_copy(update={"events_ttl_s": -10})
    begun = lead(ledger)
    return lambda: ledger.upkeep.trim_events(begun)


def _owed(ledger: Ledger, redis: Redis) -> Callable[[], Any]:
    ledger.archiving.let_it_owe()
    return lambda: ledger.archiving.settle("0-0")


def _release_blobs(ledger: Ledger, redis: Redis) -> Callable[[], Any]:
    """Injected: two jobs name the blob."""
    redis.hset(ledger.keys.blobs, "some", 2)
    return lambda: ledger.archiving.release_blobs(["some"])


def _uploaded(ledger: Ledger, redis: Redis) -> Callable[[], Any]:
    """Injected: a blob store that takes everything."""
    ledger._store.blobs = Mock()
    candidate = Candidate("uploading", MANIFEST, uploads={"some": b"long"})
    ledger.admissions.admit_many([candidate])
    return lambda: ledger.admissions.upload(candidate)


def _removed_blobs(ledger: Ledger, redis: Redis) -> Callable[[], Any]:
    """Injected: a blob that was freed long ago."""
    redis.rpush(ledger.keys.freed_blobs, "1 5 some default")
    redis.hset(ledger.keys.account("default"), "freed_blob_bytes", 7)
    due = ledger.freed_blobs.due(10)
    assert due
    return lambda: ledger.freed_blobs.removed(due)


CALLS: dict[str, Callable[[Ledger, Redis], Callable[[], Any]]] = {
    "admit": lambda ledger, _: lambda: ledger.admissions.admit("new", MANIFEST, once()),
    "claim": lambda ledger, _: _claim(ledger),
    "beat": lambda ledger, _: _beat(ledger),
    "finish": lambda ledger, _: _finish(ledger, Outcome.OK),
    "finish_retried": lambda ledger, _: _finish(ledger, Outcome.SANDBOX_ERROR),
    "release": lambda ledger, _: _release(ledger),
    "cancel": lambda ledger, _: lambda: ledger.cancel("job").word in {"cancelled", "terminal"},
    "reap": _lose,
    "expire": _late,
    "wake": _pause,
    "retry_dead": _die,
    "drop": _drop,
    "refresh_lane": _refresh_lane,
    "free_slot": _free_slot,
    "tick": _tick,
    "resign": _resign,
    "forget": _forget,
    "trim": _trim,
    "owed": _owed,
    "release_blobs": _release_blobs,
    "uploaded": _uploaded,
    "removed_blobs": _removed_blobs,
    "fetched": lambda ledger, _: lambda: ledger.note_fetched("job"),
}
#: These say the second time that there was nothing left to do.
DONE_ALREADY = {
    *("reap", "expire", "wake", "refresh_lane", "free_slot", "tick", "resign", "forget", "trim", "owed"),
    *("release_blobs", "fetched", "removed_blobs"),
}
#: What a transition says, also the second time.
WORDS = {"finish": "finished", "finish_retried": "retried", "release": "released", "retry_dead": "retried"}
#: Written by the clock at each run, to the same end.
CLOCKED = {"beat": {"leases", "worker:w1", "workers"}, "tick": {"upkeep", "pressure", "leader"}}


@pytest.mark.parametrize("name", CALLS)
def test_a_reply_that_is_lost_costs_nothing(behind: Setting, name: str) -> None:
    ledger, direct, eater = behind
    admit(ledger)
    call = CALLS[name](ledger, direct)
    eater.hungry = True
    said = call()
    (after_the_first,) = eater.ate
    clocked = {f"{ledger.keys.prefix}:{key}" for key in CLOCKED.get(name, ())}
    again = {key: value for key, value in dump(direct).items() if key not in clocked}
    assert again == {key: value for key, value in after_the_first.items() if key not in clocked}
    if name not in DONE_ALREADY:
        assert said, "an answer like the one that was lost"
        if isinstance(said, Transition):
            assert said.word == WORDS[name]


def test_every_script_is_among_them() -> None:
    assert set(script_names()) - {"retry", "pick"} <= set(CALLS), (
        "retry is called retry_dead here; pick only looks"
    )
