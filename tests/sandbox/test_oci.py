"""gVisor and runc straight through the OCI runtime: refusals that say what to do, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from cellblock_config import LEVELS, Isolation, load_settings
from cellblock_workers.guest.shared_kernel import CAP_KILL, CAP_SYS_ADMIN
from cellblock_workers.launcher.backend import BackendUnavailable, NotOnThisHost, Profile, StartFailed
from cellblock_workers.launcher.cgroup_tree import CgroupTree
from cellblock_workers.launcher.oci.backend import OciBackend
from cellblock_workers.launcher.oci.bundle import Bundle
from cellblock_workers.launcher.oci.children import adopt_orphans
from cellblock_workers.launcher.oci.cleanup import Remains
from cellblock_workers.launcher.oci.runtime import RUNTIMES, OciRuntime
from cellblock_workers.launcher.oci.sandbox import OciSandbox
from cellblock_workers.launcher.ownership import Ownership
from parts import launcher_process, wait_until
from sandbox.harness import MIB
from sandbox.peer import Peer

pytestmark = [pytest.mark.docker, pytest.mark.no_rerun]

PROFILE = Profile(level="standard", image="python", memory_bytes=128 * MIB, cpus=1.0, pids=20)
ISOLATIONS = ["gvisor", "runc"]


def backend_with(
    isolation: str, state: Path, sandbox: dict[str, object] | None = None, **launcher: object
) -> OciBackend:
    """A backend of this process's own."""
    adopt_orphans()
    chosen: Isolation = "gvisor" if isolation == "gvisor" else "runc"
    settings = load_settings(
        launcher={"state": state, **launcher}, sandbox={"start_timeout_s": 10, **(sandbox or {})}
    )
    return OciBackend(chosen, settings, Ownership(f"test-{os.getpid()}-{state.name}"[:60]))


