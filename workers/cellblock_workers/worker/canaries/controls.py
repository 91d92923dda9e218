"""The table of controls, read from ``controls.toml``: what each stops, and the attack that shows it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib import resources

from pydantic import BaseModel, ConfigDict

from cellblock.contract.job_spec import Limits
from cellblock.contract.outcomes import Outcome
from cellblock_config import Isolation

ESCAPED = "ESCAPED"
HELD = "HELD"


class Control(BaseModel):
    """One control. The words of its fields are explained at the top of the table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    stops: str
    remedy: str
    code: str
    before: str | None = None
    canary: bool = False
    limits: Limits = Limits()
    outcomes: frozenset[Outcome] = frozenset({Outcome.OK})
    exit_code: int | None = None
    held: bool = True
    elsewhere: Mapping[Isolation, str] = {}


def _load() -> tuple[Control, ...]:
    table = tomllib.loads(
        (resources.files("cellblock_workers.worker.canaries") / "controls.toml").read_text()
    )
    prelude = table["prelude"]
    controls = []
    for row in table["control"]:
        codes = {name: prelude + row[name] for name in ("code", "before") if name in row}
        controls.append(Control.model_validate({**row, **codes}))
    return tuple(controls)


CONTROLS = _load()
