"""Forked sandboxes share nothing with the host or with each other, and each control is able to be missed."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from cellblock_config import Settings, load_settings
from cellblock_workers.launcher.backend import BackendUnavailable, NotOnThisHost, Profile, StartFailed
from cellblock_workers.launcher.cgroup_tree import CgroupTree
from cellblock_workers.launcher.namespaces import fork_server
from cellblock_workers.launcher.namespaces.backend import NamespacesBackend, _Seats
from cellblock_workers.launcher.namespaces.canary import pid_of
from cellblock_workers.launcher.namespaces.fork_server import ForkedGuest
from cellblock_workers.launcher.namespaces.sandbox import ForkedSandbox
from cellblock_workers.launcher.ownership import Ownership
from cellblock_workers.zygote import kernel
from parts import wait_until
from sandbox.harness import MIB

pytestmark = pytest.mark.no_rerun

PROFILE = Profile(level="standard", image="python", memory_bytes=256 * MIB, cpus=1.0, pids=20)
NAMESPACES = ("user", "pid", "mnt", "net", "ipc", "uts", "cgroup")


def settings_in(folder: Path, **sandbox: object) -> Settings:
    return load_settings(launcher={"state": folder / "state"}, sandbox={"start_timeout_s": 10, **sandbox})


def backend_in(folder: Path, **sandbox: object) -> NamespacesBackend:
    return NamespacesBackend(settings_in(folder, **sandbox), Ownership(f"test-{os.getpid()}"))


def zygotes_of(backend: NamespacesBackend) -> list[int]:
    """The pids of its fork-servers, by the process that waits for each."""
    keepers = children(os.getpid())
    return [child for keeper in keepers for child in children(keeper) if "-c" in arguments(child)]


def children(pid: int) -> list[int]:
    """None of a process that is just ending."""
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += [int(word) for word in (thread / "children").read_text().split()]
    return found


def arguments(pid: int) -> list[str]:
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return []


def uid_of(pid: int) -> int:
    found = re.search(r"^Uid:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1])


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> NamespacesBackend:
    return backend_in(tmp_path_factory.mktemp("namespaces"))


@pytest.fixture
def two(backend: NamespacesBackend) -> Iterator[tuple[ForkedSandbox, ForkedSandbox]]:
    """Two sandboxes alive at once."""
    first, second = backend.start(PROFILE), backend.start(PROFILE)
    yield first, second
    first.destroy()
    second.destroy()


def test_every_namespace_is_new_for_each_sandbox(two: tuple[ForkedSandbox, ForkedSandbox]) -> None:
    pids = ["self", *(str(pid_of(one.child.pidfd or 0)) for one in two)]
    for name in NAMESPACES:
        links = {str(Path(f"/proc/{pid}/ns/{name}").readlink()) for pid in pids}
        assert len(links) == 3, (name, links)


def test_guests_and_jobs_are_each_another_user_and_none_is_root(
    two: tuple[ForkedSandbox, ForkedSandbox],
) -> None:
    uids = []
    for one in two:
        guest = pid_of(one.child.pidfd or 0)
        (job,) = wait_until(lambda pid=guest: children(pid), what="the job's process")  # type: ignore[misc]
        wait_until(lambda pid=job, of=guest: uid_of(pid) != uid_of(of), what="the job's own id")  # type: ignore[misc]
        uids += [uid_of(guest), uid_of(job)]
    assert len(set(uids)) == 4
    assert 300_000 <= min(uids) <= max(uids) < 360_000


def test_the_operator_says_where_the_ids_begin(tmp_path: Path) -> None:
    settings = load_settings(
        launcher={"state": tmp_path / "state", "first_user_id": 3_000_000_000},
        sandbox={"start_timeout_s": 10},
    )
    backend = NamespacesBackend(settings, Ownership(f"test-{os.getpid()}"))
    sandbox = backend.start(PROFILE)
    try:
        assert 3_000_100_000 <= uid_of(pid_of(sandbox.child.pidfd or 0)) < 3_000_160_000
    finally:
        sandbox.destroy()
        backend.close()


def test_the_root_of_a_sandbox_is_read_only_and_nothing_of_the_host_is_mounted(
    two: tuple[ForkedSandbox, ForkedSandbox],
) -> None:
    text = Path(f"/proc/{pid_of(two[0].child.pidfd or 0)}/mountinfo").read_text()
    options = {line.split()[4]: line.split()[5].split(",") for line in text.splitlines()}
    writable = {path for path, words in options.items() if "ro" not in words}
    assert writable == {"/tmp", "/proc", "/dev/shm", "/dev/pts"}
    assert all("nosuid" in words for words in options.values())
    assert {path for path in options if not path.startswith("/proc/")} <= {
        "/",
        "/tmp",
        "/proc",
        "/dev",
        "/dev/shm",
        "/dev/pts",
        "/usr",
    }


def test_a_sandbox_holds_no_descriptor_but_its_stream_and_leaves_no_cgroup(
    backend: NamespacesBackend,
) -> None:
    held = backend.start(PROFILE)
    folders = [Path("/proc") / str(pid_of(held.child.pidfd or 0)) / "fd"]
    targets = [str(path.readlink()) for path in folders[0].iterdir()]
    assert sum(target.startswith("socket:") for target in targets) == 2
    assert not [one for one in targets if not one.startswith(("socket:", "pipe:")) and one != "/dev/null"]
    groups = CgroupTree().find(held.id).folders
    assert groups
    assert all(folder.is_dir() for folder in groups)
    held.destroy()
    held.destroy()
    assert not [folder for folder in groups if folder.exists()]


def test_a_sandbox_dies_at_full_speed(backend: NamespacesBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a twentieth of a processor sixty processes with memory take half a minute to die."""
    held = backend.start(replace(PROFILE, cpus=0.05))
    held.hand_over()
    [quota] = [one for one in CgroupTree().find(held.id).folders for one in quotas_in(one)]
    seen: list[str] = []
    kill = held.child.kill

    def killed() -> None:
        seen.append(quota.read_text().split()[0])
        kill()

    assert quota.read_text().split()[0] == "5000"
    monkeypatch.setattr(held.child, "kill", killed)
    held.destroy()
    assert seen == ["100000"]


