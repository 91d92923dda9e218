"""Every control of a sandbox, and the live proof that it bites."""

from cellblock_workers.canaries.controls import CONTROLS, Control
from cellblock_workers.canaries.prove import Finding, Way, prove

__all__ = ["CONTROLS", "Control", "Finding", "Way", "prove"]
