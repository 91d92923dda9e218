"""The Redis of a run without a server."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from cellblock_workers.embedded_host import in_process_redis

THREADS = 4


@pytest.fixture
def hurried() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def keys_written_at_once() -> int:
    redis, begin = in_process_redis(), threading.Barrier(THREADS)

    def write(number: int) -> None:
        begin.wait()
        redis.set(f"key-{number}", "value", ex=1000)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return int(redis.dbsize())


@pytest.mark.usefixtures("hurried")
def test_threads_that_begin_at_once_see_one_and_the_same_store() -> None:
    assert {keys_written_at_once() for _ in range(200)} == {THREADS}
