"""User ids for sandboxes: launchers that share a state folder never give two living sandboxes the same.

The kernel counts processes, inotify instances and pending signals by user id, so two sandboxes with the same
one would use up each other's limits. That can still happen between the death of a killed launcher and the
next sweep: the block is free at once, while the sandboxes are not gone yet.
"""

from __future__ import annotations

import fcntl
import os
import random
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cellblock_config.launcher import USER_IDS_APART, USER_IDS_EACH
from cellblock_workers.launcher.backend import StartFailed
from cellblock_workers.log import get_logger

_log = get_logger(__name__)

#: The ids of one block. Every launcher cuts a range in the same places, or blocks would overlap. It is enough
#: for two ids of each sandbox at the highest ``launcher.sandboxes_max``, and of some canaries.
BLOCK_IDS = 2 * (1024 + 8)


@dataclass(frozen=True, slots=True)
class IdRange:
    """The ids for one way of making sandboxes, cut into blocks; a launcher takes one."""

    name: str
    first: int
    count: int

    def blocks(self) -> list[int]:
        """The first id of each block, in a random order."""
        starts = list(range(self.first, self.first + self.count - BLOCK_IDS + 1, BLOCK_IDS))
        random.SystemRandom().shuffle(starts)
        return starts


def id_ranges(first_user_id: int) -> dict[str, IdRange]:
    """The range for each way of making sandboxes, from ``launcher.first_user_id`` on."""
    return {
        name: IdRange(name, first_user_id + place * USER_IDS_APART, USER_IDS_EACH)
        for place, name in enumerate(("docker", "namespaces", "oci"))
    }


class IdBlock:
    """A block of ids that belongs to this launcher while the object lives.

    A lock on a file in ``folder`` claims it: the kernel drops the lock with the process, in every case.
    Launchers that do not share the folder are kept apart by chance alone: each begins at a random block.
    Raises :class:`StartFailed` when all blocks are taken.
    """

    def __init__(self, folder: Path, ids: IdRange) -> None:
        self._lock_file = -1
        self.first = self._claim(folder, ids)

    def _claim(self, folder: Path, ids: IdRange) -> int:
        starts = ids.blocks()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for start in starts:
                if self._lock(folder / f"{ids.name}-{start}"):
                    return start
        except OSError as error:
            _log.warning(
                "user_ids_not_claimed",
                reason=f"{error.strerror} at {error.filename or folder}",
                remedy="CELLBLOCK_LAUNCHER_STATE names a folder that the launcher can write to",
            )
            return starts[0]
        raise StartFailed(
            f"all {len(starts)} blocks of user ids in {folder} are taken by other launchers of this host; "
            "end one of them"
        )

    def _lock(self, path: Path) -> bool:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except BaseException:
            os.close(descriptor)
            raise
        self._lock_file = descriptor
        return True

    def __del__(self) -> None:
        if self._lock_file >= 0:
            with suppress(OSError):
                os.close(self._lock_file)


class UserIds:
    """Hands out the ids of a block, one to each sandbox alive. Claims the block at first use. Thread-safe."""

    def __init__(self, folder: Path, ids: IdRange) -> None:
        self._folder = folder
        self._ids = ids
        self._block: IdBlock | None = None
        self._next = 0
        self._taken: dict[str, int] = {}
        self._lock = threading.Lock()

    def take(self, sandbox_id: str) -> int:
        """An id for this sandbox alone. Raises :class:`StartFailed` when none is left."""
        with self._lock:
            self._block = self._block or IdBlock(self._folder, self._ids)
            used = set(self._taken.values())
            for _ in range(BLOCK_IDS):
                found = self._block.first + self._next
                self._next = (self._next + 1) % BLOCK_IDS
                if found not in used:
                    self._taken[sandbox_id] = found
                    return found
        raise StartFailed(
            f"all {BLOCK_IDS} user ids of this launcher belong to sandboxes that could not be removed; "
            "its log says why (orphan_not_removed); restart it once they are gone"
        )

    def give_back(self, sandbox_id: str) -> None:
        """Frees the id of a sandbox that is gone. Idempotent."""
        with self._lock:
            self._taken.pop(sandbox_id, None)
