"""A worker's threads claim together: one of them asks the store for all that wait at that moment.

Threads that ask by themselves would pick the same job, and all but one in vain.
"""

from __future__ import annotations

import secrets
import threading
import time
from concurrent.futures import Future

from cellblock.ledger import Claim, Dropped
from cellblock.ledger.claims import Claims

#: Jobs that one call claims at most: each belongs to this worker before it runs.
_TOGETHER_MOST = 8

#: When the store was asked (``time.monotonic``), and what was claimed.
Claimed = tuple[float, Claim | Dropped]


class Claiming:
    """Claims jobs for the threads of one worker. Thread-safe."""

    def __init__(self, claims: Claims, worker: str) -> None:
        self._claims = claims
        self._worker = worker
        self._turn = threading.Lock()  # held by the thread that asks
        self._lock = threading.Lock()
        self._waiting: list[tuple[str, Future[Claimed]]] = []

    def claim(self, message: str) -> Claimed:
        """The next job, for one message. Raises :class:`StoreUnavailable`."""
        claimed: Future[Claimed] = Future()
        with self._lock:
            self._waiting.append((message, claimed))
        while not claimed.done():
            with self._turn:
                if not claimed.done():
                    self._ask()
        return claimed.result()

    def _ask(self) -> None:
        with self._lock:
            together, self._waiting = self._waiting[:_TOGETHER_MOST], self._waiting[_TOGETHER_MOST:]
        asked = time.monotonic()
        messages = [message for message, _ in together]
        try:
            claims = self._claims.claim_next_many(
                messages=messages, worker=self._worker, operation=secrets.token_hex(8)
            )
        except BaseException as error:
            for _, claimed in together:
                claimed.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        for (_, claimed), claim in zip(together, claims, strict=True):
            claimed.set_result((asked, claim))
