"""Estimates: the worst a job can cost within its limits, held to its caps."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from decimal import Decimal
from importlib import resources
from pathlib import Path

import pytest

from cellblock import JobSpec, PolicyDenied
from cellblock.admission.costs import CostFactors, estimate
from cellblock.admission.intake import Intake
from cellblock_config import load_settings
from cellblock_config.prices import Prices, PriceTable

TABLE = PriceTable.model_validate(
    {
        "unit": "EUR",
        "valid_until": date(2030, 1, 1),
        "per_run": Decimal("0.001"),
        "per_cpu_second": Decimal("0.0001"),
        "per_gib_second": Decimal("0.00001"),
        "level_percent": {"strict": 200},
    }
)
PRICES = Prices(TABLE, "a test", None)
SMALL = CostFactors(level="standard", timeout_s=10, cpus=0.5, memory_bytes=1024**3, runs=1)


def test_the_worst_is_every_limit_at_once() -> None:
    found = estimate(SMALL, PRICES)
    assert (found.least_micros, found.worst_micros) == (1000, 1000 + 500 + 100)
    assert estimate(replace(SMALL, level="strict", runs=3), PRICES).worst_micros == 3 * 2 * 1600


def test_no_more_is_held_than_the_least_cap() -> None:
    caps = (("cost_per_run", 1500), ("max_cost_micros", None))
    assert estimate(SMALL, PRICES, *caps).reserve_micros == 1500
    assert estimate(SMALL, PRICES, *caps, ("max_cost_micros", 1200)).reserve_micros == 1200
    assert estimate(SMALL, PRICES, ("cost_per_run", 10**9)).reserve_micros == 1600


def test_cap_that_holds_is_named_with_its_amount_when_it_is_reached() -> None:
    caps = (("cost_per_run", 1500), ("max_cost_micros", 1200), ("cost_per_day", 10**6))
    assert estimate(SMALL, PRICES, *caps).cap == "max_cost_micros"
    assert estimate(SMALL, PRICES, ("cost_per_run", 10**9)).cap is None
    spec = JobSpec(code="1", plan="casual", max_cost_micros=200)
    manifest = Intake(load_settings()).prepare("job", spec).manifest
    assert manifest.charge is not None
    assert manifest.charge.reached() == (
        "Cost cap reached: 200 micros (max_cost_micros), with its nested runs"
    )


def test_a_cap_that_no_run_fits_into_is_named() -> None:
    with pytest.raises(
        PolicyDenied, match=r"max_cost_micros: 999 micros, and a run costs at least 1000 \(a test\); it"
    ):
        estimate(SMALL, PRICES, ("max_cost_micros", 999))


def test_a_job_of_a_plan_carries_its_price_and_its_cap() -> None:
    intake = Intake(load_settings())
    spec = JobSpec(code="1", plan="casual", max_cost_micros=200)
    prepared = intake.prepare("job", spec)
    manifest, gates = prepared.manifest, prepared.gates
    assert gates is not None
    assert manifest.charge is not None
    assert manifest.charge.cap_micros == gates.reserve_micros == intake.estimate(spec).reserve_micros == 200
    assert (manifest.plan, gates.plan, gates.budget_micros) == ("casual", "casual", 500_000)


def test_a_job_without_a_plan_is_not_charged() -> None:
    prepared = Intake(load_settings()).prepare("job", JobSpec(code="1"))
    assert (prepared.manifest.charge, prepared.manifest.plan, prepared.gates) == (None, None, None)


def test_built_in_prices_are_told_once_and_only_where_something_is_priced(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    caplog.set_level("INFO")
    intake = Intake(load_settings())
    intake.prepare("one", JobSpec(code="1"))
    assert caplog.text == "", "without a plan nothing is priced"
    for job_id in ("two", "three"):
        intake.prepare(job_id, JobSpec(code="1", plan="casual"))
    assert ["built-in" in record.message for record in caplog.records] == [True]


def test_prices_out_of_date_are_warned_of_once(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    table = json.loads((resources.files("cellblock_config") / "pricing.json").read_text())
    (tmp_path / "old.json").write_text(json.dumps({**table, "valid_until": "2026-01-31"}))
    intake = Intake(load_settings(plans={"prices": str(tmp_path / "old.json")}))
    for job_id in ("one", "two"):
        intake.prepare(job_id, JobSpec(code="1", plan="casual"))
    assert caplog.text.count("was valid until 2026-01-31") == 1
