"""Files of plans: what they mean, and that a wrong one says file, key and reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock.admission.gates import Gates
from cellblock_config.plans import MICROS, Modifier, Plan, PlansError, StakeBand, load_plans

GOOD = """
[plans.small]
parallel = 2
parallel_most = 3
rate_per_s = 1
burst = 10
runs_per_day = 1000
queue_depth = 100
timeout_s = 60
timeout_most_s = 100
cpus = 0.5
memory = "512M"
levels = ["strict"]
images = ["python"]
cost_per_run = 0.02
cost_per_day = 0.5
result_ttl_s = 3600
weight = 2

[roles.slow]
timeout_percent = 50

[[stake]]
at_least = 10
parallel_percent = 150

[tenants]
acme = "small"
big = { plan = "small", stake = 50 }
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "plans.toml"
    file.write_text(text)
    return file


def small(folder: Path) -> Plan:
    return load_plans(written(folder, GOOD)).plans["small"]


def test_the_plans_cellblock_ships_with_have_the_numbers_of_the_design() -> None:
    plans = load_plans().plans
    assert [(plan.parallel, plan.parallel_most) for plan in plans.values()] == [
        (1, None),
        (2, 3),
        (5, 10),
        (10, 20),
    ]
    for plan in plans.values():
        assert 0.2 <= plan.cpus <= (plan.cpus_most or plan.cpus) <= 1
        assert 256 * 1024**2 <= plan.memory_bytes <= 1024**3
        assert 60 <= plan.timeout_s <= (plan.timeout_most_s or plan.timeout_s) <= 300
    casual = plans["casual"]
    assert (casual.cost_per_run_micros, casual.cost_per_day_micros) == (20_000, 500_000)


def test_money_is_exact(tmp_path: Path) -> None:
    plan = small(tmp_path)
    assert plan.cost_per_run_micros == 0.02 * MICROS
    assert plan.memory_bytes == 512 * 1024**2


def test_modifiers_multiply_and_stop_at_the_most(tmp_path: Path) -> None:
    plan = small(tmp_path)
    fast = plan.modified(Modifier(timeout_percent=200, parallel_percent=150, cpus_percent=400))
    assert (fast.timeout_s, fast.parallel, fast.cpus) == (100, 3, 0.5), "without a most nothing is raised"
    slow = plan.modified(Modifier(timeout_percent=50), StakeBand(at_least=0, parallel_percent=1))
    assert (slow.timeout_s, slow.parallel) == (30, 1)


def test_however_much_a_rate_is_lowered_the_ledger_can_count_it(tmp_path: Path) -> None:
    slow = load_plans(written(tmp_path, GOOD.replace("rate_per_s = 1", "rate_per_s = 0.00001"))).plans[
        "small"
    ]
    lowered = slow.modified(Modifier(rate_percent=1), Modifier(rate_percent=1))
    assert len(str(Gates.of("small", lowered, 0).emission_us)) <= 15, "DIGITS_MAX of prelude/constants.lua"


