"""No two sandboxes alive share a user id, whichever launchers of a host made them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from cellblock_config import SettingsError, load_settings
from cellblock_config.launcher import USER_IDS, USER_IDS_EACH
from cellblock_workers.launcher.backend import StartFailed
from cellblock_workers.launcher.docker.backend import DockerBackend
from cellblock_workers.launcher.namespaces.backend import NamespacesBackend
from cellblock_workers.launcher.oci.backend import OciBackend
from cellblock_workers.launcher.ownership import Ownership
from cellblock_workers.launcher.user_ids import BLOCK_IDS, IdBlock, IdRange, UserIds, id_ranges

IDS = IdRange("test", 1000, 3 * BLOCK_IDS)
BLOCKS = {1000, 1000 + BLOCK_IDS, 1000 + 2 * BLOCK_IDS}
_HOLDS = """
import sys
from pathlib import Path
from cellblock_workers.launcher.user_ids import BLOCK_IDS, IdBlock, IdRange
held = IdBlock(Path(sys.argv[1]), IdRange("test", 1000, 3 * BLOCK_IDS))
print(held.first, flush=True)
sys.stdin.read()
"""


@contextmanager
def another_launcher(folder: Path) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """A process that holds a block: the first id of it, and the process."""
    command = [sys.executable, "-c", _HOLDS, str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin
    assert process.stdout
    try:
        yield int(process.stdout.readline()), process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def test_launchers_side_by_side_have_a_block_each_and_one_too_many_is_told(tmp_path: Path) -> None:
    with another_launcher(tmp_path) as (first, _), another_launcher(tmp_path) as (second, _):
        third = IdBlock(tmp_path, IDS)
        assert {first, second, third.first} == BLOCKS
        with pytest.raises(StartFailed, match=r"all 3 blocks of user ids in .* are taken"):
            IdBlock(tmp_path, IDS)


def test_the_block_of_a_killed_launcher_is_free_again(tmp_path: Path) -> None:
    held = [IdBlock(tmp_path, IDS) for _ in range(2)]
    with another_launcher(tmp_path) as (first, process):
        process.kill()
        process.wait()
        assert IdBlock(tmp_path, IDS).first == first
    assert len(held) == 2


def test_a_sandbox_keeps_its_id_to_itself_while_it_is_alive(tmp_path: Path) -> None:
    ids = UserIds(tmp_path, IdRange("test", 1000, BLOCK_IDS))
    every_id = set(range(1000, 1000 + BLOCK_IDS))
    long_lived = ids.take("long-lived")
    for number in range(3000):  # once around and more
        name = f"short-lived {number}"
        assert ids.take(name) != long_lived
        ids.give_back(name)
    assert {ids.take(str(number)) for number in range(BLOCK_IDS - 1)} == every_id - {long_lived}
    with pytest.raises(StartFailed, match=f"all {BLOCK_IDS} user ids"):
        ids.take("one too many")
    ids.give_back("7")
    ids.take("one too many")


def test_without_a_folder_chance_keeps_launchers_apart_and_the_setting_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with capture_logs() as logged:
        found = {IdBlock(tmp_path / "file" / "ids", IdRange("test", 0, 10**6)).first for _ in range(5)}
    assert len(found) > 1
    assert "CELLBLOCK_LAUNCHER_STATE" in logged[0]["remedy"]


@pytest.mark.parametrize("made_by", [OciBackend, DockerBackend])
def test_two_launchers_of_one_host_hand_out_other_ids(
    tmp_path: Path, made_by: type[OciBackend] | type[DockerBackend]
) -> None:
    settings = load_settings(launcher={"state": tmp_path})
    backends = [made_by("runc", settings, Ownership(name)) for name in ("one", "two")]
    taken = [{backend._uids.take(str(number)) for number in range(100)} for backend in backends]
    assert not taken[0] & taken[1]


def test_launchers_of_different_sizes_share_no_id(tmp_path: Path) -> None:
    ranges = []
    for number in range(12):  # as many as fit, so that chance alone cannot keep them apart
        launcher = {"state": tmp_path, "sandboxes_max": 1024 if number % 2 else 8, "warm_total": 8}
        backend = NamespacesBackend(load_settings(launcher=launcher), Ownership(str(number)))
        places = backend._seats
        ranges.append((backend, {one for place in range(places.count) for one in places.ids(place)}))
    handed_out = [one for _, ids in ranges for one in ids]
    assert len(handed_out) == len(set(handed_out))
    assert max(handed_out) < USER_IDS_EACH


@pytest.mark.parametrize("made_by", [DockerBackend, OciBackend])
def test_the_operator_says_where_the_ids_begin(
    tmp_path: Path, made_by: type[DockerBackend] | type[OciBackend]
) -> None:
    settings = load_settings(launcher={"state": tmp_path, "first_user_id": 5_000_000})
    taken = made_by("runc", settings, Ownership("one"))._uids.take("a")
    assert 5_000_000 <= taken < 5_000_000 + USER_IDS


@pytest.mark.parametrize("first", [100_000, 200_000, 2**32 - 1 - USER_IDS])
def test_every_way_has_ids_of_its_own(first: int) -> None:
    settings = load_settings(launcher={"first_user_id": first})
    ranges = id_ranges(settings.launcher.first_user_id).values()
    ids = [one for each in ranges for one in (each.first, each.first + each.count - 1)]
    assert ids == sorted(ids)
    assert first == ids[0]
    assert max(ids) < 2**32 - 1


@pytest.mark.parametrize("first", [-1, 0, 65_534, 99_999, 240_000, 299_999, 2**32 - USER_IDS, "x"])
def test_ids_of_accounts_and_ids_that_are_none_are_refused(first: object) -> None:
    with pytest.raises(SettingsError, match="first_user_id"):
        load_settings(launcher={"first_user_id": first})
