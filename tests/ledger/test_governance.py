"""Overrides of plans: from the file and at run time, at once, and with a record of who set what."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from cellblock import Client, InvalidJob, JobSpec, PolicyError
from cellblock_config import Settings
from parts import wait_until

pytestmark = pytest.mark.no_rerun


@pytest.fixture
def client(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setattr("cellblock.governance._FRESH_S", 0.0)
    with Client(settings=settings) as opened:
        yield opened


def timeout_of(client: Client, tenant: str) -> float:
    spec = JobSpec(code="1", tenant=tenant, plan="premium")
    return client._connections.intake.prepare("job", spec).manifest.limits.timeout_s


def test_a_tenants_override_outweighs_everybodys_and_both_the_plan(client: Client) -> None:
    assert timeout_of(client, "acme") == 30, "the level's"
    client.governance.set("*", "timeout_s", "20", "root")
    client.governance.set("acme", "timeout_s", "5", "root")
    assert (timeout_of(client, "acme"), timeout_of(client, "other")) == (5, 20)
    client.governance.unset("acme", "timeout_s", "root")
    assert timeout_of(client, "acme") == 20
    client.governance.unset("*", "timeout_s", "root")
    assert timeout_of(client, "acme") == 30


def test_what_a_tenant_may_run_at_once_and_spend_is_overridden_too(client: Client) -> None:
    for key, value in (("parallel", "1"), ("cost_per_day", "0.001"), ("runs_per_day", "7")):
        client.governance.set("acme", key, value, "root")
    gates = client._connections.intake.prepare("job", JobSpec(code="1", tenant="acme", plan="premium")).gates
    assert gates is not None
    assert (gates.parallel, gates.budget_micros, gates.runs_per_day) == (1, 1000, 7)


def test_every_change_is_recorded_with_who_before_and_after(client: Client) -> None:
    client.governance.set("acme", "parallel", "3", "ann")
    client.governance.set("acme", "parallel", "4", "bob")
    client.governance.unset("acme", "parallel", "cat")
    found = [(one.who, one.tenant, one.key, one.before, one.after) for one in client.governance.audit()]
    assert found == [
        ("cat", "acme", "parallel", 4, None),
        ("bob", "acme", "parallel", 3, 4),
        ("ann", "acme", "parallel", None, 3),
    ]
    assert client.governance.overrides("acme") == client.governance.overrides("nobody")


@pytest.mark.parametrize(
    ("tenant", "who", "says"),
    [
        ("", "me", "tenant: '' is not a tenant's name"),
        ("a b", "me", "tenant: 'a b' is not a tenant's name: .*; for everybody leave it out"),
        ("acme", "", "by: '' is not a name"),
        ("acme", "a\n2026-01-01  root", "by: .* printable"),
        ("acme", "\x1b[31m", "by: .* printable"),
    ],
)
def test_nobody_writes_a_line_of_the_audit_that_looks_like_anothers(
    client: Client, tenant: str, who: str, says: str
) -> None:
    with pytest.raises(InvalidJob, match=says):
        client.governance.set(tenant, "parallel", "3", who)
    assert client.governance.audit() == []


def test_what_one_process_sets_holds_in_another_within_a_second(client: Client, settings: Settings) -> None:
    with Client(settings=settings) as other:
        assert other.governance.overrides("acme").parallel is None
        client.governance.set("acme", "parallel", "3", "me")
        wait_until(lambda: other.governance.overrides("acme").parallel == 3, 5, "the other's next look")


def test_what_is_not_set_cannot_be_unset(client: Client) -> None:
    with pytest.raises(InvalidJob, match="parallel: nothing is set for 'acme'"):
        client.governance.unset("acme", "parallel", "me")
    assert client.governance.audit() == []


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("paralel", "3", "there is no such key; there are parallel, timeout_s"),
        ("parallel", "0", "parallel: '0': .*greater than or equal to 1"),
        ("parallel", "-1", "parallel"),
        ("parallel", "many", "parallel"),
        ("parallel", "1e99", "parallel"),
        ("timeout_s", "NaN", "timeout_s"),
        ("timeout_s", "Infinity", "timeout_s"),
        ("cost_per_run", "-1", "cost_per_run"),
        ("cost_per_run", "free", "'free' is not a number"),
        ("timeout_s", "null", "'null' is not a number; to remove it: cellblock plans unset"),
        ("timeout_s", '"20"', "is not a number"),
        ("parallel", "true", "is not a number"),
        ("parallel", "[" * 5000, "is not a number"),
        ("cost_per_run", "NaN", "cost_per_run"),
    ],
)
def test_what_cannot_hold_is_refused_and_not_recorded(
    client: Client, key: str, value: str, says: str
) -> None:
    with pytest.raises(InvalidJob, match=says):
        client.governance.set("*", key, value, "root")
    assert client.governance.audit() == []
    assert timeout_of(client, "acme") == 30


def test_the_files_governance_holds_below_what_is_set_at_run_time(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cellblock.governance._FRESH_S", 0.0)
    file = tmp_path / "plans.toml"
    ours = (resources.files("cellblock_config") / "plans.toml").read_text()
    governance = '[governance."*"]\ntimeout_s = 12\n[governance.acme]\ntimeout_s = 8\n'
    file.write_text(f'{ours}\nacme = "premium"\n{governance}')
    plans = settings.plans.model_copy(update={"file": file})
    with Client(settings=settings.model_copy(update={"plans": plans})) as client:
        assert (timeout_of(client, "acme"), timeout_of(client, "other")) == (8, 12)
        client.governance.set("*", "timeout_s", "6", "root")
        assert timeout_of(client, "other") == 6


def test_what_another_version_set_is_named_not_raised(client: Client) -> None:
    client._redis.hset(client._ledger.keys.governance, "* parallel", "2.5")
    with pytest.raises(PolicyError, match="what was set for parallel cannot be read: cellblock plans unset"):
        client.submit(JobSpec(code="1", plan="premium"))
    client.governance.unset("*", "parallel", "root")
    client.submit(JobSpec(code="1", plan="premium"))