def quotas_in(folder: Path) -> list[Path]:
    return [path for name in ("cpu.cfs_quota_us", "cpu.max") if (path := folder / name).exists()]


def test_what_takes_long_to_die_keeps_its_place_until_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal that does not arrive stands in for a slow death."""
    monkeypatch.setattr("cellblock_workers.launcher.namespaces.backend._GONE_S", 0.1)
    backend = backend_in(tmp_path)
    held = backend.start(PROFILE)
    kill = held.child.kill
    monkeypatch.setattr(held.child, "kill", lambda: None)
    os.kill(pid_of(held.child.pidfd or 0), signal.SIGSTOP)  # it would end by itself when the stream does
    with pytest.raises(StartFailed, match="did not die"):
        held.destroy()
    assert held.seat in backend._seats._taken
    kill()
    wait_until(lambda: held.seat not in backend._seats._taken, 10, "the place being free")
    wait_until(lambda: held.child.pidfd is None, 1, "its descriptor being closed")
    backend.sweep()
    backend.close()


def test_a_start_that_fails_and_takes_long_to_die_keeps_its_place_until_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal that does not arrive stands in for a slow death."""
    monkeypatch.setattr("cellblock_workers.launcher.namespaces.backend._GONE_S", 0.1)
    backend = backend_in(tmp_path)
    children: list[ForkedGuest] = []

    def never(child: ForkedGuest, stream: socket.socket, which: int | None) -> None:
        os.kill(pid_of(child.pidfd or 0), signal.SIGSTOP)
        children.append(child)
        monkeypatch.setattr(child, "kill", lambda: None)
        raise StartFailed("it said nothing")

    monkeypatch.setattr(backend, "_await", never)
    with pytest.raises(StartFailed, match="it said nothing"):
        backend.start(PROFILE)
    assert backend._seats._taken == {0}
    ForkedGuest.kill(children[0])
    wait_until(lambda: not backend._seats._taken, 10, "the place being free")
    wait_until(lambda: children[0].pidfd is None, 1, "its descriptor being closed")
    backend.sweep()
    backend.close()


def test_a_full_host_is_no_sign_that_the_isolation_does_not_work(tmp_path: Path) -> None:
    places = _Seats(4, tmp_path)
    assert [places.take(leave=2) for _ in range(2)] == [0, 1]
    with pytest.raises(BackendUnavailable, match="sandboxes_max") as caught:
        places.take(leave=2)
    assert not isinstance(caught.value, StartFailed), "or the host would be probed, and others used instead"
    assert places.take(leave=0) == 2, "a canary has a place all the same"


def test_a_zygote_that_dies_takes_its_sandboxes_along_and_the_next_one_starts(tmp_path: Path) -> None:
    backend = backend_in(tmp_path)
    held = backend.start(PROFILE)
    (zygote,) = zygotes_of(backend)[-1:]
    os.kill(zygote, signal.SIGKILL)
    assert held.child.ended.wait(10)
    with pytest.raises(BackendUnavailable, match="the fork-server of python ended"):
        held.evidence(ended=True)
    held.destroy()
    again = backend.start(PROFILE)
    assert zygotes_of(backend)[-1] != zygote
    again.destroy()


