"""Every control of a sandbox, and the live proof that it bites."""

from cellblock_workers.worker.canaries.controls import CONTROLS, Control
from cellblock_workers.worker.canaries.prove import ControlFinding, Way, prove

__all__ = ["CONTROLS", "Control", "ControlFinding", "Way", "prove"]
