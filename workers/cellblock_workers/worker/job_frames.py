"""A manifest as the frames that hand it to a guest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from cellblock.admission.resolve import Manifest, ResolvedLimits
from cellblock_config import Settings
from cellblock_workers.guest.messages import ArtifactBounds, Frame, JobMessage
from cellblock_workers.worker.frames import frame

_PIECE_BYTES = 1024 * 1024


def job_frames(manifest: Manifest, settings: Settings, context_bytes: int | None) -> Iterator[bytes]:
    """The job and what follows it: the bytes of files and inputs, then stdin (guest/guest.py reads them).

    Each frame is made when it is due. ``context_bytes``: the length of the file that the launcher mounted;
    None without one.
    """
    bulk = [*manifest.files.values(), *(given.data for given in manifest.inputs.values())]
    job = _program(manifest, manifest.limits)._replace(
        code=manifest.code,
        entrypoint=manifest.entrypoint,
        args=manifest.args,
        files=[(path, len(data)) for path, data in manifest.files.items()],
        inputs=[(name, given.kind, len(given.data)) for name, given in manifest.inputs.items()],
        context_bytes=context_bytes,
        value_bytes=settings.ledger.value_bytes,
        stdin_bytes=len(manifest.stdin),
        bulk_bytes=sum(map(len, bulk)),
        artifacts=_artifacts(manifest, settings),
    )
    yield frame(Frame.JOB, job.as_json())
    for data in bulk:
        yield from _cut(Frame.BULK, data)
    yield from _cut(Frame.STDIN, manifest.stdin)


def answering_job(
    role: Literal["candidate", "judge", "inline", "tested"],
    manifest: Manifest,
    limits: ResolvedLimits,
    answers_bytes: int,
    source: str = "",
    texts: Sequence[str] = (),
    files: Mapping[str, bytes] = MappingProxyType({}),
) -> bytes:
    """A job that answers calls: a candidate with its first calls, a judge, or a program with its tests.

    ``files``: if there are any, the first is the program, instead of ``source``; ``texts`` then names the
    files among them that hold tests.
    """
    job = _program(manifest, limits)._replace(code=source, value_bytes=answers_bytes, role=role, texts=texts)
    if role == "judge":
        job = job._replace(modules=None)
    if files:
        job = job._replace(code=None, entrypoint=next(iter(files)))
    return b"".join(_with_files(job, files))


def program_job(
    manifest: Manifest,
    limits: ResolvedLimits,
    source: str,
    *,
    stdin: bytes = b"",
    files: Mapping[str, bytes] = MappingProxyType({}),
    args: Sequence[str] = (),
) -> bytes:
    """The frames of one run of a program of an evaluation."""
    job = _program(manifest, limits)._replace(code=source, args=args, stdin_bytes=len(stdin))
    return b"".join([*_with_files(job, files), *_cut(Frame.STDIN, stdin)])


def _with_files(job: JobMessage, files: Mapping[str, bytes]) -> Iterator[bytes]:
    bulk = b"".join(files.values())
    described = [(path, len(data)) for path, data in files.items()]
    yield frame(Frame.JOB, job._replace(files=described, bulk_bytes=len(bulk)).as_json())
    yield from _cut(Frame.BULK, bulk)


def _program(manifest: Manifest, limits: ResolvedLimits) -> JobMessage:
    """The fields that are the same for every program of this job."""
    return JobMessage(
        level=manifest.level,
        env=manifest.env,
        modules=manifest.modules,
        timeout_s=limits.timeout_s,
        cpu_s=limits.cpu_s,
        output_bytes=limits.output_bytes,
    )


def _artifacts(manifest: Manifest, settings: Settings) -> ArtifactBounds | None:
    if not manifest.artifacts:
        return None
    bounds = settings.ledger
    return ArtifactBounds(
        globs=manifest.artifacts,
        files_max=bounds.artifacts_count,
        each_bytes=bounds.artifact_bytes,
        all_bytes=bounds.artifacts_bytes,
        time_s=settings.sandbox.artifacts_s,
    )


def _cut(kind: bytes, data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), _PIECE_BYTES):
        yield frame(kind, data[start : start + _PIECE_BYTES])
