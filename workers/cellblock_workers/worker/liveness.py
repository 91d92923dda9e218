"""Whether this host's workers consume: a living worker may still take no job from a full queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cellblock.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Liveness:
    """The verdict, why, and what it rests on.

    ``oldest_s``: how long the oldest waiting job has waited, in seconds. ``archive``: what is wrong with the
    archiver, or None. Jobs go on without the archiver, so this does not change the verdict.
    """

    ok: bool
    reason: str
    waiting: int
    oldest_s: float
    workers: Mapping[str, Mapping[str, object]]
    archive: str | None = None


def check_liveness(ledger: Ledger, host: str, silent_s: float, worker: str | None = None) -> Liveness:
    """Judges all workers of one host, or one of them, by what they last reported of themselves.

    Not ok: no worker of the host has reported lately, or jobs have waited for ``silent_s`` seconds while none
    of its workers claimed a job for as long although it had room. Raises :class:`StoreUnavailable`.
    """
    workers = {
        name: said
        for name, said in ledger.figures.workers().items()
        if said.get("host") == host and worker in {None, name}
    }
    waiting, oldest_s = ledger.figures.depth(), ledger.figures.oldest_wait_s()
    archive = ledger.archiving.problem()
    if not workers:
        reason = f"no worker of {host} has been heard of lately"
        return Liveness(
            ok=False, reason=reason, waiting=waiting, oldest_s=oldest_s, workers=workers, archive=archive
        )
    deaf = [name for name, said in workers.items() if _has_room(said) and _idle_s(said) > silent_s]
    if oldest_s > silent_s and len(deaf) == len(workers):
        states = ", ".join(
            f"{name}: {said.get('reason') or said.get('state')}" for name, said in workers.items()
        )
        reason = f"jobs wait for {oldest_s:.0f} s and nothing was claimed here for {silent_s:g} s ({states})"
        return Liveness(
            ok=False, reason=reason, waiting=waiting, oldest_s=oldest_s, workers=workers, archive=archive
        )
    return Liveness(ok=True, reason="", waiting=waiting, oldest_s=oldest_s, workers=workers, archive=archive)


def _has_room(said: Mapping[str, object]) -> bool:
    running, concurrency = said.get("running"), said.get("concurrency")
    return isinstance(running, int) and isinstance(concurrency, int) and running < concurrency


def _idle_s(said: Mapping[str, object]) -> float:
    idle_s = said.get("idle_s")
    return float(idle_s) if isinstance(idle_s, int | float) else 0.0
