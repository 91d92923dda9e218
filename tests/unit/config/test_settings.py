"""Settings: read from the environment, refused when wrong, and never a secret in a message."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from cellblock_config import LEVELS, LauncherSettings, RedisSettings, Settings, SettingsError, load_settings
from parts import REPOSITORY
from suite import settings_page
from suite.structure import settings_without_description

PASSWORD = "hunter2-and-more"


def test_one_variable_configures_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELLBLOCK_REDIS_URL", "redis://store:6380/3")
    url = load_settings().redis.url
    assert url is not None
    assert url.get_secret_value() == "redis://store:6380/3"


def test_names_with_underscores_belong_to_the_first_words_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELLBLOCK_LEDGER_LEASE_S", "20")
    monkeypatch.setenv("CELLBLOCK_SANDBOX_DEFAULT_IMAGE", "datascience")
    monkeypatch.setenv("CELLBLOCK_WORKER_CONCURRENCY", "3")
    settings = load_settings()
    assert settings.ledger.lease_s == 20
    assert settings.ledger.beat_s == 3, "what is not set keeps its default"
    assert settings.sandbox.default_image == "datascience"
    assert settings.worker.concurrency == 3


def test_lists_are_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELLBLOCK_SANDBOX_ISOLATIONS", '["gvisor"]')
    assert load_settings().sandbox.isolations == ("gvisor",)


def test_no_isolation_at_all_is_for_permissive_jobs_and_has_to_be_asked_for() -> None:
    assert "process" not in load_settings().sandbox.usable
    sandbox = load_settings(sandbox={"unisolated": "process"}).sandbox
    assert {level for level in LEVELS if "process" in sandbox.chain(level)} == {"permissive"}
    assert sandbox.chain("permissive")[-1] == "process", "the last resort"
    chains = {"standard": ("gvisor", "none")}
    assert load_settings(sandbox={"unisolated": "none", "chains": chains}).sandbox.chain("standard") == (
        "gvisor",
        "none",
    )


@pytest.mark.parametrize(
    "sandbox",
    [
        {"isolations": ("gvisor", "process")},
        {"isolations": ("process",), "unisolated": "process"},
        {"chains": {"permissive": ("none",)}},
        {"chains": {"permissive": ("none",)}, "unisolated": "process"},
    ],
)
def test_naming_no_isolation_in_passing_is_refused_with_the_remedy(sandbox: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=r"isolates nothing.*CELLBLOCK_SANDBOX_UNISOLATED="):
        load_settings(sandbox=sandbox)


def test_a_host_that_may_use_nothing_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"sandbox\.isolations is empty"):
        load_settings(sandbox={"isolations": ()})


@pytest.mark.parametrize("where", ["environment", "file"])
def test_a_list_that_is_not_json_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if where == "file":
        Path(".env").write_text("CELLBLOCK_SANDBOX_ISOLATIONS=gvisor-1f\n")
    else:
        monkeypatch.setenv("CELLBLOCK_SANDBOX_ISOLATIONS", "gvisor-1f")
    with pytest.raises(SettingsError, match=r"^CELLBLOCK_SANDBOX_ISOLATIONS cannot be read") as refused:
        load_settings()
    assert "gvisor-1f" not in str(refused.value)


def test_a_dotenv_file_is_read_and_the_environment_wins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(".env").write_text(
        "CELLBLOCK_WORKER_CONCURRENCY=5\nCELLBLOCK_REDIS_URL=redis://from-file\nUNRELATED=1\n"
    )
    monkeypatch.setenv("CELLBLOCK_REDIS_URL", "redis://from-environment")
    settings = load_settings()
    assert settings.worker.concurrency == 5
    assert settings.redis.url is not None
    assert settings.redis.url.get_secret_value() == "redis://from-environment"


def test_arguments_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELLBLOCK_WORKER_CONCURRENCY", "5")
    assert load_settings(worker={"concurrency": 6}).worker.concurrency == 6


def test_an_empty_url_means_no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELLBLOCK_REDIS_URL", "")
    assert load_settings().redis.url is None


@pytest.mark.parametrize(
    ("variable", "value", "named"),
    [
        ("CELLBLOCK_REDIS_URLL", "redis://x", "redis.urll"),
        ("CELLBLOCK_LEDGER_LEASES_S", "5", "ledger.leases_s"),
        ("CELLBLOCK_WORKER_CONCURRENCY", "many", "worker.concurrency"),
        ("CELLBLOCK_WORKER_CONCURRENCY", "0", "worker.concurrency"),
        ("CELLBLOCK_LEDGER_LEASE_S", "nan", "ledger.lease_s"),
        ("CELLBLOCK_LEDGER_LEASE_S", "-1", "ledger.lease_s"),
        ("CELLBLOCK_TELEMETRY_LOG_LEVEL", "loud", "telemetry.log_level"),
        ("CELLBLOCK_LAUNCHER_OWNER", "no spaces", "launcher.owner"),
    ],
)
def test_a_wrong_variable_is_refused_by_both_its_names(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, named: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert named in str(caught.value)
    assert variable in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("CELLBLOCK_SANDBOX_ISOLATION", "did you mean isolations?"),
        ("CELLBLOCK_REDIS_XYZZY", "did you mean broker_url or"),
    ],
)
def test_a_setting_that_is_not_there_is_answered_with_one_that_is(
    monkeypatch: pytest.MonkeyPatch, variable: str, meant: str
) -> None:
    monkeypatch.setenv(variable, "[]")
    with pytest.raises(SettingsError, match=re.escape(meant)):
        load_settings()


CONTRADICTIONS: list[tuple[dict[str, object], str, str]] = [
    ({"ledger": {"lease_s": 8.9, "beat_s": 3}}, "ledger.lease_s", "ledger.beat_s"),
    ({"sandbox": {"default_image": "nope"}}, "sandbox.default_image", "sandbox.images"),
    (
        {"sandbox": {"memory_min_bytes": 2**32, "memory_max_bytes": 2**31}},
        "sandbox.memory_min_bytes",
        "sandbox.memory_max_bytes",
    ),
    ({"launcher": {"warm": 5, "warm_total": 4}}, "launcher.warm (", "launcher.warm_total"),
    ({"launcher": {"warm_total": 9, "sandboxes_max": 8}}, "launcher.warm_total", "launcher.sandboxes_max"),
    (
        {"egress": {"output_limit_bytes": 3999}},
        "egress.output_head_bytes (1000) and egress.output_tail_bytes (3000)",
        "egress.output_limit_bytes (3999)",
    ),
    (
        {"ledger": {"files_bytes": 2 * 2**20}, "sandbox": {"tmp_bytes": 2**20}},
        "ledger.files_bytes",
        "sandbox.tmp_bytes",
    ),
    (
        {"ledger": {"artifact_bytes": 100, "artifacts_bytes": 99}},
        "ledger.artifact_bytes (100)",
        "ledger.artifacts_bytes (99)",
    ),
    ({"ledger": {"job_ttl_s": 60}}, "ledger.job_ttl_s", "sandbox.timeout_max_s"),
    ({"sandbox": {"modules": {"strict": ["math"]}}}, "sandbox.modules (for strict)", "sandbox.module_guard"),
]


@pytest.mark.parametrize(
    ("groups", "one", "other"), CONTRADICTIONS, ids=[f"{c[1]}-{c[2]}" for c in CONTRADICTIONS]
)
def test_a_contradiction_names_both_settings(groups: dict[str, object], one: str, other: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(**groups)
    assert one in str(caught.value)
    assert other in str(caught.value)


def test_the_edge_of_every_rule_is_allowed() -> None:
    load_settings(
        ledger={"lease_s": 9, "beat_s": 3},
        launcher={"warm": 8, "warm_total": 8, "sandboxes_max": 8},
        egress={"output_limit_bytes": 4000, "output_head_bytes": 1000, "output_tail_bytes": 3000},
        sandbox={"timeout_max_s": 300, "memory_max_bytes": 2**30},
    )


@pytest.mark.parametrize("name", ["os.path", "", "*", "../os", "a b", "1st"])
def test_a_module_is_named_by_its_top(name: str) -> None:
    with pytest.raises(SettingsError, match=r"sandbox\.modules\.strict"):
        load_settings(sandbox={"module_guard": True, "modules": {"strict": [name]}})


def test_every_wrong_setting_is_named_at_once() -> None:
    with pytest.raises(SettingsError, match=r"ledger\.lease_s.*monitor\.port"):
        load_settings(ledger={"lease_s": 0}, monitor={"port": 70_000})


@pytest.mark.parametrize("url", ["http://127.0.0.1", "127.0.0.1:6379", "redis:/127.0.0.1", " redis://x"])
def test_a_url_that_is_not_redis_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(SettingsError, match=r"redis\.url .*redis://127\.0\.0\.1:6379/0"):
        load_settings(redis={"url": url})


@pytest.mark.parametrize("url", ["redis://x", "rediss://u:p@x:1/2"])
def test_every_kind_of_redis_url_is_taken(url: str) -> None:
    assert load_settings(redis={"url": url, "broker_url": url}).redis.url is not None


def test_secrets_show_in_no_representation() -> None:
    settings = load_settings(
        redis={"url": f"redis://:{PASSWORD}@h/0", "broker_url": f"redis://:{PASSWORD}@h/1"},
        telemetry={"sentry_dsn": f"https://{PASSWORD}@sentry/1"},
        monitor={"password": PASSWORD},
    )
    shown = f"{settings!r} {settings} {settings.model_dump()} {settings.model_dump_json()}"
    assert PASSWORD not in shown
    assert settings.monitor.password is not None
    assert settings.monitor.password.get_secret_value() == PASSWORD, "it is there, only hidden"


@pytest.mark.parametrize(
    "groups",
    [
        {"redis": {"url": f"http://:{PASSWORD}@h/0"}},
        {"redis": {"urll": f"redis://:{PASSWORD}@h/0"}},
        {"monitor": {"password": {"oops": PASSWORD}}},
        {"monitor": {"password": PASSWORD, "port": -1}},
    ],
)
def test_secrets_show_in_no_error(groups: dict[str, object]) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(**groups)
    assert PASSWORD not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__, "a printed traceback would show pydantic's error, input and all"


def test_settings_cannot_be_changed_after_the_check() -> None:
    settings = load_settings()
    with pytest.raises(ValidationError, match="frozen"):
        settings.ledger.lease_s = 1  # type: ignore[misc]
    with pytest.raises(ValidationError, match="frozen"):
        settings.redis = RedisSettings()  # type: ignore[misc]


def test_loading_settings_changes_nothing_in_the_environment() -> None:
    before = dict(os.environ)
    load_settings(launcher=LauncherSettings())
    assert dict(os.environ) == before
    assert isinstance(load_settings(), Settings)


def test_a_misspelt_group_in_a_dotenv_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path(".env").write_text("CELLBLOCK_WORKR_CONCURRENCY=3\n")
    with pytest.raises(SettingsError, match="CELLBLOCK_WORKR_CONCURRENCY: there is no group 'workr'"):
        load_settings()


def test_a_file_for_tls_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "ca.pem"
    with pytest.raises(SettingsError, match=f"redis.tls_ca .*there is no file {missing}"):
        load_settings(redis={"url": "rediss://x", "tls_ca": missing})


def test_what_a_whole_group_is_refused_for_names_no_variable_that_there_is_not() -> None:
    with pytest.raises(SettingsError) as raised:
        load_settings(ledger={"lease_s": 6, "beat_s": 3})
    assert "CELLBLOCK_LEDGER)" not in str(raised.value)


def test_every_setting_says_what_it_means() -> None:
    assert settings_without_description(REPOSITORY) == []


def test_a_number_that_cannot_be_read_is_told_with_its_value() -> None:  # an address is not, see above
    with pytest.raises(SettingsError, match=r"CELLBLOCK_LEDGER_QUEUE_DEPTH.*\(got 'abc'\)"):
        load_settings(ledger={"queue_depth": "abc"})


def test_the_page_of_settings_is_the_settings() -> None:
    told = "to write it anew: PYTHONPATH=tests .venv/bin/python -m suite.settings_page"
    assert settings_page.PAGE.read_text() == settings_page.page(), told


@pytest.mark.parametrize(("prefix", "meant"), [("proj1", "{proj1}"), ("a{}b", "{ab}"), ("{a}{b}", "{ab}")])
def test_key_prefix_without_a_hash_tag_is_shown_with_the_one_to_write(prefix: str, meant: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(redis={"key_prefix": prefix})
    assert f"{prefix!r} has no hash tag in braces: write {meant}" in str(caught.value)
    assert load_settings(redis={"key_prefix": meant}).redis.key_prefix == meant


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ({"worker": {"concurrency": 0}}, "greater than or equal to 1 (got 0)"),
        ({"sandbox": {"isolations": ["docker"]}}, "(got 'docker'); name gvisor or runc, which Docker runs"),
        ({"monitor": {"password": "short"}}, "at least 8 characters and no comma; `openssl rand -hex 12`"),
    ],
    ids=["a number below its bound", "a word that is no isolation", "a short password"],
)
def test_value_out_of_bounds_is_told_with_the_remedy(groups: dict[str, object], said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(**groups)
    assert said in str(caught.value)
