"""gVisor and runc straight through the OCI runtime: the same controls as through Docker, without its cost."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from cellblock_config import Isolation, Settings
from cellblock_workers.launcher.backend import BackendUnavailable, NotOnThisHost, Profile, StartFailed
from cellblock_workers.launcher.canary import CANARY, check_canary
from cellblock_workers.launcher.cgroup_tree import PARENT, CgroupTree
from cellblock_workers.launcher.cgroups import SandboxCgroup
from cellblock_workers.launcher.guest_program import guest_file, guest_program_in_file
from cellblock_workers.launcher.guest_readiness import await_guest
from cellblock_workers.launcher.image_library import read_library
from cellblock_workers.launcher.oci.bundle import GUEST_FILE, Bundle
from cellblock_workers.launcher.oci.children import Family, adopt_orphans
from cellblock_workers.launcher.oci.cleanup import Remains
from cellblock_workers.launcher.oci.runtime import RUNTIMES, run
from cellblock_workers.launcher.oci.sandbox import OciSandbox
from cellblock_workers.launcher.ownership import Ownership, Records
from cellblock_workers.launcher.streams import sandbox_stream
from cellblock_workers.launcher.user_ids import UserIds, id_ranges
from cellblock_workers.log import get_logger

_log = get_logger(__name__)

_CANARY_S = 30.0
_DEATH_S = 5.0
_PYTHON = ("python3", "-I", "-X", "utf8")


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
        """Makes the bundle and runs it. Needs no answer from the guest, which announces itself on the
        stream."""
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
                except StartFailed:
                    self._remove(sandbox_id, family)
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
            family=family,
            discard=self.discard,
        )

    def _options(self, uid: int, profile: Profile) -> dict[str, object]:
        return {
            "uid": uid,
            # The sentry's processes are not the job's, and the cgroup cannot tell them apart.
            "rlimits": {"NPROC": profile.pids} if self.isolation == "gvisor" else {},
            "preload": self._settings.sandbox.preloaded(profile.image),
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
