"""Plans on the command line: what is allowed, what a run may cost, what was used."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cellblock import Client, JobSpec, Limits, Outcome
from cellblock_config import Settings
from ledger.kit import claim, operation, result_of
from parts import NAMESPACES, REPOSITORY, cellblock

pytestmark = pytest.mark.no_rerun

SHIPPED = REPOSITORY / "config" / "cellblock_config" / "plans.toml"


def test_the_plans_are_listed_shown_and_checked(tmp_path: Path) -> None:
    listed = cellblock("plans", "list").stdout
    assert [line.split()[0] for line in listed.splitlines()[2:] if line.strip()] == [
        "freemium",
        "casual",
        "premium",
        "platformium",
    ]
    shown = json.loads(cellblock("plans", "show", "casual", "--json").stdout)
    assert (shown["parallel"], shown["cost_per_run_micros"]) == (2, 20_000)
    assert json.loads(cellblock("plans", "list", "--json").stdout)["plans"]["casual"] == shown
    wrong = tmp_path / "plans.toml"
    wrong.write_text("[plans.small]\nparallel = 0\n")
    done = cellblock("plans", "check", str(wrong))
    assert done.returncode == 2
    assert f"cellblock: {wrong}: plans.small.parallel: " in done.stderr


def test_a_plan_beyond_what_the_fleet_runs_is_named_when_it_is_checked() -> None:
    done = cellblock("plans", "check", str(SHIPPED), CELLBLOCK_SANDBOX_TIMEOUT_MAX_S="50")
    assert done.returncode == 0
    assert "casual: timeout_s 120 is above what this fleet runs: 50 (CELLBLOCK_SANDBOX_TIMEOUT_MAX_S)" in (
        done.stderr
    )
    assert cellblock("plans", "check", str(SHIPPED)).stderr == ""
    done = cellblock("plans", "check", str(SHIPPED), CELLBLOCK_SANDBOX_CPUS_MIN="0.9")
    assert "freemium: cpus 0.2 is below what this fleet runs: 0.9 (CELLBLOCK_SANDBOX_CPUS_MIN)" in done.stderr
    done = cellblock("plans", "check", str(SHIPPED), CELLBLOCK_LEDGER_ARTIFACTS_BYTES=str(64 * 1024**2))
    says = "freemium: bytes_held 33554432 (32M) is below the longest result that a job can have: "
    assert says in done.stderr


def test_what_holds_for_a_tenant_is_shown(tmp_path: Path, redis_url: str) -> None:
    book = tmp_path / "plans.toml"
    book.write_text(SHIPPED.read_text() + 'acme = { plan = "casual", stake = 0 }\n')
    where = {"CELLBLOCK_REDIS_URL": redis_url, "CELLBLOCK_PLANS_FILE": str(book)}
    assert (
        json.loads(cellblock("plans", "show", "--tenant", "acme", "--json", **where).stdout)["parallel"] == 2
    )
    assert cellblock("plans", "set", "parallel", "1", "--tenant", "acme", **where).returncode == 0
    shown = cellblock("plans", "show", "--tenant", "acme", **where).stdout.splitlines()
    assert shown[0] == "acme: plan 'casual' under governance"
    assert shown[1].split() == ["parallel", "1"]
    done = cellblock("plans", "show", "--tenant", "nobody", **where)
    assert done.returncode == 2
    assert "'nobody' is on no plan" in done.stderr
    assert cellblock("plans", "show", "premium", "--tenant", "acme", **where).returncode == 3
    assert cellblock("plans", "show").returncode == 2
    assert cellblock("plans", "show", "casual", "--role", "guest").returncode == 2


def test_where_a_job_is_says_its_plan_and_its_money(settings: Settings, redis_url: str) -> None:
    with Client(settings=settings) as client:
        job = client.submit(JobSpec(code="1", plan="casual", limits=Limits(timeout_s=1)))
        plain = client.submit(JobSpec(code="1", tenant="other"))
    found = json.loads(cellblock("status", job.id, "--json", CELLBLOCK_REDIS_URL=redis_url).stdout)
    assert (found["plan"], found["cost_micros"]) == ("casual", None)
    assert found["reserved_micros"] > 0
    found = json.loads(cellblock("status", plain.id, "--json", CELLBLOCK_REDIS_URL=redis_url).stdout)
    assert (found["plan"], found["reserved_micros"]) == (None, None)


def test_an_estimate_runs_nothing_and_needs_no_redis() -> None:
    found = json.loads(cellblock("run", "-", "--plan", "casual", "--estimate", "--json", stdin="1").stdout)
    assert 0 < found["least_micros"] < found["reserve_micros"] == found["worst_micros"] <= 20_000


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            ("--plan", "casual", "--timeout", "200"),
            "limits.timeout_s: 200 requested; plan 'casual' allows 60",
        ),
        (("--plan", "huge"), "plan: there is no plan 'huge'"),
        (("--plan", "casual", "--role", "king"), "role: there is no role 'king'"),
        (("--plan", "casual", "--max-cost", "0.000001"), "max_cost_micros"),
    ],
)
def test_what_a_plan_does_not_allow_exits_with_refused(options: tuple[str, ...], says: str) -> None:
    done = cellblock("run", "-", *options, stdin="1")
    assert done.returncode == 3
    assert says in done.stderr


def test_a_wrong_file_of_plans_keeps_nobody_from_asking_and_cancelling(
    tmp_path: Path, settings: Settings, redis_url: str
) -> None:
    with Client(settings=settings) as client:
        job = client.submit(JobSpec(code="1"))
    wrong = tmp_path / "plans.toml"
    wrong.write_text("[plans.small]\nparallel = 0\n")
    where = {"CELLBLOCK_REDIS_URL": redis_url, "CELLBLOCK_PLANS_FILE": str(wrong)}
    for command in (("status", job.id), ("api-key", "list"), ("usage",), ("cancel", job.id)):
        done = cellblock(*command, **where)
        assert done.returncode == 0, done.stderr
    done = cellblock("submit", "-", stdin="1", **where)
    assert (done.returncode, done.stdout) == (4, "")
    assert "plans.small.parallel" in done.stderr


def test_an_estimate_on_a_fleet_is_under_its_governance(redis_url: str) -> None:
    where = {"CELLBLOCK_REDIS_URL": redis_url}
    assert cellblock("plans", "set", "timeout_s", "9", "--tenant", "acme", **where).returncode == 0
    asked = ("run", "-", "--plan", "casual", "--tenant", "acme", "--timeout", "15", "--estimate")
    done = cellblock(*asked, stdin="1", **where)
    assert done.returncode == 3
    assert "15 requested; plan 'casual' under governance allows 9" in done.stderr


def test_an_embedded_run_with_a_plan_has_its_price() -> None:
    done = cellblock("run", "-", "--plan", "casual", "--json", stdin="print(1)", **NAMESPACES)
    assert 100 <= json.loads(done.stdout)["cost_micros"] < 1000


def test_usage_as_text_json_and_csv(settings: Settings, redis_url: str) -> None:
    now = datetime.now(UTC)
    today, yesterday = (when.date().isoformat() for when in (now, now - timedelta(days=1)))
    with Client(settings=settings) as client:
        job = client.submit(JobSpec(code="1", tenant="acme", plan="casual"))
        for tenant in ("acme", "other"):
            client.submit(JobSpec(code="1", tenant=tenant, plan="casual"))
        client._redis.hset(client._ledger.keys.account("acme"), "20000.runs", 9)  # long past its forty days
        held = claim(client._ledger, job.id)
        result = result_of(held, Outcome.OK).model_copy(update={"cost_micros": 150})
        client._ledger.finish(held, result, operation())
    done = cellblock("usage", "--tenant", "acme", "--format", "json", CELLBLOCK_REDIS_URL=redis_url)
    assert (
        cellblock("usage", "--tenant", "acme", "--json", CELLBLOCK_REDIS_URL=redis_url).stdout == done.stdout
    )
    (one,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert one == {
        "tenant": "acme",
        "day": today,
        "runs": 2,
        "spent_micros": 150,
        "reserved_micros": one["reserved_micros"],
    }
    assert one["reserved_micros"] > 150
    rows = cellblock(
        "usage", "--day", today, "--format", "csv", CELLBLOCK_REDIS_URL=redis_url
    ).stdout.splitlines()
    assert rows[0] == "tenant,day,runs,spent_micros,reserved_micros"
    assert [row.split(",")[0] for row in rows[1:]] == ["acme", "other"]
    for day, says, code in (
        ("2020-01-01", "set CELLBLOCK_ARCHIVE_URL", 4),
        (yesterday, "nothing was used", 0),
    ):
        asked = cellblock("usage", "--day", day, CELLBLOCK_REDIS_URL=redis_url)
        assert (says in asked.stdout + asked.stderr, asked.returncode) == (True, code)
    assert "0.000150" in cellblock("usage", CELLBLOCK_REDIS_URL=redis_url).stdout
