"""What a job may, by its plan: more is refused by field, asked and allowed, and less is left alone."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from cellblock import InvalidJob, JobSpec, PolicyDenied
from cellblock.admission.intake import Intake
from cellblock.admission.plans import PlanFile
from cellblock.admission.resolve import Manifest
from cellblock_config import load_settings
from cellblock_config.plans import PlansError

PLANS = """
[plans.small]
parallel = 1
rate_per_s = 1
burst = 10
runs_per_day = 1000
queue_depth = 100
timeout_s = 20
timeout_most_s = 40
cpus = 0.3
memory = "128M"
levels = ["standard"]
images = ["python"]
cost_per_run = 0.02
cost_per_day = 0.5
result_ttl_s = 3600
weight = 2

[plans.large]
parallel = 1
rate_per_s = 1
burst = 10
runs_per_day = 1000
queue_depth = 100
timeout_s = 60
cpus = 1
memory = "1G"
levels = ["standard", "strict"]
images = ["*"]
cost_per_run = 0.02
cost_per_day = 0.5
result_ttl_s = 3600
weight = 2

[roles.builder]
timeout_percent = 150

[[stake]]
at_least = 100
timeout_percent = 120

[tenants]
acme = "small"
rich = { plan = "small", stake = 100 }
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "plans.toml"
    path.write_text(PLANS)
    return path


def limits(file: Path, **spec: Any) -> Any:
    settings = load_settings(plans={"file": file})
    job = JobSpec(**{"code": "1", **spec})
    return Intake(settings).prepare("job", job).manifest.limits


def test_a_job_that_asks_for_nothing_gets_what_plan_and_level_give(file: Path) -> None:
    small = limits(file, plan="small")
    assert (small.timeout_s, small.cpus, small.memory_bytes) == (20, 0.3, 128 * 1024**2)
    large = limits(file, plan="large", level="strict")
    assert (large.timeout_s, large.cpus, large.memory_bytes) == (10, 0.5, 256 * 1024**2), "the level's"


def test_role_and_stake_raise_it_up_to_the_most(file: Path) -> None:
    assert limits(file, plan="small", role="builder").timeout_s == 30
    assert limits(file, tenant="rich").timeout_s == 24
    assert limits(file, tenant="rich", role="builder", limits={"timeout_s": 36}).timeout_s == 36


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"limits": {"timeout_s": 21}}, r"limits\.timeout_s: 21 requested; plan 'small' allows 20"),
        ({"limits": {"cpus": 0.5}}, r"limits\.cpus: 0\.5 requested; plan 'small' allows 0\.3"),
        (
            {"limits": {"memory_bytes": 2**28}},
            r"limits\.memory_bytes: 268435456 \(256M\) requested; .* allows 134217728 \(128M\)",
        ),
        ({"level": "strict"}, "level: 'strict' requested; plan 'small' allows standard"),
        ({"image": "datascience"}, "image: 'datascience' requested; plan 'small' allows python"),
        ({"plan": "huge"}, "plan: there is no plan 'huge'; this fleet has small, large"),
        ({"role": "king"}, "role: there is no role 'king'; this fleet has builder"),
        ({"plan": "large", "tenant": "acme"}, "plan: 'large' requested; tenant 'acme' is on 'small'"),
        ({"plan": None, "role": "builder"}, "role: 'builder' requested without a plan"),
        (
            {"role": "builder", "limits": {"timeout_s": 31}},
            "31 requested; plan 'small' with role 'builder' allows 30",
        ),
        (
            {"max_cost_micros": 20_001},
            "max_cost_micros: 20001 micros requested; plan 'small' allows 20000 micros",
        ),
        ({"nested_cost_micros": 20_001}, "nested_cost_micros: 20001 micros requested"),
    ],
)
def test_more_than_the_plan_allows_is_refused_by_name(file: Path, spec: dict[str, Any], says: str) -> None:
    with pytest.raises(PolicyDenied, match=says):
        limits(file, **{"plan": "small", **spec})


def prepared(file: Path, **spec: Any) -> Manifest:
    return (
        Intake(load_settings(plans={"file": file})).prepare("job", JobSpec(**{"code": "1", **spec})).manifest
    )