def test_the_probe_passes_here(backend: NamespacesBackend) -> None:
    backend.probe()


#: A line of the zygote's text, what replaces it, and what the refusal has to say.
WITHOUT = {
    "seccomp": ('("the seccomp filter", lambda: kernel.filter_system_calls(self.filter)),', ""),
    "capabilities": ('("its capabilities", lambda: kernel.keep_capabilities(capabilities)),', ""),
    "network": (" | kernel.NEWNET", ""),
    "ipc namespace": (" | kernel.NEWIPC", ""),
    "host name": (" | kernel.NEWUTS", ""),
    "tmpfs": ("size={size_bytes},nr_inodes={inodes},", ""),
    "pids": ('os.write(descriptor, b"0")', "continue"),
}


def weaken(monkeypatch: pytest.MonkeyPatch, changes: dict[str, str]) -> None:
    """Start zygotes whose text has these pieces replaced."""
    modules = fork_server.zygote_modules()
    for piece, other in changes.items():
        (name,) = (name for name, text in modules.items() if piece in text)
        modules[name] = modules[name].replace(piece, other)
    monkeypatch.setattr(fork_server, "zygote_modules", lambda: modules)


@pytest.mark.parametrize("control", WITHOUT)
def test_without_a_control_the_probe_refuses_and_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, control: str
) -> None:
    weaken(monkeypatch, dict([WITHOUT[control]]))
    with pytest.raises(StartFailed, match=control):
        backend_in(tmp_path).probe()


LAST = '("nothing else to see"'
WRITABLE = {LAST: f'("x", lambda: kernel.mount("t", root.NEW + "/usr", "tmpfs")), {LAST}'}
NO_LANDLOCK = {'("Landlock", self.restrict_files),': ""}


def test_a_root_that_was_left_writable_is_held_by_landlock_and_without_that_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kernel.landlock_version():
        pytest.fail("this kernel has no Landlock, so this control cannot be shown here")
    weaken(monkeypatch, WRITABLE)
    backend_in(tmp_path / "with").probe()
    weaken(monkeypatch, NO_LANDLOCK)
    with pytest.raises(StartFailed, match="root: it is writable"):
        backend_in(tmp_path / "without").probe()


@pytest.mark.parametrize(("control", "files"), [("memory", ("memory.",)), ("pids", ("pids.",))])
def test_without_a_cgroups_limit_the_probe_refuses_and_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, control: str, files: tuple[str, ...]
) -> None:
    limits = CgroupTree._limits

    def fewer(self: CgroupTree, profile: Profile, extra_pids: int) -> list[tuple[str, str]]:
        return [
            (name, value) for name, value in limits(self, profile, extra_pids) if not name.startswith(files)
        ]

    monkeypatch.setattr(CgroupTree, "_limits", fewer)
    with pytest.raises(StartFailed, match=control):
        backend_in(tmp_path).probe()


def test_a_filter_the_kernel_refuses_stops_the_start_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "cellblock_workers.launcher.namespaces.backend.compile_profile", lambda profile: b"\xff" * 16
    )
    with pytest.raises(StartFailed, match="the seccomp filter could not be had"):
        backend_in(tmp_path).start(PROFILE)


def test_without_libseccomp_the_host_is_not_one_for_this(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cellblock_workers.launcher.seccomp_filter._LIBRARY", "libseccomp.so.none")
    with pytest.raises(NotOnThisHost, match="apt-get install libseccomp2"):
        backend_in(tmp_path).probe()


def test_a_module_that_cannot_be_imported_ahead_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartFailed, match="No module named 'no_such_module'"):
        backend_in(tmp_path, preload={"python": ["no_such_module"]}).start(PROFILE)


def test_an_image_that_is_not_unpacked_names_the_remedy(tmp_path: Path) -> None:
    settings = load_settings(launcher={"state": tmp_path / "state", "image_roots": tmp_path / "images"})
    backend = NamespacesBackend(settings, Ownership("test"))
    with pytest.raises(StartFailed, match="run: make images"):
        backend.start(
            Profile(level="standard", image="datascience", memory_bytes=256 * MIB, cpus=1.0, pids=20)
        )


