"""The command line as a user meets it: embedded and through a fleet, exit codes, JSON."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from cellblock import JobResult
from parts import CELLBLOCK, NAMESPACES, cellblock, command_line, descendants, wait_until, worker_process


@pytest.fixture(scope="module")
def fleet_url(
    tmp_path_factory: pytest.TempPathFactory, module_redis_url: str, launcher_socket: Path
) -> Iterator[str]:
    """The address of a fleet with one worker."""
    with worker_process(tmp_path_factory.mktemp("worker"), module_redis_url, launcher_socket):
        yield module_redis_url


@pytest.mark.docker
def test_run_without_redis_prints_exactly_one_result(tmp_path: Path) -> None:
    done = cellblock("run", "-", "--json", stdin="print(6*7)")
    result = JobResult.model_validate_json(done.stdout)
    assert (done.returncode, result.stdout, result.isolation) == (0, "42\n", "gvisor")
    assert done.stderr == ""


@pytest.mark.docker
def test_run_through_a_fleet_prints_exactly_one_result(fleet_url: str) -> None:
    done = cellblock("run", "-", "--json", stdin="print(6*7)", CELLBLOCK_REDIS_URL=fleet_url)
    result = JobResult.model_validate_json(done.stdout)
    assert (done.returncode, result.stdout, result.isolation) == (0, "42\n", "namespaces")
    assert result.worker != "embedded"


@pytest.mark.docker
def test_the_programs_streams_arguments_and_stdin_arrive(fleet_url: str, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("from stdin")
    program = "import sys; print(sys.argv[1:], sys.stdin.read()); print('oops', file=sys.stderr)"
    (tmp_path / "p.py").write_text(program)
    done = cellblock("run", "p.py", "--stdin", "in.txt", "--", "a", "-b", CELLBLOCK_REDIS_URL=fleet_url)
    assert done.returncode == 0
    assert done.stdout == "['a', '-b'] from stdin\n"
    assert done.stderr == "oops\n"


@pytest.mark.docker
def test_a_failing_job_exits_1_and_says_why(fleet_url: str) -> None:
    done = cellblock("run", "-", stdin="1/0", CELLBLOCK_REDIS_URL=fleet_url)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert "cellblock: exit: ZeroDivisionError: division by zero (namespaces" in done.stderr


@pytest.mark.docker
def test_submit_result_events_and_cancel(fleet_url: str) -> None:
    def run(*arguments: str, stdin: str = "") -> Any:
        return cellblock(*arguments, stdin=stdin, CELLBLOCK_REDIS_URL=fleet_url)

    job_id = run("submit", "-", "--idempotency-key", "k1", stdin="print('hi')").stdout.strip()
    assert run("submit", "-", "--idempotency-key", "k1", stdin="print('hi')").stdout.strip() == job_id
    assert run("result", job_id).stdout == "hi\n"
    events = [json.loads(line) for line in run("events", "--json").stdout.splitlines()]
    kinds = [event["type"] for event in events if event["job_id"] == job_id]
    assert kinds == ["agent.run.queued", "agent.run.started", "agent.run.succeeded"]
    assert run("cancel", job_id).stdout == f"{job_id}: had ended already\n"
    slow = run("submit", "-", stdin="import time; print('begun'); time.sleep(60)").stdout.strip()
    wait_until(lambda: "started" in run("events").stdout.split(slow)[-2].split()[-1], 20, "the job started")
    run("cancel", slow)
    done = run("result", slow, "--json")
    result = JobResult.model_validate_json(done.stdout)
    assert (done.returncode, result.outcome.value, result.stdout) == (1, "cancelled", "begun\n")


@pytest.mark.docker
def test_everything_that_goes_in_arrives_and_the_artifacts_are_written(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/data.txt").write_text("beside")
    (tmp_path / "big.txt").write_text("x" * 10_000 + "needle")
    program = """
