"""What a client holds open, and how a forked child gets its own.

Stops a child from hanging: threads do not survive a fork, and a lock that one of them held stays locked. So
a child takes over nothing that has a lock, a thread or a socket. It opens its own when it first needs them.
"""

from __future__ import annotations

import os
import threading
import weakref

from redis import Redis

from cellblock.admission.intake import Intake
from cellblock.admission.sealing import open_if_fitting
from cellblock.api_keys import ApiKeys
from cellblock.archive import Archive, open_archive
from cellblock.blobs import Blobs, open_blobs
from cellblock.governance import Governance
from cellblock.history import History
from cellblock.ledger import Ledger, connect
from cellblock.ledger.groups import EventGroups
from cellblock.ledger.server import check_schema
from cellblock.queue import Publisher
from cellblock.submission import Submission
from cellblock.waiting import ResultWaiter
from cellblock_config import Settings


class Connections:
    """A client's connections and all that works over them, for one process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.redis: Redis = connect(settings)
        self.broker: Redis = connect(settings, broker=True) if settings.redis.broker_url else self.redis
        self._blobs: Blobs | None = open_blobs(settings.blobs)
        self._archive: Archive | None = open_archive(
            settings.archive, lambda: self.ledger.archiving.written_to()
        )
        self.ledger = Ledger(self.redis, settings, blobs=self._blobs, archive=self._archive)
        self.history = History(self._archive, self.ledger.figures)
        self.groups = EventGroups(self.redis, self.ledger.keys)
        self.api_keys = ApiKeys(self.redis, self.ledger.keys)
        self.governance = Governance(self.redis, self.ledger.keys)
        self.publisher = Publisher(self.broker, settings)
        self.submission = Submission(self.ledger, self.publisher, lambda: self.intake)
        self.waiter = ResultWaiter(
            self.redis, self.ledger, lambda result: open_if_fitting(result, settings.sealing)
        )
        self._intake: Intake | None = None
        self._schema_checked = False

    def check_schema(self) -> None:
        """Looks once whether the store is of this version, and claims nothing. Raises
        :class:`SchemaMismatch`."""
        if not self._schema_checked:
            check_schema(self.redis, self.ledger.keys, claim=False)
            self._schema_checked = True

    @property
    def intake(self) -> Intake:
        """Opened when a job is first submitted: a wrong file of plans stops nothing else."""
        if self._intake is None:  # two threads might both open one; either is right
            self._intake = Intake(self._settings, self.governance.overrides, self._blobs)
        return self._intake

    def close(self) -> None:
        """Closes every connection."""
        self.waiter.close()
        if self._archive is not None:
            self._archive.close()
        self.broker.close()
        self.redis.close()

    def give_up_after_fork(self) -> None:
        """In a forked child: gives these up, so that nothing is sent and no lock is awaited when they go."""
        self.waiter.give_up_after_fork()
        for redis in (self.redis, self.broker):
            redis.auto_close_connection_pool = False


class LiveConnections:
    """The connections of this process; a child that is forked gets its own."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._opened: Connections | None = Connections(settings)
        _LIVE.add(self)

    def get(self) -> Connections:
        """Those of this process."""
        if (opened := self._opened) is not None:
            return opened
        with self._lock:
            if self._opened is None:
                self._opened = Connections(self._settings)
            return self._opened

    def close(self) -> None:
        """Closes those of this process, if there are any."""
        if self._opened is not None:
            self._opened.close()

    def give_up_after_fork(self) -> None:
        """In a forked child: keeps nothing of the parent's. Opens nothing: the child might never ask."""
        self._lock = threading.Lock()
        if self._opened is not None:
            self._opened.give_up_after_fork()
        self._opened = None


_LIVE: weakref.WeakSet[LiveConnections] = weakref.WeakSet()


def _give_up_all_after_fork() -> None:
    for connections in _LIVE:
        connections.give_up_after_fork()


os.register_at_fork(after_in_child=_give_up_all_after_fork)