def test_tenants_and_their_stake(tmp_path: Path) -> None:
    book = load_plans(written(tmp_path, GOOD))
    assert (book.tenants["acme"].plan, book.tenants["acme"].stake) == ("small", 0)
    assert book.band(9).parallel_percent == 100
    assert book.band(book.tenants["big"].stake).parallel_percent == 150


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("parallel = 2", "parallel = 0", "plans.small.parallel: .*greater than or equal to 1"),
        ("parallel = 2", "parallel = -1", "plans.small.parallel"),
        ("parallel = 2", "parallel = 1.5", "plans.small.parallel"),
        ("parallel = 2", 'parallel = "two"', "plans.small.parallel"),
        ("parallel = 2", 'parallel = "2"', "plans.small.parallel"),
        ("parallel = 2", "parallel = true", "plans.small.parallel"),
        ("rate_per_s = 1", "rate_per_s = true", "plans.small.rate_per_s"),
        ('memory = "512M"', "memory = true", "plans.small.memory"),
        ("[plans.small]", '[plans."sm/all"]', "plans.sm/all: is not a name: letters, digits"),
        ("[roles.slow]", '[roles."s low"]', "roles.s low: is not a name"),
        ('acme = "small"', '"ac/me" = "small"', "tenants.ac/me: is not a name"),
        ('acme = "small"', 'acme = "small"\n[governance."a b"]', "governance.a b.*: is not a name"),
        ("parallel = 2", "parallel = " + "9" * 5000, "cannot be used"),
        ("parallel = 2", "parallel = " + "[" * 5000, "cannot be used"),
        ('memory = "512M"', 'memory = "' + "9" * 400 + 'G"', "cannot be used"),
        ("parallel = 2", "paralel = 2", "plans.small.paralel: there is no such key"),
        ("parallel = 2\n", "", "plans.small.parallel: Field required"),
        ("parallel_most = 3", "parallel_most = 1", r"parallel_most \(1\) is below parallel \(2\)"),
        ("rate_per_s = 1", "rate_per_s = nan", "plans.small.rate_per_s"),
        ("rate_per_s = 1", "rate_per_s = inf", "plans.small.rate_per_s"),
        ("rate_per_s = 1", "rate_per_s = 0", "plans.small.rate_per_s"),
        ("rate_per_s = 1", "rate_per_s = 1e300", "plans.small.rate_per_s"),
        ("cost_per_run = 0.02", "cost_per_run = -0.02", "plans.small.cost_per_run"),
        ("cost_per_run = 0.02", "cost_per_run = nan", "plans.small.cost_per_run: nan is not a whole number"),
        ("cost_per_run = 0.02", "cost_per_run = 0.00000001", "not a whole number of millionths"),
        ("cost_per_run = 0.02", "cost_per_run = 1e30", "plans.small.cost_per_run"),
        ("cost_per_run = 0.02", 'cost_per_run = "0.02"', "must be an amount, such as 0.02"),
        ("cost_per_run = 0.02", "cost_per_run = true", "must be an amount"),
        ("cost_per_run = 0.02", "cost_per_run = 0.6", "above cost_per_day"),
        ('memory = "512M"', 'memory = "lots"', "plans.small.memory: 'lots' is not a size, such as 256M"),
        ('memory = "512M"', "memory = 5", "plans.small.memory"),
        ('levels = ["strict"]', "levels = []", "plans.small.levels"),
        ('levels = ["strict"]', 'levels = ["any"]', "plans.small.levels"),
        ("timeout_percent = 50", "timeout_percent = 0", "roles.slow.timeout_percent"),
        ("at_least = 10", "at_least = -10", "stake.0.at_least"),
        ("[[stake]]", "[[stake]]\nat_least = 20\n[[stake]]", "stake: the bands' at_least have to rise"),
        ('acme = "small"', 'acme = "huge"', "tenants.acme: there is no plan 'huge', only small"),
        ("stake = 50", "stake = 1.5", "tenants.big.stake"),
        (GOOD, "", "plans: Field required"),
        (GOOD, "[plans", "not TOML"),
    ],
)
def test_a_wrong_file_says_file_key_and_reason(tmp_path: Path, before: str, after: str, says: str) -> None:
    file = written(tmp_path, GOOD.replace(before, after))
    with pytest.raises(PlansError, match=says) as raised:
        load_plans(file)
    assert str(raised.value).startswith(f"{file}: ")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PlansError, match=r"none\.toml: cannot be read: No such file"):
        load_plans(tmp_path / "none.toml")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(PlansError, match="not UTF-8"):
        load_plans(tmp_path / "binary")


def test_a_plans_rate_is_the_time_from_one_run_to_the_next(tmp_path: Path) -> None:
    fast = small(tmp_path).model_copy(update={"rate_per_s": 4.0})
    assert Gates.of("small", fast, 0).emission_us == 250_000
