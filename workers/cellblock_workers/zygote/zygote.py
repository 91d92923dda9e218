"""The fork-server of one image: a warmed interpreter that forks into fresh namespaces for each sandbox.

Runs as PID 1 of its own PID namespace, as root of a user namespace that maps to no user of the host, in the
image's root; standard library only, Python 3.8+. It never sees a job: descriptor 0 is a SOCK_SEQPACKET socket
to the launcher, which carries numbers and descriptors, nothing else.

A fork does not become the guest here: it returns its role to the caller of :func:`main`. So below the frames
of a job there is nothing of the zygote that the job could look at or run on into.

  in   {"spawn": n, ...}   with the sandbox's stream, its context if any, its cgroups' membership files
  out  {"ready": true}     the modules are imported
       {"fault": "..."}    they are not, and the zygote ends (boot.py may say so too, with an "errno")
       {"started": n}      with a pidfd of the sandbox's PID 1
       {"ended": n, "status": s}    as wait(2) has it
       {"failed": n, "step": ..., "why": ...}    from the child, before it becomes the guest
"""

from __future__ import annotations

import functools
import gc
import json
import os
import resource
import select
import signal
import socket
import sys
import types
from typing import Any, Callable, NoReturn, Protocol, Sequence, Tuple, cast

from cellblock_workers.zygote import forks, kernel, root
from cellblock_workers.zygote.fork_request import ForkRequest, read_request

CONTROL = 0
PACKET_BYTES = 16 * 1024
DESCRIPTORS_MAX = 4096
INSIDE_ROOT, INSIDE_JOB = 0, 10_000
NAMESPACES = kernel.NEWUSER | kernel.NEWPID | kernel.NEWNS | kernel.NEWNET | kernel.NEWIPC | kernel.NEWUTS


class JobPipes(Protocol):
    """The pipes between a guest and its job (guest/pipes.py)."""

    def close_job_ends(self) -> None: ...

    def lower_job_ends(self) -> None: ...

    def job_ends(self) -> Tuple[int, ...]: ...

    def our_ends(self) -> Tuple[int, ...]: ...


class GuestProgram(Protocol):
    """What the zygote calls of the guest, whose text comes with the program (guest/main.py,
    guest/series.py)."""

    def close_all_but(self, kept: list[int]) -> None: ...

    def reseed(self) -> None: ...

    def Pipes(self, owner: int) -> JobPipes: ...

    def prepare(self, preload: Sequence[str]) -> None: ...

    def main(self, options: dict[str, Any]) -> None: ...

    def serve_series(self, waiting: list[Tuple[JobPipes, int]], options: dict[str, Any]) -> None: ...

    def be_one_of_series(self, pipes: JobPipes, options: dict[str, Any]) -> None: ...


Role = Callable[[], None]  # what a fork does once it has left the zygote's stack; it never returns
Steps = Tuple[Tuple[Any, ...], ...]  # each with its name, and what to call


class Step(Exception):
    """A control could not be put in place: which one, and why."""


