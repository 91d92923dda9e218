"""Settings of Redis: where the ledger and the broker live."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import Field, SecretStr, field_validator, model_validator

from cellblock_config.group import OptionalSecret, PositiveSeconds, SettingsGroup
from cellblock_config.redis_address import RedisAddress


class RedisSettings(SettingsGroup):
    """Where the ledger and the broker live. Without a url, ``cellblock run`` runs embedded."""

    url: OptionalSecret = Field(
        None,
        description="Address of Redis, such as redis://:password@host:6379/0, or rediss://.",
    )
    broker_url: OptionalSecret = Field(None, description="Celery's Redis; the ledger's own by default.")
    key_prefix: str = Field(
        "{cellblock}",
        max_length=64,
        description="With a hash tag in braces: all keys of a fleet belong into one slot of a Cluster.",
    )
    connect_timeout_s: PositiveSeconds = Field(1.0, description="How long connecting may take.")
    socket_timeout_s: PositiveSeconds = Field(2.0, description="How long one command may take.")
    tls_ca: Path | None = Field(None, description="Who signed a rediss:// server; the system's by default.")
    tls_cert: Path | None = Field(None, description="A client certificate, where the server asks for one.")
    tls_key: Path | None = Field(None, description="The key of tls_cert.")
    sentinel_password: OptionalSecret = Field(
        None, description="Password of the sentinels, where they have one."
    )

    @model_validator(mode="after")
    def _tls_files_have_a_use(self) -> RedisSettings:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("redis.tls_cert and redis.tls_key belong together: set both, or neither")
        urls = [url.get_secret_value() for url in (self.url, self.broker_url) if url is not None]
        if (self.tls_ca or self.tls_cert) and urls and not any(url.startswith("rediss") for url in urls):
            raise ValueError(
                "redis.tls_ca and redis.tls_cert are for rediss:// addresses; redis.url is in the clear"
            )
        return self

    @field_validator("tls_ca", "tls_cert", "tls_key")
    @classmethod
    def _is_there(cls, file: Path | None) -> Path | None:
        if file is not None and not file.is_file():
            raise ValueError(f"there is no file {file}")
        return file

    @field_validator("key_prefix")
    @classmethod
    def _has_a_hash_tag(cls, prefix: str) -> str:
        if re.fullmatch(r"[^{}]*\{[^{}]+\}[^{}]*", prefix) is None:
            name = re.sub(r"[{}]", "", prefix) or "cellblock"
            raise ValueError(f"{prefix!r} has no hash tag in braces: write {{{name}}}")
        return prefix

    @field_validator("url", "broker_url", mode="after")
    @classmethod
    def _is_a_redis_url(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None:
            RedisAddress.parse(url.get_secret_value())
        return url
