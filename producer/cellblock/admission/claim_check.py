"""Moves parts of a job that are too long for Redis to the blob store; a blob's name and size replace each.

Before admission :func:`checked_in` replaces the long parts of a manifest, and the signature covers their
digests; they are put into the store once the job is admitted, so that a refused job leaves nothing there. The
worker fetches them with :func:`fetched` after it has checked the signature. A confidential job is sealed
before, so its blobs hold ciphertext.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from cellblock.admission.resolve import BlobRef, Manifest
from cellblock.blobs import Blobs, digest_of
from cellblock.contract.evaluations import Evaluation
from cellblock.errors import BlobLost

#: Blobs of a job that have not been put into the store yet: their bytes by their names.
Uploads = Mapping[str, bytes]


def checked_in(job_id: str, manifest: Manifest, blobs: Blobs, least_bytes: int) -> tuple[Manifest, Uploads]:
    """The manifest with references in place of its parts longer than ``least_bytes``, and these parts."""
    long = {part: data for part, data in _parts(manifest) if len(data) > least_bytes}
    names = {part: blobs.name_of(data, job_id) for part, data in long.items()}
    refs = {part: BlobRef(name=names[part], size_bytes=len(data)) for part, data in long.items()}
    stored = _with_parts(manifest, dict.fromkeys(long)).model_copy(
        update={"blobs": refs, "long_results": True}
    )
    return stored, {names[part]: data for part, data in long.items()}


def fetched(manifest: Manifest, blobs: Blobs | None) -> Manifest:
    """The manifest with all its parts. Raises :class:`BlobsUnavailable`, :class:`BlobLost`."""
    if not manifest.blobs:
        return manifest
    if blobs is None:
        digest = digest_of(next(iter(manifest.blobs.values())).name)
        raise BlobLost(digest, "there is no blob store here: set CELLBLOCK_BLOBS_URL as its producer has it")
    parts = {part: blobs.get(ref.name, ref.size_bytes) for part, ref in manifest.blobs.items()}
    return _with_parts(manifest, parts).model_copy(update={"blobs": {}})


def names_of(manifest: Manifest) -> list[str]:
    """The names of the blobs that the manifest uses, each once."""
    return sorted({ref.name for ref in manifest.blobs.values()})


def _parts(manifest: Manifest) -> Iterator[tuple[str, bytes]]:
    """The parts that can be long: their names and bytes."""
    if manifest.code is not None:
        yield "code", manifest.code.encode()
    yield "stdin", manifest.stdin
    for path, data in manifest.files.items():
        yield f"files/{path}", data
    for name, given in manifest.inputs.items():
        yield f"inputs/{name}", given.data
    if manifest.evaluation is not None:
        yield "evaluation", manifest.evaluation.model_dump_json().encode()
    if manifest.payload is not None:
        yield "payload", manifest.payload


def _with_parts(manifest: Manifest, parts: Mapping[str, bytes | None]) -> Manifest:
    """The manifest with these parts replaced; None empties a part."""
    changed: dict[str, Any] = {"files": dict(manifest.files), "inputs": dict(manifest.inputs)}
    for name, data in parts.items():
        kind, _, inner = name.partition("/")
        if kind == "files":
            changed["files"][inner] = data or b""
        elif kind == "inputs":
            changed["inputs"][inner] = changed["inputs"][inner].model_copy(update={"data": data or b""})
        elif kind == "stdin":
            changed["stdin"] = data or b""
        elif kind == "code":
            changed["code"] = data.decode() if data is not None else None
        elif kind == "evaluation":
            changed["evaluation"] = Evaluation.model_validate(json.loads(data)) if data is not None else None
        else:
            changed["payload"] = data
    return manifest.model_copy(update=changed)
