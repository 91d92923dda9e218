"""What operators type: dead letters and events, with JSON for scripts and an exit code that counts."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from cellblock import Client, JobSpec, Outcome
from cellblock.ledger import Claim, Keys, Ledger, connect
from cellblock_config import Settings
from cellblock_workers.webhooks.outbox import Item, Outbox
from ledger.kit import claim, expire_lease, operation, result_of, settings_of
from parts import CELLBLOCK, cellblock, wait_until


@pytest.fixture
def ledger(settings: Settings) -> Iterator[Ledger]:
    """The ledger of a fleet whose only worker is the test."""
    with Client(settings=settings) as client:
        yield client._ledger


def dead_letter(ledger: Ledger, settings: Settings) -> Claim:
    """Injected: a sandbox that broke on each attempt there was."""
    with Client(settings=settings) as client:
        job_id = client.submit(JobSpec(code="print(1)")).id
    ledger._store.settings = ledger._store.settings.model_copy(update={"fault_retries": 0})
    held = claim(ledger, job_id)
    ledger.finish(held, result_of(held, Outcome.SANDBOX_ERROR), operation())
    return held


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_dead_letters_for_scripts(ledger: Ledger, settings: Settings, redis_url: str) -> None:
    job_id = dead_letter(ledger, settings).job_id
    listed = cellblock("dead", "list", "--json", CELLBLOCK_REDIS_URL=redis_url)
    assert [one["job_id"] for one in lines(listed.stdout)] == [job_id]
    done = cellblock("dead", "retry", job_id, "nobody", "--json", CELLBLOCK_REDIS_URL=redis_url)
    assert done.returncode == 2
    assert lines(done.stdout) == [
        {"job_id": job_id, "done": True, "error": None},
        {
            "job_id": "nobody",
            "done": False,
            "error": "no job nobody: never accepted here, or its result has expired",
        },
    ]
    again = cellblock("dead", "drop", job_id, CELLBLOCK_REDIS_URL=redis_url)
    assert (again.returncode, again.stdout) == (2, "0 dropped\n")
    assert again.stderr == f"cellblock: job {job_id} is not a dead letter\n"


def test_a_group_reads_once_and_again_when_it_goes_back(
    ledger: Ledger, settings: Settings, redis_url: str
) -> None:
    job_id = dead_letter(ledger, settings).job_id
    read = ("events", "--group", "billing", "--json")
    kinds = ["agent.run.queued", "agent.run.started", "agent.run.failed"]
    for more, expected in ((), kinds), ((), []), (("--rewind",), kinds):
        done = cellblock(*read, *more, CELLBLOCK_REDIS_URL=redis_url)
        assert [one["type"] for one in lines(done.stdout) if one["job_id"] == job_id] == expected


def test_a_group_that_is_forgotten_holds_no_events(
    ledger: Ledger, settings: Settings, redis_url: str
) -> None:
    dead_letter(ledger, settings)
    cellblock("events", "--group", "billing", CELLBLOCK_REDIS_URL=redis_url)
    forget = ("events", "--group", "billing", "--forget")
    assert ledger.upkeep._stream.first_open("billing") is not None
    assert cellblock(*forget, CELLBLOCK_REDIS_URL=redis_url).returncode == 0
    assert ledger.upkeep._stream.first_open("billing") is None
    again = cellblock(*forget, CELLBLOCK_REDIS_URL=redis_url)
    assert (again.returncode, "there is no group 'billing'" in again.stderr) == (2, True)


def test_jobs_are_listed_from_a_time_with_its_zone_and_none_are_said_to_be_none(
    redis_url: str, tmp_path: Path
) -> None:
    stores = {"CELLBLOCK_REDIS_URL": redis_url, "CELLBLOCK_ARCHIVE_URL": f"sqlite:///{tmp_path}/jobs.db"}
    assert cellblock("archive", "upgrade", **stores).returncode == 0
    for since in ("2026-11-26", "2026-11-26T15:10", "2026-11-26T15:10:00+01:00"):
        done = cellblock("jobs", "list", "--since", since, **stores)
        assert (done.returncode, done.stdout, "no such jobs" in done.stderr) == (0, "", True), done.stderr
    detached = cellblock("archive", "detach", **stores)
    assert (detached.returncode, detached.stdout) == (0, "no archiver has ever run on this store\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("events", "--rewind"), "--rewind: only a group"),
        (("events", "--forget"), "--forget: only a group"),
        (("events", "--new"), "--new: prints nothing without --follow"),
        (("events", "--new", "--follow", "--after", "0"), "--new: and --after both say where to start"),
        (("events", "--group", "g", "--type", "failed"), "--type: would acknowledge events"),
        (("events", "--group", "g", "--forget", "--follow"), "--forget: removes the group"),
        (("events", "--group", "archive", "--forget"), "group: 'archive'"),
        (("events", "--after", "yesterday"), "after: 'yesterday' is not an event id"),
        (("events", "--group", "webhooks"), "group: 'webhooks' belongs to cellblock webhooks"),
        (("webhooks", "retry"), "name some, or give --all"),
        (("dead", "retry"), "name some, or give --all"),
        (("dead", "drop", "some", "--all"), "name some, or give --all"),
        (("dead", "show", "nobody"), "no job nobody"),
        (("status", ""), "no job '': never accepted here"),
        (("usage", "--tenant", "a b"), "tenant: 'a b' is not a tenant's name: letters"),
        (("api-key", "create", "--tenant", "a b"), "tenant: 'a b' is not a tenant's name: letters"),
    ],
)
def test_what_cannot_be_done_exits_with_usage(redis_url: str, arguments: tuple[str, ...], says: str) -> None:
    done = cellblock(*arguments, CELLBLOCK_REDIS_URL=redis_url)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_status_of_one_and_of_all(ledger: Ledger, settings: Settings, redis_url: str) -> None:
    job_id = dead_letter(ledger, settings).job_id
    with Client(settings=settings) as client:
        client.submit(JobSpec(code="1"))
    one = cellblock("status", job_id, "--json", CELLBLOCK_REDIS_URL=redis_url)
    assert [(one["state"], one["outcome"]) for one in lines(one.stdout)] == [("failed", "sandbox_error")]
    (every,) = lines(cellblock("status", "--json", CELLBLOCK_REDIS_URL=redis_url).stdout)
    counted = {"waiting": 1, "delayed": 0, "parked": {}, "running": 0, "dead": 1, "workers": 0}
    assert every == {**counted, "store_percent": None, "archive_behind_s": None, "archive_problem": None}
    text = cellblock("status", job_id, CELLBLOCK_REDIS_URL=redis_url).stdout
    assert "state             failed" in text
    assert "finished          20" in text
    assert "dead              1" in cellblock("status", CELLBLOCK_REDIS_URL=redis_url).stdout


def test_a_job_whose_worker_was_lost_is_not_called_one_that_did_not_run(
    ledger: Ledger, settings: Settings, redis_url: str
) -> None:
    with Client(settings=settings) as client, connect(settings) as redis:
        job_id = client.submit(JobSpec(code="1")).id
        claim(ledger, job_id)
        expire_lease(ledger, redis, job_id)
        with settings_of(ledger, loss_limit=1):
            assert [done.word for done in ledger.upkeep.reap()] == ["lost"]
    done = cellblock("result", job_id, CELLBLOCK_REDIS_URL=redis_url)
    assert done.returncode == 4
    assert "worker_lost: Every attempt lost its worker (no result of it)" in done.stderr
    assert f"cellblock dead show {job_id}" in done.stderr


def test_failed_deliveries_can_be_forgotten(redis_url: str, settings: Settings) -> None:
    with connect(settings) as redis:
        outbox = Outbox(redis, settings.redis.key_prefix, kept=10)
        outbox.put([Item("one", "r", "example.org", "1-0", "{}")])
        taken = outbox.take(hold_s=60)
        assert taken is not None
        outbox.failed(taken, "gone", again_s=None)
    done = cellblock("webhooks", "drop", "--all", CELLBLOCK_REDIS_URL=redis_url)
    assert (done.returncode, done.stdout) == (0, "1 dropped\n")
    again = cellblock("webhooks", "drop", "one", "--json", CELLBLOCK_REDIS_URL=redis_url)
    assert (again.returncode, lines(again.stdout)) == (2, [{"id": "one", "done": False}])


def test_a_store_of_another_version_stops_the_webhooks(redis_url: str, settings: Settings) -> None:
    with connect(settings) as redis:
        redis.set(Keys(settings.redis.key_prefix).schema, 99)
    hooks = {"CELLBLOCK_WEBHOOKS_URLS": '["https://x.org"]', "CELLBLOCK_WEBHOOKS_SECRET": "s" * 16}
    done = cellblock("webhooks", "run", CELLBLOCK_REDIS_URL=redis_url, **hooks)
    assert done.returncode == 4
    assert done.stderr.count("schema 99") == 1
    check = cellblock("worker", "--check", CELLBLOCK_REDIS_URL=redis_url)
    assert check.returncode == 4


def test_the_check_of_a_worker_says_what_it_may_have_to_hold(redis_url: str) -> None:
    asked = {"CELLBLOCK_REDIS_URL": redis_url}
    memory = json.loads(cellblock("worker", "--check", "--json", **asked).stdout)["memory"]
    assert memory["need_bytes"] > 2**27
    assert memory["available_bytes"] > 0
    assert "memory: " in cellblock("worker", "--check", **asked).stdout
    large = cellblock("worker", "--check", "--json", **asked, CELLBLOCK_EGRESS_FILTER_MEMORY_BYTES=str(2**40))
    told = json.loads(large.stdout)["memory"]["shortage"]
    assert "raise that, or lower worker.concurrency" in told
    off = cellblock("worker", "--check", "--json", **asked, CELLBLOCK_WORKER_MEMORY_CHECK="off")
    assert json.loads(off.stdout)["memory"] is None


def test_help_shows_an_example_of_each(tmp_path: Path) -> None:
    for command in (("dead", "list"), ("dead", "retry"), ("dead", "drop"), ("dead", "show"), ("events",)):
        assert f"Example: cellblock {' '.join(command)}" in cellblock(*command, "--help").stdout


@pytest.mark.parametrize(
    "command",
    [
        "status",
        "status nobody",
        "result nobody",
        "events",
        "usage",
        "dead list",
        "dead show nobody",
        "plans audit",
        "api-key list",
        "webhooks dead",
        "archive detach",
    ],
)
def test_command_on_a_store_of_another_schema_says_so_and_fails(
    redis: Redis, redis_url: str, command: str
) -> None:
    redis.set("{cellblock}:schema", "4")
    done = cellblock(*command.split(), CELLBLOCK_REDIS_URL=redis_url)
    assert (done.returncode, done.stdout) == (4, ""), done.stderr
    assert "cellblock: the store holds schema 4 under {cellblock}" in done.stderr


HAS_TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}"


def test_events_have_a_header_a_time_with_its_zone_and_a_filter_by_type(
    client: Client, ledger: Ledger, redis_url: str
) -> None:
    first, second = client.submit(JobSpec(code="1")), client.submit(JobSpec(code="2"))
    client.cancel(second.id)
    shown = cellblock("events", CELLBLOCK_REDIS_URL=redis_url).stdout.splitlines()
    assert shown[0].split() == ["time", "id", "type", "job", "outcome"]
    assert re.fullmatch(rf"{HAS_TIME}  \S+ +agent.run.queued +{first.id} +", shown[1])
    chosen = ("events", "--type", "cancelled", "--type", "failed", "--json")
    (line,) = cellblock(*chosen, CELLBLOCK_REDIS_URL=redis_url).stdout.splitlines()
    assert (json.loads(line)["type"], json.loads(line)["job_id"]) == ("agent.run.cancelled", second.id)


def test_events_from_now_on_replay_nothing(client: Client, redis_url: str) -> None:
    old = client.submit(JobSpec(code="1"))
    with subprocess.Popen(
        [CELLBLOCK, "events", "--follow", "--new"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "CELLBLOCK_REDIS_URL": redis_url},
    ) as process:
        assert process.stdout is not None
        shown: list[str] = []
        reader = threading.Thread(target=lambda: shown.extend(process.stdout or ()))
        reader.start()

        def printed() -> bool:
            client.submit(JobSpec(code="2"))  # it is not known when the command has looked
            return len(shown) > 2

        wait_until(printed, 30, "an event of a new job")
        process.send_signal(signal.SIGINT)
        reader.join(30)
    assert not any(old.id in line for line in shown)


def test_listings_have_a_header_line_and_times_have_a_zone(client: Client, redis_url: str) -> None:
    client.api_keys.create("acme")
    client.governance.set("acme", "timeout_s", "9", "me")
    for command in (("api-key", "list"), ("plans", "audit")):
        header, line = cellblock(*command, CELLBLOCK_REDIS_URL=redis_url).stdout.splitlines()
        assert "tenant" in header
        assert re.search(HAS_TIME, line)


@pytest.mark.parametrize("command", [("api-key", "create"), ("plans", "set", "timeout_s", "9")])
def test_tenant_that_no_job_ever_named_is_warned_of(
    client: Client, redis_url: str, command: tuple[str, ...]
) -> None:
    client.submit(JobSpec(code="1", tenant="acme"))
    fleet = {"CELLBLOCK_REDIS_URL": redis_url, "CELLBLOCK_PLANS_DEFAULT": "casual"}
    mistyped = cellblock(*command, "--tenant", "acne", **fleet)
    assert mistyped.returncode == 0
    assert "the store knows no job of tenant 'acne'" in mistyped.stderr
    assert cellblock(*command, "--tenant", "acme", **fleet).stderr == ""
    without = cellblock(*command, "--tenant", "acme", CELLBLOCK_REDIS_URL=redis_url)
    assert "tenant 'acme' is on no plan: its jobs have no limits but the operator's, and no cost" in (
        without.stderr
    )
