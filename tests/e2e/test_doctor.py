"""``cellblock doctor``: a line for each thing looked at, a remedy for what is amiss, and the attacks."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import docker
import pytest
from redis import Redis
from rich.console import Console

from cellblock_config import load_settings
from cellblock_workers.doctor import kernel, programs, report
from cellblock_workers.doctor.checks import Check
from cellblock_workers.doctor.command import _holds
from cellblock_workers.doctor.stores import store_checks
from cellblock_workers.doctor.ways import WayReport, known_ways
from cellblock_workers.worker.canaries import CONTROLS, ControlFinding, Way
from cellblock_workers.worker.canaries.prove import State
from parts import CELLBLOCK
from suite.measured import unmeasured

pytestmark = [pytest.mark.whole_host, pytest.mark.no_rerun]


def doctor(*arguments: str, timeout_s: float = 200, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end.

    It starts a launcher for every way at once. Under coverage.py they would start too late, so they are not
    measured.
    """
    return subprocess.run(
        [CELLBLOCK, "doctor", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**unmeasured(os.environ), **environment},
        check=False,
    )


@pytest.mark.docker
@pytest.mark.timeout(240)
@pytest.mark.long("every layer is asked")
def test_the_checklist_is_one_json_object_with_a_remedy_for_everything_amiss() -> None:
    done = doctor("--json")
    assert done.stderr == ""
    (line,) = done.stdout.splitlines()
    found = json.loads(line)
    names = [check["name"] for check in found["checks"]]
    assert len(set(names)) == len(names)
    assert set(names) >= {
        "kernel",
        "cgroups",
        "swap",
        "user namespaces",
        "seccomp",
        "landlock",
        "ptrace scope",
        "unprivileged bpf",
        "clock",
        "entropy",
        "user ids",
        "python",
        "runsc",
        "runc",
        "docker daemon",
        "docker socket",
        "docker runtime runsc",
        "docker images",
        "image roots",
        "libseccomp",
        "systemd",
        "redis-server",
    }
    for check in found["checks"]:
        assert check["status"] in {"ok", "warning", "problem"}, check
        assert check["value"], check
        assert (check["status"] == "ok") == (check["remedy"] == ""), check
    assert {(way["isolation"], way["backend"]) for way in found["ways"]} == set(known_ways(load_settings()))
    assert found["levels"]["standard"] == "gvisor"
    problems = [check for check in found["checks"] if check["status"] == "problem"]
    assert (done.returncode, found["ok"]) == ((1, False) if problems else (0, True))


@pytest.mark.docker
@pytest.mark.timeout(240)
@pytest.mark.long("every layer is asked")
def test_a_host_without_docker_and_images_is_told_what_to_do_and_exits_1(tmp_path: Path) -> None:
    done = doctor(
        CELLBLOCK_LAUNCHER_DOCKER_URL=f"unix://{tmp_path}/none.sock",
        CELLBLOCK_LAUNCHER_IMAGE_ROOTS=str(tmp_path / "none"),
        CELLBLOCK_SANDBOX_ISOLATIONS='["gvisor", "runc"]',
        COLUMNS="200",
    )
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert any("docker daemon" in line and "warning" in line and "no answer" in line for line in lines)
    assert any("→ gvisor and runc through Docker are not available: start dockerd" in line for line in lines)
    assert any("level standard" in line and "problem" in line for line in lines)
    assert any("isolation runc/docker" in line and "there is no Docker daemon" in line for line in lines)
    assert any("image roots" in line and "missing python, datascience" in line for line in lines)


@pytest.mark.docker
@pytest.mark.timeout(640)
@pytest.mark.long("22 controls on each of six ways")
def test_every_control_of_every_way_of_this_host_is_attacked() -> None:
    done = doctor("--attack", "--json", timeout_s=620)
    assert done.stderr == ""
    found = json.loads(done.stdout)
    ways = {f"{way['isolation']}/{way['backend']}": way for way in found["ways"]}
    usable = {name for name, way in ways.items() if way["available"]}
    assert usable >= {"gvisor/docker", "runc/docker"}
    assert all(ways[name]["reason"] for name in ways.keys() - usable)
    assert [control["name"] for control in found["controls"]] == [control.name for control in CONTROLS]
    failed = {}
    for control in found["controls"]:
        assert set(control["results"]) == usable
        assert control["stops"]
        for name, result in control["results"].items():
            if result["state"] == "not proven":
                failed[control["name"], name] = result["detail"]
    assert failed == {}
    assert (done.returncode, found["ok"]) == (0, True)
    with closing(docker.from_env()) as daemon:
        owners = [c["Labels"].get("cellblock.owner", "") for c in daemon.api.containers(all=True)]
    assert [owner for owner in owners if owner.startswith("doctor-")] == []
    print({name: way["took_s"] for name, way in ways.items()})


