"""Acquires a sandbox for a job, and finds out whose fault it is when none starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from cellblock_config import Settings
from cellblock_config.levels import MIB
from cellblock_workers.launcher.backend import (
    BackendUnavailable,
    CannotStart,
    GuestEnded,
    Profile,
    Sandbox,
    StartFailed,
)
from cellblock_workers.launcher.cascade import Cascade, LevelRefused
from cellblock_workers.launcher.pool import Pool, PooledSandbox


@dataclass(frozen=True, slots=True)
class Acquired:
    """A sandbox for a job. ``start_cpu_ms``: the CPU time of its start if it was made for this job alone,
    else 0."""

    sandbox: Sandbox
    warm: bool
    start_cpu_ms: int


class Acquirer:
    """Takes sandboxes out of the pool for jobs.

    ``on_change`` is called when a probe has chosen other isolations than before.
    """

    def __init__(
        self, pool: Pool, cascade: Cascade, settings: Settings, *, on_change: Callable[[], None]
    ) -> None:
        self._pool = pool
        self._cascade = cascade
        self._settings = settings
        self._on_change = on_change

    def acquire(self, profile: Profile, tenant: str) -> Acquired:
        """A fresh sandbox for a job of this tenant.

        Raises :class:`CannotStart` if the job asked for too little, else :class:`BackendUnavailable`.
        """
        taken = self._take(profile, tenant)
        try:
            cpu_ms = taken.sandbox.hand_over()
        except BaseException:
            self._pool.discard(taken.sandbox)
            raise
        return Acquired(taken.sandbox, taken.warm, cpu_ms if taken.to_order else 0)

    def _take(self, profile: Profile, tenant: str) -> PooledSandbox:
        """Takes a sandbox. After a refused start a probe shows whether the host is at fault; then it is tried
        again."""
        timeout_s = self._settings.sandbox.start_timeout_s
        try:
            return self._pool.acquire(profile, timeout_s, tenant)
        except LevelRefused:
            raise
        except StartFailed:
            before = self._cascade.chosen
            if self._cascade.probe() != before:
                self._on_change()  # what stands warm was started under another isolation
                raise
        try:
            return self._pool.acquire(profile, timeout_s, tenant)
        except GuestEnded as error:
            most_bytes = self._settings.sandbox.memory_max_bytes
            if not self._starts(replace(profile, memory_bytes=most_bytes), tenant):
                raise  # the image is broken, or lacks a module to preload: no job is to blame
            raise CannotStart(
                f"{error} Twice so, and with {most_bytes // MIB} MiB of memory it starts: ask for more "
                "(limits.memory_bytes)"
            ) from error

    def _starts(self, profile: Profile, tenant: str) -> bool:
        try:
            taken = self._pool.acquire(profile, self._settings.sandbox.start_timeout_s, tenant)
        except BackendUnavailable:
            return False
        self._pool.discard(taken.sandbox)
        return True
