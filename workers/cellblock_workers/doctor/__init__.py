"""``cellblock doctor``: is this host fit to run sandboxes, and do their controls hold?"""

from cellblock_workers.doctor.command import run_doctor

__all__ = ["run_doctor"]
