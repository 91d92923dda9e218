"""Every setting of cellblock, read once at the start and passed on.

Environment variables are ``CELLBLOCK_<GROUP>_<NAME>`` (``CELLBLOCK_REDIS_URL``,
``CELLBLOCK_WORKER_CONCURRENCY``); a ``.env`` file in the working directory is read too.
"""

from __future__ import annotations

import json
import os
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal, cast, get_origin

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
from cellblock_config.levels import MIB
from cellblock_config.policy import PolicySettings
from cellblock_config.redis_address import RedisAddress
from cellblock_config.sandbox import SandboxSettings
from cellblock_config.sealing import SealingSettings
from cellblock_config.signing import SigningSettings
from cellblock_config.webhooks import WebhookSettings


class SettingsError(ValueError):
    """A setting is missing, unknown or contradicts another; the message names it and the remedy."""


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
        pattern=r"^[^{}]*\{[^{}]+\}[^{}]*$",
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

    @field_validator("url", "broker_url", mode="after")
    @classmethod
    def _is_a_redis_url(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None:
            RedisAddress.parse(url.get_secret_value())
        return url


class LedgerSettings(SettingsGroup):
    """The job protocol's constants (design section 4)."""

    lease_s: float = Field(
        10.0,
        gt=0,
        le=3600,
        description="How long a worker's right to a job lasts without a beat; then the job runs again.",
    )
    beat_s: PositiveSeconds = Field(3.0, description="How often a worker renews its leases.")
    reap_s: PositiveSeconds = Field(
        1.0, description="How often the leader of the upkeep looks after the store."
    )
    lead_s: PositiveSeconds = Field(
        3.0,
        description="One worker looks after the store; another does when it was not heard of for this long.",
    )
    loss_limit: int = Field(
        3, ge=1, le=100, description="After this many lost workers a job ends as worker_lost."
    )
    loss_backoff_s: tuple[Annotated[float, Field(ge=0, le=3600)], ...] = Field(
        (0.0, 5.0, 30.0), min_length=1, description="Pause after the first, second, ... lost worker."
    )
    fault_retries: int = Field(2, ge=0, le=20, description="How often a fault of ours is tried again.")
    retry_backoff_s: PositiveSeconds = Field(1.0, description="Before the first retry; then twice as long.")
    retry_backoff_max_s: PositiveSeconds = Field(300.0, description="The longest pause before a retry.")
    tenant_slots: int = Field(0, ge=0, description="Jobs of one tenant that run at once; 0 for no bound.")
    expires_s: PositiveSeconds = Field(
        86_400.0, description="A job that has not started by then is rejected; a job may ask for less."
    )
    republish_after_s: PositiveSeconds = Field(
        5.0, description="A job that could be claimed for this long gets another message."
    )
    queue_depth: int = Field(100_000, ge=1, description="Jobs that may wait in all; more are refused.")
    job_ttl_s: int = Field(7 * 86_400, ge=60, description="A job that never ends is forgotten after this.")
    result_ttl_s: int = Field(
        86_400, ge=10, description="How long jobs that ended well are kept; a plan may say otherwise."
    )
    failed_ttl_s: int = Field(
        3 * 86_400,
        ge=10,
        description="How long failed jobs are kept, if that is longer: somebody has to find out why.",
    )
    dead_ttl_s: int = Field(
        7 * 86_400, ge=60, description="How long jobs that ended through our fault are kept."
    )
    dead_kept: int = Field(10_000, ge=1, description="How many of those are kept at most.")
    memory_bytes: int = Field(
        0, ge=0, description="What the store may use, where that is less than its maxmemory. 0: maxmemory."
    )
    tenant_percent: int = Field(
        50, ge=1, le=100, description="Percent of the store's memory that the jobs of one tenant may take."
    )
    result_least_s: int = Field(
        60, ge=0, description="How long an ended job is kept at least, unless the store is fuller than 95 %."
    )
    events_read_ttl_s: int = Field(
        600, ge=0, description="Events that every group has read are dropped at this age."
    )
    events_ttl_s: int = Field(3 * 86_400, ge=10, description="Older events are dropped, read or not.")
    events_kept: int = Field(
        1_000_000,
        ge=100,
        description="Where there are more events, the oldest are dropped, read or not: the last resort.",
    )
    code_bytes: int = Field(1 * MIB, ge=1, le=16 * MIB, description="The longest program of a job.")
    stdin_bytes: int = Field(8 * MIB, ge=0, le=16 * MIB, description="The longest stdin of a job.")
    files_bytes: int = Field(8 * MIB, ge=0, le=32 * MIB, description="All files of a job, with their names.")
    files_count: int = Field(256, ge=0, le=10_000, description="Files that a job may bring.")
    env_bytes: int = Field(
        32 * 1024, ge=0, le=MIB, description="All environment variables of a job together."
    )
    inputs_bytes: int = Field(8 * MIB, ge=0, le=32 * MIB, description="All inputs, as JSON or Arrow.")
    evaluation_bytes: int = Field(
        8 * MIB, ge=0, le=32 * MIB, description="All programs and tests of one evaluation."
    )
    value_bytes: int = Field(1 * MIB, ge=0, le=16 * MIB, description="A longer value is left out.")
    artifacts_count: int = Field(64, ge=0, le=10_000, description="Files that a job may leave.")
    artifact_bytes: int = Field(4 * MIB, ge=0, le=32 * MIB, description="One file; a larger one is left out.")
    artifacts_bytes: int = Field(16 * MIB, ge=0, le=64 * MIB, description="All returned files of one job.")

    @model_validator(mode="after")
    def _lease_outlives_three_beats(self) -> LedgerSettings:
        if self.lease_s < 3 * self.beat_s:
            raise ValueError(
                f"ledger.lease_s ({self.lease_s:g}) must be at least three times ledger.beat_s "
                f"({self.beat_s:g}): one lost beat must not cost a job its lease"
            )
        return self

    @model_validator(mode="after")
    def _reapers_are_in_time(self) -> LedgerSettings:
        if self.lead_s < 2 * self.reap_s:
            raise ValueError(
                f"ledger.lead_s ({self.lead_s:g}) must be at least twice ledger.reap_s ({self.reap_s:g}): "
                "or who leads the upkeep would lose the lead between two rounds"
            )
        if self.quiet_s < 2 * self.reap_s:
            raise ValueError(
                f"ledger.reap_s ({self.reap_s:g}) must be at most half of ledger.lease_s less two beats "
                f"({self.quiet_s:g}): a slower reaper would take its own pauses for outages"
            )
        return self

    @property
    def quiet_s(self) -> float:
        """A lease lasts at least this long after a store goes away: the last beat can be one beat old."""
        return self.lease_s - 2 * self.beat_s

    @model_validator(mode="after")
    def _one_artifact_fits_all(self) -> LedgerSettings:
        if self.artifact_bytes > self.artifacts_bytes:
            raise ValueError(
                f"ledger.artifact_bytes ({self.artifact_bytes}) is above ledger.artifacts_bytes "
                f"({self.artifacts_bytes}): one file has to fit into what all may have"
            )
        return self


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
        description="What a worker does at its start that may hold less than its jobs can make it hold.",
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
            raise ValueError("must have at least 8 characters and no comma")
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


def _in_words(error: ErrorDetails) -> str:
    name = _setting_name(error["loc"])
    if error["type"] == "extra_forbidden" and len(error["loc"]) > 1:
        group, wrong, *_ = map(str, error["loc"])
        known = cast(type[BaseModel], Settings.model_fields[group].annotation).model_fields
        meant = get_close_matches(wrong, known, n=1) or sorted(known)
        return f"{name}: there is no such setting; did you mean {' or '.join(meant)}?"
    problem = error["msg"].removeprefix("Value error, ")
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
