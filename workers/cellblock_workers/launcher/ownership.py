"""Who made what: labels on everything created, and how to find out that a maker is gone.

A launcher that was killed cannot clean up; the next launcher on the host does, by these labels.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from cellblock_workers.launcher.backend import BackendUnavailable
from cellblock_workers.log import get_logger

_log = get_logger(__name__)

#: The ids that backends make, for sandboxes and for probes.
_SANDBOX_ID = re.compile(r"(probe-)?[0-9a-f]{16}")


class Ownership:
    """One launcher's identity and the sandboxes that it knows to be its own. Thread-safe."""

    LABEL_SANDBOX = "cellblock.sandbox"
    LABEL_OWNER = "cellblock.owner"
    LABEL_BOOT = "cellblock.boot"
    LABEL_PROCESS = "cellblock.process"

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._boot = secrets.token_hex(8)
        self._process = _process_name(os.getpid())
        self._known: set[str] = set()
        self._lock = threading.Lock()

    def register(self, sandbox_id: str) -> None:
        """Notes a sandbox before it exists, so that no sweep can take it for an orphan."""
        with self._lock:
            self._known.add(sandbox_id)

    def forget(self, sandbox_id: str) -> None:
        """Forgets a sandbox that is gone. The next sweep removes what is left of it."""
        with self._lock:
            self._known.discard(sandbox_id)

    def labels(self, sandbox_id: str) -> dict[str, str]:
        """The labels of a new sandbox."""
        return {
            self.LABEL_SANDBOX: sandbox_id,
            self.LABEL_OWNER: self._owner,
            self.LABEL_BOOT: self._boot,
            self.LABEL_PROCESS: self._process or "",
        }

    def is_orphan(self, labels: Mapping[str, str]) -> bool:
        """Whether a thing with these labels has no owner any more."""
        if labels.get(self.LABEL_BOOT) == self._boot:
            sandbox_id = labels.get(self.LABEL_SANDBOX, "")
            with self._lock:
                return sandbox_id not in self._known
        if labels.get(self.LABEL_OWNER) == self._owner:
            return True  # an earlier life of this launcher
        return _is_gone(labels.get(self.LABEL_PROCESS, ""))


class Records:
    """Who owns sandboxes for which no daemon keeps labels: one file for each, written before it is made.

    ``details``: what the backend needs to remove the sandbox. Launchers of one host share the folder.
    """

    def __init__(self, folder: Path, ownership: Ownership) -> None:
        self._folder = folder
        self._ownership = ownership

    def write(self, sandbox_id: str, **details: str) -> None:
        """Records a sandbox that is about to be made."""
        self._ownership.register(sandbox_id)
        record = json.dumps({"labels": self._ownership.labels(sandbox_id), "details": details})
        new = self._folder / f"{sandbox_id}.new"
        try:
            new.write_text(record)
        except FileNotFoundError:  # the first record
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            new.write_text(record)
        new.replace(self._folder / f"{sandbox_id}.json")

    def remove(self, sandbox_id: str) -> None:
        """Removes the record of a sandbox that is gone."""
        (self._folder / f"{sandbox_id}.json").unlink(missing_ok=True)
        self._ownership.forget(sandbox_id)

    def clear(self, remove: Callable[[str, dict[str, str]], None]) -> int:
        """Removes every sandbox without an owner. Returns how many. One that cannot be removed stops no
        other.

        ``remove`` gets its id and details. If it raises :class:`BackendUnavailable`, the next sweep tries
        again.
        """
        cleared = 0
        for sandbox_id, details in self._orphans():
            try:
                remove(sandbox_id, details)
            except (BackendUnavailable, OSError) as error:
                _log.warning("orphan_not_removed", sandbox=sandbox_id, reason=str(error))
                continue
            self.remove(sandbox_id)
            cleared += 1
        return cleared

    def _orphans(self) -> Iterator[tuple[str, dict[str, str]]]:
        for path in sorted(self._folder.glob("*.json")):
            try:
                if not _SANDBOX_ID.fullmatch(path.stem):
                    raise ValueError(path.stem)
                record = json.loads(path.read_text())
                orphan = self._ownership.is_orphan(record["labels"])
                details = dict(record["details"])
            except FileNotFoundError:
                continue  # its owner removed it just now
            except (ValueError, KeyError, TypeError, AttributeError):
                _log.warning(
                    "record_unreadable", record=str(path), remedy="remove it once its sandbox is gone"
                )
                continue
            if orphan:
                yield path.stem, details


def _process_name(pid: int) -> str | None:
    """A process's unique name: its PID namespace, pid and start time; None if there is no such process."""
    try:
        namespace = _pid_namespace()
        # Fields after the parenthesised command name; the 20th of them is the start time (proc(5), field 22).
        start = (Path("/proc") / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    except OSError:
        return None
    return f"{namespace}/{pid}/{start}"


def _pid_namespace() -> str:
    return str(Path("/proc/self/ns/pid").readlink())


def _is_gone(process: str) -> bool:
    """Whether a named process of this PID namespace has ended. False for other namespaces: it cannot be
    known."""
    namespace, _, rest = process.partition("/")
    pid = rest.partition("/")[0]
    if not pid.isdigit() or namespace != _pid_namespace():
        return False
    return _process_name(int(pid)) != process
