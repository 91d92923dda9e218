"""Settings of confidential jobs: the keys that their programs and results are sealed to."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, SecretStr, field_validator

from cellblock_config.group import OptionalSecret, SettingsGroup
from cellblock_config.names import NAME

_KEY_BYTES = 32


def sealing_key(text: str, kind: str) -> bytes:
    """The bytes of a key of this kind, ``x25519`` or ``x25519-public``.

    Raises ValueError; its message does not contain any part of the key.
    """
    given, _, encoded = text.partition(":")
    if given != kind:
        raise ValueError(f"must be {kind}:<base64> (cellblock seal-key new)")
    try:
        material = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("is not base64 after its kind") from None
    if len(material) != _KEY_BYTES:
        raise ValueError(f"is {len(material)} bytes; {kind} needs exactly {_KEY_BYTES}")
    return material


def _public(text: str) -> str:
    sealing_key(text, "x25519-public")
    return text


PublicKey = Annotated[str, AfterValidator(_public)]


class SealingSettings(SettingsGroup):
    """Producers need the public keys, workers ``fleet_private_key``, readers of results ``private_key``.

    ``cellblock seal-key new`` makes the pairs.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    tenant_keys: dict[Annotated[str, Field(pattern=NAME)], PublicKey] = Field(
        {}, description="By tenant, what the results of its confidential jobs are sealed to."
    )
    fleet_key: PublicKey | None = Field(
        None, description="What programs and inputs of confidential jobs are sealed to, for workers to open."
    )
    fleet_private_key: OptionalSecret = Field(None, description="Opens those. Workers only.")
    private_key: OptionalSecret = Field(
        None, description="Opens results sealed to its tenant, where they are fetched."
    )

    @field_validator("fleet_key", mode="before")
    @classmethod
    def _empty_is_none(cls, value: object) -> object:
        return None if value == "" else value

    @field_validator("tenant_keys", mode="before")
    @classmethod
    def _tenants_are_names(cls, keys: object) -> object:
        # The error does not show the name: if tenant and key are swapped, the key must not be in a log.
        if isinstance(keys, dict) and not all(re.fullmatch(NAME, str(name)) for name in keys):
            raise ValueError("names a tenant by something that is not a tenant's name")
        return keys

    @field_validator("fleet_private_key", "private_key")
    @classmethod
    def _is_private(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None:
            sealing_key(key.get_secret_value(), "x25519")
        return key
