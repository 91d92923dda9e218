"""The address of Flower, which another program may have."""

from __future__ import annotations

import os

from cellblock.errors import NotConfigured
from cellblock_config import MonitorSettings


def unusable_address(monitor: MonitorSettings, error: OSError) -> NotConfigured:
    """The error for an address on which Flower cannot listen, with the setting that names another."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return NotConfigured(
        f"Flower cannot listen on {monitor.address}:{monitor.port}: {reason.lower()}; set "
        "CELLBLOCK_MONITOR_PORT to a free port (0 takes one)"
    )
