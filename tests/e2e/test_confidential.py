"""Confidential jobs: nothing of what goes in or comes out is in the clear but where its owner reads it."""

from __future__ import annotations

import base64
import http.server
import json
import os
import subprocess
import sys
import threading
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cellblock import Client, JobResult, JobSpec, NotConfigured, Outcome, ReducedContext, open_result
from cellblock_config import load_settings
from parts import (
    CELLBLOCK,
    NAMESPACES,
    RedisServer,
    cellblock,
    free_port,
    launcher_process,
    wait_until,
    worker_process,
)

pytestmark = pytest.mark.docker

MARKER = "marker-e27b41"
CODE = f"""
import sys, time
print('{MARKER}', sys.argv, sys.stdin.read(), x, open('f.txt').read(), ctx['summary'], ctx['embeddings'])
sys.stderr.write('{MARKER}')
open('out-{MARKER}.txt', 'w').write('{MARKER}')
time.sleep(1.5)
result = {{'{MARKER}': [1, '{MARKER}']}}
"""


def keys(folder: Path) -> dict[str, str]:
    """The settings that ``cellblock seal-key new`` prints."""
    printed = cellblock("seal-key", "new", "--tenant", "acme").stdout
    printed += cellblock("seal-key", "new", "--fleet").stdout
    pairs = (line.split("=", 1) for line in printed.splitlines() if not line.startswith("#"))
    return {name: value.strip("'") for name, value in pairs}


PRODUCER = {"CELLBLOCK_SEALING_TENANT_KEYS", "CELLBLOCK_SEALING_FLEET_KEY"}
READER = {"CELLBLOCK_SEALING_PRIVATE_KEY"}
WORKER = {"CELLBLOCK_SEALING_FLEET_PRIVATE_KEY"}


def spec(code: str = CODE, **fields: object) -> JobSpec:
    return JobSpec.model_validate(
        {
            "code": code,
            "tenant": "acme",
            "confidential": True,
            "args": [MARKER],
            "stdin": MARKER,
            "files": {"f.txt": MARKER},
            "inputs": {"x": MARKER},
            "artifacts": [f"out-{MARKER}.txt"],
            "reduced_context": ReducedContext(summary=MARKER, embeddings=((0.25, 0.5),), roles=("analyst",)),
            **fields,
        }
    )


@contextmanager
def sentry() -> Iterator[tuple[str, list[bytes]]]:
    """Where error reports go: a server of the test's own."""
    sent: list[bytes] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            sent.append(zlib.decompress(body, 47) if self.headers["Content-Encoding"] == "gzip" else body)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://key@127.0.0.1:{server.server_address[1]}/1", sent
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def flower(redis_url: str) -> Iterator[str]:
    port = free_port()
    variables = {
        "CELLBLOCK_REDIS_URL": redis_url,
        "CELLBLOCK_MONITOR_PASSWORD": "observing",
        "CELLBLOCK_MONITOR_PORT": str(port),
    }
    process = subprocess.Popen([CELLBLOCK, "monitor"], env={**os.environ, **variables})
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=30)


def asked(address: str) -> bytes:
    account = base64.b64encode(b"cellblock:observing").decode()
    request = urllib.request.Request(address, headers={"Authorization": f"Basic {account}"})
    with urllib.request.urlopen(request, timeout=5) as answer:
        return bytes(answer.read())


def forms() -> list[bytes]:
    """The marker as it could be stored: plain, in base64 wherever it stands, in hex, turned round."""
    found = [MARKER.encode(), MARKER.encode().hex().encode(), MARKER[::-1].encode()]
    for shift in range(3):
        coded = base64.b64encode(b"\0" * shift + MARKER.encode())
        found.append(coded[4:16])
    return found


def hits(places: dict[str, bytes]) -> list[tuple[str, bytes]]:
    return [(name, form) for name, held in places.items() for form in forms() if form in held]


def dump(client: Client) -> bytes:
    """Every key and value of the store, as its own serialisation has it."""
    redis = client._redis
    parts = []
    for key in redis.scan_iter("*"):
        parts.append(str(key).encode())
        parts.append(
            {
                "string": lambda k: str(redis.get(k)),
                "hash": lambda k: str(redis.hgetall(k)),
                "list": lambda k: str(redis.lrange(k, 0, -1)),
                "set": lambda k: str(redis.smembers(k)),
                "zset": lambda k: str(redis.zrange(k, 0, -1)),
                "stream": lambda k: str(redis.xrange(k)),
                "none": lambda k: str(redis.exists(k)),  # gone since it was listed
            }[str(redis.type(key))](key).encode()
        )
    return b"\n".join(parts)


