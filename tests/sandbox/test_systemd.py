"""The units of config/host/systemd on a real systemd, and the scopes the launcher makes there."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cellblock import Outcome
from cellblock_config import load_settings
from cellblock_workers.launcher.backend import NotOnThisHost
from cellblock_workers.launcher.ownership import Ownership
from cellblock_workers.launcher.systemd import manager
from cellblock_workers.launcher.systemd.backend import ScopeBackend
from parts import REPOSITORY, wait_until
from sandbox.harness import MIB, Host
from sandbox.peer import Peer, until_ready
from sandbox.systemd_host import ROOMY, SLICE, UNITS, SystemdHost, chains_of, systemd_host

pytestmark = [pytest.mark.docker, pytest.mark.way("systemd"), pytest.mark.timeout(120)]

SETTINGS = {**chains_of("systemd"), "CELLBLOCK_LAUNCHER_WARM": "0"}
ROOT_COMMANDS = ("start", "restart")
#: Hands the call on with one limit turned into "infinity", which systemd takes without a word.
LAX_BUSCTL = """#!/bin/bash
words=("$@")
for number in "${!words[@]}"; do
  if [[ ${words[number]} == "$LAX" ]]; then words[number+2]=18446744073709551615; fi
done
exec /usr/bin/busctl "${words[@]}"
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SystemdHost]:
    with systemd_host(tmp_path_factory.mktemp("systemd")) as machine:
        yield machine


@pytest.fixture
def launcher(machine: SystemdHost) -> SystemdHost:
    """With its launcher anew, past its probe, and a slice with room."""
    machine.bound(ROOMY)
    machine.start_launcher(**SETTINGS)
    until_ready(machine.socket)
    return machine


@pytest.fixture
def peer(launcher: SystemdHost) -> Iterator[Peer]:
    with Peer(launcher.socket) as peer:
        yield peer


def shown(machine: SystemdHost, unit: str, *names: str) -> list[str]:
    """Properties of a unit, as systemd says them."""
    return [machine.sh(f"systemctl show --property={name} --value {unit}").stdout.strip() for name in names]


def pid_of(machine: SystemdHost, unit: str) -> str:
    return shown(machine, unit, "MainPID")[0]


def test_systemd_has_nothing_to_say_against_the_units(machine: SystemdHost) -> None:
    machine.sh("mkdir -p /etc/cellblock; touch /etc/cellblock/{worker,archiver,monitor}.env")
    names = sorted(path.name for path in UNITS.glob("cellblock*.s[el]*ice"))
    assert names == [
        "cellblock-archiver.service",
        "cellblock-launcher.service",
        "cellblock-monitor.service",
        "cellblock-sandbox.slice",
        "cellblock-worker.service",
    ]
    units = " ".join(f"/etc/systemd/system/{name}" for name in names)
    done = machine.sh(f"rm -rf /etc/systemd/system/{SLICE}.d; systemd-analyze verify {units}")
    assert done.stdout + done.stderr == ""


def test_the_slice_has_its_figures_and_an_operator_has_the_last_word(machine: SystemdHost) -> None:
    names = ("MemoryMax", "MemorySwapMax", "CPUQuotaPerSecUSec")
    machine.sh(f"rm -rf /etc/systemd/system/{SLICE}.d; systemctl daemon-reload; systemctl start {SLICE}")
    assert shown(machine, SLICE, *names) == [str(1024 * MIB), str(7 * 1024 * MIB), "500ms"]
    cgroup = machine.sh(f"systemctl show --property=ControlGroup --value {SLICE}").stdout.strip()
    for file, value in (("memory.limit_in_bytes", 1024 * MIB), ("cpu.cfs_quota_us", 50_000)):
        folder = Path("/sys/fs/cgroup", file.partition(".")[0])
        assert int(machine.sh(f"cat {folder}{cgroup}/{file}").stdout) == value
    machine.bound({"MemoryMax": "3G", "CPUQuota": "150%"})
    assert shown(machine, SLICE, *names) == [str(3 * 1024 * MIB), str(7 * 1024 * MIB), "1.500000s"]


def test_every_sandbox_is_a_scope_of_the_slice_with_its_own_limits(launcher: SystemdHost, peer: Peer) -> None:
    reply = peer.acquire(memory_bytes=192 * MIB, cpus=0.4, pids=17)
    assert (reply["isolation"], reply["backend"]) == ("systemd", "scope")
    scope = f"cellblock-{reply['sandbox']}.scope"
    assert launcher.scopes() == [scope]
    names = ("Slice", "MemoryMax", "MemorySwapMax", "CPUQuotaPerSecUSec", "TasksMax", "OOMPolicy")
    # 17 of the job, the guest, the thread that writes output, and the process that holds the scope open.
    assert shown(launcher, scope, *names) == [SLICE, str(192 * MIB), "0", "400ms", "20", "continue"]


