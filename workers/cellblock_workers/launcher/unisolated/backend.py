"""``process`` and ``none``: a plain subprocess of the host, for development without anything better.

Nothing here protects the host: a job can read what its user can read, and connect to every address. So
neither is ever used unless ``sandbox.unisolated`` names it, and every job that runs so is logged as a risk.
Outcomes, streams, values and files are the same as elsewhere. ``process`` bounds a job by rlimits and a watch
over its memory; ``none`` bounds it by its deadline and its output alone. A launcher that is root gives each
job its own uid.
"""

from __future__ import annotations

import itertools
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from cellblock_config import Isolation, Settings
from cellblock_workers.launcher.backend import BackendUnavailable, NotOffered, Profile, StartFailed
from cellblock_workers.launcher.guest_program import guest_program
from cellblock_workers.launcher.guest_readiness import await_guest
from cellblock_workers.launcher.limits import RLIMITS
from cellblock_workers.launcher.memory_watch import MemoryWatch, Watched
from cellblock_workers.launcher.ownership import Ownership, Records
from cellblock_workers.launcher.streams import sandbox_stream
from cellblock_workers.launcher.unisolated.sandbox import GuestProcess, UnisolatedSandbox
from cellblock_workers.log import get_logger

_log = get_logger(__name__)

_UNBOUNDED_BYTES = 1 << 62
_PROBE_PIDS = 20
_FIRST_UID, _UIDS = 1 << 20, 1 << 28


class UnisolatedBackend:
    """Starts guests beside the launcher, with the host's Python. Thread-safe."""

    def __init__(self, isolation: Isolation, settings: Settings, ownership: Ownership) -> None:
        self.isolation = isolation
        self.name = {"process": "rlimits", "none": "direct"}[isolation]
        self.sweeps = "unisolated"
        self._settings = settings
        self._records = Records(settings.launcher.state / self.sweeps / "records", ownership)
        self._watch = MemoryWatch()
        # Launchers of one host share the range; each begins at a random uid, which keeps them apart.
        self._uids = itertools.count(_FIRST_UID + secrets.randbelow(_UIDS))

    def probe(self) -> None:
        """Starts one guest. There is no control to test."""
        image = self._settings.sandbox.default_image
        self.start(
            Profile(
                level="permissive", image=image, memory_bytes=_UNBOUNDED_BYTES, cpus=1.0, pids=_PROBE_PIDS
            )
        ).destroy()

    def start(self, profile: Profile) -> UnisolatedSandbox:
        """Starts a guest in a folder of its own. Raises :class:`StartFailed`."""
        if profile.context is not None:
            raise NotOffered(
                f"{self.isolation}: a context cannot be mounted without a sandbox; "
                "hand the data over as a file or an input"
            )
        if profile.image != self._settings.sandbox.default_image:
            raise NotOffered(
                f"{self.isolation}: there is only this host's Python, not the image {profile.image}; "
                "leave the job's image out"
            )
        sandbox_id = secrets.token_hex(8)
        folder = Path(tempfile.gettempdir()) / _folder_name(sandbox_id)
        try:
            return self._start(sandbox_id, profile, folder)
        except OSError as error:
            self._remove(sandbox_id, folder)
            raise StartFailed(f"{self.isolation}: a job's process could not be started: {error}") from error

    def close(self) -> None:
        """Does nothing: nothing is kept between sandboxes."""

    def sweep(self) -> int:
        """Removes the folders of owners that are gone; their guests ended with them."""
        return self._records.clear(self._sweep_one)

    def _sweep_one(self, sandbox_id: str, details: dict[str, str]) -> None:
        folder = Path(details.get("folder", ""))
        if folder.name != _folder_name(sandbox_id):
            raise BackendUnavailable(f"{self.isolation}: a record names the folder {folder}")
        self._remove(sandbox_id, folder)

    def discard(self, sandbox: UnisolatedSandbox) -> None:
        """Ends everything that is left of a sandbox."""
        sandbox.stream.close()
        self._watch.remove(sandbox.watched)
        sandbox.process.kill()
        self._remove(sandbox.id, sandbox.folder)

    def _start(self, sandbox_id: str, profile: Profile, folder: Path) -> UnisolatedSandbox:
        self._records.write(sandbox_id, folder=str(folder))
        folder.mkdir(mode=0o700)
        uid = os.geteuid()
        if uid == 0:
            uid = next(self._uids)
            os.chown(folder, uid, uid)
        options = {
            "uid": uid,
            "shares_uid": uid == os.geteuid(),
            "folder": str(folder / "sandbox"),
            "rlimits": self._rlimits(profile),
        }
        ours, theirs = sandbox_stream()
        with theirs:
            process = GuestProcess(
                subprocess.Popen(
                    [_python(), "-I", "-X", "utf8", *guest_program(options)],
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=subprocess.DEVNULL,
                    cwd=folder,
                    env={},
                    start_new_session=True,
                )
            )
        limit_bytes = profile.memory_bytes if self.isolation == "process" else _UNBOUNDED_BYTES
        sandbox = UnisolatedSandbox(
            id=sandbox_id,
            profile=profile,
            isolation=self.isolation,
            backend=self.name,
            stream=ours,
            process=process,
            folder=folder,
            watched=Watched(process, process.pid, limit_bytes),
            discard=self.discard,
        )
        try:
            await_guest(ours, self.isolation, self._settings.sandbox.start_timeout_s)
        except StartFailed:
            sandbox.destroy()
            raise
        self._watch.add(sandbox.watched)
        return sandbox

    def _rlimits(self, profile: Profile) -> dict[str, int]:
        """The job's rlimits. Processes are counted by uid, so they are bounded only if the job has its
        own."""
        if self.isolation == "none":
            return {}
        limits = {"NOFILE": RLIMITS["NOFILE"], "FSIZE": self._settings.sandbox.tmp_bytes}
        return {**limits, "NPROC": profile.pids} if os.geteuid() == 0 else limits

    def _remove(self, sandbox_id: str, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)  # what a job made unreadable stays its user's
        self._records.remove(sandbox_id)


def _folder_name(sandbox_id: str) -> str:
    return f"cellblock-{sandbox_id}"


def _python() -> str:
    """The host's own interpreter, without this program's packages."""
    return str(Path(getattr(sys, "_base_executable", sys.executable)).resolve())
