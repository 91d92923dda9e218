"""Prices: exact to the micro, from the user's own file, and honest about their age."""

from __future__ import annotations

import json
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellblock_config.prices import PricesError, PriceTable, load_prices

GIB = 1024**3
GOOD: dict[str, Any] = {
    "unit": "EUR",
    "valid_until": "2027-01-31",
    "per_run": 0.001,
    "per_cpu_second": 0.00002,
    "per_gib_second": 0.0000005,
    "level_percent": {"strict": 150},
}


def written(folder: Path, table: object) -> Path:
    file = folder / "pricing.json"
    file.write_text(table if isinstance(table, str) else json.dumps(table))
    return file


def table(folder: Path) -> PriceTable:
    return load_prices(written(folder, GOOD), today=date(2026, 12, 1)).table


def test_a_run_costs_what_the_table_says(tmp_path: Path) -> None:
    prices = table(tmp_path)
    used = {"cpu_ms": 2000, "wall_ms": 4000, "memory_bytes": GIB // 2}
    assert prices.rates("standard").cost_micros(**used) == 1000 + 40 + 1
    assert prices.rates("strict").cost_micros(**used) == 1562, "1561.5, rounded up"
    assert prices.rates("standard").cost_micros(cpu_ms=0, wall_ms=0, memory_bytes=0) == 1000
    assert prices.rates("standard").cost_micros(cpu_ms=1, wall_ms=0, memory_bytes=0) == 1001


amounts = st.integers(0, 10**9)


@given(amounts, amounts, st.integers(0, 2**40), amounts)
def test_more_never_costs_less(cpu_ms: int, wall_ms: int, memory_bytes: int, more: int) -> None:
    prices = load_prices().table.rates("strict")
    less = prices.cost_micros(cpu_ms=cpu_ms, wall_ms=wall_ms, memory_bytes=memory_bytes)
    assert less <= prices.cost_micros(cpu_ms=cpu_ms + more, wall_ms=wall_ms, memory_bytes=memory_bytes)
    assert less <= prices.cost_micros(cpu_ms=cpu_ms, wall_ms=wall_ms + more, memory_bytes=memory_bytes)
    assert less <= prices.cost_micros(cpu_ms=cpu_ms, wall_ms=wall_ms, memory_bytes=memory_bytes + more)


def test_without_a_file_the_built_in_prices_hold_and_say_when_they_are_out_of_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    found = load_prices()
    assert (found.source, found.table.unit) == ("built-in", "credits")
    assert load_prices(today=found.table.valid_until).warning is None
    late = load_prices(today=found.table.valid_until + timedelta(days=1))
    assert "prices out of date: the built-in ones were valid until" in str(late.warning)
    assert f"{tmp_path}/cellblock/pricing.json" in str(late.warning)


def test_the_users_own_file_is_found_and_its_date_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "cellblock").mkdir()
    file = written(tmp_path / "cellblock", GOOD)
    assert load_prices(today=date(2027, 1, 31)).warning is None
    late = load_prices(today=date(2027, 2, 1))
    assert late.table.unit == "EUR"
    assert f"prices out of date: {file} was valid until 2027-01-31" in str(late.warning)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"per_run": -1}, "per_run: -1 is not between 0 and 1000"),
        ({"per_run": 1e9}, "per_run"),
        ({"per_run": "free"}, "per_run: must be an amount"),
        ({"per_run": True}, "per_run: must be an amount"),
        ({"per_run": None}, "per_run: must be an amount"),
        ({"per_run": 1e-13}, "per_run: .* more than twelve places"),
        ({"per_run": float("nan")}, "per_run"),
        ({"per_run": float("inf")}, "per_run"),
        ({"valid_until": "soon"}, "valid_until"),
        ({"unit": ""}, "unit"),
        ({"level_percent": {"strict": 0}}, "level_percent.strict"),
        ({"level_percent": {"loose": 100}}, "level_percent.loose"),
        ({"per_gpu_second": 1}, "per_gpu_second: there is no such key"),
    ],
)
def test_a_wrong_file_says_file_key_and_reason(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    file = written(tmp_path, GOOD | change)
    with pytest.raises(PricesError, match=says) as raised:
        load_prices(file)
    assert str(raised.value).startswith(f"{file}: ")


@pytest.mark.parametrize("text", ["[" * 5000, '{"per_run": ' + "9" * 5000 + "}"])
def test_numbers_and_nesting_beyond_all_use_are_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "pricing.json"
    file.write_text(text)
    with pytest.raises(PricesError, match=r"pricing\.json: "):
        load_prices(file)


def test_what_is_no_table_at_all_is_named(tmp_path: Path) -> None:
    for text in ("{", "[]", "null", "\x00"):
        with pytest.raises(PricesError, match=r"pricing\.json"):
            load_prices(written(tmp_path, text))
    with pytest.raises(PricesError, match="cannot be read"):
        load_prices(tmp_path / "none.json")