def test_a_sandbox_is_in_its_scope_in_every_hierarchy_and_the_launcher_in_none(
    launcher: SystemdHost, peer: Peer
) -> None:
    scope = f"cellblock-{peer.acquire()['sandbox']}.scope"
    listed = f"cat /sys/fs/cgroup/pids{shown(launcher, scope, 'ControlGroup')[0]}/cgroup.procs"
    # The one that holds it, the guest, and the job's process, which the guest forks ahead.
    wait_until(lambda: len(launcher.sh(listed).stdout.split()) == 3, what="three processes in the scope")
    for pid in launcher.sh(listed).stdout.split():
        places = launcher.sh(f"cat /proc/{pid}/cgroup").stdout.splitlines()
        inside = {line.split(":")[1] for line in places if line.endswith(f"{SLICE}/{scope}")}
        assert inside >= {"memory", "pids", "cpu", "name=systemd", ""}, places
    own = launcher.sh(f"cat /proc/{pid_of(launcher, 'cellblock-launcher.service')}/cgroup").stdout
    assert SLICE not in own


def test_an_operator_sees_what_the_slice_holds_and_how_much_memory(launcher: SystemdHost, peer: Peer) -> None:
    ids = [peer.acquire()["sandbox"] for _ in range(2)]
    text = launcher.sh(f"systemctl status --no-pager {SLICE}").stdout
    assert all(f"cellblock-{one}.scope" in text for one in ids)
    assert "max: 4.0G" in text
    assert int(shown(launcher, SLICE, "MemoryCurrent")[0]) > MIB


def test_an_operator_who_stops_a_scope_ends_that_job_and_nothing_else(launcher: SystemdHost) -> None:
    host = Host(launcher.socket)
    try:
        with host.running("import time; print('begun', flush=True); time.sleep(20)") as (_, wait):
            (scope,) = wait_until(launcher.scopes, what="the job's scope")
            launcher.sh(f"systemctl stop {scope}")
            stopped = wait()
        assert stopped.outcome in {Outcome.SIGNAL, Outcome.SANDBOX_ERROR}
        assert stopped.usage.wall_ms < 15_000
        assert host.run("print('next')").stdout == "next\n"
    finally:
        host.launcher.close()


def test_many_jobs_side_by_side_leave_nothing_and_nothing_grows(launcher: SystemdHost) -> None:
    pid = pid_of(launcher, "cellblock-launcher.service")
    count = f"ls /proc/{pid}/fd | wc -l; cat /proc/{pid}/task/*/children | wc -w"
    host = Host(launcher.socket)

    def run(number: int) -> str:
        try:
            return host.run(f"print({number} * 2)").stdout
        finally:
            host.launcher.close()

    with ThreadPoolExecutor(8) as pool:
        first = list(pool.map(run, range(8)))
        wait_until(lambda: not launcher.scopes(), what="no scope")
        before = launcher.sh(count).stdout
        rest = list(pool.map(run, range(8, 60)))
    assert first + rest == [f"{2 * number}\n" for number in range(60)]
    wait_until(lambda: not launcher.scopes(), what="no scope")
    wait_until(lambda: launcher.sh(count).stdout == before, what=f"as many files and processes as {before}")


def test_nothing_is_left_of_a_sandbox_that_was_killed(launcher: SystemdHost, peer: Peer) -> None:
    for _ in range(3):
        reply = peer.acquire()
        assert peer.ask(op="kill", sandbox=reply["sandbox"])["ok"]
    wait_until(lambda: not launcher.scopes(), what="no scope")
    assert launcher.sh("systemctl --failed --plain --no-legend").stdout == ""
    cgroup = shown(launcher, SLICE, "ControlGroup")[0]
    assert launcher.sh(f"find /sys/fs/cgroup/*{cgroup} -name '*.scope'").stdout == ""
    assert launcher.sh("find /run/cellblock -name '*.json'").stdout == ""


