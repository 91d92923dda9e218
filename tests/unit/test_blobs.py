"""The blob store: what is put there comes back as it was, or not at all; what nobody names is removed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from cellblock import BlobLost, BlobsUnavailable, NotConfigured
from cellblock.admission.resolve import BlobRef
from cellblock.blobs import ObjectBlobs, check_blobs, open_blobs
from cellblock_config import load_settings
from cellblock_config.blobs import BlobSettings
from cellblock_config.settings import SettingsError

HOUR_S = 3600
NAMED = f"{8 * '0'}/{7 * 'a'}{64 * '0'}"


def blobs_at(url: str, **settings: object) -> ObjectBlobs:
    opened = open_blobs(BlobSettings.model_validate({"url": url, **settings}))
    assert isinstance(opened, ObjectBlobs)
    return opened


def put(blobs: ObjectBlobs, data: bytes, owner: str = "job") -> str:
    """Puts these bytes there, and returns their name."""
    name = blobs.name_of(data, owner)
    blobs.put(data, name)
    return name


@pytest.fixture
def blobs(tmp_path: Path) -> ObjectBlobs:
    return blobs_at(f"file://{tmp_path}/blobs")


def test_what_was_put_comes_back(blobs: ObjectBlobs) -> None:
    data = b"x" * 100_000
    name = put(blobs, data)
    assert name.endswith(hashlib.sha256(data).hexdigest())
    assert put(blobs, data) == name, "put again, it is the same blob"
    assert put(blobs, data, "another") != name, "each owner has its own, to remove it alone"
    assert blobs.get(name, len(data)) == data
    check_blobs(blobs)


@pytest.mark.parametrize("change", [b"y" * 5, b"longer than it was", b""])
def test_what_was_altered_is_lost_and_named(tmp_path: Path, change: bytes) -> None:
    blobs = blobs_at(f"file://{tmp_path}")
    name = put(blobs, b"honey")
    (tmp_path / name).write_bytes(change)
    with pytest.raises(BlobLost, match=hashlib.sha256(b"honey").hexdigest()):
        blobs.get(name, 5)


@pytest.mark.parametrize(
    "name",
    ["", "../../etc/passwd", NAMED.replace("a0", "ag"), f"{NAMED}/x", NAMED[8:], f"{8 * '0'}/{64 * '0'}"],
)
def test_a_name_that_is_none_reads_nothing(blobs: ObjectBlobs, name: str) -> None:
    with pytest.raises(BlobLost):
        blobs.get(name, 5)


def test_a_blob_that_is_missing_is_named(blobs: ObjectBlobs) -> None:
    with pytest.raises(BlobLost, match=rf"blob {64 * '0'}.*not in the blob store"):
        blobs.get(NAMED, 5)


def test_what_is_removed_is_gone_also_beside_what_was_never_there(blobs: ObjectBlobs) -> None:
    names = [put(blobs, b"one"), NAMED, put(blobs, b"two")]
    blobs.remove(names)
    blobs.remove(names)
    for name in names:
        with pytest.raises(BlobLost):
            blobs.get(name, 3)


def test_nobody_writes_where_the_sweep_removes(tmp_path: Path) -> None:
    """Injected: the clock."""
    now = [10_000_000.0]
    store = blobs_at(f"file://{tmp_path}")._store
    blobs = ObjectBlobs(store, BlobSettings(), now=lambda: now[0])
    first = put(blobs, b"bytes")
    assert list(blobs.old()) == []
    now[0] += 6 * HOUR_S
    assert list(blobs.old()) == [], "somebody may have put it a moment ago, with a slow clock"
    now[0] += 6 * HOUR_S
    second = put(blobs, b"bytes")
    assert second != first
    assert list(blobs.old()) == [[first]]
    blobs.remove([first])
    assert blobs.get(second, 5) == b"bytes"
    assert list(blobs.old()) == []
    assert not blobs.expired(first)
    now[0] += 36 * 24 * HOUR_S
    assert blobs.expired(first)


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    blobs = blobs_at(f"file://{tmp_path}")
    for path in ("somebodys.txt", "00000001/notes.txt", "old/" + "0" * 64):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("theirs")
    assert [name for page in blobs.old() for name in page] == []


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://example.org/x", "must start with"),
        ("s3:///nobucket", "names no bucket"),
        ("file://relative/path", "names no folder"),
        ("s3://key:hunter2@bucket", "has a login in it"),
        ("az://account", "names no container"),
    ],
)
def test_a_wrong_address_is_named_and_not_shown(url: str, says: str) -> None:
    with pytest.raises(SettingsError, match=says) as refused:
        load_settings(blobs={"url": url})
    assert "CELLBLOCK_BLOBS_URL" in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("folder", ["file", "missing/blobs"])
def test_a_folder_that_cannot_be_used_is_named_with_the_cause(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").write_text("no folder")
    why = {"file": "File exists", "missing/blobs": "No such file or directory"}[folder]
    with pytest.raises(NotConfigured, match=f"CELLBLOCK_BLOBS_URL: {tmp_path}/{folder}: {why}"):
        open_blobs(BlobSettings.model_validate({"url": f"file://{tmp_path}/{folder}"}))
    assert not (tmp_path / "missing").exists(), "a wrong address makes no folders"


def test_a_store_that_is_away_says_so_without_its_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    blobs = blobs_at("s3://bucket/prefix", timeout_s=1)
    with pytest.raises(BlobsUnavailable, match="CELLBLOCK_BLOBS_URL") as away:
        put(blobs, b"x")
    assert "hunter2" not in json.dumps([str(away.value), repr(away.value.__cause__)])


@pytest.mark.parametrize(
    "group", [{"ledger": {"result_ttl_s": 40 * 86_400}}, {"ledger": {"job_ttl_s": 35 * 86_400}}]
)
def test_blobs_that_would_be_removed_before_their_jobs_are_refused(group: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=r"blobs.ttl_s .* must exceed ledger.\w+_ttl_s"):
        load_settings(blobs={"url": "s3://bucket"}, **group)
    load_settings(**group)


@pytest.mark.parametrize("name", [f"x{NAMED}", f"{NAMED}x", f"{NAMED}\n", f"../{NAMED}", f"{NAMED}\n{NAMED}"])
def test_reference_is_a_whole_name_and_nothing_around_it(name: str) -> None:
    assert BlobRef(name=NAMED, size_bytes=1)
    with pytest.raises(ValidationError):
        BlobRef(name=name, size_bytes=1)


def test_folder_of_a_fleet_that_has_ended_is_refused_with_the_remedy(tmp_path: Path) -> None:
    gone = tmp_path / "cellblock-host-gone"
    with pytest.raises(NotConfigured) as caught:
        blobs_at(f"file://{gone}/blobs")
    assert f"{gone} is missing too" in str(caught.value)
    assert "that fleet has ended: unset CELLBLOCK_BLOBS_URL" in str(caught.value)
