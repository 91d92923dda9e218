"""Signed jobs as an operator sets them up: keys from the command, a fleet that takes no other job."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from dotenv import dotenv_values

from cellblock import Client, JobResult, JobSpec, Outcome
from cellblock.admission.sealing import new_pair
from cellblock.ledger import Ledger
from cellblock_config import load_settings
from parts import CELLBLOCK, cellblock, command_line, wait_until, worker_process

KINDS = {"hmac": (), "ed25519": ("--ed25519",)}


def fresh_key(folder: Path, kind: str) -> tuple[dict[str, str], dict[str, str]]:
    """What the command prints, as the producer's and the worker's settings."""
    file = folder / f"{kind}.env"
    file.write_text(cellblock("sign-key", "new", *KINDS[kind]).stdout)
    settings = {name: value for name, value in dotenv_values(file).items() if value is not None}
    trusted = {"CELLBLOCK_SIGNING_TRUSTED": settings.pop("CELLBLOCK_SIGNING_TRUSTED")}
    return settings, {**trusted, "CELLBLOCK_SIGNING_REQUIRE_SIGNATURE": "true"}


def signing_client(redis_url: str, producer: dict[str, str]) -> Client:
    """A producer with this key."""
    prefix = len("CELLBLOCK_SIGNING_")
    signing: dict[str, Any] = {name[prefix:].lower(): value for name, value in producer.items()}
    return Client(settings=load_settings(redis={"url": redis_url}, signing=signing))


def ended(result: JobResult) -> tuple[str, str]:
    """The outcome and the error's type."""
    return result.outcome, result.error.type if result.error else ""


@pytest.mark.docker
@pytest.mark.parametrize("kind", KINDS)
def test_a_fleet_that_requires_signatures_runs_signed_jobs_and_nothing_else(
    kind: str, tmp_path: Path, redis_url: str, launcher_socket: Path, ledger: Ledger
) -> None:
    producer, worker = fresh_key(tmp_path, kind)
    with signing_client(redis_url, producer) as client, Client(redis_url) as stranger:
        signed = client.submit(JobSpec(code="print(6*7)"))
        unsigned = stranger.submit(JobSpec(code="print('escaped')"))
        altered = client.submit(JobSpec(code="print('asked')"))
        spec = ledger.keys.spec(altered.id)
        redis = ledger._store.redis  # somebody with access to Redis, before the first worker comes
        redis.set(spec, str(redis.get(spec)).replace("asked", "escaped"), keepttl=True)
        with worker_process(tmp_path, redis_url, launcher_socket, **worker):
            assert signed.result(timeout_s=30).stdout == "42\n"
            assert ended(unsigned.result(timeout_s=30)) == (Outcome.REJECTED, "SignatureMissing")
            assert ended(altered.result(timeout_s=30)) == (Outcome.REJECTED, "SignatureInvalid")
        told = [(event.job_id, event.type) for event in client.events() if event.terminal]
    assert sorted(told) == sorted(
        [
            (signed.id, "agent.run.succeeded"),
            (unsigned.id, "agent.run.rejected"),
            (altered.id, "agent.run.rejected"),
        ]
    )
    log = (tmp_path / "worker.log").read_text()
    assert unsigned.id in log
    secret = producer["CELLBLOCK_SIGNING_KEY"].partition(":")[2]
    assert secret not in log
    assert secret not in str(redis.hgetall(ledger.keys.job(signed.id)))


@pytest.mark.docker
def test_an_embedded_run_signs_and_checks_its_own_job(tmp_path: Path) -> None:
    producer, worker = fresh_key(tmp_path, "ed25519")
    done = cellblock("run", "-", stdin="print(6*7)", **producer, **worker)
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr


@pytest.mark.docker
def test_an_embedded_run_without_a_key_is_rejected_where_signatures_are_required(tmp_path: Path) -> None:
    _, worker = fresh_key(tmp_path, "hmac")
    done = cellblock("run", "-", stdin="print('escaped')", **worker)
    assert (done.returncode, done.stdout) == (3, "")
    assert "cellblock: rejected: the job is not signed" in done.stderr
    assert "CELLBLOCK_SIGNING_KEY" in done.stderr
    assert "not run" in done.stderr


def test_a_key_pair_of_the_command_keeps_the_secret_half_from_the_worker(tmp_path: Path) -> None:
    producer, worker = fresh_key(tmp_path, "ed25519")
    assert producer["CELLBLOCK_SIGNING_KEY"].startswith("ed25519:")
    (trusted,) = json.loads(worker["CELLBLOCK_SIGNING_TRUSTED"]).values()
    assert trusted.startswith("ed25519-public:")
    assert trusted.partition(":")[2] != producer["CELLBLOCK_SIGNING_KEY"].partition(":")[2]


