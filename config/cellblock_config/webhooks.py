"""Settings of webhooks: the addresses that get events, and how often a delivery is tried."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, SecretStr, field_validator, model_validator

from cellblock_config.group import OptionalSecret, PositiveSeconds, SettingsGroup

#: A shorter secret could be guessed from one delivery, offline.
_SECRET_LEAST = 16


#: The names in cellblock.contract.events; this package does not import it, so a test compares the two.
EventName = Literal[
    "agent.events.gap",
    "agent.run.queued",
    "agent.run.started",
    "agent.run.retried",
    "agent.run.succeeded",
    "agent.run.failed",
    "agent.run.cancelled",
    "agent.run.rejected",
]


class WebhookSettings(SettingsGroup):
    """How ``cellblock webhooks`` delivers events. An address can hold a token, so it is never shown whole."""

    model_config = ConfigDict(hide_input_in_errors=True)

    urls: tuple[SecretStr, ...] = Field((), description="Every event of interest goes to each of them.")
    secret: OptionalSecret = Field(None, description="Receivers check signatures with it.")
    events: tuple[EventName, ...] = Field(
        (
            "agent.events.gap",
            "agent.run.succeeded",
            "agent.run.failed",
            "agent.run.cancelled",
            "agent.run.rejected",
        ),
        description="Which types of events are posted.",
    )
    allow_private: bool = Field(False, description="Also to addresses of this host and of private networks.")
    tries_max: int = Field(
        10, ge=1, le=100, description="How often a delivery is tried before it has failed for good."
    )
    backoff_s: PositiveSeconds = Field(1.0, description="After the first failed try; then twice as long.")
    timeout_s: float = Field(5.0, gt=0, le=60, description="How long one try may take.")
    parallel: int = Field(4, ge=1, le=64, description="Tries at the same time.")
    dead_kept: int = Field(10_000, ge=1, description="Deliveries that failed for good.")

    @field_validator("urls")
    @classmethod
    def _are_addresses(cls, urls: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        for url in urls:
            parts = urlsplit(url.get_secret_value())
            if parts.scheme not in {"http", "https"} or not parts.hostname:
                raise ValueError("every address must start with http:// or https:// and name a host")
            try:
                parts.hostname.encode("idna"), parts.port
            except ValueError:
                raise ValueError("an address has a host or a port that cannot be one") from None
        return urls

    @model_validator(mode="after")
    def _are_signed(self) -> WebhookSettings:
        secret = self.secret.get_secret_value().strip() if self.secret else ""
        if self.urls and len(secret) < _SECRET_LEAST:
            found = f"has fewer than {_SECRET_LEAST} characters" if secret else "is not set"
            raise ValueError(
                f"webhooks.urls is set and webhooks.secret (CELLBLOCK_WEBHOOKS_SECRET) {found}: "
                "receivers could not tell our events from anybody's"
            )
        return self
