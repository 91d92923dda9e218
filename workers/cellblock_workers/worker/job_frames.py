"""A manifest as the frames that hand it to a guest."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from cellblock.admission.resolve import Manifest, ResolvedLimits
from cellblock_config import Settings
from cellblock_workers.worker.frames import frame

_PIECE_BYTES = 1024 * 1024


def job_frames(manifest: Manifest, settings: Settings, context_bytes: int | None) -> Iterator[bytes]:
    """J and what follows it: the bytes of files and inputs, then stdin (guest/guest.py reads them).

    Each frame is made when it is to be sent. ``context_bytes``: how long the file is that the launcher
    mounted, None without one.
    """
    limits = manifest.limits
    bulk = [*manifest.files.values(), *(given.data for given in manifest.inputs.values())]
    job = {
        "code": manifest.code,
        "entrypoint": manifest.entrypoint,
        "args": list(manifest.args),
        "env": manifest.env,
        "files": [(path, len(data)) for path, data in manifest.files.items()],
        "inputs": [(name, given.kind, len(given.data)) for name, given in manifest.inputs.items()],
        "context_bytes": context_bytes,
        "level": manifest.level,
        "modules": manifest.modules,
        "timeout_s": limits.timeout_s,
        "cpu_s": limits.cpu_s,
        "output_bytes": limits.output_bytes,
        "value_bytes": settings.ledger.value_bytes,
        "stdin_bytes": len(manifest.stdin),
        "bulk_bytes": sum(map(len, bulk)),
        "artifacts": _artifacts(manifest, settings),
        "role": "program",
    }
    yield frame(b"J", json.dumps(job).encode())
    for data in bulk:
        yield from _cut(b"B", data)
    yield from _cut(b"I", manifest.stdin)


def answering_job(
    role: Literal["candidate", "judge", "inline", "tested"],
    manifest: Manifest,
    limits: ResolvedLimits,
    answers_bytes: int,
    source: str = "",
    texts: Sequence[str] = (),
    files: Mapping[str, bytes] = MappingProxyType({}),
) -> bytes:
    """J for a job that is asked: a candidate with its first calls, a judge, or a program with its tests.

    ``files``: if there are any, the first is the program instead of ``source``; ``texts`` then are names of
    files among them that hold tests.
    """
    job = _bare(manifest, limits, source) | {"value_bytes": answers_bytes, "role": role, "texts": list(texts)}
    if role == "judge":
        job["modules"] = None
    if files:
        job |= {"code": None, "entrypoint": next(iter(files))}
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
    """J and what follows it for one run of a program of an evaluation."""
    job = _bare(manifest, limits, source) | {"args": list(args), "stdin_bytes": len(stdin)}
    return b"".join([*_with_files(job, files), *_cut(b"I", stdin)])


def _with_files(job: dict[str, object], files: Mapping[str, bytes]) -> Iterator[bytes]:
    bulk = b"".join(files.values())
    described = [(path, len(data)) for path, data in files.items()]
    yield frame(b"J", json.dumps(job | {"files": described, "bulk_bytes": len(bulk)}).encode())
    yield from _cut(b"B", bulk)


def _bare(manifest: Manifest, limits: ResolvedLimits, source: str) -> dict[str, object]:
    """A program, and nothing besides."""
    return {
        "code": source,
        "entrypoint": None,
        "args": [],
        "env": manifest.env,
        "files": [],
        "inputs": [],
        "context_bytes": None,
        "level": manifest.level,
        "modules": manifest.modules,
        "timeout_s": limits.timeout_s,
        "cpu_s": limits.cpu_s,
        "output_bytes": limits.output_bytes,
        "value_bytes": 0,
        "stdin_bytes": 0,
        "bulk_bytes": 0,
        "artifacts": None,
        "role": "program",
    }


def _artifacts(manifest: Manifest, settings: Settings) -> dict[str, object] | None:
    if not manifest.artifacts:
        return None
    bounds = settings.ledger
    return {
        "globs": list(manifest.artifacts),
        "count": bounds.artifacts_count,
        "each_bytes": bounds.artifact_bytes,
        "all_bytes": bounds.artifacts_bytes,
        "time_s": settings.sandbox.artifacts_s,
    }


def _cut(kind: bytes, data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), _PIECE_BYTES):
        yield frame(kind, data[start : start + _PIECE_BYTES])
