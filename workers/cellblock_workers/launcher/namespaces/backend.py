"""Sandboxes forked from a warmed interpreter (without a daemon).

The controls of a sandbox made this way stand in three places: :func:`boot.build` (the root),
:meth:`zygote.Zygote.enter` (everything inside) and :meth:`CgroupTree._limits` (memory, processes, CPU).
"""

from __future__ import annotations

import math
import os
import platform
import re
import resource
import secrets
import socket
import threading
from contextlib import suppress
from pathlib import Path

from cellblock_config import Isolation, Settings
from cellblock_config.launcher import USER_IDS_EACH
from cellblock_config.levels import MIB
from cellblock_workers.guest import guest_texts
from cellblock_workers.launcher.backend import BackendUnavailable, NotOffered, Profile, StartFailed
from cellblock_workers.launcher.cgroup_tree import Cgroup, Cgroups, CgroupTree
from cellblock_workers.launcher.guest_readiness import await_guest
from cellblock_workers.launcher.limits import GUEST_PIDS, OWN_PIDS, RLIMITS, SHM_INODES, TERMINALS, TMP_INODES
from cellblock_workers.launcher.memory_watch import MemoryWatch, Watched
from cellblock_workers.launcher.namespaces import canary
from cellblock_workers.launcher.namespaces.fork_server import (
    ForkedGuest,
    ForkServer,
    ZygoteProgram,
)
from cellblock_workers.launcher.namespaces.roots import Root, find_root, is_current
from cellblock_workers.launcher.namespaces.sandbox import ForkedSandbox
from cellblock_workers.launcher.ownership import Ownership, Records
from cellblock_workers.launcher.seccomp import strict_profile, watched
from cellblock_workers.launcher.seccomp_filter import compile_profile
from cellblock_workers.launcher.streams import sandbox_stream
from cellblock_workers.launcher.user_ids import IdBlock, IdRange
from cellblock_workers.log import get_logger
from cellblock_workers.zygote import kernel
from cellblock_workers.zygote.fork_request import ForkRequest

_log = get_logger(__name__)

_SPARE = 2  # seats for canaries alone
_DYING = 6  # and for sandboxes that take long to die
_GONE_S = 10.0
#: Of /dev/shm, where no cgroup counts what lies there.
_SHM_UNCOUNTED_BYTES = 16 * MIB
_LAST_WORD_S = 1.0
_IDS = IdRange("namespaces", 2, USER_IDS_EACH - 2)
_INERT = kernel.ATTR_RDONLY | kernel.ATTR_NOSUID | kernel.ATTR_NODEV | kernel.ATTR_NOEXEC


