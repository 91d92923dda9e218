"""Each process of a fleet holds the secrets that it works with, and no others."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from pydantic import BaseModel, SecretStr

from cellblock_config import Settings, load_settings
from cellblock_workers.host_services import host_services
from cellblock_workers.launcher.spawn import NO_SECRETS, NO_SECRETS_BUT_ITS_OWN

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
def fleet(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The environment of the process that starts the fleet: it has every secret."""
    for name, value in EVERY_SECRET.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def _told(fleet: pytest.MonkeyPatch, environment: dict[str, str]) -> dict[str, str]:
    for name, value in environment.items():
        fleet.setenv(name, value)
    return _secrets(load_settings())


def test_this_list_has_every_secret(fleet: pytest.MonkeyPatch) -> None:
    names = {
        f"{group}.{name}"
        for group, described in Settings.model_fields.items()
        for name, field in cast(type[BaseModel], described.annotation).model_fields.items()
        if "SecretStr" in str(field.annotation)
    }
    assert set(_secrets(load_settings())) == names


def test_a_launcher_is_told_none(fleet: pytest.MonkeyPatch) -> None:
    assert _told(fleet, dict(NO_SECRETS)) == {}


def test_flower_is_told_where_the_store_is_and_its_own_password(fleet: pytest.MonkeyPatch) -> None:
    assert set(_told(fleet, dict(NO_SECRETS_BUT_ITS_OWN))) == {
        "redis.url",
        "redis.broker_url",
        "redis.sentinel_password",
        "monitor.password",
    }


def test_a_worker_is_told_neither_flower_s_password_nor_what_opens_results(
    fleet: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    launcher, worker = host_services(load_settings(), tmp_path)
    assert set(_secrets(load_settings())) - set(_told(fleet, dict(worker.environment))) == {
        "monitor.password",
        "sealing.private_key",
    }
    assert _told(fleet, dict(launcher.environment)) == {}
    assert "secret-of-the-archive" not in json.dumps(dict(worker.environment)), "it never opens it"


def test_a_secret_set_to_nothing_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of variables with a line for each, most of them empty."""
    for name, value in NO_SECRETS.items():
        monkeypatch.setenv(name, value)
    assert _secrets(load_settings()) == {}
    assert load_settings().signing.require_signature is False


def test_a_process_started_so_finds_none_in_its_environment() -> None:
    environment = {**EVERY_SECRET, **NO_SECRETS}
    told = subprocess.run(
        [sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert json.loads(told)["redis"]["url"] is None
    assert "secret" not in "".join(environment[name] for name in EVERY_SECRET)
