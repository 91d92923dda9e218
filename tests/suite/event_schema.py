"""``docs/event.schema.json``, made from the events themselves.

``PYTHONPATH=tests python -m suite.event_schema`` writes it.
"""

from __future__ import annotations

import json
from pathlib import Path

from cellblock import Event

FILE = Path(__file__).resolve().parents[2] / "docs/event.schema.json"


def text() -> str:
    """The whole file."""
    return json.dumps(Event.model_json_schema(), indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