class Zygote:
    """Forks sandboxes on request and reports their ends."""

    def __init__(
        self,
        control: socket.socket,
        program: dict[str, Any],
        guest: GuestProgram,
        hooks: list[forks.RestingHook],
    ) -> None:
        self.control = control
        self.guest = guest
        self.canaries = [compile(text, "canary", "exec") for text in program["canaries"]]
        self.filter = kernel.BpfProgram(bytes.fromhex(program["seccomp"]))
        self.landlock = kernel.landlock_version()
        # /proc: a process sets its own oom_score_adj; otherwise the kernel's usual rules say who may write
        # what.
        self.files = kernel.FileRules(
            self.landlock,
            ["/tmp", "/dev/shm"],
            ["/proc", "/dev/pts"],
            [f"/dev/{name}" for name in root.DEVICES],
        )
        self.several_ids: bool = program["several_ids"]
        self.views: list[str] = program["views"]
        self.clone = forks.Clone(NAMESPACES, hooks)
        self.poller = select.poll()
        self.poller.register(CONTROL, select.POLLIN)
        self.running: dict[int, tuple[int, int]] = {}  # pidfd -> the sandbox's number and pid

    def serve(self) -> Role:
        """Serves until the launcher is gone: then this PID namespace ends, and every sandbox with it.

        Returns only in a sandbox, with its role.
        """
        while True:
            for descriptor, _ in self.poller.poll():
                if descriptor == CONTROL:
                    packet, passed = kernel.receive(self.control, PACKET_BYTES)
                    if not packet:
                        os._exit(0)
                    role = self.spawn(*read_request(packet), passed)
                    if role is not None:
                        self.control.detach()  # the sandbox's own stream has that number now
                        return role
                else:
                    self.bury(descriptor)

    def spawn(self, number: int, request: ForkRequest, passed: list[int]) -> Role | None:
        """Forks one sandbox. Returns its role in the sandbox, None in the zygote."""
        hold, go = os.pipe()
        try:
            pid = self.clone()
        except OSError as error:
            say(self.control, {"failed": number, "step": "new namespaces", "why": str(error)})
            pid = -1
        if pid == 0:
            os.close(go)
            return self.become_sandbox(number, request, passed, hold)
        for descriptor in (*passed, hold):
            os.close(descriptor)
        if pid > 0:
            pidfd = kernel.open_pidfd(pid)
            self.poller.register(pidfd, select.POLLIN)
            self.running[pidfd] = (number, pid)
            try:
                self.map_ids(pid, request.ids)
                os.write(go, b"1")
            except OSError as error:
                say(self.control, {"failed": number, "step": "the map of user ids", "why": str(error)})
                os.kill(pid, signal.SIGKILL)
            say(self.control, {"started": number}, [pidfd])
        os.close(go)
        return None

    def map_ids(self, pid: int, ids: Sequence[int]) -> None:
        """Maps the ids of guest and job for the child; with a single id only the job's, which is then
        ours."""
        if self.several_ids:
            text = f"{INSIDE_ROOT} {ids[0]} 1\n{INSIDE_JOB} {ids[1]} 1\n"
        else:
            text = f"{INSIDE_JOB} 0 1\n"
        write_map(pid, text)

    def bury(self, pidfd: int) -> None:
        """Reaps a sandbox that ended, and reports it."""
        number, pid = self.running.pop(pidfd)
        self.poller.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        say(self.control, {"ended": number, "status": status})

    def become_sandbox(self, number: int, request: ForkRequest, passed: list[int], hold: int) -> Role:
        """Puts every control in place. Returns the role: the guest, or one job of a series."""
        if os.read(hold, 1) != b"1":
            os._exit(1)
        stream, *rest = passed
        context = rest.pop(0) if request.context else None
        try:
            if request.series:
                return self.form_series(number, request, rest, stream)
            self.enter(request, rest, context)
        except Step as failure:
            self.fail(number, failure)
        self.face_host(stream, [])
        options = self.job_options(request.nproc)
        canary = request.canary
        if canary is not None:
            names = {"__name__": "__main__", "options": {**request._asdict(), **options}}
            return functools.partial(exec, self.canaries[canary], names)
        return functools.partial(self.guest.main, options)

    def fail(self, number: int, failure: Step) -> NoReturn:
        """Reports which control could not be put in place, and exits: there is no sandbox."""
        step, why = failure.args
        say(self.control, {"failed": number, "step": step, "why": str(why)})
        os._exit(1)

    def enter(self, request: ForkRequest, membership: list[int], context: int | None) -> None:
        """Every control of a sandbox made this way, in order; tests/sandbox proves each.

        Raises :class:`Step` for the first that cannot be put in place: then there is no sandbox.
        """
        several = (kernel.CAP_KILL, kernel.CAP_SETGID, kernel.CAP_SETUID)
        self.take(
            (
                ("its own user id", self.take_ids),
                ("its cgroups", lambda: join_cgroups(membership)),
                *self.inner_steps(request, context, several if self.several_ids else ()),
            )
        )

    def inner_steps(self, request: ForkRequest, context: int | None, capabilities: tuple[int, ...]) -> Steps:
        """The steps that are the same for every sandbox, from the root to the seccomp filter.

        ``capabilities``: what its guest needs to give its job another id and to kill it.
        """
        return (
            ("a root of its own", *root.own_root(request.seat, self.views)),
            ("a private /proc", *root.private_proc(request.seat)),
            ("a bounded /tmp", *root.bounded_tmp(request.tmp_bytes, request.tmp_inodes)),
            ("a bounded /dev/shm", *root.bounded_shm(request.shm_bytes, request.shm_inodes)),
            ("terminals of its own", *root.own_terminals(request.terminals)),
            ("its context", *root.its_context(context)),
            ("nothing else to see", *kernel.pivoting(root.NEW)),
            ("a network of its own", kernel.raise_loopback),
            ("its host name", lambda: kernel.set_host_name(b"sandbox")),
            ("its limits", lambda: set_limits(request.rlimits)),
            ("its processors", lambda: pin(request.processors)),
            ("randomness of its own", self.guest.reseed),
            ("a closed process", lambda: kernel.prctl("dumpable", kernel.PR_SET_DUMPABLE, 0)),
            ("its capabilities", lambda: kernel.keep_capabilities(capabilities)),
            ("Landlock", self.restrict_files),
            ("the seccomp filter", lambda: kernel.filter_system_calls(self.filter)),
        )

    def take(self, steps: Steps) -> None:
        """Takes the steps one after the other. Raises :class:`Step`."""
        for name, *calls in steps:
            try:
                for call in calls:
                    call()
            except (OSError, ValueError) as error:
                raise Step(name, error) from error

    def form_series(self, number: int, request: ForkRequest, membership: list[int], stream: int) -> Role:
        """Forks all sandboxes of a series, and keeps only the power to end them. Returns the role: guest, or
        job.

        All of them are forked before the first job: so none has a copy of what jobs leave in the guest's
        memory. Raises :class:`Step`.
        """
        self.take(
            (
                ("its own user id", self.take_ids),
                ("its cgroups", lambda: join_cgroups(membership)),
                ("a private /proc", lambda: kernel.mount("proc", "/proc", "proc", root.PROC_FLAGS)),
                ("its limits", lambda: set_limits(request.rlimits)),
            )
        )
        steps = self.inner_steps(request, None, ())  # the same for all, and made ready once
        hold, go = os.pipe()
        formed, ready = os.pipe()
        made = [self.guest.Pipes(INSIDE_JOB) for _ in range(request.series)]
        # It can write its children's id maps only while it, and so they, are dumpable. Acting as another
        # user, to make the pipes that user's, has ended that.
        self.take((("an open process", lambda: kernel.prctl("dumpable", kernel.PR_SET_DUMPABLE, 1)),))
        siblings = [(pipes, sorted((hold, ready, *pipes.job_ends()))) for pipes in made]
        waiting: list[tuple[JobPipes, int]] = []
        for pipes, kept in siblings:  # nothing but forks: forks.Clone says why
            try:
                pid = self.clone()
            except OSError as error:
                raise Step("new namespaces", error) from error
            if pid == 0:
                return self.become_one_of_series(
                    number, request, steps=steps, pipes=pipes, kept=kept, hold=hold, ready=ready
                )
            waiting.append((pipes, pid))
        try:
            for pipes, pid in waiting:
                write_map(pid, f"{INSIDE_JOB} {INSIDE_JOB} 1\n")
                pipes.close_job_ends()
        except OSError as error:
            raise Step("the map of user ids", error) from error
        os.write(go, b"1" * len(waiting))
        for end in (hold, go, ready):
            os.close(end)
        for _ in waiting:
            if os.read(formed, 1) != b"1":
                os._exit(1)  # one of them has reported why
        os.close(formed)
        self.take(
            (
                ("a closed process", lambda: kernel.prctl("dumpable", kernel.PR_SET_DUMPABLE, 0)),
                ("its capabilities", lambda: kernel.keep_capabilities((kernel.CAP_KILL,))),
                ("Landlock", self.restrict_files),
                ("the seccomp filter", lambda: kernel.filter_system_calls(self.filter)),
            )
        )
        self.face_host(stream, sorted(fd for pipes, _ in waiting for fd in pipes.our_ends()))
        return functools.partial(self.guest.serve_series, waiting, self.job_options(request.nproc))

    def become_one_of_series(
        self,
        number: int,
        request: ForkRequest,
        *,
        steps: Steps,
        pipes: JobPipes,
        kept: list[int],
        hold: int,
        ready: int,
    ) -> Role:
        """Puts every control in place. Returns the job's role."""
        try:
            self.guest.close_all_but(kept)
            if os.read(hold, 1) != b"1":
                os._exit(1)
            os.close(hold)
            pipes.lower_job_ends()
            os.setgroups([])
            os.setresgid(INSIDE_JOB, INSIDE_JOB, INSIDE_JOB)
            os.setresuid(INSIDE_JOB, INSIDE_JOB, INSIDE_JOB)
            self.take(steps)
            os.write(ready, b"1")
            os.close(ready)
        except Step as failure:
            self.fail(number, failure)
        os.close(CONTROL)
        return functools.partial(self.guest.be_one_of_series, pipes, self.job_options(request.each_pids))

    def job_options(self, nproc: int) -> dict[str, Any]:
        """The options of a guest, set before there is a job. ``nproc``: how many processes; 0: no bound."""
        rlimits = {"NPROC": nproc} if nproc else {}
        return {"uid": INSIDE_JOB, "rlimits": rlimits, "shares_uid": not self.several_ids}

    def take_ids(self) -> None:
        """Becomes the root of the new user namespace, if there is one."""
        if self.several_ids:
            os.setgroups([])
            os.setresgid(INSIDE_ROOT, INSIDE_ROOT, INSIDE_ROOT)
            os.setresuid(INSIDE_ROOT, INSIDE_ROOT, INSIDE_ROOT)
        else:
            # A job of the guest's own uid can signal it: PID 1 ignores every signal that it has no handler
            # for.
            signal.signal(signal.SIGINT, signal.SIG_DFL)

    def face_host(self, stream: int, kept: list[int]) -> None:
        """Closes the zygote's descriptors except these; the first two become the sandbox's stream."""
        quiet = os.open("/dev/null", os.O_RDWR)
        for target, source in ((0, stream), (1, stream), (2, quiet)):
            os.dup2(source, target)
        self.guest.close_all_but(kept)

    def restrict_files(self) -> None:
        """Adds a second lock to the read-only root: it still holds if a mount is writable by mistake."""
        if self.landlock:
            self.files.restrict()


