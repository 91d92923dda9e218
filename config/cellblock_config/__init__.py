"""Settings, levels and the data cellblock ships with; imports neither of the other packages."""

import typing as _typing

from cellblock_config.public_names import found_late as _found_late

if _typing.TYPE_CHECKING:
    from cellblock_config.egress import EgressSettings
    from cellblock_config.launcher import ContainerBackend, LauncherSettings
    from cellblock_config.ledger import LedgerSettings
    from cellblock_config.levels import LEVELS, Isolation, LevelDefaults, LevelName, PriorityClass, Unisolated
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
else:
    __getattr__, __dir__ = _found_late(
        __name__,
        {
            "cellblock_config.egress": ("EgressSettings",),
            "cellblock_config.launcher": (
                "ContainerBackend",
                "LauncherSettings",
            ),
            "cellblock_config.ledger": ("LedgerSettings",),
            "cellblock_config.levels": (
                "LEVELS",
                "Isolation",
                "LevelDefaults",
                "LevelName",
                "PriorityClass",
                "Unisolated",
            ),
            "cellblock_config.redis": ("RedisSettings",),
            "cellblock_config.redis_address": ("RedisAddress",),
            "cellblock_config.sandbox": ("SandboxSettings",),
            "cellblock_config.settings": (
                "MonitorSettings",
                "Settings",
                "SettingsError",
                "TelemetrySettings",
                "WorkerSettings",
                "load_settings",
            ),
            "cellblock_config.signing": ("SigningSettings",),
            "cellblock_config.webhooks": ("WebhookSettings",),
        },
    )

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
    "PriorityClass",
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