@pytest.mark.parametrize("missing", ["python3", "tmp"])
def test_an_image_that_is_incomplete_names_the_part(tmp_path: Path, missing: str) -> None:
    root = tmp_path / "images" / "python" / "rootfs"
    for name in ("dev", "proc", "tmp", "usr/bin"):
        (root / name).mkdir(parents=True)
    (root / "usr/bin/python3").write_text("")
    if missing == "tmp":
        (root / "tmp").rmdir()
    else:
        (root / "usr/bin/python3").unlink()
    settings = load_settings(launcher={"state": tmp_path / "state", "image_roots": tmp_path / "images"})
    with pytest.raises(StartFailed, match=f"has no (folder )?{missing}"):
        NamespacesBackend(settings, Ownership("test")).start(PROFILE)


def test_an_interpreter_that_does_not_run_is_a_failed_start(tmp_path: Path) -> None:
    root = tmp_path / "images" / "python" / "rootfs"
    for name in ("dev", "proc", "tmp", "usr/bin"):
        (root / name).mkdir(parents=True)
    (root / "usr/bin/python3").write_text("not a program")
    settings = load_settings(launcher={"state": tmp_path / "state", "image_roots": tmp_path / "images"})
    with pytest.raises(StartFailed, match="the fork-server of python"):
        NamespacesBackend(settings, Ownership("test")).start(PROFILE)


def test_without_an_image_the_hosts_python_runs_and_the_hosts_folders_are_not_there(tmp_path: Path) -> None:
    settings = load_settings(launcher={"state": tmp_path / "state", "image_roots": tmp_path / "images"})
    backend = NamespacesBackend(settings, Ownership("test"))
    backend.probe()
    held = backend.start(PROFILE)
    root = Path(f"/proc/{pid_of(held.child.pidfd or 0)}/root")
    assert {path.name for path in root.iterdir()} <= {
        "bin",
        "dev",
        "etc",
        "lib",
        "lib32",
        "lib64",
        "mnt",
        "proc",
        "root",
        "sbin",
        "tmp",
        "usr",
    }
    assert not (root / "etc/shadow").exists()
    held.destroy()


def test_an_image_that_was_made_anew_is_used_for_the_next_sandbox_while_the_old_one_lives(
    tmp_path: Path,
) -> None:
    unpacked = load_settings().launcher.image_roots
    rootfs = tmp_path / "images" / "python" / "rootfs"
    rootfs.parent.mkdir(parents=True)
    rootfs.symlink_to(unpacked / "python" / "rootfs")
    settings = load_settings(launcher={"state": tmp_path / "state", "image_roots": tmp_path / "images"})
    backend = NamespacesBackend(settings, Ownership("test"))

    def knows_pandas(sandbox: ForkedSandbox) -> bool:
        libraries = Path(f"/proc/{pid_of(sandbox.child.pidfd or 0)}/root/usr")
        return any(libraries.glob("l*/**/pandas/__init__.py"))

    with ExitStack() as stack:
        stack.callback(backend.close)
        old = backend.start(PROFILE)
        stack.callback(old.destroy)
        rootfs.unlink()
        rootfs.symlink_to(unpacked / "datascience" / "rootfs")
        new = backend.start(PROFILE)
        stack.callback(new.destroy)
        assert (knows_pandas(old), knows_pandas(new)) == (False, True)
        assert not old.child.ended.is_set()
        before = len(zygotes_of(backend))
        old.destroy()
        wait_until(lambda: len(zygotes_of(backend)) == before - 1, what="the old zygote ending")


def test_a_full_disk_for_records_is_a_failed_start_and_leaves_nothing(tmp_path: Path) -> None:
    backend = backend_in(tmp_path)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "namespaces").write_text("in the way")
    with pytest.raises(StartFailed, match="could not be started"):
        backend.start(PROFILE)


def test_the_guest_of_a_series_has_a_filter_and_no_power_but_to_kill(backend: NamespacesBackend) -> None:
    held = backend.start(replace(PROFILE, series=4))
    text = Path(f"/proc/{pid_of(held.child.pidfd or 0)}/status").read_text()
    status = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    assert (status["Seccomp"], status["NoNewPrivs"]) == ("2", "1")
    assert {int(status[name], 16) for name in ("CapEff", "CapPrm", "CapBnd")} == {1 << kernel.CAP_KILL}
    held.destroy()


def test_a_job_has_no_descriptor_behind_its_own() -> None:
    """Injected: one that the guest, or the process that started it, forgot to close."""
    code = (
        "import os\n"
        "from cellblock_workers.guest.job import become_job\n"
        "from cellblock_workers.guest.pipes import Pipes\n"
        "os.dup2(0, 3000)\n"
        "become_job(Pipes(65534), {'uid': 65534, 'rlimits': {}, 'folder': '/tmp'})\n"
        "try: os.fstat(3000)\n"
        "except OSError: os._exit(0)\n"
        "os._exit(1)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
