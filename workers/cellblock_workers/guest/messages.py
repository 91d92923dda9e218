"""What worker and guest send each other: the kinds of frames, and the job as it goes in.

Both sides import this; the guest runs it on Python 3.8 with the standard library alone. It uses named tuples,
because ``dataclasses`` would cost every start of a guest the import of ``inspect``.

A frame is one byte for its kind, a big-endian u32 length, and that many bytes.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple

HEADER = struct.Struct(">cI")


class Frame:
    """The kinds of frames, each one byte."""

    # To the guest.
    JOB = b"J"  # the job, as JSON of a JobMessage
    BULK = b"B"  # the bytes of files, then of inputs, in pieces: bulk_bytes in all
    STDIN = b"I"  # in pieces: stdin_bytes in all
    CALL = b"C"  # a call, or a message to a judge; the answer is a VALUE, then the next may come
    ENOUGH = b"K"  # in a series: stop this job, the next one may come
    # From the guest.
    READY = b"R"  # the job process waits for its job
    STDOUT = b"O"
    STDERR = b"E"
    VALUE = b"V"  # a piece of the value, or replies (to calls that came together in one, except a judge's)
    RAISED = b"T"  # what the job says it raised: a claim like VALUE, not evidence
    ENDED = b"X"  # how it ended, as JSON
    ARTIFACTS = b"A"  # a piece of them, if the job has some (artifacts.py describes the format)
    ARTIFACTS_END = b"Z"  # "done", "time", "died" or "alive"


class ArtifactBounds(NamedTuple):
    """Which files a job leaves, and how much of them may be sent."""

    globs: Sequence[str]
    files_max: int
    each_bytes: int
    all_bytes: int
    time_s: float


class JobMessage(NamedTuple):
    """The job as it goes to its guest, without the bytes of files, inputs and stdin, which follow it.

    ``code`` or ``entrypoint`` is the program. ``files``: path and size; ``inputs``: name, kind and size.
    ``context_bytes``: the size of the mounted file; None without one. ``modules``: what it may import; None:
    anything. ``role``: "program"; "candidate", whose functions answer calls; "judge", which answers the
    worker; "inline" and "tested", which judge themselves, by tests or by pytest. ``texts``: for "inline" its
    setup and its tests, for "tested" the files that hold tests.
    """

    level: str
    env: Dict[str, str]
    timeout_s: float
    cpu_s: float
    output_bytes: int
    code: Optional[str] = None
    entrypoint: Optional[str] = None
    args: Sequence[str] = ()
    files: Sequence[Tuple[str, int]] = ()
    inputs: Sequence[Tuple[str, str, int]] = ()
    context_bytes: Optional[int] = None
    modules: Optional[Sequence[str]] = None
    value_bytes: int = 0
    stdin_bytes: int = 0
    bulk_bytes: int = 0
    artifacts: Optional[ArtifactBounds] = None
    role: str = "program"
    texts: Sequence[str] = ()

    def as_json(self) -> bytes:
        """The payload of its frame."""
        artifacts = None if self.artifacts is None else self.artifacts._asdict()
        return json.dumps(dict(self._asdict(), artifacts=artifacts)).encode()


def read_job(payload: bytes) -> JobMessage:
    """The job in a frame. Raises TypeError or ValueError for a frame of another version."""
    fields: Dict[str, Any] = json.loads(payload.decode())
    if fields["artifacts"] is not None:
        fields["artifacts"] = ArtifactBounds(**fields["artifacts"])
    return JobMessage(**fields)