GVISOR, RUNC, SYSTEMD = Way("gvisor", "oci"), Way("runc", "docker"), Way("systemd", "-")


def findings(way: Way, **others: tuple[State, str]) -> tuple[ControlFinding, ...]:
    """All proven but those named, each with its state and detail."""
    names = [control.name.replace(" ", "_") for control in CONTROLS]
    said = [others.get(name, ("proven", "")) for name in names]
    return tuple(
        ControlFinding(c, *words, way=way, wall_ms=5) for c, words in zip(CONTROLS, said, strict=True)
    )


def test_the_table_shows_what_got_out_what_is_held_elsewhere_and_what_cannot_run() -> None:
    reports = [
        WayReport(GVISOR, True, "", findings(GVISOR, disk_inodes=("elsewhere", "by memory")), 3.0),
        WayReport(RUNC, True, "", findings(RUNC, memory=("not proven", "ESCAPED 268435456")), 2.0),
        WayReport(SYSTEMD, False, "systemd is not the init system"),
    ]
    out = io.StringIO()
    report.print_attack(Console(file=out, width=80), reports)
    text = out.getvalue()
    rows = {line[:15].strip(): line[15:].split("  ") for line in text.splitlines()}
    cells = {name: [word.strip() for word in row if word.strip()] for name, row in rows.items()}
    assert cells["memory"] == ["proven", "NOT PROVEN", "n/a"]
    assert cells["disk inodes"] == ["elsewhere", "proven", "n/a"]
    assert cells["network"] == ["proven", "proven", "n/a"]
    assert "systemd/-: not available: systemd is not the init system" in text
    assert "runc/docker: memory: ESCAPED 268435456\n→ it stops taking the host's memory" in text
    assert "gvisor/oci: disk inodes: by memory" in text
    assert f"runc/docker: {len(CONTROLS) - 1} of {len(CONTROLS)} controls proven" in text
    assert not _holds(reports)
    as_json = report.attack_as_json(reports)
    (memory,) = [control for control in as_json["controls"] if control["name"] == "memory"]
    assert memory["results"]["runc/docker"]["state"] == "not proven"


def test_a_host_holds_only_if_something_works_and_nothing_that_works_fails() -> None:
    good = WayReport(GVISOR, True, "", findings(GVISOR))
    absent = WayReport(SYSTEMD, False, "not here")
    broken_off = WayReport(RUNC, True, "the launcher died")
    assert _holds([good, absent])
    assert not _holds([absent])
    assert not _holds([])
    assert not _holds([good, broken_off])


