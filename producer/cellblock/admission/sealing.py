"""Confidential jobs: the one place that seals and opens them.

Stops readers of Redis, its files, logs, events, Flower or error reports from reading a confidential job. The
job's contents are sealed to the fleet before it is stored; its output is sealed to its tenant before it
leaves the worker. Each is sealed to a public key that can only seal (libsodium's sealed boxes: X25519,
XSalsa20-Poly1305). Ids, limits, sizes and the outcome stay in the clear. A worker's memory, while it runs
the job, is not covered.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from cellblock.admission.resolve import Manifest
from cellblock.contract.job_spec import JobSpec
from cellblock.contract.outcomes import JobError
from cellblock.contract.results import JobResult, RedactionCount, ResultSummary
from cellblock.contract.values import TableValue
from cellblock.errors import CannotOpen, NotConfigured
from cellblock_config.sealing import SealingSettings, sealing_key

#: Every field of a manifest that its author wrote, with its value in a sealed manifest.
_EMPTY: dict[str, Any] = {
    "code": None,
    "files": {},
    "entrypoint": None,
    "args": (),
    "stdin": b"",
    "env": {},
    "inputs": {},
    "artifacts": (),
}
_PAYLOAD = set(_EMPTY)
_SHAPE_DEPTH = 3


def new_pair() -> tuple[str, str]:
    """A fresh private key and its public key, as values of settings. Raises :class:`NotConfigured`."""
    private = _nacl().PrivateKey.generate()
    return _setting("x25519", bytes(private)), _setting("x25519-public", bytes(private.public_key))


def tenant_key(spec: JobSpec, settings: SealingSettings) -> str:
    """The public key that this job's result is sealed to. Raises :class:`NotConfigured` with the remedy."""
    key = settings.tenant_keys.get(spec.tenant)
    if key is None:
        raise NotConfigured(
            f"a confidential job of tenant {spec.tenant!r} needs its public key in "
            "CELLBLOCK_SEALING_TENANT_KEYS (cellblock seal-key new)"
        )
    _seal(b"", key)  # before the job runs, not after
    return key


def seal_manifest(job_id: str, manifest: Manifest, settings: SealingSettings) -> Manifest:
    """The manifest with everything its author wrote sealed to the fleet. Raises :class:`NotConfigured`.

    The sealed part names its owner, so it opens for no other job, tenant or reader.
    """
    if settings.fleet_key is None:
        raise NotConfigured(
            "a confidential job needs CELLBLOCK_SEALING_FLEET_KEY, or Redis would hold its program in the "
            "clear (cellblock seal-key new --fleet)"
        )
    payload = manifest.model_dump(mode="json", include=_PAYLOAD)
    sealed = _seal(
        json.dumps({"bound": _bound(job_id, manifest), "payload": payload}).encode(), settings.fleet_key
    )
    return manifest.model_copy(update={**_EMPTY, "payload": sealed})


def open_manifest(job_id: str, manifest: Manifest, settings: SealingSettings) -> Manifest:
    """The manifest with the part that :func:`seal_manifest` sealed opened; other manifests unchanged.

    Raises :class:`NotConfigured` without the fleet's key, :class:`CannotOpen` where the key does not fit or
    the part was sealed for another job.
    """
    if manifest.payload is None:
        return manifest
    if settings.fleet_private_key is None:
        raise NotConfigured(
            "the job is confidential, and this worker cannot open it: set CELLBLOCK_SEALING_FLEET_PRIVATE_KEY"
        )
    content = _open(manifest.payload, settings.fleet_private_key.get_secret_value())
    try:
        sealed = json.loads(content)
        bound, payload = sealed["bound"], sealed["payload"]
        if set(payload) != _PAYLOAD:
            raise ValueError
        stored = manifest.model_dump(exclude={*_PAYLOAD, "payload"})
        opened = Manifest.model_validate({**stored, **payload})
    except (ValueError, TypeError, KeyError, RecursionError):
        raise CannotOpen("what was sealed is not a job of this version; submit it again") from None
    if manifest.seal_to is None or bound != _bound(job_id, manifest):
        raise CannotOpen("what was sealed is another job's, or for another reader; submit it again")
    return opened


def _bound(job_id: str, manifest: Manifest) -> dict[str, str | None]:
    return {"job_id": job_id, "tenant": manifest.tenant, "seal_to": manifest.seal_to}


