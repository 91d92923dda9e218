"""A launcher whose guests note their arcs, where they can reach a file of this host: see guest_texts.py.

That is in ``process``, ``none`` and ``namespaces``. The other ways start their guests as always.
"""

from __future__ import annotations

import json
import sys
from unittest.mock import patch

from cellblock_workers.guest import guest_texts
from cellblock_workers.launcher import guest_program, server
from cellblock_workers.launcher.namespaces import backend, boot, fork_server
from suite import traced_boot
from suite.guest_arcs import make_chart
from suite.guest_texts import in_boot, table, traced


def main() -> None:
    """Start the launcher with traced texts in place of the real ones."""
    chart = str(make_chart())
    guest = {name: traced(name, chart) for name in guest_texts()}
    zygote = {name: traced(name, traced_boot.CHART) for name in fork_server.zygote_modules()}
    places = {name: table().places[in_boot(name)] for name in (*zygote, boot.__name__)}
    command = (sys.executable, "-m", traced_boot.__name__, chart, json.dumps(places))
    with (
        patch.object(guest_program, "guest_texts", lambda: guest),
        patch.object(backend, "guest_texts", lambda: guest),
        patch.object(fork_server, "zygote_modules", lambda: zygote),
        patch.object(fork_server, "_BOOT", command),
    ):
        server.main()


if __name__ == "__main__":
    main()