class NamespacesBackend:
    """Keeps a zygote for each image in use and starts sandboxes from it. Thread-safe."""

    isolation: Isolation = "namespaces"
    name = "zygote"
    sweeps = "namespaces"

    def __init__(self, settings: Settings, ownership: Ownership, groups: Cgroups | None = None) -> None:
        self._settings = settings
        self._ownership = ownership
        self._records = Records(settings.launcher.state / self.sweeps / "records", ownership)
        self._cgroups = groups or CgroupTree()
        self._several_ids = os.geteuid() == 0
        self._seats = _Seats(
            settings.launcher.sandboxes_max + _DYING + _SPARE, settings.launcher.state / "ids"
        )
        self._servers: dict[str, ForkServer] = {}
        self._locks = {image: threading.Lock() for image in settings.sandbox.images}
        self._settling = threading.Lock()
        self._watch: MemoryWatch | None = None
        self._settled = False

    def probe(self) -> None:
        """Runs both canaries through the way that every sandbox is started, and believes only the kernel."""
        self._settle_limits()
        image = self._settings.sandbox.default_image
        profile = Profile(
            level="standard", image=image, memory_bytes=canary.MEMORY_BYTES, cpus=1.0, pids=canary.PIDS
        )
        held = self._start(f"probe-{secrets.token_hex(8)}", profile, canary.CONTROLS)
        try:
            canary.check_process(
                held.child.pidfd or 0,
                several_ids=self._several_ids,
                cgroup=held.group.relative if held.group else None,
            )
            self._let_end(held)
            canary.check_controls(held.child.status)
        except OSError as error:
            raise StartFailed(f"namespaces: the canary could not be looked at: {error}") from error
        finally:
            held.destroy()
        held = self._start(f"probe-{secrets.token_hex(8)}", profile, canary.MEMORY)
        try:
            self._let_end(held)
            evidence = held.evidence(ended=True)
            if not evidence.oom_kills and not evidence.watch_kills:
                raise StartFailed(
                    f"namespaces: memory: {canary.MEMORY_BYTES} bytes were not the limit; "
                    "is the memory controller available to the launcher?"
                )
        finally:
            held.destroy()

    def start(self, profile: Profile) -> ForkedSandbox:
        """Forks a sandbox. Returns when its guest has announced itself."""
        self._settle_limits()
        return self._start(secrets.token_hex(8), profile, None)

    def close(self) -> None:
        """Ends the zygotes, and waits until they have ended."""
        servers, self._servers = list(self._servers.values()), {}
        for server in servers:
            server.close()
        for server in servers:
            server.wait()

    def sweep(self) -> int:
        """Removes the cgroups and records of owners that are gone; their processes died with them."""
        return self._records.clear(self._sweep_one)

    def _sweep_one(self, sandbox_id: str, _: dict[str, str]) -> None:
        group = self._cgroups.find(sandbox_id)
        group.kill()
        group.remove()

    def discard(self, sandbox: ForkedSandbox) -> None:
        """Takes a sandbox down. Raises :class:`StartFailed` if that fails: the sweep then removes its
        cgroup."""
        sandbox.stream.close()
        if sandbox.watched and self._watch:
            self._watch.remove(sandbox.watched)
        self._end(sandbox.id, sandbox.child, sandbox.group, sandbox.seat)

    def _end(self, sandbox_id: str, child: ForkedGuest | None, group: Cgroup | None, seat: int) -> None:
        """Takes a sandbox down. Its seat is free only once it is dead: until then it uses its ids and
        devices."""
        try:
            self._take_down(sandbox_id, child, group)
        finally:
            if child is None or child.ended.is_set():
                self._bury(child, seat)
            else:
                threading.Thread(target=self._bury, args=(child, seat), daemon=True).start()

    def _bury(self, child: ForkedGuest | None, seat: int) -> None:
        if child is not None:
            child.ended.wait()
            child.close()
        self._seats.give_back(seat)

    def _settle_limits(self) -> None:
        """Decides once: cgroups if the launcher can make them, else a watch and per-process limits."""
        with self._settling:
            if self._settled:
                return
            if (refusal := self._cgroups.refusal()) is not None:
                self._do_without_cgroups(refusal)
            self._settled = True

    def _do_without_cgroups(self, refusal: str) -> None:
        self._watch = MemoryWatch()
        _log.warning(
            "limits_without_cgroup",
            reason=refusal,
            memory="a watch, 50 times a second",
            pids="RLIMIT_NPROC",
            cpus="whole processors",
        )

    def _start(self, sandbox_id: str, profile: Profile, which: int | None) -> ForkedSandbox:
        server = self._server(profile.image)
        ours, theirs = sandbox_stream()
        try:
            seat, group, child = self._seats.take(leave=_SPARE if which is None else 0), None, None
        except BackendUnavailable:
            ours.close()
            theirs.close()
            raise
        try:
            self._records.write(sandbox_id)
            group = (
                None
                if self._watch
                else self._cgroups.create(sandbox_id, profile, OWN_PIDS + self._series(profile))
            )
            child = self._spawn(
                server=server, profile=profile, seat=seat, which=which, stream=theirs, group=group
            )
            theirs.close()  # only the guest has it now: when it ends, the stream does
            self._await(child, ours, which)
            return ForkedSandbox(
                id=sandbox_id,
                profile=profile,
                isolation=self.isolation,
                backend=self.name,
                stream=ours,
                series=self._series(profile),
                child=child,
                seat=seat,
                group=group,
                watched=self._watched(child, profile),
                discard=self.discard,
            )
        except BaseException as error:
            ours.close()
            with suppress(BackendUnavailable, OSError):  # the sweep removes what is left of it
                self._end(sandbox_id, child, group, seat)
            if isinstance(error, OSError):
                raise StartFailed(f"namespaces: a sandbox could not be started: {error}") from error
            raise
        finally:
            theirs.close()

    def _spawn(
        self,
        server: ForkServer,
        profile: Profile,
        seat: int,
        which: int | None,
        stream: socket.socket,
        group: Cgroup | None,
    ) -> ForkedGuest:
        request = ForkRequest(
            seat=seat if self._several_ids else 0,  # without root there is one /dev for all
            ids=self._seats.ids(seat) if self._several_ids else (0, 0),
            tmp_bytes=self._settings.sandbox.tmp_bytes,
            tmp_inodes=TMP_INODES,
            shm_bytes=self._shm_bytes,
            shm_inodes=SHM_INODES,
            terminals=TERMINALS,
            rlimits={**RLIMITS, "SIGPENDING": self._seats.share_of("SIGPENDING")},
            # With an id of its own only the job's processes count, else the guest is one of them.
            nproc=0 if group else profile.pids + (0 if self._several_ids else GUEST_PIDS),
            processors=0 if group else math.ceil(profile.cpus),
            context=profile.context is not None,
            series=self._series(profile),
            each_pids=profile.pids if _counts_by_namespace() else 0,
            canary=which,
        )
        passed = self._open_context(profile)
        try:
            passed += group.open_membership() if group else []
            return server.spawn(request, [stream.fileno(), *passed], self._timeout_s)
        finally:
            for descriptor in passed:
                os.close(descriptor)

    @property
    def _shm_bytes(self) -> int:
        most_bytes = self._settings.sandbox.shm_bytes
        return min(most_bytes, _SHM_UNCOUNTED_BYTES) if self._watch else most_bytes

    def _series(self, profile: Profile) -> int:
        """The length of the series; 0 unless the kernel bounds its jobs, and they have other ids than the
        guest."""
        return profile.series if self._several_ids and self._watch is None else 0

    def _open_context(self, profile: Profile) -> list[int]:
        """The job's context as a read-only mount that only has to be put in its place."""
        if profile.context is None:
            return []
        if not self._several_ids:
            raise NotOffered(
                f"{self.isolation}: only a launcher that is root can mount a context; run it as root, or "
                "hand the data over as a file or an input"
            )
        return [kernel.detached_mount(profile.context, _INERT)]

    def _watched(self, child: ForkedGuest, profile: Profile) -> Watched | None:
        if self._watch is None:
            return None
        memory = Watched(child, canary.pid_of(child.pidfd or 0), profile.memory_bytes, own_network=True)
        self._watch.add(memory)
        return memory

    def _take_down(self, sandbox_id: str, child: ForkedGuest | None, group: Cgroup | None) -> None:
        try:
            if child is not None:
                child.kill()
                if not child.ended.wait(_GONE_S):
                    raise StartFailed(f"namespaces: sandbox {sandbox_id} did not die within {_GONE_S:g} s")
                child.close()
            if group is not None:
                group.remove()
            self._records.remove(sandbox_id)
        finally:
            self._ownership.forget(sandbox_id)

    def _server(self, image: str) -> ForkServer:
        """The image's zygote; starts one if there is none or it has died."""
        with self._locks[image]:
            server = self._servers.get(image)
            if server is not None and server.alive and is_current(server.root, self._settings, image):
                return server
            if server is not None:
                server.retire()  # its image was made again, or it has died
            root = find_root(self._settings, image, self._seats.count)
            server = ForkServer(image, root, self._program(image, root), self._timeout_s)
            self._servers[image] = server
            return server

    @property
    def _timeout_s(self) -> float:
        return self._settings.sandbox.start_timeout_s

    def _program(self, image: str, root: Root) -> ZygoteProgram:
        profile = strict_profile(self.isolation)
        if self._watch is not None:
            profile = watched(profile)
        return ZygoteProgram(
            preload=self._settings.sandbox.preload.get(image, ()),
            guest=guest_texts(),
            canaries=canary.TEXTS,
            seccomp=compile_profile(profile).hex(),
            several_ids=self._several_ids,
            views=root.views,
        )

    def _await(self, child: ForkedGuest, stream: socket.socket, which: int | None) -> None:
        """Waits until the guest, or a canary in its place, has said something."""
        try:
            await_guest(stream, self.isolation, self._timeout_s)
        except StartFailed:
            child.ended.wait(_LAST_WORD_S)
            if (refusal := child.refusal()) is not None:
                raise refusal from None
            if which is not None:
                canary.check_controls(child.status)
            raise

    def _let_end(self, held: ForkedSandbox) -> None:
        """Ends a canary, which waits until its stream closes."""
        held.stream.shutdown(socket.SHUT_RDWR)
        if not held.child.ended.wait(self._timeout_s):
            raise StartFailed(f"namespaces: the canary did not end within {self._timeout_s:g} s")


