"""Attacks run as jobs on a live launcher: whether each control of an isolation bites.

The jobs take the same road as a tenant's (:func:`cellblock_workers.worker.execution.execute`), but without
the ledger: no tenant owns them, so nothing of them is stored.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from cellblock.admission.resolve import Manifest, ResolvedLimits, resolve, resolve_limits
from cellblock.contract.job_spec import JobSpec, Limits
from cellblock.contract.outcomes import Outcome
from cellblock.contract.results import JobResult
from cellblock.errors import SandboxUnavailable
from cellblock.ledger import Claim
from cellblock_config import EgressSettings, Isolation, LedgerSettings, LevelName, Settings
from cellblock_workers.filtering.outgoing_filter import OutgoingFilter
from cellblock_workers.launcher.client import LauncherClient
from cellblock_workers.lease import Lease
from cellblock_workers.worker.canaries.controls import ESCAPED, HELD, Control
from cellblock_workers.worker.execution import execute

_AT_ONCE = 4
#: An end that is neither the control's nor an escape may be chance: the attack runs once more.
_TRIES = 2
_HOST_FILES = ("/etc/shadow", "/etc/gshadow")
_HOST_SOCKETS = ("/run/containerd/containerd.sock", "/run/dbus/system_bus_socket", "/run/systemd/private")

State = Literal["proven", "not proven", "too slow", "elsewhere"]


class Way(NamedTuple):
    """How a sandbox was made: the isolation, and the backend that made it."""

    isolation: str
    backend: str


@dataclass(frozen=True, slots=True)
class ControlFinding:
    """What one control showed. ``detail`` says what escaped, how else it ended, or what holds it instead.

    ``too slow``: nothing escaped, but the attack did not finish in its time. Either the host is loaded, or
    the control slows the attack instead of refusing it: with more time the two can be told apart.
    """

    control: Control
    state: State
    detail: str
    way: Way | None
    wall_ms: int


@dataclass(frozen=True, slots=True)
class _Ground:
    """What all attacks of one round share: where they run, and the parts of this host out of bounds."""

    launcher: LauncherClient
    settings: Settings
    level: LevelName
    facts: dict[str, Any]
    patience: float
    outgoing: OutgoingFilter


@dataclass(frozen=True, slots=True)
class _Problem:
    """What speaks against a control."""

    state: Literal["not proven", "too slow"]
    detail: str


def prove(
    launcher: Path,
    settings: Settings,
    level: LevelName,
    controls: Sequence[Control],
    *,
    found: Callable[[ControlFinding], None] = lambda finding: None,
    patience: float = 1.0,
) -> list[ControlFinding]:
    """Attacks the sandboxes that the launcher gives this level, several at once. Returns in the controls'
    order.

    ``found`` is called with each finding as it is made, from the thread that made it. ``patience``: the
    factor on each attack's usual time; above 1 they run one after the other. Raises
    :class:`SandboxUnavailable` when there is no sandbox: then nothing is known.
    """
    client = LauncherClient(launcher, timeout_s=2 * settings.sandbox.start_timeout_s + 10)
    # What a control says must not be cut short by an operator's limits on output or on what jobs bring.
    settings = settings.model_copy(update={"egress": EgressSettings(), "ledger": LedgerSettings()})

    def work(control: Control) -> ControlFinding:
        try:
            finding = _attack(control, ground)
        finally:
            client.close()  # this thread's connection
        found(finding)
        return finding

    with (
        _listeners() as facts,
        closing(OutgoingFilter(settings.egress)) as outgoing,
        ThreadPoolExecutor(_AT_ONCE if patience == 1 else 1, "canary") as pool,
    ):
        facts["patience"] = patience
        facts["tmp_bytes"] = settings.sandbox.tmp_bytes
        facts["files"] += [str(settings.launcher.socket), str(launcher)]
        ground = _Ground(
            launcher=client, settings=settings, level=level, facts=facts, patience=patience, outgoing=outgoing
        )
        futures = [pool.submit(work, control) for control in controls]
        done, waiting = wait(futures, return_when=FIRST_EXCEPTION)
        for future in waiting:
            future.cancel()
        for future in done:
            future.result()
        return [future.result() for future in futures]


def _attack(control: Control, ground: _Ground) -> ControlFinding:
    began = time.monotonic()
    tries = 0
    while True:
        tries += 1
        marker = f"cellblock-{secrets.token_hex(8)}"
        if control.before is not None:
            _run(control.before, control, ground, marker)
        result = _run(control.code, control, ground, marker)
        way = Way(result.isolation, result.backend or "") if result.isolation else None
        problem = _problem(control, result)
        wall_ms = round((time.monotonic() - began) * 1000)
        if problem is None:
            return ControlFinding(control=control, state="proven", detail="", way=way, wall_ms=wall_ms)
        escaped = problem.detail.startswith(ESCAPED)
        if escaped and (reason := control.elsewhere.get(cast(Isolation, result.isolation))) is not None:
            return ControlFinding(control=control, state="elsewhere", detail=reason, way=way, wall_ms=wall_ms)
        if escaped or tries == _TRIES:
            return ControlFinding(
                control=control, state=problem.state, detail=problem.detail, way=way, wall_ms=wall_ms
            )


def _problem(control: Control, result: JobResult) -> _Problem | None:
    """What speaks against the control; None if it bit."""
    escaped = [line for line in (result.stdout + result.stderr).splitlines() if line.startswith(ESCAPED)]
    if escaped:
        return _Problem("not proven", "; ".join(escaped)[:500])
    ended = f"{result.outcome}" + (f" ({result.error.message[:200]})" if result.error else "")
    if result.outcome not in control.outcomes:
        state: Literal["not proven", "too slow"] = (
            "too slow" if result.outcome is Outcome.WALL_TIMEOUT else "not proven"
        )
        return _Problem(state, f"ended as {ended}, not as {' or '.join(sorted(control.outcomes))}")
    if control.exit_code is not None and result.exit_code != control.exit_code:
        return _Problem("not proven", f"ended with exit code {result.exit_code}, not {control.exit_code}")
    if control.held and HELD not in result.stdout:
        return _Problem("not proven", f"did not come to its end: {ended}: {result.stdout[-200:]!r}")
    if control.held and "SLOW" in result.stdout:
        return _Problem("too slow", f"was not refused at once: {result.stdout[-200:]!r}")
    return None


def _run(code: str, control: Control, ground: _Ground, marker: str) -> JobResult:
    limits = _within_bounds(control.limits, ground)
    facts = {
        **ground.facts,
        "marker": marker,
        "memory_bytes": limits.memory_bytes,
        "pids": limits.pids,
    }
    spec = JobSpec(code=code, args=(json.dumps(facts),), level=ground.level)
    update = {"limits": limits, "modules": None}  # an operator's module guard does not matter here
    manifest: Manifest = resolve(spec, ground.settings).model_copy(update=update)
    now = time.time()
    lease = Lease(
        Claim(
            job_id=f"canary-{secrets.token_hex(8)}",
            fence=1,
            worker="canary",
            manifest=manifest,
            admitted=now,
            started=now,
        )
    )
    try:
        result = execute(
            lease=lease,
            manifest=lease.claim.manifest,
            launcher=ground.launcher,
            settings=ground.settings,
            outgoing=ground.outgoing,
        )
    finally:
        lease.close()
    if result.outcome is Outcome.REJECTED or (
        result.outcome is Outcome.SANDBOX_ERROR and result.isolation is None
    ):
        raise SandboxUnavailable(result.error.message if result.error else "no sandbox was given")
    return result


def _within_bounds(asked: Limits, ground: _Ground) -> ResolvedLimits:
    """The level's limits with the control's own, as far as the operator's bounds allow."""
    bounds = ground.settings.sandbox
    limits = resolve_limits(ground.level, Limits(), ground.settings)
    update: dict[str, float] = asked.model_dump(exclude_none=True)
    if asked.memory_bytes is not None:
        update["memory_bytes"] = min(
            max(asked.memory_bytes, bounds.memory_min_bytes), bounds.memory_max_bytes
        )
    if asked.timeout_s is not None:
        update["timeout_s"] = min(asked.timeout_s * ground.patience, bounds.timeout_max_s)
        update.setdefault("cpu_s", update["timeout_s"] + 1)
    elif ground.patience > 1:
        update["timeout_s"] = min(limits.timeout_s * ground.patience, bounds.timeout_max_s)
    return limits.model_copy(update=update)


@contextmanager
def _listeners() -> Iterator[dict[str, Any]]:
    """Something real of this host that attacks must not reach: a port, a socket without a file, a file."""
    name = f"cellblock-canary-{secrets.token_hex(8)}"
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as abstract,
        tempfile.NamedTemporaryFile(prefix="cellblock-canary-") as file,
    ):
        os.fchmod(file.fileno(), 0o644)
        abstract.bind("\0" + name)
        abstract.listen()
        yield {
            "port": tcp.getsockname()[1],
            "abstract": name,
            "sockets": ["/run/docker.sock", "/var/run/docker.sock", *_HOST_SOCKETS],
            "files": [file.name, *_HOST_FILES],
        }