def test_no_plaintext_is_anywhere(tmp_path: Path) -> None:
    made = keys(tmp_path)
    server = RedisServer(tmp_path)  # its append-only file is everything that was ever written
    server.start()
    (tmp_path / "launcher").mkdir()
    worker = {name: made[name] for name in WORKER}
    debug = {"CELLBLOCK_TELEMETRY_LOG_LEVEL": "debug"}
    producer = load_settings(
        redis={"url": server.url},
        sealing={
            "tenant_keys": json.loads(made["CELLBLOCK_SEALING_TENANT_KEYS"]),
            "fleet_key": made["CELLBLOCK_SEALING_FLEET_KEY"],
        },
    )
    try:
        with (
            launcher_process(tmp_path / "launcher", **NAMESPACES, **debug) as (socket, _),
            sentry() as (dsn, reports),
            worker_process(
                tmp_path, server.url, socket, CELLBLOCK_TELEMETRY_SENTRY_DSN=dsn, **worker, **debug
            ),
            flower(server.url) as board,
            Client(settings=producer) as client,
        ):
            wait_until(lambda: _answers(board), 30, "Flower answering")
            job = client.submit(spec())
            failing = client.submit(spec(f"raise ValueError('{MARKER}')"))
            wait_until(lambda: client.status(job.id).state == "running", 30)
            during = dump(client)
            _injected_fault(dsn, reports)
            result = job.result(timeout_s=60)
            failed = failing.result(timeout_s=60)
            wait_until(lambda: job.id.encode() in asked(f"{board}/api/tasks"), 30, "Flower having seen it")
            places = {
                "Redis during the run": during,
                "Redis afterwards": dump(client),
                "events": str(client.events(limit=100)).encode(),
                "Flower's tasks": asked(f"{board}/api/tasks"),
                "Flower's workers": asked(f"{board}/api/workers"),
                "Sentry": b"".join(reports),
                "the sealed result": result.model_dump_json().encode(),
                "the failed one": failed.model_dump_json().encode(),
            }
        for file in tmp_path.rglob("*"):
            if file.is_file():
                places[file.name] = file.read_bytes()
        assert any(name.endswith(".aof") and held for name, held in places.items())
        assert job.id.encode() in places["worker.log"]
        assert reports, "the fault that was injected was reported"
        assert hits(places) == []
    finally:
        server.stop()
    assert (result.outcome, failed.outcome) == (Outcome.OK, Outcome.EXIT)
    _is_whole(open_result(result, made["CELLBLOCK_SEALING_PRIVATE_KEY"]))
    opened = open_result(failed, made["CELLBLOCK_SEALING_PRIVATE_KEY"])
    assert opened.error is not None
    assert opened.error.message == MARKER


def _answers(board: str) -> bool:
    try:
        return bool(asked(f"{board}/api/workers"))
    except OSError:
        return False


