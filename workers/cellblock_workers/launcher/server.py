"""The launcher's socket: who may connect, and which connection owns which sandbox."""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import threading

from pydantic import ValidationError

from cellblock.interrupts import on_stop
from cellblock_config import LEVELS, LevelName, Settings, load_settings
from cellblock_workers.launcher.acquisition import Acquirer
from cellblock_workers.launcher.backend import (
    BackendUnavailable,
    CannotStart,
    NotOffered,
    Profile,
    Sandbox,
    StartFailed,
)
from cellblock_workers.launcher.cascade import Cascade, LevelRefused, NothingChosen
from cellblock_workers.launcher.cgroup_tree import all_pids
from cellblock_workers.launcher.contexts import ContextRefused, open_context
from cellblock_workers.launcher.listener import listen
from cellblock_workers.launcher.ownership import Ownership
from cellblock_workers.launcher.pool import Pool
from cellblock_workers.launcher.precedence import Precedence
from cellblock_workers.launcher.private_folder import make_private
from cellblock_workers.launcher.process_shares import ProcessShares
from cellblock_workers.launcher.protocol import (
    REQUEST,
    Acquire,
    ErrorCode,
    Kill,
    Probe,
    Renew,
    Reply,
    Report,
    receive,
    send,
)
from cellblock_workers.launcher.request_bounds import default_profile, outside_of_bounds, profile_of
from cellblock_workers.launcher.sandbox_leases import SandboxLeases
from cellblock_workers.launcher.streams import close_aside
from cellblock_workers.launcher.ways import build_backends
from cellblock_workers.log import get_logger
from cellblock_workers.parent_death import die_with_parent
from cellblock_workers.telemetry import configure_logging

_log = get_logger(__name__)
_CONNECTIONS_MAX = 512
_REPROBE_S = 1.0
_ACCEPT_PAUSE_S = 0.1
_JANITOR_S = 0.5
#: How long a probe may take to end, when the launcher does.
_PROBE_END_S = 10.0


