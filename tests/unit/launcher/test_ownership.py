"""Records of what was made, and those nobody can read."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock_workers.launcher.backend import StartFailed
from cellblock_workers.launcher.ownership import Ownership, Records

FIRST, LAST = "a" * 16, "f" * 16


def cleared(folder: Path, owner: str) -> list[str]:
    """What a launcher that starts now would remove."""
    names: list[str] = []
    count = Records(folder, Ownership(owner)).clear(lambda name, _: names.append(name))
    assert count == len(names)
    return names


@pytest.mark.parametrize("failure", [StartFailed("it did not die"), OSError("busy")])
def test_a_sandbox_that_will_not_go_keeps_no_other_from_being_swept(
    tmp_path: Path, failure: Exception
) -> None:
    earlier = Records(tmp_path, Ownership("same"))
    for name in (FIRST, "probe-" + FIRST, LAST):
        earlier.write(name, runtime="runc")

    def remove(name: str, _: dict[str, str]) -> None:
        if name == FIRST:
            raise failure

    assert Records(tmp_path, Ownership("same")).clear(remove) == 2
    assert cleared(tmp_path, "same") == [FIRST], "it is tried again"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"labels": {}}', '{"labels": 7, "details": {}}', "\0"])
def test_a_record_that_cannot_be_read_keeps_no_other_from_being_swept(tmp_path: Path, content: str) -> None:
    earlier = Records(tmp_path, Ownership("same"))
    earlier.write(FIRST, runtime="runc")
    (tmp_path / f"{'0' * 16}.json").write_text(content)
    earlier.write(LAST, runtime="runc")
    assert {FIRST, LAST} <= set(cleared(tmp_path, "same"))


def test_a_process_may_have_any_bytes_as_its_name(tmp_path: Path) -> None:
    original = Path("/proc/self/comm").read_bytes()
    Path("/proc/self/comm").write_bytes(b"\xff) R 1")
    try:
        Records(tmp_path, Ownership("me")).write(FIRST)
        assert not cleared(tmp_path, "other"), "its owner lives"
    finally:
        Path("/proc/self/comm").write_bytes(original)
