"""Every setting of cellblock, read once at the start and passed on.

Environment variables are ``CELLBLOCK_<GROUP>_<NAME>`` (``CELLBLOCK_REDIS_URL``,
``CELLBLOCK_WORKER_CONCURRENCY``); a ``.env`` file in the working directory is read too.
"""

from __future__ import annotations

import json
import os
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, cast, get_origin

from dotenv import dotenv_values
from pydantic import (
    BaseModel,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict
from pydantic_settings import SettingsError as SourceError

from cellblock_config.archive import ArchiveSettings
from cellblock_config.blobs import BlobSettings
from cellblock_config.egress import EgressSettings
from cellblock_config.group import OptionalPath, OptionalSecret, PositiveSeconds, SettingsGroup
from cellblock_config.launcher import LauncherSettings
from cellblock_config.ledger import LedgerSettings
from cellblock_config.names import problem_of
from cellblock_config.policy import PolicySettings
from cellblock_config.redis import RedisSettings
from cellblock_config.sandbox import SandboxSettings
from cellblock_config.sealing import SealingSettings
from cellblock_config.signing import SigningSettings
from cellblock_config.webhooks import WebhookSettings


class SettingsError(ValueError):
    """A setting is missing, unknown or contradicts another; the message names it and the remedy."""


class WorkerSettings(SettingsGroup):
    """The unprivileged half of a host: talks to Redis and reads what sandboxes send."""

    concurrency: int = Field(8, ge=1, le=256, description="Jobs that this worker runs at once.")
    user: str | None = Field(None, description="Started as root, the worker becomes this user.")
    drain_s: float = Field(
        25.0, ge=0, le=3600, description="After TERM running jobs have this long; then they are given back."
    )
    probe_s: PositiveSeconds = Field(1.0, description="How often a paused worker asks its launcher again.")
    canaries: bool = Field(
        True, description="Attack every isolation before the first claim, and use none that lets one through."
    )
    canary_s: PositiveSeconds = Field(3600.0, description="How often the attacks are run again.")
    silent_s: PositiveSeconds = Field(
        30.0, description="Jobs that wait this long while nothing is claimed: the worker counts as deaf."
    )
    memory_check: Literal["refuse", "warn", "off"] = Field(
        "warn",
        description="What a worker does at its start if its jobs could make it hold more memory than it has.",
    )
    health_address: str = Field("127.0.0.1", description="Address on which GET /health is served.")
    health_port: int | None = Field(
        None, ge=0, le=65_535, description="Where GET /health is; off by default."
    )


class TelemetrySettings(SettingsGroup):
    """Logs and error reports. Sentry stays off unless a DSN is set."""

    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="What is logged.")
    log_format: Literal["json", "console"] = Field(
        "json", description="How it is logged: json for machines, console for people."
    )
    sentry_dsn: OptionalSecret = Field(
        None, description="Where Sentry takes error reports; without it none are sent."
    )
    environment: str = Field("production", description="The environment that error reports name.")


class MonitorSettings(SettingsGroup):
    """Flower, for operators to watch; read-only and behind a password, always."""

    address: str = Field("127.0.0.1", description="Address on which Flower is served.")
    port: int = Field(5555, ge=0, le=65_535, description="Port of Flower; 0 takes a free one.")
    user: str = Field("cellblock", pattern=r"^[^:,\s]+$", description="Login name for Flower.")
    password: OptionalSecret = Field(
        None,
        description="Password for Flower: at least 8 characters, no comma. It does not start without one.",
    )

    @field_validator("password")
    @classmethod
    def _password_is_one(cls, password: SecretStr | None) -> SecretStr | None:
        # Flower reads a comma as the end of one login and the start of another.
        if password is not None and (
            "," in password.get_secret_value() or len(password.get_secret_value()) < 8
        ):
            raise ValueError("must have at least 8 characters and no comma; `openssl rand -hex 12` makes one")
        return password


class PlansSettings(SettingsGroup):
    """The plans of tenants, and the prices of runs."""

    file: OptionalPath = Field(
        None, description="Plans, roles and tenants, as TOML; cellblock's own by default."
    )
    default: str | None = Field(
        None, description="The plan of jobs that name none; without it only the operator's bounds hold them."
    )
    prices: OptionalPath = Field(None, description="pricing.json; the user's own or cellblock's by default.")


