"""Results that are longer than what their tenant may hold: cut at their end, and not lost a second later."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cellblock.admission.gates import Gates
from cellblock.blobs import open_blobs
from cellblock.ledger import Claim, Ledger, connect
from cellblock.ledger.crowded_tenants import ResultTooLong
from cellblock_config import load_settings
from ledger.kit import OPEN, lead, manifest, operation, result_of
from ledger.test_full_store import here

pytestmark = pytest.mark.no_rerun

LIMIT_BYTES = 1_000_000
HELD = replace(OPEN, plan="held", bytes_held=LIMIT_BYTES, result_ttl_s=86_400)
STORED = replace(OPEN, plan="stored", bytes_stored=LIMIT_BYTES, result_ttl_s=86_400)


@pytest.fixture
def ledger(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    monkeypatch.setattr("cellblock.ledger.crowded_tenants._TENANT_WORK_S", 5.0)  # on a busy host too
    settings = load_settings(
        redis={"url": redis_url}, ledger={"fault_retries": 0}, blobs={"url": f"file://{tmp_path}/blobs"}
    )
    with connect(settings) as redis:
        yield Ledger(redis, settings, blobs=open_blobs(settings.blobs))


def blobs_in(folder: Path) -> list[Path]:
    return [path for path in (folder / "blobs").rglob("*") if path.is_file() and path.name != "owner"]


def text(percent: float) -> str:
    return "x" * round(LIMIT_BYTES * percent / 100)


def running(ledger: Ledger, name: str, percent: float = 0.0, gates: Gates = HELD) -> Claim:
    """A job whose program takes this part of its tenant's limit."""
    ledger.admissions.admit(name, manifest(code=f"#{text(percent)}"), gates=gates)
    held = ledger.claims.claim_next(message=name, worker="w", operation=operation())
    assert isinstance(held, Claim)
    return held


def end(ledger: Ledger, held: Claim, percent: float, long_bytes: int | None = None) -> str:
    """The word for a result that takes this part of the limit."""
    ended = result_of(held, stdout=text(percent))
    try:
        return str(ledger.finish(held, ended, operation(), long_bytes=long_bytes).word)
    except ResultTooLong as error:
        return f"beyond {error.limit}"


def test_result_longer_than_its_tenant_may_hold_is_refused_and_takes_no_others_place(ledger: Ledger) -> None:
    assert end(ledger, running(ledger, "before"), 50) == "finished"
    assert end(ledger, running(ledger, "next"), 110) == "beyond bytes_held"
    ledger.retention.make_room(lead(ledger))
    assert here(ledger, ["before"]) == ["before"]
    assert ledger.reads.status("next").state == "running"


def test_result_longer_than_its_tenant_may_store_is_refused_and_puts_no_blob(
    ledger: Ledger, tmp_path: Path
) -> None:
    held = running(ledger, "job", gates=STORED)
    assert end(ledger, held, 110, long_bytes=1024) == "beyond bytes_stored"
    assert blobs_in(tmp_path) == []
    assert end(ledger, held, 90, long_bytes=1024) == "finished"
    ledger.retention.make_room(lead(ledger))
    assert here(ledger, ["job"]) == ["job"]


def test_result_longer_than_the_archive_takes_is_refused_without_a_blob_store(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected: an archive."""
    held = running(ledger, "job", gates=STORED)
    monkeypatch.setattr(ledger.archiving, "is_known", lambda: True)
    assert end(ledger, held, 110) == "beyond bytes_stored"
    monkeypatch.setattr(ledger.archiving, "is_known", lambda: False)
    assert end(ledger, held, 110) == "finished"


def test_result_waits_while_jobs_of_its_tenant_that_wait_leave_it_no_room(ledger: Ledger) -> None:
    held = running(ledger, "job")
    ledger.admissions.admit("waits", manifest(code=f"#{text(60)}"), gates=HELD)
    assert end(ledger, held, 50) == "no room"
    ledger.cancel("waits")
    assert end(ledger, held, 50) == "finished"
    ledger.retention.make_room(lead(ledger))
    assert here(ledger, ["job"]) == ["job"]


def test_payload_of_a_job_makes_room_for_its_result(ledger: Ledger) -> None:
    assert end(ledger, running(ledger, "before"), 10) == "finished"
    assert end(ledger, running(ledger, "job", 60), 80) == "finished"
    ledger.retention.make_room(lead(ledger))
    assert here(ledger, ["before", "job"]) == ["before", "job"]


def test_results_that_came_back_together_drive_out_no_more_than_is_beyond(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected: each was offered while there was room for it alone."""
    names = [f"job{number}" for number in range(6)]
    for name in names:
        assert end(ledger, running(ledger, name), 10) == "finished"
    pair = [running(ledger, name) for name in ("one", "two")]
    monkeypatch.setattr(ledger.retention.crowded_tenants, "has_room", lambda *_: True)
    assert [end(ledger, held, 25) for held in pair] == ["finished", "finished"]
    ledger.retention.make_room(lead(ledger))
    assert here(ledger, [*names, "one", "two"]) == [*names[2:], "one", "two"]
