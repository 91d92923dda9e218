"""Settings of the archive: the SQL database for jobs that have left Redis."""

from __future__ import annotations

from pydantic import ConfigDict, Field, SecretStr, field_validator, model_validator

from cellblock_config.group import OptionalSecret, SettingsGroup

EXAMPLES = "sqlite:////var/lib/cellblock/archive.db, postgresql://user:password@host/cellblock"
_DAY_S = 86_400


class ArchiveSettings(SettingsGroup):
    """Without an address jobs are forgotten when they leave Redis."""

    model_config = ConfigDict(hide_input_in_errors=True)

    url: OptionalSecret = Field(None, description=f"For example {EXAMPLES}.")
    hot_s: int = Field(600, ge=0, description="How long an ended job that is in the archive stays in Redis.")
    output_ttl_s: int = Field(
        3 * _DAY_S, ge=60, description="How long the outputs of jobs that ended well are kept."
    )
    failed_output_ttl_s: int = Field(
        14 * _DAY_S,
        ge=60,
        description="How long the outputs of failed jobs are kept: somebody has to find out why.",
    )
    record_ttl_s: int = Field(
        400 * _DAY_S,
        ge=60,
        description="How long the record of a job is kept: whose, its end, its cost.",
    )
    batch: int = Field(500, ge=1, le=10_000, description="Jobs written at once.")

    @field_validator("url")
    @classmethod
    def _is_a_database(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None:
            text = url.get_secret_value()
            if not text.startswith(("sqlite:///", "postgresql://")):
                raise ValueError(f"must start with sqlite:/// or postgresql://: {EXAMPLES}")
            if text.startswith("sqlite:///") and not text.removeprefix("sqlite:///").startswith("/"):
                raise ValueError("names no absolute path: sqlite:/// and then the path, which begins with /")
        return url

    @model_validator(mode="after")
    def _records_outlive_outputs(self) -> ArchiveSettings:
        if self.record_ttl_s < max(self.output_ttl_s, self.failed_output_ttl_s):
            raise ValueError(
                "archive.record_ttl_s is below archive.output_ttl_s or archive.failed_output_ttl_s: what a "
                "job said cannot outlive its record"
            )
        return self