class Settings(BaseSettings):
    """All groups of settings. Use :func:`load_settings` to get readable errors."""

    model_config = SettingsConfigDict(
        env_prefix="CELLBLOCK_",
        env_nested_delimiter="_",
        env_nested_max_split=1,
        env_file=".env",
        env_file_encoding="utf-8",
        extra="ignore",
        frozen=True,
    )

    redis: RedisSettings = RedisSettings()
    ledger: LedgerSettings = LedgerSettings()
    plans: PlansSettings = PlansSettings()
    policy: PolicySettings = PolicySettings()
    sandbox: SandboxSettings = SandboxSettings()
    launcher: LauncherSettings = Field(default_factory=LauncherSettings)
    worker: WorkerSettings = WorkerSettings()
    archive: ArchiveSettings = ArchiveSettings()
    blobs: BlobSettings = BlobSettings()
    egress: EgressSettings = EgressSettings()
    signing: SigningSettings = SigningSettings()
    sealing: SealingSettings = SealingSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    monitor: MonitorSettings = MonitorSettings()
    webhooks: WebhookSettings = WebhookSettings()

    @model_validator(mode="after")
    def _groups_agree(self) -> Settings:
        if self.ledger.job_ttl_s < self.ledger.expires_s + 2 * self.sandbox.timeout_max_s:
            raise ValueError(
                f"ledger.job_ttl_s ({self.ledger.job_ttl_s}) must exceed ledger.expires_s "
                f"({self.ledger.expires_s:g}) by twice sandbox.timeout_max_s "
                f"({self.sandbox.timeout_max_s:g}): a job must not be forgotten before it has ended"
            )
        if self.ledger.files_bytes > self.sandbox.tmp_bytes:
            raise ValueError(
                f"ledger.files_bytes ({self.ledger.files_bytes}) is above sandbox.tmp_bytes "
                f"({self.sandbox.tmp_bytes}): the files have to fit into the work folder"
            )
        self._blobs_outlive_jobs()
        if 0 < self.signing.max_age_s <= self.ledger.lease_s:
            raise ValueError(
                f"signing.max_age_s ({self.signing.max_age_s:g}) must be 0 or more than ledger.lease_s "
                f"({self.ledger.lease_s:g}): a job whose worker was lost has to be young enough to run again"
            )
        return self

    def _blobs_outlive_jobs(self) -> None:
        if self.blobs.url is None:
            return
        stays_s = {
            **{
                f"ledger.{name}": getattr(self.ledger, name)
                for name in ("job_ttl_s", "result_ttl_s", "failed_ttl_s", "dead_ttl_s")
            },
            "archive.output_ttl_s": self.archive.output_ttl_s,
            "archive.failed_output_ttl_s": self.archive.failed_output_ttl_s,
        }
        longest = max(stays_s, key=lambda name: stays_s[name])
        if self.blobs.ttl_s < stays_s[longest] + 86_400:
            raise ValueError(
                f"blobs.ttl_s ({self.blobs.ttl_s}) must exceed {longest} ({stays_s[longest]}) by a day: long "
                "payloads and results are in the blob store"
            )


def load_settings(**groups: object) -> Settings:
    """Reads the environment and ``.env``; keyword arguments (one per group) win over both.

    Raises :class:`SettingsError` naming each wrong setting, without its value, which can be a secret.
    """
    dotenv = dotenv_values(".env") if Path(".env").is_file() else {}
    for name in (*os.environ, *dotenv):
        group = name.removeprefix("CELLBLOCK_").split("_", 1)[0].lower()
        if name.startswith("CELLBLOCK_") and group not in Settings.model_fields:
            raise SettingsError(
                f"{name}: there is no group {group!r}; the groups are {', '.join(Settings.model_fields)}"
            )
    for group in groups:
        if group not in Settings.model_fields:
            raise SettingsError(
                f"there is no group {group!r}; the groups are {', '.join(Settings.model_fields)}"
            )
    try:
        return Settings(**groups)  # type: ignore[arg-type]  # pydantic converts the values
    except SourceError as error:  # a variable is not the JSON it has to be
        raise SettingsError(
            f"{_not_json() or error}: lists and tables are JSON, for example "
            "CELLBLOCK_SANDBOX_ISOLATIONS='[\"gvisor\"]'"
        ) from None
    except ValidationError as error:
        raise SettingsError("; ".join(_in_words(one) for one in error.errors())) from None


#: Errors whose value is told: numbers, switches and words of a list hold no secret. An address would.
_SHOWN = {
    *("int_parsing", "float_parsing", "bool_parsing", "literal_error"),
    *("greater_than", "greater_than_equal", "less_than", "less_than_equal"),
}
#: Values of a list of isolations that name none, with what was meant.
_NO_ISOLATIONS = {"docker": "name gvisor or runc, which Docker runs"}


def _in_words(error: ErrorDetails) -> str:
    name = _setting_name(error["loc"])
    if error["type"] == "extra_forbidden" and len(error["loc"]) > 1:
        group, wrong, *_ = map(str, error["loc"])
        known = cast(type[BaseModel], Settings.model_fields[group].annotation).model_fields
        meant = get_close_matches(wrong, known, n=1) or sorted(known)
        return f"{name}: there is no such setting; did you mean {' or '.join(meant)}?"
    problem = problem_of(error)
    if error["type"] in _SHOWN:
        problem = f"{problem} (got {error['input']!r:.80})"
    if error["type"] == "literal_error" and (remedy := _NO_ISOLATIONS.get(str(error["input"]))):
        problem = f"{problem}; {remedy}"
    # An error about a group as a whole names its settings itself.
    return problem if len(error["loc"]) == 1 and error["type"] == "value_error" else f"{name}: {problem}"


def _not_json() -> str | None:
    """The names of variables that have to be JSON and are not, without their values; None if all are."""
    variables = {**dotenv_values(".env"), **os.environ} if Path(".env").is_file() else dict(os.environ)
    wrong = []
    for group, described in Settings.model_fields.items():
        for name, setting in cast(type[BaseModel], described.annotation).model_fields.items():
            variable = f"CELLBLOCK_{group}_{name}".upper()
            if get_origin(setting.annotation) in {tuple, dict} and variable in variables:
                try:
                    json.loads(variables[variable] or "")
                except ValueError:
                    wrong.append(variable)
    return f"{', '.join(wrong)} cannot be read" if wrong else None


def _setting_name(location: tuple[int | str, ...]) -> str:
    if not location:
        return "settings"
    name = ".".join(str(part) for part in location)
    return f"{name} (CELLBLOCK_{'_'.join(str(part) for part in location[:2]).upper()})"
