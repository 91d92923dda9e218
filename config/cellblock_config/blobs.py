"""Settings of the blob store: the store for payloads and results that are too long for Redis."""

from __future__ import annotations

from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, SecretStr, field_validator

from cellblock_config.group import OptionalSecret, PositiveSeconds, SettingsGroup

SCHEMES = ("s3", "gs", "az", "file")
EXAMPLES = "s3://bucket/prefix, gs://bucket, az://account/container, file:///var/lib/cellblock/blobs"


class BlobSettings(SettingsGroup):
    """Without an address everything stays in Redis.

    Credentials come from the variables of the provider's own tools (``AWS_ACCESS_KEY_ID``,
    ``AWS_ENDPOINT_URL``, ``GOOGLE_APPLICATION_CREDENTIALS``, ``AZURE_STORAGE_ACCOUNT_KEY``, ...).
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    url: OptionalSecret = Field(None, description=f"For example {EXAMPLES}.")
    least_bytes: int = Field(
        32 * 1024, ge=1024, description="What is longer than this goes there: code, stdin, each file, ..."
    )
    timeout_s: PositiveSeconds = Field(10.0, description="How long one request may take, with its retries.")
    sweep_after_s: int = Field(
        6 * 3600,
        ge=60,
        description="What was left behind is removed after this to twice this; submitting a job takes less.",
    )
    ttl_s: int = Field(
        35 * 86_400, ge=3600, description="Older blobs are removed in any case; no job is kept as long."
    )

    @field_validator("url")
    @classmethod
    def _is_a_store(cls, url: SecretStr | None) -> SecretStr | None:
        if url is None:
            return url
        parts = urlsplit(url.get_secret_value())
        if parts.scheme not in SCHEMES:
            raise ValueError(f"must start with s3://, gs://, az:// or file:///; for example {EXAMPLES}")
        if parts.username or parts.password:
            raise ValueError("has a login in it: credentials come from the provider's own variables")
        if parts.scheme == "file" and (parts.netloc or not parts.path.strip("/")):
            raise ValueError("names no folder: file:/// and its absolute path")
        if parts.scheme in {"s3", "gs", "az"} and not parts.netloc:
            raise ValueError(f"names no bucket; for example {EXAMPLES}")
        if parts.scheme == "az" and not parts.path.strip("/"):
            raise ValueError("names no container: az://account/container")
        return url
