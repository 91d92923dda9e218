"""Settings, levels and the data cellblock ships with; imports neither of the other packages."""

from cellblock_config.levels import LEVELS, LevelDefaults, LevelName
from cellblock_config.settings import (
    EgressSettings,
    LauncherSettings,
    LedgerSettings,
    MonitorSettings,
    RedisSettings,
    SandboxSettings,
    Settings,
    SettingsError,
    TelemetrySettings,
    WorkerSettings,
    load_settings,
)

__all__ = [
    "LEVELS",
    "EgressSettings",
    "LauncherSettings",
    "LedgerSettings",
    "LevelDefaults",
    "LevelName",
    "MonitorSettings",
    "RedisSettings",
    "SandboxSettings",
    "Settings",
    "SettingsError",
    "TelemetrySettings",
    "WorkerSettings",
    "load_settings",
]