def seal_result(result: JobResult, public_key: str) -> JobResult:
    """The result with all of the job's output sealed; sizes, counts and the outcome stay in the clear."""
    if result.isolation is None:  # the job never ran: the result holds our own text only
        return result
    sealed = _seal(result.model_dump_json().encode(), public_key)
    error = JobError(type="Sealed", message="sealed to its tenant; open it with the private key")
    return JobResult(
        **{name: getattr(result, name) for name in _CLEAR},
        error=None if result.ok else error,
        evidence={name: found for name, found in result.evidence.items() if not isinstance(found, str)},
        redactions=_without_names(result),
        summary=_summary(result),
        sealed=sealed,
    )


_CLEAR = [
    "job_id",
    "outcome",
    "exit_code",
    "signal",
    "level",
    "isolation",
    "backend",
    "usage",
    "cost_micros",
    "truncated",
    "attempt",
    "timings",
    "worker",
    "trace_id",
]


def open_result(result: JobResult, private_key: str) -> JobResult:
    """A confidential job's result with its output opened; other results unchanged.

    ``private_key``: ``x25519:<base64>``, as ``cellblock seal-key new`` makes it. Raises :class:`CannotOpen`
    for another tenant's key, and for a sealed output of another job.
    """
    if result.sealed is None:
        return result
    content = _open(result.sealed, private_key)
    try:
        opened = JobResult.model_validate_json(content)
    except ValidationError:
        raise CannotOpen("what was sealed is not a result of this version") from None
    if (opened.job_id, opened.attempt, opened.outcome) != (result.job_id, result.attempt, result.outcome):
        raise CannotOpen("what was sealed is another job's result")
    # The time of its end and its cost are known only after the result was sealed.
    return opened.model_copy(update={"timings": result.timings, "cost_micros": result.cost_micros})


def open_if_fitting(result: JobResult, settings: SealingSettings) -> JobResult:
    """Opens a confidential result if ``sealing.private_key`` fits; else returns it unchanged."""
    if settings.private_key is None:
        return result
    try:
        return open_result(result, settings.private_key.get_secret_value())
    except CannotOpen:
        return result


def _without_names(result: JobResult) -> tuple[RedactionCount, ...]:
    """The redaction counts without the names that an operator gave to registered values."""
    counted: Counter[tuple[str, str]] = Counter()
    for one in result.redactions:
        counted[one.kind.partition(":")[0], one.stream] += one.count
    return tuple(
        RedactionCount(kind=kind, stream=stream, count=n) for (kind, stream), n in sorted(counted.items())
    )


def _summary(result: JobResult) -> ResultSummary:
    return ResultSummary(
        stdout_bytes=len(result.stdout.encode()),
        stdout_lines=len(result.stdout.splitlines()),
        stderr_bytes=len(result.stderr.encode()),
        stderr_lines=len(result.stderr.splitlines()),
        value=None if result.value_kind is None else _shape(result.value),
        artifacts=len(result.artifacts),
        artifacts_bytes=sum(len(file.data) for file in result.artifacts),
    )


def _shape(value: object, depth: int = 0) -> str:
    """The kind of a value, without any name or character from it."""
    if isinstance(value, TableValue):
        return f"table of {len(value.ipc)} bytes"
    if isinstance(value, dict | list):
        parts = list(value.values()) if isinstance(value, dict) else value
        kinds = sorted({_shape(part, depth + 1) for part in parts}) if depth < _SHAPE_DEPTH else []
        name = "object" if isinstance(value, dict) else "array"
        return f"{name} of {len(parts)}" + (f" ({', '.join(kinds[:8])})" if kinds else "")
    names = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
    return names[type(value)]


def _seal(data: bytes, public_key: str) -> bytes:
    nacl = _nacl()
    from nacl.exceptions import CryptoError

    try:
        return bytes(nacl.SealedBox(nacl.PublicKey(sealing_key(public_key, "x25519-public"))).encrypt(data))
    except CryptoError:
        raise NotConfigured("a key of the settings group sealing is not a valid sealing public key") from None


def _open(sealed: bytes, private_key: str) -> bytes:
    nacl = _nacl()
    from nacl.exceptions import CryptoError

    try:
        return bytes(nacl.SealedBox(nacl.PrivateKey(sealing_key(private_key, "x25519"))).decrypt(sealed))
    except CryptoError:
        raise CannotOpen("the private key does not fit: it was sealed to another, or altered") from None
    except ValueError as error:
        raise CannotOpen(f"the private key {error}") from None


def _setting(kind: str, material: bytes) -> str:
    return f"{kind}:{base64.b64encode(material).decode()}"


def _nacl() -> ModuleType:
    # Imported only when something is sealed: the base install has no confidential jobs.
    try:
        import nacl.public
    except ModuleNotFoundError as error:
        raise NotConfigured("confidential jobs need PyNaCl: pip install 'cellblock[confidential]'") from error
    module: ModuleType = nacl.public
    return module
