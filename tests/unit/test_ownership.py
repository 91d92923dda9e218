"""Records of what was made, and those nobody can read."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock_workers.launcher.ownership import Ownership, Records


@pytest.mark.parametrize("content", ["", "{", "[]", '{"labels": {}}', '{"labels": 7, "details": {}}', "\0"])
def test_a_record_that_cannot_be_read_keeps_no_other_from_being_swept(tmp_path: Path, content: str) -> None:
    earlier = Records(tmp_path, Ownership("same"))
    earlier.write("aa", runtime="runc")
    (tmp_path / "00.json").write_text(content)
    earlier.write("zz", runtime="runc")
    now = Records(tmp_path, Ownership("same"))
    assert [name for name, _ in now.orphans() if name != "00"] == ["aa", "zz"]


def test_a_process_may_have_any_bytes_as_its_name(tmp_path: Path) -> None:
    original = Path("/proc/self/comm").read_bytes()
    Path("/proc/self/comm").write_bytes(b"\xff) R 1")
    try:
        Records(tmp_path, Ownership("me")).write("aa")
        assert not list(Records(tmp_path, Ownership("other")).orphans()), "its owner lives"
    finally:
        Path("/proc/self/comm").write_bytes(original)
