"""Requests of workers, held to the launcher's own settings: a taken-over worker gains nothing."""

from __future__ import annotations

from cellblock_config import Settings
from cellblock_workers.launcher.backend import Profile
from cellblock_workers.launcher.contexts import resolve_context
from cellblock_workers.launcher.protocol import Acquire


def outside_of_bounds(request: Acquire, settings: Settings) -> str | None:
    """Why the launcher refuses a request: what in it lies outside its settings. None: nothing does."""
    bounds = settings.sandbox
    if request.image not in bounds.images:
        return f"image {request.image!r} is not one of {sorted(bounds.images)}"
    checks = (
        ("memory_bytes", request.memory_bytes, bounds.memory_min_bytes, bounds.memory_max_bytes),
        ("cpus", request.cpus, bounds.cpus_min, bounds.cpus_max),
        ("pids", request.pids, 1, bounds.pids_max),
    )
    for name, value, least, most in checks:
        if not least <= value <= most:
            return f"{name} {value} is outside {least} to {most}"
    return None


def profile_of(request: Acquire, settings: Settings) -> Profile:
    """The profile that a request asks for. Raises :class:`ContextRefused` for a context outside the roots."""
    context = request.context
    if context is not None:
        context = resolve_context(context, settings.launcher.context_roots)
    return Profile(
        level=request.level,
        image=request.image,
        memory_bytes=request.memory_bytes,
        cpus=request.cpus,
        pids=request.pids,
        context=context,
        series=request.series,
    )


def default_profile(settings: Settings) -> Profile:
    """The profile of a job that names no limits, image or level."""
    limits = settings.sandbox.defaults_of("standard")
    image = settings.sandbox.default_image
    return Profile(
        level="standard", image=image, memory_bytes=limits.memory_bytes, cpus=limits.cpus, pids=limits.pids
    )
