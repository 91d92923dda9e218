"""The result of one check of the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the checklist. A warning costs a way of making sandboxes, or depth of defence; a problem
    makes jobs unsafe or impossible. ``remedy`` is empty when there is nothing to do."""

    name: str
    status: Status
    value: str
    remedy: str = ""