def cgroup_tree(root: Path, kind: str) -> Path:
    """Something that looks like /sys/fs/cgroup."""
    root.mkdir()
    if kind == "v2":
        (root / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
        (root / "cgroup.subtree_control").write_text("")
    else:
        for name in ("memory", "pids", "cpu", *(["unified"] if kind == "hybrid" else [])):
            (root / name).mkdir()
    return root


@pytest.mark.parametrize(
    ("kind", "said"),
    [("v2", "v2; writable"), ("v1", "v1; writable"), ("hybrid", "v1 and v2 (hybrid); writable")],
)
def test_each_layout_of_cgroups_is_known(tmp_path: Path, kind: str, said: str) -> None:
    check = kernel._cgroups(cgroup_tree(tmp_path / "cgroup", kind))
    assert check.status == "ok"
    assert check.value.startswith(said)


def test_a_controller_that_is_missing_is_named(tmp_path: Path) -> None:
    root = cgroup_tree(tmp_path / "cgroup", "v1")
    (root / "memory").rmdir()
    check = kernel._cgroups(root)
    assert (check.status, check.value) == ("warning", "v1; not writable: memory")
    assert "run the launcher as root" in check.remedy
    (tmp_path / "v2").mkdir()
    (tmp_path / "v2/cgroup.controllers").write_text("cpu\n")
    (tmp_path / "v2/cgroup.subtree_control").write_text("")
    assert kernel._cgroups(tmp_path / "v2").value == "v2; not writable: memory, pids"


def test_swap_is_a_warning_only_where_it_cannot_be_counted(tmp_path: Path) -> None:
    root = cgroup_tree(tmp_path / "cgroup", "v1")
    (tmp_path / "swaps").write_text("Filename Type Size\n")
    assert kernel._swap(tmp_path, root) == Check("swap", "ok", "none")
    (tmp_path / "swaps").write_text("Filename Type Size\n/dev/vdb partition 1\n")
    assert kernel._swap(tmp_path, root).status == "warning"
    (root / "memory/memory.memsw.limit_in_bytes").write_text("0")
    assert kernel._swap(tmp_path, root).status == "ok"


@pytest.mark.parametrize(
    ("release", "machine", "status"),
    [
        ("6.18.44-fc", "x86_64", "ok"),
        ("6.1.0-13-arm64", "aarch64", "ok"),
        ("5.4.0", "x86_64", "warning"),
        ("4.4.0-1", "x86_64", "problem"),
        ("6.1.0", "riscv64", "problem"),
    ],
)
def test_the_kernel_is_judged_by_its_version_and_machine(release: str, machine: str, status: str) -> None:
    assert kernel._version(release, machine).status == status


@pytest.mark.parametrize(
    "switch",
    [
        ("user/max_user_namespaces", "0"),
        ("kernel/unprivileged_userns_clone", "0"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1"),
    ],
)
def test_a_switch_that_shuts_user_namespaces_is_named(tmp_path: Path, switch: tuple[str, str]) -> None:
    path = tmp_path / "sys" / switch[0]
    path.parent.mkdir(parents=True)
    path.write_text(switch[1] + "\n")
    check = kernel._user_namespaces(tmp_path)
    assert check.status == "warning"
    assert switch[0].replace("/", ".") in check.remedy


def test_a_docker_socket_open_to_everybody_is_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        path.chmod(0o660)
        assert [check.status for check in programs._docker_socket(f"unix://{path}")] == ["ok"]
        path.chmod(0o666)
        (check,) = programs._docker_socket(f"unix://{path}")
    assert check.status == "problem"
    assert f"chmod o-rwx {path}" in check.remedy


@pytest.mark.parametrize(
    ("arguments", "status", "word"),
    [
        (None, "warning", "not registered"),
        ([], "warning", "--network=none --oci-seccomp"),
        (["--network=none"], "warning", "--oci-seccomp"),
        (["--network=none", "--oci-seccomp"], "ok", "--oci-seccomp"),
        (["--network=none", "--oci-seccomp", "--ignore-cgroups"], "problem", "--ignore-cgroups"),
    ],
)
def test_how_docker_knows_runsc_is_checked(arguments: list[str] | None, status: str, word: str) -> None:
    runtimes = {} if arguments is None else {"runsc": {"path": "runsc", "runtimeArgs": arguments}}
    check = programs._docker_runtime(runtimes)
    assert check.status == status
    assert word in check.value
    assert (status == "ok") == (check.remedy == "")


def test_a_redis_that_is_not_there_or_not_set_up_is_told(redis_url: str) -> None:
    (away,) = redis_checks("redis://:sentinel-pw@127.0.0.1:1/0")
    assert (away.status, "CELLBLOCK_REDIS_URL" in (away.remedy or "")) == ("problem", True)
    assert "sentinel-pw" not in str(away)
    assert [check.status for check in redis_checks(redis_url)] == ["ok"]
    with closing(Redis.from_url(redis_url)) as redis:
        assert redis.keys("*") == [], "to look is not to claim"
        redis.config_set("appendonly", "no")
        try:
            (careless,) = redis_checks(redis_url)
        finally:
            redis.config_set("appendonly", "yes")
    assert careless.status == "warning"
    assert "appendonly yes" in (careless.remedy or "")


def redis_checks(url: str) -> list[Check]:
    settings = load_settings(redis={"url": url}, ledger={"memory_bytes": 10**9})
    return [check for check in store_checks(settings) if check.name == "redis"]


def test_the_limit_that_counts_is_the_one_that_the_leader_measures_by(redis_url: str) -> None:
    with closing(Redis.from_url(redis_url)) as redis:
        redis.config_set("maxmemory", "0")
        redis.hset("{cellblock}:pressure", "limit_bytes", "0")
        (unbounded,) = redis_checks(redis_url)
        assert unbounded.status == "warning"
        assert "CELLBLOCK_LEDGER_MEMORY_BYTES" in (unbounded.remedy or "")
        redis.hset("{cellblock}:pressure", "limit_bytes", "1000000")
        assert [check.status for check in redis_checks(redis_url)] == ["ok"]


def test_a_blob_store_that_is_another_stores_is_a_problem(redis_url: str) -> None:
    with TemporaryDirectory() as name:  # which the worker's user can enter
        folder = Path(name)
        folder.chmod(0o777)
        (folder / "blobs").mkdir()
        (folder / "blobs").chmod(0o777)
        if os.geteuid() == 0:
            os.chown(folder / "blobs", 299_999, 299_999)
        folder.chmod(0o755)
        _another_stores(redis_url, folder)


def _another_stores(redis_url: str, tmp_path: Path) -> None:
    settings = load_settings(redis={"url": redis_url}, blobs={"url": f"file://{tmp_path}/blobs"})

    def look() -> Check:
        return next(check for check in store_checks(settings) if check.name == "blob store")

    assert look().status == "ok"
    assert not (tmp_path / "blobs" / "owner").exists(), "to look is not to claim"
    (tmp_path / "blobs" / "owner").write_text("somebody")
    assert (look().status, "'somebody'" in (look().remedy or "")) == ("problem", True)