@pytest.fixture(params=ISOLATIONS)
def isolation(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def backend(isolation: str, tmp_path: Path) -> OciBackend:
    return backend_with(isolation, tmp_path / "state")


@contextmanager
def started(backend: OciBackend, profile: Profile = PROFILE) -> Iterator[OciSandbox]:
    """A sandbox that is destroyed afterwards."""
    sandbox = backend.start(profile)
    try:
        yield sandbox
    finally:
        sandbox.destroy()


def left_in(state: Path) -> list[str]:
    """Files of sandboxes: bundles, records, the runtimes' notes; not the launcher's claim on user ids."""
    # os.walk goes on where a folder vanishes meanwhile
    walked = [(Path(folder), names) for folder, _, names in os.walk(state)]
    found = [folder / name for folder, names in walked if folder.name != "ids" for name in names]
    return sorted(str(path.relative_to(state)) for path in found)


def cgroups_of(*sandbox_ids: str) -> list[str]:
    """Cgroups of these sandboxes, in whatever hierarchy."""
    top = Path("/sys/fs/cgroup")
    folders = [folder / "cellblock" / one for folder in (top, *top.iterdir()) for one in sandbox_ids]
    return [str(folder) for folder in folders if folder.is_dir()]


def status_of(pid: int) -> dict[str, str]:
    """The host kernel's word on a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def refusal(backend: OciBackend) -> str:
    """Why a backend is not used."""
    with pytest.raises(BackendUnavailable) as caught:
        backend.probe()
    return str(caught.value)


# --- refusals ---------------------------------------------------------------------------------------


def test_a_working_host_passes_and_the_probe_leaves_nothing(backend: OciBackend, tmp_path: Path) -> None:
    backend.probe()
    assert left_in(tmp_path) == []


def test_a_missing_runtime_is_named_with_its_package(
    backend: OciBackend, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "_runtime", OciRuntime("no-such-runtime", "some-package"))
    with pytest.raises(NotOnThisHost, match=r"no-such-runtime is not installed in .*install some-package"):
        backend.probe()


def test_without_root_it_says_so(backend: OciBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    with pytest.raises(NotOnThisHost, match="needs root to make a sandbox; run the launcher as root"):
        backend.probe()


def test_an_image_that_is_not_unpacked_is_named_with_the_remedy(isolation: str, tmp_path: Path) -> None:
    backend = backend_with(isolation, tmp_path / "state", image_roots=tmp_path / "none")
    with pytest.raises(NotOnThisHost, match=r"image python is not unpacked at .*none.*run: make images"):
        backend.probe()
    with pytest.raises(NotOnThisHost, match="make images"):
        backend.start(PROFILE)
    assert left_in(tmp_path) == []


def test_a_root_without_python_is_refused_in_the_runtimes_words(isolation: str, tmp_path: Path) -> None:
    for folder in ("proc", "dev", "tmp", "etc"):
        (tmp_path / "images" / "python" / "rootfs" / folder).mkdir(parents=True)
    backend = backend_with(isolation, tmp_path / "state", image_roots=tmp_path / "images")
    with pytest.raises(StartFailed, match=rf"{isolation}: .*python3"):
        backend.probe()
    with pytest.raises(StartFailed, match="python3"):
        backend.start(PROFILE)
    assert left_in(tmp_path / "state") == []


def test_a_probe_bounds_the_process_ids_of_all_sandboxes(
    backend: OciBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    monkeypatch.setattr(CgroupTree, "_bound_all", lambda tree: written.append("all"))
    backend.probe()
    assert written == ["all"]


def test_a_sandbox_dies_at_full_speed(backend: OciBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    held = backend.start(replace(PROFILE, cpus=0.05))
    held.hand_over()
    files = [f / n for f in CgroupTree().find(held.id).folders for n in ("cpu.cfs_quota_us", "cpu.max")]
    [quota] = [file for file in files if file.exists()]
    assert quota.read_text().split()[0] == "5000"
    seen: list[str] = []
    discard = backend.discard

    def discarded(sandbox: OciSandbox) -> None:
        seen.append(quota.read_text().split()[0])
        discard(sandbox)

    monkeypatch.setattr(held, "discard", discarded)
    held.destroy()
    assert seen == ["100000"]


def test_a_broken_bundle_is_refused_and_removed(
    backend: OciBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bundle, "config", lambda _: {"ociVersion": "1.0.2", "linux": 7})
    with pytest.raises(StartFailed, match="refused: "):
        backend.probe()
    assert left_in(tmp_path) == []


def test_a_guest_that_ends_at_once_is_a_failed_start(
    backend: OciBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "_guest", lambda *_: ["-c", "raise SystemExit(3)"])
    with pytest.raises(StartFailed, match="ended before its guest announced itself"):
        backend.start(PROFILE)
    assert left_in(tmp_path) == []


@contextmanager
def tiny_disk(folder: Path) -> Iterator[Path]:
    """A file system with room for next to nothing."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k,nr_inodes=40", "tiny", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_disk_is_named_with_the_folder_and_the_setting(isolation: str, tmp_path: Path) -> None:
    with tiny_disk(tmp_path / "tiny") as folder:
        said = refusal(backend_with(isolation, folder / "state"))
    assert said.startswith(f"{isolation}: No space left on device")
    assert str(folder) in said
    assert "CELLBLOCK_LAUNCHER_STATE" in said


_PROBE_WITHOUT_CGROUPS = """
import subprocess, sys
from pathlib import Path
for line in Path("/proc/self/mountinfo").read_text().splitlines():
    where = line.split()[4]
    if where.startswith("/sys/fs/cgroup/"):
        subprocess.run(["mount", "-o", "remount,bind,ro", where], check=True)
from sandbox.test_oci import backend_with, refusal
print(refusal(backend_with(sys.argv[1], Path(sys.argv[2]))))
"""


def test_cgroups_that_cannot_be_written_are_named(isolation: str, tmp_path: Path) -> None:
    done = subprocess.run(
        ["unshare", "--mount", sys.executable, "-c", _PROBE_WITHOUT_CGROUPS, isolation, tmp_path / "state"],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *logged, said = done.stdout.splitlines()
    assert any("process_ids_of_all_not_bounded" in line for line in logged)
    assert said.startswith(f"{isolation}: ")
    assert "cgroup" in said
    # runsc visits the controllers in a random order, and has words of its own for the ones it calls optional.
    assert re.search("read-only file system|cgroup controller not found", said)
    assert left_in(tmp_path) == []


def test_a_sandbox_without_its_memory_limit_disqualifies_the_isolation(
    backend: OciBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Bundle.config

    def without_memory(bundle: Bundle) -> dict[str, object]:
        config = whole(bundle)
        del config["linux"]["resources"]["memory"]
        return config

    monkeypatch.setattr(Bundle, "config", without_memory)
    assert "memory is not limited" in refusal(backend)
    assert left_in(tmp_path) == []


@pytest.mark.parametrize(
    ("section", "key", "value", "said"),
    [
        ("root", "readonly", False, "the root is writable"),
        ("linux", "seccomp", None, "system calls are not filtered"),
        ("linux", "namespaces", [{"type": "pid"}, {"type": "mount"}], "network interface besides"),
    ],
)
def test_each_control_taken_away_is_noticed_by_the_canary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: str, key: str, value: object, said: str
) -> None:
    backend = backend_with("runc", tmp_path / "state")
    whole = Bundle.config

    def weakened(bundle: Bundle) -> dict[str, object]:
        config = whole(bundle)
        config[section][key] = value
        if key == "readonly":  # a root of its own: the images' are shared
            subprocess.run(["cp", "-a", bundle.root, tmp_path / "root"], check=True)
            config["root"]["path"] = str(tmp_path / "root")
            del config["mounts"][0]
        if key == "namespaces":  # the host's own network, with an interface besides the loopback
            del config["hostname"]
        return config

    monkeypatch.setattr(Bundle, "config", weakened)
    assert said in refusal(backend)


# --- the running sandbox, as the host's kernel sees it ------------------------------------------------


def test_the_kernel_has_every_control_of_a_runc_sandbox(tmp_path: Path) -> None:
    backend = backend_with("runc", tmp_path / "state")
    with started(backend) as sandbox:
        pid = sandbox.family.first.pid
        status = status_of(pid)
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        guests = sum(1 << number for number in (5, 6, 7))  # KILL, SETGID, SETUID
        assert {int(status[f"Cap{kind}"], 16) for kind in ("Bnd", "Prm", "Eff")} == {guests}
        assert {int(status[f"Cap{kind}"], 16) for kind in ("Inh", "Amb")} == {0}
        for kind in ("pid", "net", "ipc", "uts", "mnt", "cgroup"):
            own = Path(f"/proc/{pid}/ns/{kind}").readlink()
            assert own != Path(f"/proc/self/ns/{kind}").readlink(), kind
        limits = Path(f"/proc/{pid}/limits").read_text()
        assert [line.split()[-3:-1] for line in limits.splitlines() if "open files" in line] == [
            ["1024", "1024"]
        ]
        mounts = [line.split() for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
        assert next(one for one in mounts if one[4] == "/")[5].startswith("ro,")
        written = [one[4] for one in mounts if "rw" in one[5].split(",") and one[4] in {"/", "/dev", "/tmp"}]
        assert written == ["/tmp"]  # the one place


def test_guest_of_a_series_has_a_filter_and_no_power_but_to_kill_and_to_unmount(tmp_path: Path) -> None:
    """As the sandbox's own kernel says it, asked from the host."""
    backend = backend_with("gvisor", tmp_path / "state")
    with started(backend, replace(PROFILE, series=2, memory_bytes=512 * MIB)) as sandbox:
        assert sandbox.series == 2
        runsc = RUNTIMES["gvisor"]
        command = [runsc.locate("gvisor"), "--root", str(tmp_path / "state" / "oci" / runsc.program)]
        looks = "print(open('/proc/1/status').read())"
        text = subprocess.run(
            [*command, "exec", sandbox.id, "/usr/bin/env", "python3", "-c", looks],
            check=True,
            capture_output=True,
            text=True,
            timeout=30,
        ).stdout
    status = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    assert status["Seccomp"] == "2"
    held = 1 << CAP_KILL | 1 << CAP_SYS_ADMIN
    assert {int(status[name], 16) for name in ("CapEff", "CapPrm")} == {held}


def test_the_kernel_has_the_limits_of_every_sandbox(backend: OciBackend, isolation: str) -> None:
    with started(backend) as sandbox:
        group = sandbox._cgroup
        assert group.memory_limit_bytes() == PROFILE.memory_bytes
        assert group.pids_limit() == (22 if isolation == "runc" else 600)
        assert (group.peak_memory_bytes() or 0) > MIB
        evidence = sandbox.evidence(ended=False)
        assert (evidence.running, evidence.exit_code, evidence.oom_kills) == (True, None, 0)


def test_a_sandbox_is_one_process_of_the_launchers_and_its_first_is_watched(
    backend: OciBackend, isolation: str
) -> None:
    with started(backend) as sandbox:
        assert len(sandbox.family) == (2 if isolation == "gvisor" else 1)  # runsc has its gofer beside
        sandbox.family.first.kill()
        evidence = sandbox.evidence(ended=True)
        assert (evidence.running, evidence.exit_code) == (False, 137)


# --- nothing left behind ------------------------------------------------------------------------------


def test_destroying_leaves_no_process_file_cgroup_or_descriptor(backend: OciBackend, tmp_path: Path) -> None:
    def interrupts_held() -> tuple[int, list[str]]:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        return len(list(Path("/proc/self/fd").iterdir())), children

    backend.start(PROFILE).destroy()  # the launcher's claim on user ids stays open
    before = interrupts_held()
    made = []
    for _ in range(4):
        sandbox = backend.start(PROFILE)
        made.append(sandbox)
        sandbox.destroy()
        sandbox.destroy()  # twice is once
    assert interrupts_held() == before
    assert left_in(tmp_path) == []
    assert cgroups_of(*(one.id for one in made)) == []


def test_a_sandbox_that_was_stopped_is_destroyed_all_the_same(backend: OciBackend) -> None:
    sandbox = backend.start(PROFILE)
    os.kill(sandbox.family.first.pid, signal.SIGSTOP)
    sandbox.destroy()
    assert cgroups_of(sandbox.id) == []


def test_a_killed_launchers_sandboxes_are_removed_by_the_next_one(isolation: str, tmp_path: Path) -> None:
    owner, state = f"test-{os.getpid()}-kill-{isolation}", tmp_path / "state"
    environment = {
        "CELLBLOCK_SANDBOX_ISOLATIONS": json.dumps([isolation]),
        "CELLBLOCK_SANDBOX_CHAINS": json.dumps({level: [isolation] for level in LEVELS}),
        "CELLBLOCK_LAUNCHER_BACKENDS": '["oci"]',
        "CELLBLOCK_LAUNCHER_OWNER": owner,
        "CELLBLOCK_LAUNCHER_STATE": str(state),
        "CELLBLOCK_LAUNCHER_WARM": "1",
    }
    with launcher_process(tmp_path, **environment) as (path, process), Peer(path) as peer:
        wait_until(lambda: peer.ask(op="probe").get("isolations"), 30, "an isolation passing its probe")
        lent = peer.acquire(level="standard")
        wait_until(lambda: peer.counts()["idle"] == 1, 30, "a warm one beside it")
        process.kill()
        process.wait(timeout=10)
        records = sorted(one.stem for one in (state / "oci" / "records").glob("*.json"))
        assert lent["sandbox"] in records
        assert len(records) == 2
        assert cgroups_of(*records) != []
        with launcher_process(tmp_path, **{**environment, "CELLBLOCK_LAUNCHER_WARM": "0"}):
            wait_until(lambda: cgroups_of(*records) == [], 20, "the sweep")
            wait_until(lambda: not set(records) & {Path(one).stem for one in left_in(state)}, 20, "records")
            assert not [one for one in left_in(state) if any(name in one for name in records)]


def test_a_living_launchers_sandboxes_are_left_alone(backend: OciBackend, tmp_path: Path) -> None:
    with started(backend) as sandbox:
        other = OciBackend(
            backend.isolation,
            load_settings(launcher={"state": tmp_path / "state"}),
            Ownership("somebody-else"),
        )
        assert other.sweep() == 0
        assert backend.sweep() == 0
        assert sandbox.evidence(ended=False).running
        assert sandbox.stream.recv(1, socket.MSG_PEEK) == b"R"


def test_the_user_id_of_one_that_would_not_go_is_free_once_the_sweep_has_removed_it(
    backend: OciBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Remains) -> None:  # a mock: the fault injected
        raise BackendUnavailable("device or resource busy")

    sandbox = backend.start(PROFILE)
    with monkeypatch.context() as fault:
        fault.setattr(Remains, "remove", refuse)
        with pytest.raises(BackendUnavailable, match="busy"):
            sandbox.destroy()
    assert backend._uids._taken.keys() == {sandbox.id}
    assert backend.sweep() == 1
    assert backend._uids._taken == {}


# --- evidence -----------------------------------------------------------------------------------------


_HUNGRY = """
import os
os.set_blocking(0, True)
os.write(1, b"R")
os.read(0, 1)
held = bytearray(2**30)
"""


def test_memory_evidence_is_each_sandboxs_own_and_nothing_of_the_dead_stays(
    backend: OciBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "_guest", lambda *_: ["-c", _HUNGRY])

    def children() -> list[str]:
        return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()

    before = children()
    with started(backend) as fed, started(backend) as starved:
        starved.stream.send(b"x")
        evidence = starved.evidence(ended=wait_until(starved.family.first.ended, 20, "the kernel's kill"))
        assert (evidence.running, evidence.exit_code) == (False, 137)
        assert (evidence.oom_kills or 0) >= 1
        assert (evidence.peak_memory_bytes or 0) > PROFILE.memory_bytes * 0.9
        beside = fed.evidence(ended=False)
        assert (beside.running, beside.oom_kills) == (True, 0)
    assert children() == before


def test_the_kernel_has_quota_and_devices_of_every_sandbox(backend: OciBackend, isolation: str) -> None:
    with started(backend) as sandbox:
        group = sandbox._cgroup
        quota = group._read("cpu", "cpu.cfs_quota_us") or group._read("", "cpu.max")
        assert (quota or "").split()[0] == "100000", "one processor"
        # The host's kernel sees only the sentry of runsc; and cgroups v2 have no file to look at.
        devices = group._read("devices", "devices.list") if isolation == "runc" else None
        assert devices is None or "a *:* rwm" not in devices


SERIES = replace(PROFILE, series=4, memory_bytes=256 * MIB)


@pytest.mark.parametrize(("forms", "length"), [(True, 4), (False, 0)])
def test_a_series_is_formed_under_gvisor_unless_its_operator_forbids_it(
    tmp_path: Path, forms: bool, length: int
) -> None:
    backend = backend_with("gvisor", tmp_path, sandbox={"gvisor_series": forms})
    with started(backend, SERIES) as sandbox:
        assert sandbox.series == length


@pytest.mark.parametrize(
    ("image", "memory_mib", "length"),
    [("python", 1024, 32), ("python", 128, 6), ("python", 64, 2), ("python", 63, 0), ("datascience", 512, 5)],
)
def test_half_of_a_series_memory_is_for_the_job_that_runs(
    tmp_path: Path, image: str, memory_mib: int, length: int
) -> None:
    backend = backend_with("gvisor", tmp_path)
    profile = replace(SERIES, image=image, series=32, memory_bytes=memory_mib * MIB)
    with started(backend, profile) as sandbox:
        assert sandbox.series == length


@pytest.mark.parametrize(
    "fault",
    [{"uid": 0}, {"files": ["/etc/nowhere"]}, {"job_filter": "00" * 8}],
    ids=["root", "mount", "filter"],
)
def test_a_series_whose_jobs_are_not_apart_is_not_used(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: dict[str, object],
) -> None:
    """As jobs that are root would not be: this launcher then makes a sandbox for each."""
    backend = backend_with("gvisor", tmp_path)
    real = backend._guest

    def faulty(path: str, options: dict[str, object]) -> list[str]:
        return real(path, {**options, **(fault if "series" in options else {})})

    monkeypatch.setattr(backend, "_guest", faulty)
    with capture_logs() as logged, started(backend, SERIES) as sandbox:
        assert sandbox.series == 0
    (line,) = (line for line in logged if line["event"] == "series_not_formed")
    assert line["reason"] == ("a call was refused" if "files" in fault else "its jobs would not be apart")


def test_a_refused_call_leaves_later_series_and_other_images_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = backend_with("gvisor", tmp_path)
    real = backend._guest
    with monkeypatch.context() as patched:
        patched.setattr(
            backend, "_guest", lambda path, given: real(path, {**given, "files": ["/etc/nowhere"]})
        )
        with started(backend, SERIES) as sandbox:
            assert sandbox.series == 0
    with started(backend, SERIES) as sandbox:
        assert sandbox.series == 4
