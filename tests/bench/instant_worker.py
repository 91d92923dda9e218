"""A Celery worker of the project's with everything but the sandbox: each job ends at once, as hello jobs do.

``python -m bench.instant_worker``; needs no launcher.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest import mock

from bench.ledger_hello import hello_result
from cellblock_workers.launcher.protocol import Reply
from cellblock_workers.worker import main, runner


class NoLauncher:
    """In place of the launcher's client: always ready, and never asked for a sandbox."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def probe(self) -> Reply:
        return Reply(isolations={"standard": "namespaces"})

    def renew(self, sandboxes: Sequence[str]) -> None:
        pass

    def close(self) -> None:
        pass


if __name__ == "__main__":
    with (
        mock.patch.object(main, "LauncherClient", NoLauncher),
        mock.patch.object(runner, "execute", lambda lease, **_: hello_result(lease.claim)),
    ):
        main.main()