def _injected_fault(dsn: str, reports: list[bytes]) -> None:
    """A defect of ours that quotes a job, reported as a worker would."""
    program = f"""
import sentry_sdk
from cellblock_config import TelemetrySettings
from cellblock_workers.telemetry import configure_logging, configure_sentry
import structlog
settings = TelemetrySettings.model_validate({{"sentry_dsn": {dsn!r}}})
configure_logging(settings)
configure_sentry(settings)
payload = "{MARKER}"
try:
    raise RuntimeError(f"a library quotes {{payload}}")
except RuntimeError:
    structlog.get_logger("x").exception("attempt_crashed", job_id="abc")
sentry_sdk.flush()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=40)
    assert done.returncode == 0, done.stderr
    assert "attempt_crashed" in done.stderr
    assert MARKER not in done.stderr
    wait_until(lambda: reports, 10, "the report")


def _is_whole(result: JobResult) -> None:
    assert result.stdout.count(MARKER) == 6
    assert result.stderr == MARKER
    assert result.value == {MARKER: [1, MARKER]}
    assert [(file.path, file.data) for file in result.artifacts] == [(f"out-{MARKER}.txt", MARKER.encode())]


def test_the_search_for_the_marker_finds_it_where_a_job_is_not_confidential(
    tmp_path: Path, redis_url: str
) -> None:
    """Or the test above could not fail."""
    with Client(redis_url) as client:
        client.submit(JobSpec(code=f"print('{MARKER}')", stdin=MARKER))
        assert {name for name, _ in hits({"Redis": dump(client)})} == {"Redis"}
        assert len(hits({"Redis": dump(client)})) >= 2, "plain and in base64"


def test_the_client_and_the_command_line_open_what_is_theirs(
    tmp_path: Path, redis_url: str, launcher_socket: Path
) -> None:
    made = keys(tmp_path)
    producer = {name: made[name] for name in PRODUCER} | {"CELLBLOCK_REDIS_URL": redis_url}
    program = tmp_path / "program.py"
    program.write_text("print('mine alone'); {'a': 1}")
    worker = {name: made[name] for name in WORKER}
    with worker_process(tmp_path, redis_url, launcher_socket, **worker):
        job = cellblock(
            "submit", str(program), "--tenant", "acme", "--confidential", **producer
        ).stdout.strip()
        sealed = cellblock("result", job, **producer)
        assert sealed.returncode == 0
        assert "mine alone" not in sealed.stdout
        assert "stdout_bytes      11" in sealed.stdout
        assert "object of 1 (integer)" in sealed.stdout
        assert "CELLBLOCK_SEALING_PRIVATE_KEY" in sealed.stderr
        reader = {name: made[name] for name in READER}
        assert cellblock("result", job, **producer, **reader).stdout == "mine alone\n"
        settings = load_settings(
            redis={"url": redis_url}, sealing={"private_key": made["CELLBLOCK_SEALING_PRIVATE_KEY"]}
        )
        with Client(settings=settings) as client:
            assert client.result(job, timeout_s=10).value == {"a": 1}


@pytest.mark.long("a job is given back again and again")
def test_a_worker_without_the_key_leaves_the_job_to_others_and_says_so(
    tmp_path: Path, redis_url: str, launcher_socket: Path
) -> None:
    made = keys(tmp_path)
    producer = {name: made[name] for name in PRODUCER} | {"CELLBLOCK_REDIS_URL": redis_url}
    with worker_process(tmp_path, redis_url, launcher_socket):
        done = cellblock("submit", "-", "--tenant", "acme", "--confidential", stdin="print(1)", **producer)
        job = done.stdout.strip()
        log = tmp_path / "worker.log"
        wait_until(lambda: "CELLBLOCK_SEALING_FLEET_PRIVATE_KEY" in log.read_text(), 20, "the log naming it")
    worker = {name: made[name] for name in WORKER}
    with worker_process(tmp_path, redis_url, launcher_socket, **worker), Client(redis_url) as client:
        assert client.result(job, timeout_s=40).outcome is Outcome.OK


@pytest.mark.long("a job is tried three times")
def test_a_job_sealed_to_an_old_key_is_a_dead_letter_with_its_payload(
    tmp_path: Path, redis_url: str, launcher_socket: Path
) -> None:
    old, new = keys(tmp_path), keys(tmp_path)
    producer = {name: old[name] for name in PRODUCER} | {"CELLBLOCK_REDIS_URL": redis_url}
    changed = {name: new[name] for name in WORKER} | {"CELLBLOCK_LEDGER_FAULT_RETRIES": "0"}
    done = cellblock("submit", "-", "--tenant", "acme", "--confidential", stdin="print(1)", **producer)
    with Client(redis_url) as client:
        with worker_process(tmp_path, redis_url, launcher_socket, **changed):
            failed = client.result(done.stdout.strip(), timeout_s=40)
        assert failed.outcome is Outcome.SANDBOX_ERROR
        assert failed.error is not None
        assert "does not fit" in failed.error.message
        with worker_process(tmp_path, redis_url, launcher_socket, **{name: old[name] for name in WORKER}):
            assert client.retry_dead(failed.job_id).result(timeout_s=40).outcome is Outcome.OK


def test_embedded_runs_need_the_tenants_key_alone(tmp_path: Path) -> None:
    made = keys(tmp_path)
    given = {name: made[name] for name in (*PRODUCER, *READER)}
    done = cellblock(
        "run", "-", "--tenant", "acme", "--confidential", stdin="print(1)", **given, **NAMESPACES
    )
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    done = cellblock("run", "-", "--tenant", "other", "--confidential", stdin="print(1)", **given)
    assert done.returncode == 4
    assert "'other'" in done.stderr


def test_without_keys_nothing_is_stored(redis_url: str) -> None:
    with Client(redis_url) as client:
        with pytest.raises(NotConfigured, match="CELLBLOCK_SEALING_TENANT_KEYS"):
            client.submit(spec())
        assert dump(client) == b""