import os
beside, renamed = open('sub/data.txt').read(), open('renamed').read()
print(beside, renamed == beside, n, os.environ['MODE'])
print(ctx.search('needle'))
os.makedirs('out/deep')
open('out/deep/a.bin', 'wb').write(bytes(range(256)))
os.symlink('/etc/passwd', 'out/link')
"""
    options = ["--file", "sub/data.txt", "--file", f"renamed={tmp_path}/sub/data.txt"]
    options += ["--input", "n=[1, null]", "--env", "MODE=a=b", "--context", "big.txt"]
    options += ["--artifact", "out/**/*", "--out", "got"]
    done = cellblock("run", "-", *options, stdin=program)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "beside True [1, None] a=b\n[(10000, 'needle')]\n"
    assert (tmp_path / "got/out/deep/a.bin").read_bytes() == bytes(range(256))
    assert [path.name for path in (tmp_path / "got/out").iterdir()] == ["deep"]
    assert "1 artifact written to got" in done.stderr
    assert "left out 'out/link': is a symbolic link" in done.stderr


def test_artifact_that_cannot_be_written_is_named_and_the_others_are_written(tmp_path: Path) -> None:
    program = "for name in ('.hidden', 'a.txt', 'z.txt'): open(name, 'w').write(name)"
    command = ("run", "-", "--artifact", "**", "--out", "got")
    done = cellblock(*command, stdin=program, **NAMESPACES)
    assert done.returncode == 1
    assert "cellblock: not written '.hidden': it would be hidden; --overwrite allows it" in done.stderr
    assert {"a.txt", "z.txt"} <= {path.name for path in (tmp_path / "got").iterdir()}
    assert not (tmp_path / "got/.hidden").exists()

    again = cellblock(*command, stdin="print('it has run')", **NAMESPACES)
    assert (again.returncode, again.stdout) == (2, "")
    assert "is there already" in again.stderr


@pytest.mark.docker
def test_a_folder_runs_with_all_its_files(fleet_url: str, tmp_path: Path) -> None:
    (tmp_path / "app/lib").mkdir(parents=True)
    (tmp_path / "app/__main__.py").write_text("from lib import x\nx.tell()")
    (tmp_path / "app/other.py").write_text("print('other', open('lib/x.py').read()[:3])")
    (tmp_path / "app/lib/x.py").write_text("def tell(): print('told')")
    (tmp_path / "app/.hidden").write_text("secret")
    fleet = {"CELLBLOCK_REDIS_URL": fleet_url}
    assert cellblock("run", "app", **fleet).stdout == "told\n"
    assert cellblock("run", "app", "--entrypoint", "other.py", **fleet).stdout == "other def\n"
    done = cellblock("run", "app", "--entrypoint", "none.py", **fleet)
    assert (done.returncode, "entrypoint: 'none.py' is not one of files" in done.stderr) == (2, True)


@pytest.mark.docker
def test_artifacts_of_a_submitted_job_are_fetched_later(fleet_url: str, tmp_path: Path) -> None:
    fleet = {"CELLBLOCK_REDIS_URL": fleet_url}
    code = "open('a.txt', 'w').write('kept'); {'answer': 42}"
    job = cellblock("submit", "-", "--artifact", "*.txt", stdin=code, **fleet).stdout.strip()
    done = cellblock("result", job, "--out", "got", "--json", **fleet)
    result = JobResult.model_validate_json(done.stdout)
    assert (done.returncode, result.value) == (0, {"answer": 42})
    assert (tmp_path / "got/a.txt").read_text() == "kept"


@pytest.mark.docker
def test_a_context_a_fleet_does_not_show_is_rejected_with_the_setting(fleet_url: str, tmp_path: Path) -> None:
    (tmp_path / "big.txt").write_text("x")
    done = cellblock("run", "-", "--context", "big.txt", stdin="1", CELLBLOCK_REDIS_URL=fleet_url)
    assert done.returncode == 3
    assert "rejected" in done.stderr
    assert "CELLBLOCK_LAUNCHER_CONTEXT_ROOTS" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("run", "-", "--level", "loose"), "'loose' is not one of 'permissive'"),
        (("run", "-", "--retries", "11"), "retries: "),
        (("run", "-", "--expires", "0"), "expires_s: "),
        (("run", "-", "--expires", "1e9"), "above the bound of 86400 (CELLBLOCK_LEDGER_EXPIRES_S)"),
        (("run", "-", "--timeout", "-1"), "limits.timeout_s: "),
        (("run", "-", "--timeout", "1e9"), "above the bound of 300.0 (CELLBLOCK_SANDBOX_TIMEOUT_MAX_S)"),
        (("run", "-", "--memory", "lots"), "limits.memory_bytes: 'lots' is not a size"),
        (
            ("run", "-", "--image", "nope"),
            "image: unknown image 'nope'; this fleet has datascience, python",
        ),
        (("run", "missing.py"), "code: missing.py cannot be read"),
        (("run", "-", "--entrypoint", "x.py"), "entrypoint: - is not a folder"),
        (("run", "-", "--file", "missing.csv"), "files: missing.csv cannot be read"),
        (("run", "-", "--file", "../x=/etc/hostname"), "files: '../x' has an empty part, '.' or '..'"),
        (("run", "-", "--input", "x"), "inputs: 'x' has no '='; write NAME=JSON"),
        (("run", "-", "--input", "x=hello"), "inputs.x: is not JSON"),
        (("run", "-", "--input", "x=NaN"), "inputs.x: is nan"),
        (("run", "-", "--plan", "casual", "--max-cost", "nan"), "--max-cost: nan is not an amount"),
        (("run", "-", "--plan", "casual", "--max-cost", "inf"), "--max-cost: inf is not an amount"),
        (("run", "-", "--plan", "casual", "--max-cost", "-1"), "--max-cost: -1 is not an amount from"),
        (("run", "-", "--timeout", "abc"), "unable to parse string as a number (got 'abc')"),
        (("run", "-", "--timeout", "400"), "limits.timeout_s: 400 is above the bound of 300.0"),
        (("run", "-", "--timeout", "400"), "(option --timeout)"),
        (("run", "-", "--memory", "999G"), "(option --memory)"),
        (("run", "-", "--tenant", "a b"), "tenant: is not a name: letters, digits"),
        (("run", "-", "--artifact", "*", "--out", "/proc/x"), "--out: /proc/x is not a folder to write to"),
        (("run", "-", "--input", "a-b=1"), "inputs.'a-b': is not a variable's name"),
        (("run", "-", "--env", "PATH=/tmp"), "env.PATH: is refused by 'PATH'"),
        (("run", "-", "--env", "NAME"), "env: 'NAME' has no '='"),
        (("run", "-", "--env", "A=1", "--env", "A=2"), "env.A: is given twice"),
        (("run", "-", "--input", "a=1", "--input", "a=2"), "inputs.a: is given twice"),
        (("run", "-", "--file", "x=/etc/hostname", "--file", "x=/etc/hosts"), "files.x: is given twice"),
        (("run", "-", "--stdin", "-"), "stdin: is '-' twice"),
        (("run", "."), "has no __main__.py; name a file of it with --entrypoint"),
        (("run", "-", "--artifact", "*"), "artifacts: where to? give --out DIR, or --json"),
        (("run", "-", "--artifact", "/etc/*", "--json"), "artifacts: '/etc/*' is not a relative path"),
        (("run", "-", "--out", "x"), "artifacts: --out has nothing to write"),
        (("run", "-", "--context", "missing"), "context_path: "),
        (("run", "-", "--context", "/"), "context_path: / is not a regular file"),
        (("run", "-", "--context", "/etc/shadow"), "chmod o+r"),
        (("run", "-", "--wrong"), "No such option"),
        (("submit", "-"), "CELLBLOCK_REDIS_URL"),
    ],
)
def test_a_bad_request_names_the_field_and_exits_with_usage(arguments: tuple[str, ...], says: str) -> None:
    done = cellblock(*arguments, stdin="print(1)")
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert done.returncode == (4 if arguments[0] == "submit" else 2)


def test_the_version_is_the_distributions() -> None:
    assert cellblock("--version").stdout == f"{version('cellblock')}\n"


def test_a_run_that_no_worker_takes_says_so(redis_url: str) -> None:
    with subprocess.Popen(
        [CELLBLOCK, "run", "-"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "CELLBLOCK_REDIS_URL": redis_url},
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"print(1)")
        process.stdin.close()
        assert b"still waits for a worker" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert b"cancelled" in process.stderr.readline()
        assert process.wait(timeout=20) == 130


def test_a_level_this_host_may_not_offer_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELLBLOCK_SANDBOX_ISOLATIONS", '["namespaces"]')
    before = time.monotonic()
    done = cellblock("run", "--level", "strict", "-", stdin="print(1)")
    assert (done.returncode, time.monotonic() - before < 20) == (3, True)
    assert "CELLBLOCK_SANDBOX_ISOLATIONS" in done.stderr


def test_code_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary.py").write_bytes(b"print(1)\xff\xfe")
    assert "code: binary.py is not UTF-8 text: byte 8 is 0xff" in cellblock("run", "binary.py").stderr


def test_an_unreachable_redis_is_our_fault_and_keeps_the_password_to_itself() -> None:
    done = cellblock("run", "-", stdin="1", CELLBLOCK_REDIS_URL="redis://:sesame@127.0.0.1:1/0")
    assert done.returncode == 4
    assert "Redis cannot be reached" in done.stderr
    assert "sesame" not in done.stderr


@pytest.mark.docker
@pytest.mark.timeout(120)
@pytest.mark.long("a whole fleet starts and ends")
def test_up_runs_a_fleet_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("CELLBLOCK_WORKER_CONCURRENCY=3\nCELLBLOCK_TELEMETRY_LOG_LEVEL=info\n")
    with (tmp_path / "up.log").open("wb") as log:
        process = subprocess.Popen(
            [CELLBLOCK, "up", "--json"],
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, "CELLBLOCK_MONITOR_PORT": "0", "CELLBLOCK_POLICY_TOKEN": "token-sentinel"},
        )
    try:
        assert process.stdout is not None
        where = json.loads(process.stdout.readline())
        done = cellblock("run", "-", stdin="print('up')", CELLBLOCK_REDIS_URL=where["redis_url"])
        assert done.stdout == "up\n"
        asked = subprocess.run(
            ["redis-cli", "-u", where["redis_url"], "ping"], capture_output=True, text=True, check=False
        )
        assert asked.stdout == "PONG\n", "the remedy that docs/troubleshooting.md names"
        children = descendants(process.pid)
        assert len(children) >= 4  # Redis, launcher, worker, Flower
        for pid in children:
            if any(word in command_line(pid) for word in ("redis-server", "monitor")):
                assert b"sentinel" not in Path(f"/proc/{pid}/environ").read_bytes(), "not theirs to know"
        assert '"concurrency": 3' in (tmp_path / "up.log").read_text()
        for closed, status in (("/api/tasks", 401), ("/metrics", 404)):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(where["flower_url"] + closed, timeout=5)
            refused.value.close()
            assert refused.value.code == status
        marker = "marker-51c0"

        def seen_in_flower() -> str:  # Flower knows what happens after it has connected
            cellblock("run", "-", stdin=f"print('{marker}')", CELLBLOCK_REDIS_URL=where["redis_url"])
            return flower(where, "/api/tasks")

        seen = wait_until(seen_in_flower, 30, "Flower knowing a task")
        assert '"state": "SUCCESS"' in seen
        assert marker not in seen
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
        process.stdout.close()  # type: ignore[union-attr]
    assert process.returncode == 0
    assert "pidbox command error" not in (tmp_path / "up.log").read_text(), "Flower asks what is refused"
    # One that is dead and that PID 1 has not fetched yet has no command line any more.
    assert {pid: said for pid in children if (said := command_line(pid))} == {}


def test_up_refuses_a_port_that_was_asked_for_and_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = cellblock("up", CELLBLOCK_MONITOR_PORT=str(port))
    assert done.returncode == 4
    assert f"Flower cannot listen on 127.0.0.1:{port}: address already in use" in done.stderr
    assert "set CELLBLOCK_MONITOR_PORT to a free port" in done.stderr


@pytest.mark.docker
@pytest.mark.timeout(120)
@pytest.mark.long("starts a fleet to read its first line")
def test_up_shows_no_address_that_was_configured(tmp_path: Path, redis_url: str) -> None:
    environment = {**os.environ, "CELLBLOCK_MONITOR_PORT": "0"}
    with TemporaryDirectory() as name, (tmp_path / "up.log").open("wb") as log:
        Path(name).chmod(0o755)  # the worker's user enters it
        (tmp_path / ".env").write_text(
            f"CELLBLOCK_REDIS_URL={redis_url}\nCELLBLOCK_BLOBS_URL=file://{name}/sentinel\n"
        )
        process = subprocess.Popen(
            [CELLBLOCK, "up", "--json"], stdout=subprocess.PIPE, stderr=log, env=environment, cwd=tmp_path
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline().decode()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)
            process.stdout.close()  # type: ignore[union-attr]
    assert json.loads(line)["redis_url"] == "as configured"
    assert "sentinel" not in line + (tmp_path / "up.log").read_text()


@pytest.mark.docker
@pytest.mark.timeout(120)
@pytest.mark.long("a fleet that does not come up")
def test_up_says_that_its_archive_is_away_without_its_password(redis_url: str) -> None:
    done = cellblock(
        "up",
        CELLBLOCK_MONITOR_PORT="0",
        CELLBLOCK_REDIS_URL=redis_url,
        CELLBLOCK_ARCHIVE_URL="postgresql://user:secret-sentinel@127.0.0.1:1/db",
    )
    assert (done.returncode, done.stdout) == (4, "")
    assert "cellblock is not up: the archive failed" in done.stderr.splitlines()[-1]
    assert "127.0.0.1:1/db" in done.stderr.splitlines()[-1]
    assert "sentinel" not in done.stderr


@pytest.mark.docker
@pytest.mark.timeout(120)
@pytest.mark.long("starts a fleet to stop it")
def test_a_fleet_stops_though_flower_does_not(tmp_path: Path, redis_url: str) -> None:
    """Injected: a Flower that stands still, and hears no TERM."""
    (tmp_path / ".env").write_text(f"CELLBLOCK_REDIS_URL={redis_url}\n")
    environment = {**os.environ, "CELLBLOCK_MONITOR_PORT": "0"}
    with (tmp_path / "up.log").open("wb") as log:
        fleet = subprocess.Popen(
            [CELLBLOCK, "up", "--json"], stdout=subprocess.PIPE, stderr=log, env=environment, cwd=tmp_path
        )
    with fleet:
        try:
            assert fleet.stdout is not None
            assert fleet.stdout.readline()
            (flower,) = (pid for pid in descendants(fleet.pid) if "workers.monitor" in command_line(pid))
            os.kill(flower, signal.SIGSTOP)
        finally:
            began = time.monotonic()
            fleet.terminate()
        fleet.wait(timeout=90)
    assert time.monotonic() - began < 30
    assert "service_killed" in (tmp_path / "up.log").read_text()


def test_up_says_at_once_that_its_redis_is_not_there() -> None:
    done = cellblock("up", CELLBLOCK_REDIS_URL="redis://:secret@127.0.0.1:1/0")
    assert done.returncode == 4
    assert "127.0.0.1:1" in done.stderr
    assert "secret" not in done.stdout + done.stderr


@pytest.mark.docker
def test_no_module_of_the_folder_it_is_called_in_runs(tmp_path: Path) -> None:
    """What was downloaded may hold a file of any name; the launcher is often root."""
    for name in ("structlog", "pydantic", "json", "docker", "redis"):
        (tmp_path / f"{name}.py").write_text(f"open('{tmp_path}/ran', 'a').write({name!r} + __name__)")
    done = subprocess.run(
        [CELLBLOCK, "run", "-"],
        cwd=tmp_path,
        env={**os.environ, "CELLBLOCK_SANDBOX_ISOLATIONS": '["namespaces"]'},
        input="print(6*7)",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
    assert not (tmp_path / "ran").exists()


def test_term_ends_an_embedded_run_and_leaves_no_folder(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [CELLBLOCK, "run", "-"],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert process.stdin is not None
    process.stdin.write(b"import time; time.sleep(60)")
    process.stdin.close()
    wait_until(lambda: descendants(process.pid), 20, "its launcher")
    below = descendants(process.pid)
    process.terminate()
    assert process.wait(timeout=30) == 128 + signal.SIGTERM
    assert not list(tmp_path.iterdir())
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below), 20, "their end")


def test_a_temporary_folder_too_deep_for_a_socket_is_named_with_the_remedy(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    done = cellblock("run", "-", stdin="print(1)", TMPDIR=str(deep), **NAMESPACES)
    assert done.returncode == 4
    assert "TMPDIR" in done.stderr


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- 2>&-"])
def test_a_run_with_closed_streams_is_a_run_and_leaves_no_process(closed: str, tmp_path: Path) -> None:
    """Its first files would take their numbers: a filter that held its own socket's other end lived on."""
    (tmp_path / "hello.py").write_text("print(6*7)")
    with subprocess.Popen(
        ["/bin/sh", "-c", f"exec {CELLBLOCK} run {tmp_path}/hello.py {closed}"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **NAMESPACES},
    ) as process:
        below = wait_until(lambda: descendants(process.pid), 20, "its launcher")
        shown, _ = process.communicate(timeout=60)
    assert (process.returncode, shown) == (0, "42\n")
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below), 20, "their end")