def test_the_image_that_runs_is_one_of_the_plans(file: Path) -> None:
    """Also where the job names none: the fleet's default might not be among them."""
    plans = PLANS.replace('images = ["python"]', 'images = ["datascience"]')
    file.write_text(plans.replace('memory = "128M"', 'memory = "192M"'))
    assert prepared(file, plan="small").image == "datascience"
    assert prepared(file, plan="large").image == "python"
    with pytest.raises(PolicyDenied, match="image: 'python' requested; plan 'small' allows datascience"):
        prepared(file, plan="small", image="python")


def test_a_level_that_nobody_named_is_one_of_the_plans(file: Path) -> None:
    file.write_text(PLANS.replace('levels = ["standard"]', 'levels = ["permissive", "strict"]'))
    assert prepared(file, plan="small").level == "strict"
    assert prepared(file, plan="large").level == "standard"
    with pytest.raises(PolicyDenied, match="level: 'standard' requested; plan 'small' allows permissive"):
        prepared(file, plan="small", level="standard")


@pytest.mark.parametrize("field", ["max_cost_micros", "nested_cost_micros"])
def test_a_price_without_a_plan_is_refused(file: Path, field: str) -> None:
    with pytest.raises(InvalidJob, match=f"{field}: only a job with a plan has a price"):
        prepared(file, **{field: 1000})


def test_governance_stands_for_the_plan_and_nothing_raises_it(file: Path) -> None:
    file.write_text(PLANS.replace("[tenants]", '[governance."*"]\ntimeout_s = 10\n\n[tenants]'))
    assert limits(file, plan="small").timeout_s == 10
    with pytest.raises(PolicyDenied, match="plan 'small' under governance with role 'builder' allows 10"):
        limits(file, plan="small", role="builder", limits={"timeout_s": 11})
    file.write_text(
        PLANS.replace("timeout_percent = 150", "timeout_percent = 50").replace(
            "[tenants]", '[governance."*"]\ntimeout_s = 10\n\n[tenants]'
        )
    )
    assert limits(file, plan="small", role="builder").timeout_s == 5, "but a role lowers it"


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"tenant": "new", "plan": "large"}, "plan: 'large' requested with an API key"),
        ({"tenant": "acme", "role": "builder"}, "role: 'builder' requested with an API key.*name none"),
        ({"tenant": "new", "role": "builder"}, "role: 'builder' requested with an API key"),
    ],
)
def test_who_holds_a_key_chooses_neither_plan_nor_role(file: Path, spec: dict[str, Any], says: str) -> None:
    plans = PlanFile(load_settings(plans={"file": file}))
    with pytest.raises(PolicyDenied, match=says):
        plans.entitled(JobSpec(code="1", **spec), keyed=True)
    file.write_text(PLANS.replace('acme = "small"', 'acme = { plan = "small", roles = ["builder"] }'))
    plans = PlanFile(load_settings(plans={"file": file, "default": "large"}))
    entitled = plans.entitled(JobSpec(code="1", tenant="acme", role="builder"), keyed=True)
    assert entitled is not None
    assert entitled.plan.timeout_s == 30
    entitled = plans.entitled(JobSpec(code="1", tenant="new", plan="large"), keyed=True)
    assert entitled is not None
    assert entitled.name == "large"


def test_without_a_plan_only_the_operators_bounds_hold(file: Path) -> None:
    assert limits(file, limits={"timeout_s": 200}).timeout_s == 200
    settings = load_settings(plans={"file": file, "default": "small"})
    assert PlanFile(settings).entitled(JobSpec(code="1")).name == "small"  # type: ignore[union-attr]


def test_a_changed_file_holds_and_an_invalid_one_changes_nothing(
    file: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cellblock.admission.plans._LOOK_S", 0.0)
    plans = PlanFile(load_settings(plans={"file": file}))
    fresh = file.with_suffix(".new")
    fresh.write_text(PLANS.replace("timeout_s = 20", "timeout_s = 25"))
    fresh.replace(file)
    assert plans.book.plans["small"].timeout_s == 25
    file.write_text(PLANS.replace("timeout_s = 20", "timeout_s = -1"))
    with caplog.at_level(logging.ERROR):
        assert plans.book.plans["small"].timeout_s == 25
        assert plans.book.plans["small"].timeout_s == 25
    (said,) = caplog.messages
    assert f"plans not changed: {file}: plans.small.timeout_s: " in said
    file.unlink()
    assert plans.book.plans["small"].timeout_s == 25


def test_a_first_file_that_cannot_be_used_is_refused(file: Path) -> None:
    file.write_text("[plans]")
    with pytest.raises(PlansError, match="plans: "):
        PlanFile(load_settings(plans={"file": file}))
