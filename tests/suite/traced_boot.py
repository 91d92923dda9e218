"""The boot of a zygote that notes its arcs, and hands the open chart on: a zygote sees no file of this host.

``traced_boot.py CHART PLACES``, and what boot.py takes. PLACES: where each module's lines begin, as JSON.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import sys

from cellblock_workers.launcher.namespaces import boot
from suite.guest_tracer import open_recorder

#: The descriptor of the chart, above all that boot and zygote number themselves.
CHART = 50
_UNBOUNDED = 1 << 60  # it is short, and none of its functions resumes


def main() -> None:
    """Open the chart, then boot as always."""
    chart = os.open(sys.argv.pop(1), os.O_RDWR)
    fcntl.fcntl(chart, fcntl.F_DUPFD, CHART)  # unlike what open gives, this one stays through execve
    os.close(chart)
    recorder = open_recorder(os.dup(CHART), _UNBOUNDED)
    for module, place in json.loads(sys.argv.pop(1)).items():
        recorder.places[str(importlib.import_module(module).__file__)] = place
    recorder.begin()
    boot.main()


if __name__ == "__main__":
    main()
