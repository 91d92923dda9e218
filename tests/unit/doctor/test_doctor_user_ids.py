"""`cellblock doctor` names who else has the user ids of sandboxes."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from cellblock_config import load_settings
from cellblock_workers.doctor.user_ids import user_ids_check
from cellblock_workers.launcher.user_ids import IdRange, id_ranges

RANGES = (IdRange("docker", 200_000, 60_000), IdRange("oci", 400_000, 60_000))


@pytest.mark.parametrize(
    ("subuid", "passwd", "said"),
    [
        (
            "ann:100000:65536\nbob:165536:65536\n",
            "",
            ["/etc/subuid gives bob 165536-231071, which docker uses"],
        ),
        ("eve:0:4294967295\n", "", ["eve 0-4294967294, which docker", "eve 0-4294967294, which oci"]),
        ("ann:259999:1\nbob:460000:65536\nbad\n:x:\n", "", ["ann 259999-259999"]),
        ("", "ldap:x:400123:100::/home/l:/bin/sh\n", ["the account ldap has the id 400123, which oci uses"]),
        ("ann:100000:100000\nbob:260000:140000\n", "root:x:0:0::/root:/bin/sh\n", []),
    ],
)
def test_whoever_has_a_sandboxs_id_is_named(
    tmp_path: Path, subuid: str, passwd: str, said: list[str]
) -> None:
    (tmp_path / "subuid").write_text(subuid)
    (tmp_path / "passwd").write_text(passwd)
    check = user_ids_check(RANGES, tmp_path)
    assert (check.status, bool(check.remedy)) == (("warning", True) if said else ("ok", False))
    assert all(one in check.value for one in said), check.value


def test_a_host_without_such_files_gives_nothing_away(tmp_path: Path) -> None:
    assert user_ids_check(RANGES, tmp_path).status == "ok"


def test_many_are_counted(tmp_path: Path) -> None:
    (tmp_path / "subuid").write_text("".join(f"u{n}:{200_000 + n}:1\n" for n in range(50)))
    assert user_ids_check(RANGES, tmp_path).value.endswith("and 47 more")


def test_the_doctor_asks_for_every_range_in_use() -> None:
    ranges = list(id_ranges(load_settings().launcher.first_user_id).values())
    assert {one.name for one in ranges} == {"docker", "namespaces", "oci"}
    starts = sorted((one.first, one.first + one.count) for one in ranges)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(starts))
