"""The checklist where a worker's launcher runs elsewhere: what that one answers on its socket.

This process might be in a container that makes no sandbox itself.
"""

from __future__ import annotations

from contextlib import closing
from typing import cast

from cellblock.errors import SandboxUnavailable
from cellblock_config import LEVELS, Isolation, LevelName, Settings
from cellblock_workers.doctor.checks import Check
from cellblock_workers.launcher.client import LauncherClient


def is_elsewhere(settings: Settings) -> bool:
    """Whether the settings name a launcher, which a worker then uses instead of one beside it."""
    return "socket" in settings.launcher.model_fields_set


def ask_launcher(settings: Settings) -> tuple[Check, dict[LevelName, Isolation | None]]:
    """What the launcher says of itself, and the isolation of each level; none if it does not answer."""
    levels: dict[LevelName, Isolation | None] = dict.fromkeys(LEVELS)
    timeout_s = settings.sandbox.start_timeout_s
    try:
        with closing(LauncherClient(settings.launcher.socket, timeout_s=timeout_s)) as client:
            reply = client.await_probe(timeout_s)
    except SandboxUnavailable as error:
        remedy = f"{error}; start it (cellblock launcher), or have it allow this user"
        return Check("launcher", "problem", "CELLBLOCK_LAUNCHER_SOCKET does not answer", remedy), levels
    for level, isolation in (reply.isolations or {}).items():
        levels[level] = cast(Isolation, isolation)
    if reply.reasons:
        why = "; ".join(f"{name}: {reason}" for name, reason in reply.reasons.items())
        return Check("launcher", "warning", "answers; not every isolation works where it runs", why), levels
    return Check("launcher", "ok", "CELLBLOCK_LAUNCHER_SOCKET answers, and its isolations work"), levels