class Launcher:
    """One host's sandboxes behind a Unix socket."""

    def __init__(self, settings: Settings, cascade: Cascade) -> None:
        self._settings = settings
        self._cascade = cascade
        self._pool = Pool(self._start, settings.launcher)
        self._leases = SandboxLeases()
        self._precedence = Precedence()
        self._processes = ProcessShares(all_pids() // 2)
        self._stopping = threading.Event()
        self._doubtful = threading.Event()
        self._probed = threading.Event()  # for the first time
        self._acquirer = Acquirer(self._pool, cascade, settings, on_change=self._doubtful.set)
        self._isolations: dict[LevelName, str] = {}
        self._connections: set[socket.socket] = set()
        # Polled beside the listener. A signal that comes just before a wait starts would not interrupt it.
        self._woken, self.wake = os.pipe()
        for end in (self._woken, self.wake):
            os.set_blocking(end, False)
        self._watcher = threading.Thread(target=self._watch, name="watch", daemon=True)
        self._lock = threading.RLock()  # stop() runs in a signal handler, on the accepting thread
        self._listener = listen(settings.launcher.socket, open_to_others=bool(settings.launcher.allowed_uids))

    def serve(self) -> None:
        """Probes, cleans up after earlier lives, warms up, and answers until :meth:`stop`."""
        self._watcher.start()
        threading.Thread(target=self._end_unwanted, name="janitor", daemon=True).start()
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        poll.register(self._listener, select.POLLIN)
        while not self._stopping.is_set():
            poll.poll()
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                continue
            except OSError as error:
                if not self._stopping.is_set():  # for example out of descriptors: existing connections go on
                    _log.error("accept_failed", error=str(error))
                    self._stopping.wait(_ACCEPT_PAUSE_S)
                continue
            if self._admit(connection):
                threading.Thread(target=self._converse, args=(connection,), daemon=True).start()
            else:
                connection.close()

    def stop(self) -> None:
        """Destroys every sandbox and lets :meth:`serve` return."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._doubtful.set()
        self._probed.set()
        os.write(self.wake, b"\0")
        self._listener.close()
        self._settings.launcher.socket.unlink(missing_ok=True)
        with self._lock:
            for connection in self._connections:
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Waits until the last sandbox is gone, also a probe's."""
        self._watcher.join(_PROBE_END_S)
        self._precedence.close()
        self._pool.close()
        self._cascade.close()

    def _admit(self, connection: socket.socket) -> bool:
        """Whether the peer may connect: the kernel tells its uid, which must be the launcher's own or an
        allowed one."""
        pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if uid != os.geteuid() and uid not in self._settings.launcher.allowed_uids:
            _log.warning("peer_refused", uid=uid, pid=pid)
            return False
        with self._lock:
            if len(self._connections) >= _CONNECTIONS_MAX or self._stopping.is_set():
                _log.warning("connection_refused", connections=len(self._connections))
                return False
            self._connections.add(connection)
        return True

    def _converse(self, connection: socket.socket) -> None:
        owned: dict[str, Sandbox] = {}
        try:
            while True:
                packet, descriptors = receive(connection)
                if descriptors:  # no peer has a reason to pass one, and some take long to close
                    close_aside(descriptors)
                if not packet:
                    break
                self._answer(connection, packet, owned)
        except OSError as error:
            _log.debug("connection_lost", error=str(error))
        finally:
            for sandbox in owned.values():
                self._discard(sandbox)
            with self._lock:
                self._connections.discard(connection)
            connection.close()

    def _answer(self, connection: socket.socket, packet: bytes, owned: dict[str, Sandbox]) -> None:
        try:
            request = REQUEST.validate_json(packet)
        except ValidationError as error:
            _log.warning("request_invalid", errors=error.error_count(), size=len(packet))
            send(connection, Reply(ok=False, error="invalid", message="not a request of this protocol"))
            return
        if isinstance(request, Acquire):
            self._acquire(connection, request, owned)
        else:
            send(connection, self._reply(request, owned))

    def _reply(self, request: Probe | Report | Kill | Renew, owned: dict[str, Sandbox]) -> Reply:
        if isinstance(request, Probe):
            return Reply(
                isolations=self._cascade.chosen, reasons=self._cascade.reasons, counts=self._pool.counts()
            )
        if isinstance(request, (Report, Kill)):
            sandbox = owned.get(request.sandbox)
            if sandbox is None:
                _log.warning("request_denied", op=request.op, reason="not this connection's sandbox")
                return Reply(ok=False, error="denied", message="this connection owns no such sandbox")
            reply = self._report(sandbox, request) if isinstance(request, Report) else Reply()
            if isinstance(request, Kill) or request.final:
                del owned[sandbox.id]
                self._discard(sandbox)
            return reply
        self._leases.renew(request.sandboxes)
        return Reply()

    def _report(self, sandbox: Sandbox, request: Report) -> Reply:
        try:
            return Reply(evidence=sandbox.evidence(ended=request.ended))
        except BackendUnavailable as error:
            self._doubt()
            return Reply(ok=False, error="unavailable", message=str(error))

    def _acquire(self, connection: socket.socket, request: Acquire, owned: dict[str, Sandbox]) -> None:
        if (problem := outside_of_bounds(request, self._settings)) is not None:
            _log.warning("request_denied", op="acquire", job_id=request.job_id, reason=problem)
            send(connection, Reply(ok=False, error="denied", message=problem))
            return
        try:
            profile = profile_of(request, self._settings)
        except ContextRefused as refusal:
            _log.warning("request_denied", op="acquire", job_id=request.job_id, reason="context")
            send(connection, Reply(ok=False, error="context", message=str(refusal)))
            return
        try:
            acquired = self._acquirer.acquire(profile, request.tenant)
        except BackendUnavailable as error:
            send(connection, Reply(ok=False, error=self._code(error, request.level), message=str(error)))
            return
        sandbox, warm = acquired.sandbox, acquired.warm
        owned[sandbox.id] = sandbox  # from here on it ends with the connection
        try:
            context = [] if profile.context is None else [open_context(profile.context)]
        except ContextRefused as refusal:
            self._discard(owned.pop(sandbox.id))
            send(connection, Reply(ok=False, error="context", message=str(refusal)))
            return
        try:
            self._precedence.add(sandbox)
            self._processes.add(sandbox, request.tenant)
            if request.lease_s is not None:
                self._leases.add(sandbox, request.lease_s)
            _log.debug("acquired", sandbox=sandbox.id, job_id=request.job_id, fence=request.fence, warm=warm)
            reply = Reply(
                sandbox=sandbox.id,
                isolation=sandbox.isolation,
                backend=sandbox.backend,
                framing=sandbox.framing,
                warm=warm,
                start_cpu_ms=acquired.start_cpu_ms,
                context_bytes=os.fstat(context[0]).st_size if context else None,
                series=sandbox.series,
            )
            send(connection, reply, sandbox.stream.fileno(), *context)
        finally:
            for descriptor in context:
                os.close(descriptor)
        sandbox.stream.close()  # now it is the worker's: when it closes its copy, the guest sees the end

    def _discard(self, sandbox: Sandbox) -> None:
        self._leases.remove(sandbox.id)
        self._precedence.back(sandbox)
        self._processes.back(sandbox)
        self._pool.discard(sandbox)

    def _end_unwanted(self) -> None:
        """Destroys the sandboxes that their worker has not named lately; the worker finds its stream
        closed."""
        while not self._stopping.wait(_JANITOR_S):
            for sandbox in self._leases.take_overdue():
                _log.warning(
                    "sandbox_unwanted", sandbox=sandbox.id, reason="its worker was silent for too long"
                )
                self._processes.back(sandbox)
                try:
                    self._pool.discard(sandbox)
                except Exception:  # a defect of ours must not end what destroys the sandboxes of the frozen
                    _log.exception("janitor_crashed", sandbox=sandbox.id)

    def _code(self, error: BackendUnavailable, level: LevelName) -> ErrorCode:
        if isinstance(error, (LevelRefused, NotOffered)):
            return "refused"
        if isinstance(error, CannotStart):
            return "start"
        if isinstance(error, NothingChosen) and self._cascade.chosen:
            return "level"
        return "failed" if isinstance(error, StartFailed) and level in self._cascade.chosen else "unavailable"

    def _start(self, profile: Profile) -> Sandbox:
        # A job may come before the first probe has ended.
        self._probed.wait(self._settings.sandbox.start_timeout_s)
        try:
            return self._cascade.start(profile)
        except (StartFailed, NothingChosen):
            raise
        except BackendUnavailable:
            self._doubtful.set()
            raise

    def _doubt(self) -> None:
        self._cascade.doubt()
        self._doubtful.set()

    def _look(self) -> None:
        """Probes at the start and after every failure; sweeps at the start and on a timer."""
        if self._doubtful.is_set() or not self._cascade.is_best():
            self._doubtful.clear()
            try:
                self._choose()
            finally:
                self._probed.set()
            if not self._isolations:
                self._doubtful.set()
                self._stopping.wait(_REPROBE_S)
                return
        if removed := self._cascade.sweep():
            _log.warning("orphans_removed", count=removed)
        self._doubtful.wait(self._settings.launcher.sweep_s)

    def _choose(self) -> None:
        before = self._isolations
        self._isolations = self._cascade.probe()
        if not self._isolations:
            return
        if self._isolations != before and self._probed.is_set():  # none was started before the first probe
            self._pool.clear()
        if "standard" in self._isolations:
            self._pool.warm(default_profile(self._settings))

    def _watch(self) -> None:
        """Looks again and again, after any failure: without this nothing recovers and nothing is swept."""
        self._doubtful.set()
        while not self._stopping.is_set():
            try:
                self._look()
            except Exception:  # a defect of ours
                _log.exception("watch_crashed")
                self._doubtful.set()
                self._stopping.wait(_REPROBE_S)


def build_launcher(settings: Settings) -> Launcher:
    """The launcher of this host, with every configured backend."""
    ownership = Ownership(settings.launcher.owner)
    chains = {level: settings.sandbox.chain(level) for level in LEVELS}
    return Launcher(settings, Cascade(build_backends(settings, ownership), chains))


def main() -> None:
    """Runs the launcher until TERM, INT or HUP."""
    settings = load_settings()
    configure_logging(settings.telemetry)
    make_private(settings.launcher.state, "CELLBLOCK_LAUNCHER_STATE")
    launcher = build_launcher(settings)
    on_stop(lambda *_: launcher.stop())
    signal.set_wakeup_fd(launcher.wake, warn_on_full_buffer=False)
    die_with_parent()
    _log.info("launcher_started", socket=str(settings.launcher.socket), owner=settings.launcher.owner)
    launcher.serve()
    launcher.close()
    _log.info("launcher_stopped")


if __name__ == "__main__":
    main()
