"""Each process of a fleet holds the secrets that it works with, and no others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import BaseModel, SecretStr

from cellblock.errors import NotConfigured
from cellblock_config import Settings, load_settings
from cellblock_workers.host_services import archiver_service, host_services, monitor_service
from cellblock_workers.process_environment import (
    ARCHIVER,
    LAUNCHER,
    MONITOR,
    REDIS_SERVER,
    WORKER,
    Needs,
    environment_of,
)

EVERY_SECRET = {
    "CELLBLOCK_REDIS_URL": "redis://:secret-of-the-store@localhost:1/0",
    "CELLBLOCK_REDIS_BROKER_URL": "redis://:secret-of-the-broker@localhost:1/1",
    "CELLBLOCK_REDIS_SENTINEL_PASSWORD": "secret-of-the-sentinels",
    "CELLBLOCK_BLOBS_URL": "s3://secret-of-the-blobs/x",
    "CELLBLOCK_ARCHIVE_URL": "postgresql://archive:secret-of-the-archive@localhost/jobs",
    "CELLBLOCK_POLICY_TOKEN": "secret-of-the-policy",
    "CELLBLOCK_EGRESS_SECRETS": '{"one": "secret-of-the-filter"}',
    "CELLBLOCK_SIGNING_KEY": "hmac:c2VjcmV0LW9mLXRoZS1zaWduZXItc2VjcmV0LW9mLXRoZS1zaWduZXI=",
    "CELLBLOCK_SIGNING_KEY_ID": "one",
    "CELLBLOCK_SIGNING_TRUSTED": '{"two": "hmac:c2VjcmV0LW9mLWFub3RoZXItc2VjcmV0LW9mLWFub3RoZXI="}',
    "CELLBLOCK_SIGNING_REQUIRE_SIGNATURE": "true",
    "CELLBLOCK_SIGNING_MAX_AGE_S": "3600",
    "CELLBLOCK_SEALING_FLEET_PRIVATE_KEY": "x25519:" + "c2VjcmV0LW9mLXRoZS1mbGVldC1zZWNyZXQtb2Y0NDQ=",
    "CELLBLOCK_SEALING_PRIVATE_KEY": "x25519:" + "c2VjcmV0LW9mLXRlbmFudC1hLXNlY3JldC1vZi00NDQ=",
    "CELLBLOCK_TELEMETRY_SENTRY_DSN": "https://secret@sentry.invalid/1",
    "CELLBLOCK_MONITOR_PASSWORD": "secret-of-flower",
    "CELLBLOCK_WEBHOOKS_URLS": '["https://secret.invalid/hook"]',
    "CELLBLOCK_WEBHOOKS_SECRET": "secret-of-the-webhooks-secret-of-the-webhooks",
}
#: What is not cellblock's, and stands in the environments of operators.
OTHERS = {
    "AWS_SECRET_ACCESS_KEY": "secret-of-the-bucket",
    "AZURE_STORAGE_ACCOUNT_KEY": "secret-of-the-container",
    "PGPASSWORD": "secret-of-postgresql",
    "https_proxy": "http://user:secret-of-the-proxy@localhost:1",
    "SENTRY_RELEASE": "a release that is told to Sentry",
    "FLOWER_URL_PREFIX": "a prefix that is Flower's",
    "OPENAI_API_KEY": "secret-of-a-model",
    "GITHUB_TOKEN": "secret-of-a-forge",
}
ASK = "import json\nfrom cellblock_config import load_settings\nprint(load_settings().model_dump_json())"


def _secrets(settings: Settings) -> dict[str, str]:
    """By setting, every secret that is set."""
    return dict(_within(settings, ""))


def _within(value: object, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, SecretStr):
        yield name, value.get_secret_value()
    elif isinstance(value, BaseModel):
        for field in type(value).model_fields:
            yield from _within(getattr(value, field), f"{name}.{field}".lstrip("."))
    elif isinstance(value, dict | tuple):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _within(one, name)


@pytest.fixture
def variables() -> dict[str, str]:
    """The environment of who starts the fleet: every secret, also such as are not ours."""
    return {**EVERY_SECRET, **OTHERS, "PATH": "/usr/bin", "CELLBLOCK_WORKER_CONCURRENCY": "3"}


def _told(monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str]) -> dict[str, str]:
    for name in (*EVERY_SECRET, *OTHERS):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return _secrets(load_settings())


def test_this_list_has_every_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {
        f"{group}.{name}"
        for group, described in Settings.model_fields.items()
        for name, field in cast(type[BaseModel], described.annotation).model_fields.items()
        if "SecretStr" in str(field.annotation)
    }
    assert set(_told(monkeypatch, EVERY_SECRET)) == names


@pytest.mark.parametrize(
    ("needs", "secrets", "others"),
    [
        (LAUNCHER, set(), set()),
        (REDIS_SERVER, set(), set()),
        (
            WORKER,
            {
                *("redis.url", "redis.broker_url", "redis.sentinel_password", "blobs.url", "egress.secrets"),
                *("signing.key", "signing.trusted", "sealing.fleet_private_key", "telemetry.sentry_dsn"),
            },
            {"AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_ACCOUNT_KEY", "https_proxy", "SENTRY_RELEASE"},
        ),
        (ARCHIVER, {"redis.url", "redis.sentinel_password", "archive.url"}, {"PGPASSWORD"}),
        (
            MONITOR,
            {"redis.url", "redis.broker_url", "redis.sentinel_password", "monitor.password"},
            {"FLOWER_URL_PREFIX"},
        ),
    ],
    ids=["launcher", "redis", "worker", "archiver", "monitor"],
)
def test_a_process_is_told_the_secrets_that_it_uses_and_no_others(
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    needs: Needs,
    secrets: set[str],
    others: set[str],
) -> None:
    environment = environment_of(needs, variables)
    assert set(_told(monkeypatch, environment)) == secrets
    assert {name for name in OTHERS if name in environment} == others
    assert environment["PATH"] == "/usr/bin"
    assert ("CELLBLOCK_WORKER_CONCURRENCY" in environment) == needs.settings
    shown = json.dumps(environment)
    assert [word for name, word in _texts() if name not in secrets | others and word in shown] == []


def _texts() -> Iterator[tuple[str, str]]:
    """By setting or variable, what its secret looks like in an environment."""
    for group, described in Settings.model_fields.items():
        for name, setting in cast(type[BaseModel], described.annotation).model_fields.items():
            variable = f"CELLBLOCK_{group}_{name}".upper()
            if variable in EVERY_SECRET and "SecretStr" in str(setting.annotation):
                yield f"{group}.{name}", json.dumps(EVERY_SECRET[variable])[1:-1]
    yield from OTHERS.items()


def test_a_setting_in_small_letters_is_a_secret_too(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = environment_of(LAUNCHER, {"cellblock_redis_url": "redis://:secret@localhost:1/0"})
    assert "secret" not in json.dumps(environment)


def test_a_group_in_one_variable_is_refused_where_its_secrets_are_of_several_processes() -> None:
    whole = {"CELLBLOCK_SEALING": '{"private_key": "secret"}'}
    with pytest.raises(NotConfigured, match=r"CELLBLOCK_SEALING: .* set each by itself") as refused:
        environment_of(WORKER, whole)
    assert "secret" not in str(refused.value)
    assert environment_of(WORKER, {"CELLBLOCK_WORKER": '{"concurrency": 2}'})["CELLBLOCK_WORKER"]


def test_services_of_a_host_have_these_environments(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], tmp_path: Path
) -> None:
    _told(monkeypatch, variables)
    launcher, worker = host_services(load_settings(), tmp_path, variables)
    assert environment_of(LAUNCHER, variables).items() <= dict(launcher.environment).items()
    assert worker.environment["CELLBLOCK_ARCHIVE_URL"] == "postgresql:////", "it never opens it"
    assert worker.environment["AWS_SECRET_ACCESS_KEY"] == OTHERS["AWS_SECRET_ACCESS_KEY"]
    assert archiver_service(variables).environment == environment_of(ARCHIVER, variables)
    assert monitor_service(variables, lambda _: None).environment == environment_of(MONITOR, variables)


def test_a_secret_set_to_nothing_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of variables with a line for each, most of them empty."""
    assert _told(monkeypatch, environment_of(LAUNCHER, EVERY_SECRET)) == {}
    assert load_settings().signing.require_signature is False