def test_a_launcher_that_is_killed_takes_its_scopes_along_and_is_started_again(launcher: SystemdHost) -> None:
    with Peer(launcher.socket) as peer:
        for _ in range(2):
            peer.acquire()
        assert len(launcher.scopes()) == 2
        before = pid_of(launcher, "cellblock-launcher.service")
        launcher.sh(f"touch /run/cellblock/recorded; kill -KILL {before}")
        wait_until(lambda: not launcher.scopes(), what="no scope")
    wait_until(lambda: pid_of(launcher, "cellblock-launcher.service") not in {"0", before}, what="a new one")
    until_ready(launcher.socket)
    wait_until(lambda: not launcher.sh("find /run/cellblock -name '*.json'").stdout, what="no record")
    launcher.sh("rm /run/cellblock/recorded")  # what an earlier life has recorded is still there


def test_jobs_that_fill_the_slice_end_for_memory_and_nobody_else_does(launcher: SystemdHost) -> None:
    launcher.bound({"MemoryMax": "200M", "CPUQuota": "400%"})
    service = pid_of(launcher, "cellblock-launcher.service")
    host = Host(launcher.socket)
    try:
        with host.running("import time; time.sleep(4); print('still here')") as (_, wait):
            greedy = host.run("held = bytearray(b'x') * (400 << 20)", limits={"memory_bytes": 512 * MIB})
            modest = wait()
    finally:
        host.launcher.close()
    assert (greedy.outcome, greedy.isolation) == (Outcome.MEMORY, "systemd")
    assert greedy.evidence["oom_kills"] == 1
    assert (modest.outcome, modest.stdout) == (Outcome.OK, "still here\n")
    assert pid_of(launcher, "cellblock-launcher.service") == service


@pytest.mark.parametrize(
    ("limit", "missed"),
    [
        ("MemoryMax", "MemoryMax of cellblock-probe-"),
        ("TasksMax", "TasksMax of cellblock-probe-"),
        ("CPUQuotaPerSecUSec", "CPUQuota of cellblock-probe-"),
    ],
)
def test_a_limit_that_systemd_does_not_set_is_missed(machine: SystemdHost, limit: str, missed: str) -> None:
    lax = machine.folder / "lax"
    lax.mkdir(exist_ok=True)
    (lax / "busctl").write_text(LAX_BUSCTL)
    (lax / "busctl").chmod(0o755)
    machine.bound({"CPUQuota": ""})
    machine.start_launcher(**SETTINGS, PATH=f"{lax}:/usr/bin:/bin", LAX=limit)
    with Peer(machine.socket) as peer:
        reasons = wait_until(lambda: peer.ask(op="probe")["reasons"], 30, "a reason")
        assert missed in reasons["systemd/scope"]
        assert not peer.ask(op="probe").get("isolations")
        assert not peer.acquire()["ok"]
    wait_until(lambda: not machine.scopes(), what="no scope")


def test_a_slice_without_a_unit_file_is_refused(machine: SystemdHost) -> None:
    machine.start_launcher(**SETTINGS, CELLBLOCK_LAUNCHER_SLICE="some-other.slice")
    with Peer(machine.socket) as peer:
        reasons = wait_until(lambda: peer.ask(op="probe")["reasons"], 30, "a reason")
        assert "some-other.slice has no unit file" in reasons["systemd/scope"]
        assert peer.acquire()["error"] == "refused"


def test_only_root_is_offered_scopes(machine: SystemdHost) -> None:
    program = (
        "from cellblock_workers.launcher.systemd.scope import ScopeTree; "
        f"print(ScopeTree('{SLICE}').refusal())"
    )
    done = machine.sh(f'cd /; /opt/cellblock/bin/python -c "{program}"', user="cellblock")
    assert "only root may make system scopes" in done.stdout


def test_a_host_without_systemd_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager, "BOOTED", tmp_path / "none")
    backend = ScopeBackend(load_settings(launcher={"state": tmp_path}), Ownership(f"test-{os.getpid()}"))
    with pytest.raises(NotOnThisHost, match="does not run this host"):
        backend.probe()
    assert backend.sweep() == 0


def test_sudo_gives_the_workers_user_two_commands_and_no_other(launcher: SystemdHost) -> None:
    assert "cellblock: parsed OK" in launcher.sh("/usr/sbin/visudo -c").stdout
    before = pid_of(launcher, "cellblock-launcher.service")
    systemctl = "sudo -n systemctl --no-ask-password"
    for command in ROOT_COMMANDS:
        launcher.sh(f"{systemctl} {command} cellblock-launcher.service", user="cellblock")
    assert pid_of(launcher, "cellblock-launcher.service") != before
    for refused in (
        f"{systemctl} stop cellblock-launcher.service",
        f"{systemctl} start cellblock-launcher.service ssh.service",
        f"{systemctl} start cellblock-worker.service",
        f"{systemctl} --root=/tmp start cellblock-launcher.service",
        "sudo -n systemctl status cellblock-launcher.service",
        "sudo -n systemctl edit cellblock-launcher.service",
        "sudo -n systemd-run --scope id",
        "sudo -n busctl call a b c d",
        "sudo -n -u root bash -c id",
        f"sudo -n PATH=/tmp {systemctl.removeprefix('sudo -n ')} start cellblock-launcher.service",
    ):
        done = launcher.sh(refused, user="cellblock", check=False)
        assert done.returncode != 0, refused
        assert "sudo" in done.stderr, (refused, done.stderr)