def test_a_run_whose_stdout_is_closed_is_a_run(tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text("print(6*7)")
    command = f"exec {CELLBLOCK} run {tmp_path}/hello.py >&-"
    done = subprocess.run(["/bin/sh", "-c", command], env={**os.environ, **NAMESPACES}, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("variable", "value", "named"),
    [
        ("CELLBLOCK_REDIS", '{"url": "redis://127.0.0.1:1/0"}', "127.0.0.1:1"),
        ("CELLBLOCK_LAUNCHER", '{"socket": "/nonexistent/launcher.sock"}', "/nonexistent/launcher.sock"),
    ],
)
def test_a_run_is_where_the_settings_say_also_if_a_whole_group_is_one_variable(
    variable: str, value: str, named: str
) -> None:
    done = cellblock("run", "-", stdin="print(1)", **{variable: value})
    assert (done.returncode, done.stdout) == (4, "")
    assert named in done.stderr


def test_an_out_folder_is_not_made_for_a_job_that_cannot_be(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for variables in ({}, {"CELLBLOCK_REDIS_URL": "redis://127.0.0.1:1/0"}):
        arguments = ("run", "-", "--timeout", "-5", "--artifact", "*", "--out", str(out))
        assert cellblock(*arguments, stdin="print(1)", **variables).returncode == 2
        assert not out.exists()


@pytest.mark.docker
def test_ctrl_c_ends_an_embedded_run_and_says_so() -> None:
    interrupt(signal_group=False)


def test_a_terminals_ctrl_c_reaches_every_process_and_shows_one_line() -> None:
    interrupt(signal_group=True, **NAMESPACES)


def test_a_killed_embedded_run_leaves_no_launcher(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [CELLBLOCK, "run", "-"],
        stdin=subprocess.PIPE,
        env={**os.environ, **NAMESPACES, "TMPDIR": str(tmp_path)},  # killed, it leaves its folder
    )
    assert process.stdin is not None
    process.stdin.write(b"import time; time.sleep(60)")
    process.stdin.close()
    wait_until(lambda: len(descendants(process.pid)) >= 3, 20, "its launcher and a sandbox")
    left = descendants(process.pid)
    process.kill()
    process.wait()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in left), 20, "their end")


def interrupt(*, signal_group: bool, **environment: str) -> None:
    process = subprocess.Popen(
        [CELLBLOCK, "run", "-"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, **environment},
    )
    assert process.stdin is not None
    process.stdin.write(b"import time; time.sleep(60)")
    process.stdin.close()
    wait_until(lambda: len(descendants(process.pid)) >= (3 if signal_group else 1), 20, "its launcher")
    if signal_group:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
    assert process.stderr is not None
    with process.stderr:
        said = process.stderr.read().decode()
    assert "cancelled" in said
    assert "Traceback" not in said


def flower(where: dict[str, str], path: str) -> str:
    """An answer of Flower's API that knows of at least one task, else nothing."""
    request = urllib.request.Request(where["flower_url"] + path)
    pair = f"{where['flower_user']}:{where['flower_password']}"
    request.add_header("Authorization", "Basic " + base64.b64encode(pair.encode()).decode())
    with urllib.request.urlopen(request, timeout=5) as answer:
        text = str(answer.read().decode())
    return text if "cellblock.run" in text else ""