def test_a_dotenv_gives_a_launcher_no_secret(tmp_path: Path) -> None:
    """The launcher of `cellblock run` starts in the folder of the command."""
    (tmp_path / ".env").write_text("CELLBLOCK_REDIS_URL=redis://:secret@localhost:1/0\n")
    told = subprocess.run(
        [sys.executable, "-c", ASK],
        env=environment_of(LAUNCHER, {**os.environ, **EVERY_SECRET}),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert json.loads(told)["redis"]["url"] is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second process of an ordinary user")
@pytest.mark.parametrize("hidden", [True, False])
def test_another_process_of_the_same_user_reads_no_environment_that_is_kept(hidden: bool) -> None:
    keep = (
        "from cellblock_workers.process_environment import keep_to_itself\nkeep_to_itself()\n"
        if hidden
        else ""
    )
    user: dict[str, Any] = {"user": 65_000, "group": 65_000, "extra_groups": []}
    holder = subprocess.Popen(
        [sys.executable, "-c", f"{keep}print(flush=True)\nimport sys\nsys.stdin.read()"],
        env={"SECRET": "secret-sentinel", "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        **user,
    )
    with holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        asked = subprocess.run(
            ["/usr/bin/cat", f"/proc/{holder.pid}/environ"], capture_output=True, check=False, **user
        )
    assert (b"secret-sentinel" in asked.stdout) != hidden
