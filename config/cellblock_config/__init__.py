"""Settings, levels and the data cellblock ships with; imports neither of the other packages."""

from cellblock_config.egress import EgressSettings
from cellblock_config.launcher import ContainerBackend, LauncherSettings
from cellblock_config.ledger import LedgerSettings
from cellblock_config.levels import LEVELS, Isolation, LevelDefaults, LevelName, Unisolated
from cellblock_config.redis import RedisSettings
from cellblock_config.redis_address import RedisAddress
from cellblock_config.sandbox import SandboxSettings
from cellblock_config.settings import (
    MonitorSettings,
    Settings,
    SettingsError,
    TelemetrySettings,
    WorkerSettings,
    load_settings,
)
from cellblock_config.signing import SigningSettings
from cellblock_config.webhooks import WebhookSettings

__all__ = [
    "LEVELS",
    "ContainerBackend",
    "EgressSettings",
    "Isolation",
    "LauncherSettings",
    "LedgerSettings",
    "LevelDefaults",
    "LevelName",
    "MonitorSettings",
    "RedisAddress",
    "RedisSettings",
    "SandboxSettings",
    "Settings",
    "SettingsError",
    "SigningSettings",
    "TelemetrySettings",
    "Unisolated",
    "WebhookSettings",
    "WorkerSettings",
    "load_settings",
]
