"""gVisor and runc straight through the OCI runtime: the same controls as through Docker, without its cost."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

from cellblock_config import Isolation, Settings
from cellblock_config.levels import MIB
from cellblock_workers.guest.shared_kernel import NOT_APART, NOT_FORMED
from cellblock_workers.launcher.backend import (
    BackendUnavailable,
    GuestEnded,
    NotOnThisHost,
    Profile,
    StartFailed,
)
from cellblock_workers.launcher.canary import CANARY, check_canary
from cellblock_workers.launcher.cgroup_tree import PARENT, CgroupTree
from cellblock_workers.launcher.cgroups import SandboxCgroup
from cellblock_workers.launcher.etc_files import etc_files
from cellblock_workers.launcher.guest_program import guest_file, guest_program_in_file
from cellblock_workers.launcher.guest_readiness import await_guest
from cellblock_workers.launcher.image_library import read_library
from cellblock_workers.launcher.oci.bundle import GUEST_FILE, Bundle
from cellblock_workers.launcher.oci.children import Family, adopt_orphans
from cellblock_workers.launcher.oci.cleanup import Remains
from cellblock_workers.launcher.oci.runtime import RUNTIMES, run
from cellblock_workers.launcher.oci.sandbox import OciSandbox
from cellblock_workers.launcher.ownership import Ownership, Records
from cellblock_workers.launcher.seccomp import strict_profile
from cellblock_workers.launcher.seccomp_filter import compile_profile
from cellblock_workers.launcher.streams import sandbox_stream
from cellblock_workers.launcher.user_ids import UserIds, id_ranges
from cellblock_workers.log import get_logger

_log = get_logger(__name__)

_CANARY_S = 30.0
_DEATH_S = 5.0
#: The memory of a sandbox under gVisor and of each fork that waits in it, bare and with pandas imported
#: (measured; gVisor copies memory in large pieces). Half of what is left is for the job that runs.
_BARE, _LOADED = (32 * MIB, 8 * MIB), (180 * MIB, 32 * MIB)
_PYTHON = ("python3", "-I", "-X", "utf8")


class _NotFormed(StartFailed):
    """The guest could not form the series. ``for_good``: because its jobs would not be kept apart."""

    def __init__(self, *, for_good: bool) -> None:
        super().__init__("the series was not formed")
        self.for_good = for_good


class OciBackend:
    """Starts sandboxes of one isolation. Thread-safe."""

    name = "oci"
    sweeps = "oci"

    def __init__(self, isolation: Isolation, settings: Settings, ownership: Ownership) -> None:
        self.isolation = isolation
        self._settings = settings
        self._ownership = ownership
        self._runtime = RUNTIMES[isolation]
        self._state = settings.launcher.state / "oci"
        self._records = Records(self._state / "records", ownership)
        self._guest = guest_program_in_file
        self._without_series: set[str] = set()  # images
        self._forms_series = isolation == "gvisor" and settings.sandbox.gvisor_series
        self._ids = id_ranges(settings.launcher.first_user_id)["oci"]
        self._uids = UserIds(settings.launcher.state / "ids", self._ids)

    def probe(self) -> None:
        """Runs the canary, believes only its exit code, and reads its limits from the kernel."""
        if os.geteuid() != 0:
            raise NotOnThisHost(
                f"{self.isolation}: an OCI runtime needs root to make a sandbox; run the launcher as root"
            )
        self._runtime.locate(self.isolation)
        # The runtime makes the cgroup of each sandbox; this bounds what all of them hold together.
        if (refusal := CgroupTree().refusal()) is not None:
            _log.warning("process_ids_of_all_not_bounded", reason=refusal)
        profile = Profile(
            level="standard",
            image=self._settings.sandbox.default_image,
            memory_bytes=256 * 1024 * 1024,
            cpus=1.0,
            pids=20,
        )
        self._root(profile.image)
        adopt_orphans()
        ours, theirs = sandbox_stream()
        with ours, theirs, self._new(f"probe-{secrets.token_hex(8)}") as sandbox_id:
            family = self._make(
                sandbox_id=sandbox_id,
                profile=profile,
                command=[*_PYTHON, "-c", CANARY],
                stream=theirs,
                uid=self._ids.first,
            )
            try:
                if not family.first.ended(_CANARY_S):
                    raise StartFailed(f"{self.isolation}: the canary did not end within {_CANARY_S:g} s")
                check_canary(self.isolation, family.first.exit_code())
                self._check_limits(sandbox_id, profile)
            finally:
                self._remove(sandbox_id, family)

    def start(self, profile: Profile) -> OciSandbox:
        """Makes the bundle and runs it. Returns when the guest has announced itself.

        A series is formed where that is possible; elsewhere the sandbox is a single one.
        """
        length = self._series_length(profile)
        if length > 1:
            try:
                return self._start(replace(profile, series=length))
            except _NotFormed as failure:
                if failure.for_good:
                    self._without_series.add(profile.image)
                _log.warning(
                    "series_not_formed",
                    isolation=self.isolation,
                    image=profile.image,
                    reason="its jobs would not be apart" if failure.for_good else "a call was refused",
                    result="a sandbox for each trial",
                )
        return self._start(replace(profile, series=0))

    def _start(self, profile: Profile) -> OciSandbox:
        ours, theirs = sandbox_stream()
        try:
            with self._new(secrets.token_hex(8)) as sandbox_id:
                with theirs:
                    uid = self._uids.take(sandbox_id)
                    command = [*_PYTHON, *self._guest(GUEST_FILE, self._options(uid, profile))]
                    family = self._make(
                        sandbox_id=sandbox_id, profile=profile, command=command, stream=theirs, uid=uid
                    )
                try:
                    await_guest(ours, self.isolation, self._settings.sandbox.start_timeout_s)
                except StartFailed as failure:
                    status = None
                    if profile.series and isinstance(failure, GuestEnded) and family.first.ended(_DEATH_S):
                        status = family.first.exit_code()
                    self._remove(sandbox_id, family)
                    if status in (NOT_APART, NOT_FORMED):
                        raise _NotFormed(for_good=status == NOT_APART) from None
                    raise
        except BaseException:
            ours.close()
            raise
        return OciSandbox(
            id=sandbox_id,
            profile=profile,
            isolation=self.isolation,
            backend=self.name,
            stream=ours,
            series=profile.series,
            family=family,
            discard=self.discard,
        )

    def _options(self, uid: int, profile: Profile) -> dict[str, object]:
        return {
            **(self._series_options(uid, profile) if profile.series else {}),
            "uid": uid,
            # The sentry's processes are not the job's, and the cgroup cannot tell them apart.
            "rlimits": {"NPROC": profile.pids} if self.isolation == "gvisor" else {},
            "preload": self._settings.sandbox.preloaded(profile.image),
        }

    def _series_length(self, profile: Profile) -> int:
        if not self._forms_series or profile.image in self._without_series:
            return 0
        loaded = bool(self._settings.sandbox.preloaded(profile.image))
        idle_bytes, waiting_bytes = _LOADED if loaded else _BARE
        return min(profile.series, (profile.memory_bytes - idle_bytes) // (2 * waiting_bytes))

    def _series_options(self, uid: int, profile: Profile) -> dict[str, object]:
        """What the guest of a series needs to put each job's controls in place (guest/shared_kernel.py)."""
        job_filter, guest_filter = _series_filters()
        return {
            "series": profile.series,
            "files": [f"/{name}" for name in etc_files(uid)],
            "tmp_bytes": self._settings.sandbox.tmp_bytes,
            "shm_bytes": self._settings.sandbox.shm_bytes,
            "job_filter": job_filter,
            "guest_filter": guest_filter,
        }

    def close(self) -> None:
        """Does nothing: nothing is kept between sandboxes."""

    def sweep(self) -> int:
        """Removes what sandboxes of owners that are gone have left."""
        return self._records.clear(self._sweep_one)

    def _sweep_one(self, sandbox_id: str, details: dict[str, str]) -> None:
        program = details.get("runtime", "")
        if program not in {runtime.program for runtime in RUNTIMES.values()}:
            raise BackendUnavailable(f"{self.isolation}: a record names the runtime {program!r}")
        with self._host_errors():
            remains = Remains(self._state, program, sandbox_id)
            remains.kill()
            remains.remove()
        self._uids.give_back(sandbox_id)

    def discard(self, sandbox: OciSandbox) -> None:
        """Kills a sandbox and removes everything that it left."""
        self._remove(sandbox.id, sandbox.family)

    @contextmanager
    def _new(self, sandbox_id: str) -> Iterator[str]:
        """Records a sandbox before anything of it exists; if the block fails, nothing of it stays."""
        with self._host_errors():
            self._records.write(sandbox_id, runtime=self._runtime.program)
            try:
                yield sandbox_id
            except BaseException:
                with suppress(BackendUnavailable):  # then the record stays, and the next sweep tries again
                    remains = Remains(self._state, self._runtime.program, sandbox_id)
                    self._remove(sandbox_id, Family(remains.processes()))
                raise

    def _make(
        self, sandbox_id: str, profile: Profile, command: Sequence[str], stream: socket.socket, uid: int
    ) -> Family:
        """Starts a container. Returns its processes, the first one first."""
        self._state.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder, root = self._state / sandbox_id, self._root(profile.image)
        bundle = Bundle(
            isolation=self.isolation,
            profile=profile,
            folder=folder,
            root=root,
            cgroup=str(PARENT / sandbox_id),
            command=command,
            guest=guest_file(read_library(root)),
            tmp_bytes=self._settings.sandbox.tmp_bytes,
            shm_bytes=self._settings.sandbox.shm_bytes,
            uid=uid,
        )
        bundle.write()
        call = self._runtime.command(self._runtime.locate(self.isolation), self._state, folder)
        first = run(
            call,
            bundle=folder,
            stream=stream,
            isolation=self.isolation,
            timeout_s=self._settings.sandbox.start_timeout_s,
        )
        # gVisor's sockets are the sentry's own memory.
        if self.isolation != "gvisor" and not SandboxCgroup((PARENT / sandbox_id,)).bound_sockets():
            raise StartFailed(
                f"{self.isolation}: the memory of sockets cannot be limited in {PARENT / sandbox_id}"
            )
        return Family([first, *Remains(self._state, self._runtime.program, sandbox_id).processes()])

    def _root(self, image: str) -> Path:
        link = self._settings.launcher.image_roots / image / "rootfs"
        try:
            root = link.resolve(strict=True)
            if set(str(root)) & set(":,\\"):
                raise NotOnThisHost(
                    f"{self.isolation}: {root} cannot be mounted for the characters : , or \\ in it; "
                    "CELLBLOCK_LAUNCHER_IMAGE_ROOTS names the folder"
                )
            return root
        except OSError:
            raise NotOnThisHost(
                f"{self.isolation}: the image {image} is not unpacked at {link}; run: make images"
            ) from None

    def _check_limits(self, sandbox_id: str, profile: Profile) -> None:
        group = SandboxCgroup((PARENT / sandbox_id,))
        if group.memory_limit_bytes() != profile.memory_bytes:
            raise StartFailed(
                f"{self.isolation}: memory is not limited: the sandbox's cgroup says "
                f"{group.memory_limit_bytes()} instead of {profile.memory_bytes} bytes; "
                f"the launcher needs the memory controller below /sys/fs/cgroup, writable"
            )
        if group.pids_limit() is None:
            raise StartFailed(
                f"{self.isolation}: processes are not limited: the sandbox's cgroup has no pids.max; "
                "the launcher needs the pids controller below /sys/fs/cgroup, writable"
            )

    def _remove(self, sandbox_id: str, family: Family) -> None:
        """Kills everything and removes every trace; the next sweep tries again what fails."""
        try:
            with self._host_errors():
                remains = Remains(self._state, self._runtime.program, sandbox_id)
                family.kill(_DEATH_S)
                remains.kill()
                family.reap_descendants()
                remains.remove()
                self._records.remove(sandbox_id)
                self._uids.give_back(sandbox_id)
        finally:
            self._ownership.forget(sandbox_id)

    @contextmanager
    def _host_errors(self) -> Iterator[None]:
        """Turns what the host's files and processes refuse into errors that an operator can act on."""
        try:
            yield
        except OSError as error:
            raise StartFailed(
                f"{self.isolation}: {error.strerror or error} at {error.filename or self._state}; "
                "the launcher needs room and permission there (CELLBLOCK_LAUNCHER_STATE names the folder)"
            ) from error


@cache
def _series_filters() -> tuple[str, str]:
    """The allow-list of a job of a series, and the guest's, which may also unmount; as hexadecimal BPF."""
    guest_profile = strict_profile("gvisor")
    guest_profile["syscalls"].append({"names": ["umount2"], "action": "SCMP_ACT_ALLOW", "args": []})
    return compile_profile(strict_profile("gvisor")).hex(), compile_profile(guest_profile).hex()
