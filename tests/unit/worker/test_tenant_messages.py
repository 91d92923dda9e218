"""A result says whose fault it was, and names no path of the host; the operator's log does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog

from cellblock.admission.resolve import resolve
from cellblock.contract.evaluations import Evaluation, FunctionCheck, Trial
from cellblock.contract.job_spec import JobSpec
from cellblock.contract.outcomes import JobError, Outcome
from cellblock.contract.results import JobResult
from cellblock.ledger import Claim
from cellblock_config import load_settings
from cellblock_workers.filtering.outgoing_filter import OutgoingFilter
from cellblock_workers.launcher.client import (
    ContextNotMounted,
    LauncherClient,
    LevelNotOffered,
    SandboxNotStarting,
    SandboxRefused,
)
from cellblock_workers.launcher.contexts import ContextRefused, resolve_context
from cellblock_workers.lease import Lease
from cellblock_workers.worker.evaluation.attempt import Evaluator
from cellblock_workers.worker.execution import attempt_result, execute
from cellblock_workers.worker.outcome import RunOutcome
from cellblock_workers.worker.tenant_messages import without_host_paths

#: As launcher and runtimes say them.
FAULTS = [
    "namespaces: the image python is not unpacked at /var/lib/cellblock/images/python; run: make images",
    "cgroups: /sys/fs/cgroup/memory/x cannot be removed: [Errno 16] busy: '/sys/fs/cgroup/memory/y'",
    "gvisor: runsc refused: open /run/cellblock/oci/1/config.json: no such file",
    "docker: unix:///run/docker.sock: permission denied",
    "could not start: file:///home/operator/images, root=/tmp/cellblock-0/sandboxes",
    "no launcher answers on /run/cellblock/launcher.sock (No such file or directory): start one",
    'mount("/home/operator/x","/var/y"):/opt/z',
]
HOST = ("/var/", "/sys/", "/run/", "/home/", "/tmp/cellblock", "/opt/")


def claim_of(**fields: Any) -> Claim:
    manifest = resolve(JobSpec(**(fields or {"code": "0"})), load_settings())
    return Claim("job", 1, "worker", manifest, 0.0, 0.0)


def test_the_example_of_a_remedy_stays() -> None:
    with pytest.raises(ContextRefused) as refused:
        resolve_context("/x", [])
    message = str(refused.value)
    assert "such as '[\"/" in message
    assert without_host_paths(message) == message
    assert without_host_paths("such as 'this', /var/x") == "such as 'this', (a path of the host)"


class Refusing(LauncherClient):
    """Injected: a launcher that refuses, in these words."""

    def __init__(self, error: Exception) -> None:
        super().__init__(Path("/run/cellblock/launcher.sock"), timeout_s=1)
        self.error = error

    def acquire(self, *_: Any, **__: Any) -> Any:
        raise self.error


@pytest.fixture
def outgoing() -> Iterator[OutgoingFilter]:
    with closing(OutgoingFilter(load_settings().egress)) as one:
        yield one


def assert_no_path(result: JobResult) -> None:
    said = result.model_dump_json()
    assert not [path for path in HOST if path in said], said


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", [SandboxRefused, ContextNotMounted, LevelNotOffered, SandboxNotStarting])
def test_no_refusal_names_a_path_of_the_host(
    kind: type[Exception], fault: str, outgoing: OutgoingFilter
) -> None:
    lease = Lease(claim_of())
    with structlog.testing.capture_logs() as logs:
        result = execute(lease, lease.claim.manifest, Refusing(kind(fault)), load_settings(), outgoing)
    lease.close()
    assert_no_path(result)
    assert result.error is not None
    assert "(a path of the host)" in result.error.message
    assert [one["reason"] for one in logs if one["event"] == "fault_told_without_paths"] == [fault]


@pytest.mark.parametrize("fault", FAULTS)
def test_no_trial_names_a_path_of_the_host(fault: str, outgoing: OutgoingFilter) -> None:
    check = FunctionCheck(functions=("f",), tests="assert f()")
    evaluation = Evaluation(checks=(check,), trials=(Trial(id="0", source="", check=0),))
    lease = Lease(claim_of(evaluation=evaluation))
    launcher = Refusing(SandboxRefused(fault))
    result = Evaluator(lease, lease.claim.manifest, evaluation, launcher, load_settings(), outgoing).run()
    lease.close()
    assert result.trials[0].error is not None
    assert_no_path(result)


def test_a_tenants_own_path_and_a_jobs_own_words_stay() -> None:
    claim = claim_of(code="0")
    manifest = claim.manifest.model_copy(update={"context_path": "/data/mine.txt"})
    claim = replace(claim, manifest=manifest)
    error = JobError(type="ContextNotMounted", message="/data/mine.txt is not below /data/roots")
    result = attempt_result(claim, RunOutcome(Outcome.REJECTED, error=error))
    assert result.error is not None
    assert result.error.message == "/data/mine.txt is not below (a path of the host)"
    error = JobError(type="FileNotFoundError", message="No such file: '/work/x'")
    result = attempt_result(claim, RunOutcome(Outcome.EXIT, error=error, evidence={"said": "/work/x"}))
    assert json.loads(result.model_dump_json())["error"]["message"].endswith("'/work/x'")
    assert result.evidence == {"said": "/work/x"}


@pytest.mark.parametrize(
    "plain", ["runc/docker: refused", "see https://host/path", "1/2", "a / b", "gvisor (oci)", "n/a", ""]
)
def test_what_is_no_path_stays(plain: str) -> None:
    assert without_host_paths(plain) == plain
