"""Signed jobs: the one place that signs manifests and checks their signatures.

Stops an attacker who can write to Redis, but holds no key, from running code or changing a job. The signature
covers the job's id and every field of the manifest except itself, so a job can neither be altered nor run
under another id. It covers ``submitted``, so the job's age is known. What Redis says *about* a job (its
state, events, result) is not signed.

A signature holds only the name of its key. The worker's own settings alone decide how it is checked, so a
public key cannot be passed off as an HMAC secret.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, Protocol

from pydantic import SecretStr

from cellblock.admission.resolve import Manifest, Signature
from cellblock.errors import NotConfigured
from cellblock_config import SigningSettings
from cellblock_config.signing import key_material

#: Separates these signatures from all others: a text signed here is valid nowhere else, nor the reverse.
_DOMAIN = b"cellblock-job-v1\n"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a job must not run, with the remedy."""

    kind: Literal["SignatureMissing", "SignatureKeyUnknown", "SignatureInvalid", "SignatureExpired"]
    why: str


class Signer:
    """Signs with ``signing.key``; leaves jobs unsigned without one.

    Raises :class:`NotConfigured` when the key's extra is not installed, or when the key and the one
    trusted under its id do not belong together.
    """

    def __init__(self, settings: SigningSettings) -> None:
        self._key_id = settings.key_id
        self._key = _signing_key(settings.key) if settings.key else None
        if self._key is None or self._key_id not in settings.trusted:
            return
        if not _checking_key(settings.trusted[self._key_id]).fits(b"", self._key.sign(b"")):
            raise NotConfigured(
                f"signing.key and the key {self._key_id!r} of signing.trusted do not belong together: "
                "workers would reject every job"
            )

    def signed(self, job_id: str, manifest: Manifest) -> Manifest:
        """The manifest with a signature that holds under this job id only."""
        if self._key is None or self._key_id is None:
            return manifest
        value = self._key.sign(_message(job_id, manifest.model_dump(mode="json", exclude={"signature"})))
        signature = Signature(key_id=self._key_id, value=base64.b64encode(value).decode())
        return manifest.model_copy(update={"signature": signature})


class Verifier:
    """Judges signatures by ``signing.trusted`` and the process's own key. Thread-safe.

    Raises :class:`NotConfigured` when a key's extra is not installed.
    """

    def __init__(self, settings: SigningSettings) -> None:
        self._required = settings.require_signature
        self._max_age_s = settings.max_age_s
        self._keys: dict[str, _CheckingKey] = {}
        if settings.key and settings.key_id:
            self._keys[settings.key_id] = _signing_key(settings.key)
        self._keys |= {key_id: _checking_key(key) for key_id, key in settings.trusted.items()}

    def refusal(self, job_id: str, manifest: Manifest) -> Refusal | None:
        """Why this job must not run here; None if it may. A signature that is there is always checked."""
        signature = manifest.signature
        if signature is None:
            if not self._required:
                return None
            return Refusal(
                "SignatureMissing",
                "the job is not signed, and this worker runs signed jobs only: "
                "set CELLBLOCK_SIGNING_KEY where it is submitted",
            )
        key = self._keys.get(signature.key_id)
        if key is None:
            return Refusal(
                "SignatureKeyUnknown",
                f"signed with the key {signature.key_id!r}, which this worker does not know: "
                "add it to CELLBLOCK_SIGNING_TRUSTED",
            )
        # Only the fields in the stored document: a field that a later version adds with a default is not
        # in it, and leaving out a signed field changes the message.
        stated = manifest.model_dump(mode="json", exclude={"signature"}, exclude_unset=True)
        if not key.fits(_message(job_id, stated), _decoded(signature.value)):
            return Refusal(
                "SignatureInvalid",
                f"the signature under the key {signature.key_id!r} does not fit the job: it was altered, or "
                "the signature is another job's or made with another key of that name; submit it again",
            )
        return self._expiry(manifest.submitted)

    def _expiry(self, submitted: float) -> Refusal | None:
        age_s = time.time() - submitted
        # A job from the future is refused like an old one: its age is not known.
        if self._max_age_s == 0 or abs(age_s) <= self._max_age_s:
            return None
        return Refusal(
            "SignatureExpired",
            f"signed {age_s:.0f} s ago; at most {self._max_age_s:g} s are accepted "
            "(CELLBLOCK_SIGNING_MAX_AGE_S): submit it again",
        )


def new_key(kind: Literal["hmac", "ed25519"]) -> tuple[str, str]:
    """A fresh key as values of two settings: the signing key and the checking key. Secret: both for hmac,
    the first for ed25519. Raises :class:`NotConfigured` without the extra."""
    material = secrets.token_bytes(32)
    if kind == "hmac":
        return (_setting("hmac", material),) * 2
    public = bytes(_ed25519().SigningKey(material).verify_key)
    return _setting("ed25519", material), _setting("ed25519-public", public)


def _message(job_id: str, fields: Mapping[str, Any]) -> bytes:
    document = {"job_id": job_id, "manifest": fields}
    return _DOMAIN + json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _decoded(value: str) -> bytes:
    """The signature's bytes; no bytes, which fit nothing, for a text that is not base64."""
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _setting(kind: str, material: bytes) -> str:
    return f"{kind}:{base64.b64encode(material).decode()}"


class _CheckingKey(Protocol):
    def fits(self, message: bytes, signature: bytes) -> bool: ...


class _SigningKey(_CheckingKey, Protocol):
    def sign(self, message: bytes) -> bytes: ...


class _Hmac:
    """One secret for both: a holder who can check signatures can also sign."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def sign(self, message: bytes) -> bytes:
        return hmac.digest(self._secret, message, hashlib.sha256)

    def fits(self, message: bytes, signature: bytes) -> bool:
        return hmac.compare_digest(self.sign(message), signature)


class _Ed25519Public:
    """Checks only: a taken-over worker can sign nothing."""

    def __init__(self, public: bytes) -> None:
        self._key = _ed25519().VerifyKey(public)

    def fits(self, message: bytes, signature: bytes) -> bool:
        from nacl.exceptions import CryptoError

        try:
            self._key.verify(message, signature)
        except (CryptoError, ValueError):  # ValueError: not 64 bytes long
            return False
        return True


class _Ed25519(_Ed25519Public):
    def __init__(self, seed: bytes) -> None:
        self._seed = _ed25519().SigningKey(seed)
        super().__init__(bytes(self._seed.verify_key))

    def sign(self, message: bytes) -> bytes:
        return bytes(self._seed.sign(message).signature)


def _signing_key(key: SecretStr) -> _SigningKey:
    kind, material = key_material(key)
    return _Hmac(material) if kind == "hmac" else _Ed25519(material)


def _checking_key(key: SecretStr) -> _CheckingKey:
    kind, material = key_material(key)
    return _Hmac(material) if kind == "hmac" else _Ed25519Public(material)


def _ed25519() -> ModuleType:
    # Imported only when such a key is used: the base install has HMAC alone.
    try:
        import nacl.signing
    except ModuleNotFoundError as error:
        raise NotConfigured("ed25519 keys need PyNaCl: pip install 'cellblock[signing]'") from error
    module: ModuleType = nacl.signing
    return module
