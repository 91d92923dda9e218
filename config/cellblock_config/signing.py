"""Settings of signed jobs: the signing key, and the keys that a worker trusts."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Annotated

from pydantic import ConfigDict, Field, SecretStr, field_validator, model_validator

from cellblock_config.group import OptionalSecret, SettingsGroup

KEY_ID = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
#: Shorter secrets can be guessed from one signed job, offline.
_HMAC_LEAST_BYTES = 32
_ED25519_BYTES = 32


class SigningSettings(SettingsGroup):
    """Producers need ``key`` and ``key_id``, workers ``trusted``; ``cellblock sign-key new`` makes both.

    A process trusts its own key without an entry in ``trusted``.
    """

    # hide_input: two of these values are secrets.
    model_config = ConfigDict(hide_input_in_errors=True)

    key: OptionalSecret = Field(
        None, description="Signs what this process submits: hmac:<base64> or ed25519:<base64 of the seed>."
    )
    key_id: Annotated[str, Field(pattern=KEY_ID)] | None = Field(
        None, description="The name workers know the key by."
    )
    trusted: dict[str, SecretStr] = Field(
        {}, description="By key id, what checks its signatures: hmac:<base64> or ed25519-public:<base64>."
    )
    require_signature: bool = Field(False, description="A worker rejects what is not signed.")
    max_age_s: float = Field(
        0, ge=0, le=31 * 86_400, description="Jobs signed longer ago are rejected; 0: any age."
    )

    @field_validator("key_id", mode="before")
    @classmethod
    def _empty_is_none(cls, value: object) -> object:
        return None if value == "" else value

    @field_validator("key")
    @classmethod
    def _key_signs(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None and key_material(key)[0] == "ed25519-public":
            raise ValueError("is a public key, which cannot sign; give ed25519:<base64 of the seed>")
        return key

    @field_validator("trusted", mode="before")
    @classmethod
    def _ids_are_ids(cls, trusted: object) -> object:
        # First of all, and without the name: if id and key are swapped, the key must not be in a log.
        if isinstance(trusted, dict) and not all(re.fullmatch(KEY_ID, str(name)) for name in trusted):
            raise ValueError("names a key by more than letters, digits, '_', '.' and '-', 64 at most")
        return trusted

    @field_validator("trusted")
    @classmethod
    def _trusted_check(cls, trusted: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name, key in trusted.items():
            try:
                kind, _ = key_material(key)
            except ValueError as error:
                raise ValueError(f"key {name!r} {error}") from None
            if kind == "ed25519":
                raise ValueError(
                    f"key {name!r} is a seed, which signs; a worker gets ed25519-public:<base64> only"
                )
        return trusted

    @model_validator(mode="after")
    def _keys_are_there(self) -> SigningSettings:
        if self.key is not None and self.key_id is None:
            raise ValueError("signing.key needs signing.key_id, the name workers know it by")
        if self.key is None and self.key_id is not None:
            raise ValueError(f"signing.key_id ({self.key_id!r}) names a key, and signing.key is not set")
        if self.key is None and not self.trusted:
            if self.require_signature:
                raise ValueError(
                    "signing.require_signature is on and signing.trusted names no key: "
                    "every job would be rejected"
                )
            if self.max_age_s:
                raise ValueError(
                    f"signing.max_age_s ({self.max_age_s:g}) is set and signing.trusted names no key: "
                    "only a signature tells a job's age"
                )
        return self


def key_material(key: SecretStr) -> tuple[str, bytes]:
    """The kind and the bytes of a key. Raises ValueError; its message contains no part of the key."""
    kind, _, encoded = key.get_secret_value().partition(":")
    try:
        material = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("is not base64 after its kind") from None
    if kind == "hmac":
        if len(material) < _HMAC_LEAST_BYTES:
            raise ValueError(f"is {len(material)} bytes; hmac needs {_HMAC_LEAST_BYTES} or more")
        return kind, material
    if kind in {"ed25519", "ed25519-public"}:
        if len(material) != _ED25519_BYTES:
            raise ValueError(f"is {len(material)} bytes; {kind} needs exactly {_ED25519_BYTES}")
        return kind, material
    raise ValueError("must start with hmac:, ed25519: or ed25519-public: (cellblock sign-key new)")