def test_the_command_prints_json_too() -> None:
    made = json.loads(cellblock("sign-key", "new", "--json").stdout)
    assert made["trusted"] == {made["key_id"]: made["key"]}
    assert load_settings(signing=made).signing.key_id == made["key_id"]


def test_two_halves_that_do_not_belong_together_stop_the_producer(tmp_path: Path, redis_url: str) -> None:
    producer, _ = fresh_key(tmp_path, "hmac")
    other = {
        "CELLBLOCK_SIGNING_TRUSTED": json.dumps({producer["CELLBLOCK_SIGNING_KEY_ID"]: "hmac:" + "A" * 44})
    }
    done = cellblock("submit", "-", stdin="1", CELLBLOCK_REDIS_URL=redis_url, **producer, **other)
    assert done.returncode == 4
    assert "do not belong together" in done.stderr
    assert producer["CELLBLOCK_SIGNING_KEY"].partition(":")[2] not in done.stderr


@pytest.mark.parametrize("command", ["worker", "submit"])
def test_a_key_that_needs_the_missing_extra_stops_the_command(
    command: str, tmp_path: Path, redis_url: str
) -> None:
    """Injected: a package of this name that behaves as if it were not installed."""
    producer, worker = fresh_key(tmp_path, "ed25519")
    (tmp_path / "nacl.py").write_text("raise ModuleNotFoundError('hidden', name='nacl')")
    arguments, keys = (("submit", "-"), producer) if command == "submit" else (("worker",), worker)
    path = {"PYTHONPATH": str(tmp_path), "CELLBLOCK_REDIS_URL": redis_url}
    done = cellblock(*arguments, stdin="1", **path, **keys)
    assert (done.returncode, done.stdout) == (4, "")
    assert "pip install 'cellblock[signing]'" in done.stderr
    assert "Traceback" not in done.stderr


def variables_of(parent: int, module: str) -> str | None:
    """The environment of the parent's child that runs this module."""
    for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        if module in command_line(pid):
            return Path(f"/proc/{pid}/environ").read_bytes().decode()
    return None


def worker_limits(parent: int) -> dict[str, str]:
    """What the kernel lets the parent's worker have, by name."""
    for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        if "worker.main" in command_line(pid):
            lines = Path(f"/proc/{pid}/limits").read_text().splitlines()[1:]
            return {line[:26].strip(): line[26:].split()[0] for line in lines}
    return {}


def test_a_hosts_worker_gets_the_keys_and_its_launcher_does_not(tmp_path: Path, redis_url: str) -> None:
    producer, worker = fresh_key(tmp_path, "hmac")
    secret = producer["CELLBLOCK_SIGNING_KEY"].partition(":")[2]
    (sealing, _), (reading, _) = new_pair(), new_pair()
    with (tmp_path / "host.log").open("wb") as log:
        process = subprocess.Popen(
            [CELLBLOCK, "worker"],
            env={
                **os.environ,
                **worker,
                "CELLBLOCK_REDIS_URL": redis_url,
                "CELLBLOCK_POLICY_TOKEN": "token-sentinel",
                "CELLBLOCK_EGRESS_SECRETS": '{"db": "value-sentinel"}',
                "CELLBLOCK_SEALING_FLEET_PRIVATE_KEY": sealing,
                "CELLBLOCK_SEALING_PRIVATE_KEY": reading,
            },
            stderr=log,
            cwd="/",
        )
    try:
        wait_until(lambda: variables_of(process.pid, "worker.main"), 30, "the worker")
        assert "sentinel" not in (variables_of(process.pid, "launcher.server") or "sentinel")
        assert sealing not in (variables_of(process.pid, "launcher.server") or sealing)
        assert sealing in (variables_of(process.pid, "worker.main") or "")
        assert reading not in (variables_of(process.pid, "worker.main") or reading)
        assert secret in (variables_of(process.pid, "worker.main") or "")
        assert worker_limits(process.pid)["Max core file size"] == "0", "its memory holds keys"
        assert secret not in (variables_of(process.pid, "launcher.server") or secret)
        for pid in (
            str(process.pid),
            *Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split(),
        ):
            assert secret not in command_line(pid)
    finally:
        process.terminate()
        process.wait(timeout=60)
    assert secret not in (tmp_path / "host.log").read_text()
