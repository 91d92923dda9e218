"""What a zygote is told of one sandbox, on both sides of its socket; standard library only, Python 3.8+."""

from __future__ import annotations

import json
from typing import Dict, NamedTuple, Optional, Sequence, Tuple


class ForkRequest(NamedTuple):
    """One sandbox, in numbers."""

    seat: int  #: no other running one has it
    ids: Sequence[int]  #: of guest and job, as the zygote's user namespace counts them
    tmp_bytes: int
    tmp_inodes: int
    shm_bytes: int
    shm_inodes: int
    terminals: int
    rlimits: Dict[str, int]
    nproc: int
    processors: int
    context: bool  #: whether a descriptor of its context comes with the request
    series: int = 0  #: how many sandboxes are used one after the other; 0 for a single one
    each_pids: int = 0  #: processes of each in a series, whose cgroup counts all together; 0 for no bound
    canary: Optional[int] = None  #: which canary runs in the guest's place

    def packet(self, number: int) -> bytes:
        """The message that asks for it. ``number``: how the zygote names it in its answers."""
        return json.dumps({"spawn": number, **self._asdict()}).encode()


def read_request(packet: bytes) -> Tuple[int, ForkRequest]:
    """The number and the request of such a message. Raises TypeError, KeyError for any other."""
    fields = json.loads(packet)
    return fields.pop("spawn"), ForkRequest(**fields)
