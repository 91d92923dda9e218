"""What ends a request to a filter process without an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cellblock_workers.lease import StopReason


class FilterFailed(Exception):
    """Our fault, or the host's: nothing is known of the output. Says why, in our words."""

    def __init__(self, why: str, cpu_s: float = 0.0) -> None:
        super().__init__(why)
        self.cpu_s = cpu_s


class Overrun(Exception):
    """The request took more than it may, and its process had to be ended."""

    def __init__(self, why: str, cpu_s: float) -> None:
        super().__init__(why)
        self.cpu_s = cpu_s


class Stopped(Exception):
    """The attempt has to stop."""

    def __init__(self, reason: StopReason, cpu_s: float) -> None:
        super().__init__(reason)
        self.reason = reason
        self.cpu_s = cpu_s


class Died(Exception):
    """The process ended during the request; the cause is not known yet."""

    def __init__(self, cpu_s: float) -> None:
        super().__init__("the filter's process ended")
        self.cpu_s = cpu_s