def write_map(pid: int, text: str) -> None:
    """Writes which of our ids a process's user namespace has, and under which numbers."""
    for name in ("uid_map", "gid_map"):
        file = os.open(f"/proc/{pid}/{name}", os.O_WRONLY)
        try:
            os.write(file, text.encode())
        finally:
            os.close(file)


def join_cgroups(membership: list[int]) -> None:
    """Joins, through descriptors that the launcher opened, and sees no cgroup above from here on."""
    for descriptor in membership:
        os.write(descriptor, b"0")
    kernel.unshare(kernel.NEWCGROUP)


def set_limits(rlimits: dict[str, int]) -> None:
    """Sets per-process limits, by name; a container has them too."""
    for name, value in rlimits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
    os.setsid()


def pin(processors: int) -> None:
    """Runs on at most this many processors, as there is no cgroup to share out CPU time. 0: no bound."""
    if processors:
        available = sorted(os.sched_getaffinity(0))
        first = int.from_bytes(os.urandom(4), "big") % len(available)
        chosen = (available + available)[first : first + processors]
        os.sched_setaffinity(0, chosen)


def say(control: socket.socket, message: dict[str, Any], descriptors: list[int] | None = None) -> None:
    """Sends one message."""
    passed = b"".join(one.to_bytes(4, sys.byteorder) for one in descriptors or [])
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)] if passed else []
    control.sendmsg([json.dumps(message).encode()], ancillary)


def main(control: socket.socket, program: dict[str, Any]) -> Role:
    """Imports, reports ready, serves. ``program``: the fields of ``ZygoteProgram`` (fork_server.py). It is
    emptied.

    Returns only in a sandbox, with its role, from a frame that holds nothing of the zygote's.
    """
    bound = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], DESCRIPTORS_MAX)
    resource.setrlimit(resource.RLIMIT_NOFILE, (bound, bound))
    try:
        hooks = forks.import_threading()  # the guest would import it
        guest = types.ModuleType("guest")
        for file, text in program["guest"].items():
            exec(compile(text, f"<{file}>", "exec"), guest.__dict__)  # in <>: no job's own file of that name
        guest_program = cast(GuestProgram, guest)
        guest_program.prepare(program["preload"])
        zygote = Zygote(control, program, guest_program, hooks)
        program.clear()
    except Exception as error:  # an import may raise anything
        say(control, {"fault": f"{type(error).__name__}: {error}"})
        os._exit(1)
    # What is alive now is shared by every sandbox: no collector may touch, and so copy, its pages.
    gc.collect()
    gc.freeze()
    kernel.trim_memory()
    say(control, {"ready": True})
    return zygote.serve()