def _counts_by_namespace() -> bool:
    """Whether RLIMIT_NPROC counts one user's processes in each user namespace apart (Linux 5.14)."""
    version = re.findall(r"\d+", platform.release())
    return (int(version[0]), int(version[1])) >= (5, 14)


class _Seats:
    """What running sandboxes must not share: a number, and the ids that belong to it. Thread-safe."""

    def __init__(self, count: int, folder: Path) -> None:
        self.count = count
        self._folder = folder
        self._block: IdBlock | None = None
        self._taken: set[int] = set()
        self._lock = threading.Lock()

    def take(self, *, leave: int) -> int:
        """A free seat; ``leave`` of them stay free. Raises :class:`BackendUnavailable` when the others are
        taken: a full host does not mean that this isolation does not work."""
        with self._lock:
            for seat in range(self.count - leave):
                if seat not in self._taken:
                    self._taken.add(seat)
                    return seat
        raise BackendUnavailable(
            f"namespaces: {self.count - leave} sandboxes are alive or not yet dead; "
            "launcher.sandboxes_max bounds them"
        )

    def give_back(self, seat: int) -> None:
        """Frees a seat. Idempotent."""
        with self._lock:
            self._taken.discard(seat)

    def share_of(self, limit: str) -> int:
        """Each sandbox's share of a limit that the kernel also counts for all of them together, by the user
        who made their zygote."""
        bound, _ = resource.getrlimit(getattr(resource, f"RLIMIT_{limit}"))
        most = RLIMITS[limit]
        return most if bound == resource.RLIM_INFINITY else min(most, bound // self.count)

    def ids(self, seat: int) -> tuple[int, int]:
        """The ids of guest and job, within the root's own ids (0 is its root)."""
        with self._lock:
            self._block = self._block or IdBlock(self._folder, _IDS)
        first = self._block.first + 2 * seat
        return first, first + 1