def test_a_worker_of_the_workers_unit_runs_a_job_in_a_scope(machine: SystemdHost) -> None:
    machine.bound(ROOMY)
    uid = machine.sh("id -u cellblock").stdout.strip()
    machine.start_launcher(
        **SETTINGS,
        CELLBLOCK_LAUNCHER_SOCKET="/run/cellblock/launcher.sock",
        CELLBLOCK_LAUNCHER_ALLOWED_UIDS=f"[{uid}]",
    )
    redis = "CELLBLOCK_REDIS_URL=redis://127.0.0.1:6379/0"
    # The unit hides /home and /tmp, and what is installed here may be a checkout there.
    seen = f"[Service]\nProtectHome=tmpfs\nBindReadOnlyPaths={REPOSITORY} {sys.prefix}\n"
    folder = "/run/systemd/system/cellblock-worker.service.d"
    machine.sh(f"mkdir -p {folder}; printf '%s' '{seen}' >{folder}/checkout.conf")
    machine.sh("redis-server --port 6379 --save '' --daemonize yes --logfile /tmp/redis.log")
    machine.sh(
        f"install -m 600 /dev/null /etc/cellblock/worker.env; echo {redis} >/etc/cellblock/worker.env;"
        "systemctl daemon-reload; systemctl start cellblock-worker.service"
    )
    try:
        run = f"echo 'print(6*7)' | {redis} timeout 50 /opt/cellblock/bin/cellblock run - --json"
        text = machine.sh(f"cd /; {run}").stdout
        assert '"isolation":"systemd"' in text
        assert '"stdout":"42\\n"' in text
        status = machine.sh(
            f"cat /proc/{pid_of(machine, 'cellblock-worker.service')}/status"
        ).stdout.splitlines()
        assert f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}" in status
        assert "NoNewPrivs:\t1" in status
        assert "CapBnd:\t0000000000000000" in status
    except AssertionError:
        print(machine.sh("journalctl --no-pager --quiet --unit cellblock-worker.service").stdout)
        raise
    finally:
        machine.sh(
            "systemctl kill --signal=KILL cellblock-worker.service; systemctl stop cellblock-worker.service"
        )


#: What `systemd-analyze security` says at most, of 100: the launcher makes mounts, users and namespaces.
EXPOSURE = {
    "cellblock-worker.service": 25,
    "cellblock-archiver.service": 25,
    "cellblock-monitor.service": 25,
    "cellblock-launcher.service": 72,
}


def test_units_have_no_fault_and_leave_little_open(machine: SystemdHost) -> None:
    units = " ".join(f"/etc/systemd/system/{unit}" for unit in EXPOSURE)
    assert machine.sh(f"systemd-analyze verify {units} 2>&1").stdout == ""
    for unit, most in EXPOSURE.items():
        done = machine.sh(f"systemd-analyze security --no-pager --threshold={most} {unit}", check=False)
        assert done.returncode == 0, done.stdout.splitlines()[-1]


def test_a_launcher_has_no_power_it_does_not_need(launcher: SystemdHost) -> None:
    pid = shown(launcher, "cellblock-launcher.service", "MainPID")[0]
    bounding = int(launcher.sh(f"grep CapBnd /proc/{pid}/status").stdout.split()[1], 16)
    for name, number in {
        "SYS_MODULE": 16,
        "SYS_RAWIO": 17,
        "SYS_BOOT": 22,
        "SYS_TIME": 25,
        "NET_RAW": 13,
    }.items():
        assert not bounding >> number & 1, name
    inside = f"nsenter --target {pid} --mount"
    for path in ("/etc", "/usr", "/var", "/opt"):
        refused = launcher.sh(f"{inside} touch {path}/written", check=False)
        assert "Read-only file system" in refused.stderr, path
    launcher.sh(f"{inside} touch /run/cellblock/written /var/lib/cellblock/written")
