"""The events, from their schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_SCHEMA = "docs/event.schema.json"
_HEAD = f"""# Events

Made from `{_SCHEMA}`, which a test compares with the class. [Failures and events](failures.md) says how
to read them.

| field | type | meaning |
|---|---|---|
"""
_TYPES = {
    "agent.events.gap": "this reader missed events up to this id; of no job",
    "agent.run.queued": "the job was accepted",
    "agent.run.started": "a worker has claimed it: an attempt begins",
    "agent.run.retried": "the attempt ended without a result that counts; the job waits for another one",
    "agent.run.succeeded": "it has ended with the outcome `ok`",
    "agent.run.failed": "it has ended in any other way",
    "agent.run.cancelled": "it has ended because its caller cancelled it",
    "agent.run.rejected": "it has ended without a further attempt: refused by a worker, or not begun in time",
}


def page(root: Path) -> str:
    """The whole page."""
    schema = json.loads((root / _SCHEMA).read_text())
    rows = "\n".join(
        f"| `{name}` | {_type(field)} | {_meaning(field)} |" for name, field in schema["properties"].items()
    )
    types = "\n".join(f"- `{name}`: {_TYPES[name]}" for name in schema["properties"]["type"]["enum"])
    return f"{_HEAD}{rows}\n\n## Types\n\n{types}\n\nOutcomes: [Glossary](glossary.md#how-a-job-ended).\n"


def _type(field: dict[str, Any]) -> str:
    if "$ref" in field:
        return str(field["$ref"].rpartition("/")[2])
    if "anyOf" in field:
        return " or ".join(_type(one) for one in field["anyOf"])
    return str(field.get("type", ""))


def _meaning(field: dict[str, Any]) -> str:
    return str(field["description"])
