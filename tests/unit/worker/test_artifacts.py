"""Artifacts: what is collected, how the host reads it, and where it may be written."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellblock import Artifact, InvalidJob, SkippedArtifact
from cellblock.cli.save_artifacts import prepare, save
from cellblock_config import LedgerSettings
from cellblock_workers.guest.artifacts import Collector, Globs
from cellblock_workers.guest.messages import ArtifactBounds
from cellblock_workers.worker.artifacts import ArtifactReader
from cellblock_workers.worker.frames import ProtocolViolation

BOUNDS = LedgerSettings(artifacts_count=3, artifact_bytes=100, artifacts_bytes=250)
Found = tuple[dict[str, bytes], dict[str, str]]


def matches(glob: str, path: str) -> bool:
    globs = Globs([glob])
    state = globs.start()
    for part in path.split("/"):
        state = globs.step(state, part)
    return globs.matches(state)


@pytest.mark.parametrize(
    ("glob", "yes", "no"),
    [
        ("a.txt", ["a.txt"], ["b.txt", "d/a.txt", "a.txt.x"]),
        ("*.txt", ["a.txt", ".txt"], ["d/a.txt", "a.txt2"]),
        ("d/*", ["d/a"], ["d/e/a", "a", "e/a"]),
        ("**/*.txt", ["a.txt", "d/a.txt", "d/e/f/a.txt"], ["a.csv", "d/a.csv"]),
        ("d/**", ["d", "d/a", "d/e/a"], ["e/a"]),
        ("d/**/x", ["d/x", "d/e/x", "d/e/f/x"], ["x", "d/e/y"]),
        ("[ab]?c", ["a1c", "bbc"], ["c1c", "ac"]),
        ("**/**/**", ["a", "a/b/c/d"], []),
        ("a\nb", ["a\nb"], ["a"]),
    ],
)
def test_a_glob_means_one_thing(glob: str, yes: list[str], no: list[str]) -> None:
    assert [path for path in yes if not matches(glob, path)] == []
    assert [path for path in no if matches(glob, path)] == []


def collected(folder: Path, *globs: str, bounds: LedgerSettings = BOUNDS) -> Found:
    """What the collector finds in a folder, read by the host's reader through a pipe of any cut."""
    ours, theirs = os.pipe()
    asked = ArtifactBounds(
        globs=globs,
        files_max=bounds.artifacts_count,
        each_bytes=bounds.artifact_bytes,
        all_bytes=bounds.artifacts_bytes,
        time_s=10,
    )
    child = os.fork()
    if child == 0:
        os.close(ours)
        status = 1
        try:
            Collector(asked, theirs).collect(str(folder))
            status = 0
        finally:
            os._exit(status)
    os.close(theirs)
    reader = ArtifactReader(bounds)
    while piece := os.read(ours, 37):
        reader.feed(piece)
    os.close(ours)
    assert os.waitpid(child, 0)[1] == 0
    files, skipped = reader.close(whole=True)
    return {file.path: file.data for file in files}, {one.path: one.reason for one in skipped}


def test_regular_files_that_match_are_collected_with_all_their_bytes(tmp_path: Path) -> None:
    (tmp_path / "d/e").mkdir(parents=True)
    (tmp_path / "a.bin").write_bytes(bytes(range(100)))
    (tmp_path / "d/e/é.bin").write_bytes(b"")
    (tmp_path / "d/other").write_bytes(b"x")
    files, skipped = collected(tmp_path, "**/*.bin")
    assert files == {"a.bin": bytes(range(100)), "d/e/é.bin": b""}
    assert skipped == {}


def test_what_is_no_regular_file_is_named_and_never_opened(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link").symlink_to(outside / "secret")
    (inside / "folder").symlink_to(outside)
    os.mkfifo(inside / "pipe")
    os.mknod(inside / "door", 0o140644)
    os.link(outside / "secret", inside / "hard")
    (inside / "zero").symlink_to("/dev/zero")
    files, skipped = collected(inside, "**/*")
    assert files == {"hard": b"secret"}, (
        "a hard link is a file; inside a sandbox it can only be the job's own"
    )
    assert skipped == {
        "door": "is a socket, not a regular file",
        "folder": "is a symbolic link, not a regular file",
        "link": "is a symbolic link, not a regular file",
        "pipe": "is a named pipe, not a regular file",
        "zero": "is a symbolic link, not a regular file",
    }


def test_bounds_on_size_sum_and_count_leave_out_and_say_so(tmp_path: Path) -> None:
    (tmp_path / "a-big").write_bytes(b"x" * 101)
    with (tmp_path / "a-sparse").open("wb") as file:
        file.truncate(1 << 40)
    for n in range(4):
        (tmp_path / f"file{n}").write_bytes(b"x" * 90)
    (tmp_path / "small").write_bytes(b"x")
    (tmp_path / "small2").write_bytes(b"x")
    files, skipped = collected(tmp_path, "*")
    assert sorted(files) == ["file0", "file1", "small"]
    assert skipped["a-big"] == "101 bytes; a file may have 100"
    assert skipped["a-sparse"] == f"{1 << 40} bytes; a file may have 100"
    assert skipped["file2"] == "90 bytes; only 70 are left of what all files may have"
    assert skipped["small2"] == "more files than may be returned"


def test_a_deep_tree_is_walked_to_its_bound_and_no_further(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(40):
        deep = deep / "d"
        deep.mkdir()
    (deep / "leaf").touch()
    (tmp_path / "d/d/leaf").touch()
    files, skipped = collected(tmp_path, "**/leaf")
    assert list(files) == ["d/d/leaf"]
    assert list(skipped.values()) == ["deeper than 32 folders"]


def test_a_folder_no_glob_can_reach_is_not_entered(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir(mode=0o000)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/a").touch()
    assert collected(tmp_path, "out/*") == ({"out/a": b""}, {})


def test_more_names_than_anybody_reads_end_the_list(tmp_path: Path) -> None:
    for n in range(300):
        (tmp_path / f"{n:03}").touch()
    files, skipped = collected(tmp_path, "*")
    assert len(files) == 3
    assert len(skipped) == 100
    assert skipped["…"] == "there are more than can be listed"


def test_names_that_are_not_text_are_left_out_readably(tmp_path: Path) -> None:
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\xff"))).touch()
    (tmp_path / "b\n\x1b[31m").touch()
    files, skipped = collected(tmp_path, "*")
    assert list(files) == ["b\n\x1b[31m"]
    assert skipped == {"a\\udcff": "its name is not UTF-8"}


def header(kind: bytes, **fields: Any) -> bytes:
    text = json.dumps(fields).encode()
    return struct.pack(">cI", kind, len(text)) + text


FORGED: dict[str, bytes] = {
    "unknown kind": header(b"Q", path="a", size=0),
    "endless header": struct.pack(">cI", b"F", 2**31),
    "no JSON": struct.pack(">cI", b"F", 2) + b"xx",
    "extra field": header(b"F", path="a", size=0, mode=7),
    "negative size": header(b"F", path="a", size=-1),
    "size as text": header(b"F", path="a", size="1"),
    "too large": header(b"F", path="a", size=101),
    "absolute": header(b"F", path="/etc/passwd", size=0),
    "upwards": header(b"F", path="a/../../b", size=0),
    "empty part": header(b"F", path="a//b", size=0),
    "NUL": header(b"F", path="a\0b", size=0),
    "empty": header(b"F", path="", size=0),
    "surrogate": struct.pack(">cI", b"F", 29) + b'{"path": "\\ud800", "size": 0}',
    "twice": header(b"F", path="a", size=0) * 2,
    "too many": b"".join(header(b"F", path=str(n), size=0) for n in range(4)),
    "too much": b"".join(header(b"F", path=str(n), size=90) + b"x" * 90 for n in range(3)),
    "too many skipped": header(b"S", path="a", reason="b") * 101,
    "long reason": header(b"S", path="a", reason="b" * 1001),
}


@pytest.mark.parametrize("stream", FORGED.values(), ids=FORGED)
def test_what_no_honest_guest_sends_is_a_violation(stream: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        ArtifactReader(BOUNDS).feed(stream)


def test_an_end_within_a_file_is_a_violation_only_where_it_is_said_to_be_the_end() -> None:
    for stream in (header(b"F", path="a", size=5) + b"123", header(b"F", path="a", size=0)[:-1]):
        reader = ArtifactReader(BOUNDS)
        reader.feed(header(b"F", path="whole", size=1) + b"x" + stream)
        with pytest.raises(ProtocolViolation, match="within a file"):
            reader.close(whole=True)
        files, _ = reader.close(whole=False)
        assert [file.path for file in files] == ["whole"]


@given(st.binary(max_size=300))
def test_any_bytes_at_all_are_read_or_refused(stream: bytes) -> None:
    try:
        ArtifactReader(BOUNDS).feed(stream)
    except ProtocolViolation:
        return


def test_files_are_written_below_the_folder_with_their_folders(tmp_path: Path) -> None:
    out = tmp_path / "new/out"
    save([Artifact(path="a/b/c.bin", data=b"\xff"), Artifact(path="d", data=b"")], out)
    assert (out / "a/b/c.bin").read_bytes() == b"\xff"
    assert sorted(path.name for path in out.rglob("*")) == ["a", "b", "c.bin", "d"]


def test_an_existing_file_is_replaced_and_what_it_linked_to_is_not(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    out = tmp_path / "out"
    out.mkdir()
    (out / "soft").symlink_to(precious)
    os.link(precious, out / "hard")
    save([Artifact(path="soft", data=b"new"), Artifact(path="hard", data=b"new")], out, overwrite=True)
    assert precious.read_text() == "precious"
    assert not (out / "soft").is_symlink()
    assert (out / "hard").read_bytes() == b"new"


@pytest.mark.parametrize("path", ["there", "dangling", ".git/hooks/pre-commit", ".envrc", "a/.b", "a/.b/c"])
def test_what_is_there_and_what_would_be_hidden_is_the_caller_s_word(tmp_path: Path, path: str) -> None:
    (tmp_path / "there").write_text("mine")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (why,) = save([Artifact(path=path, data=b"the job's")], tmp_path).values()
    assert why.endswith("; --overwrite allows it")
    assert (tmp_path / "there").read_text() == "mine"
    assert {one.name for one in tmp_path.iterdir()} <= {"there", "dangling", "a"}
    assert save([Artifact(path=path, data=b"the job's")], tmp_path, overwrite=True) == {}
    assert (tmp_path / path).read_bytes() == b"the job's"


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x", "link/x", "file/x", "folder", "a\0b", ""])
def test_no_path_leads_out_of_the_folder(tmp_path: Path, path: str) -> None:
    out = tmp_path / "out"
    (out / "folder/full").mkdir(parents=True)
    (out / "file").touch()
    (out / "link").symlink_to(tmp_path)
    before = sorted(str(one) for one in tmp_path.rglob("*"))
    assert list(save([Artifact(path=path, data=b"escaped")], out)) == [path]
    assert sorted(str(one) for one in tmp_path.rglob("*")) == before


@pytest.mark.parametrize("bad", [".hidden", "there", "../out", "link/x", "there/x", "a\0b"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_file_that_cannot_be_written_keeps_no_other_from_being_written(
    tmp_path: Path, bad: str, place: int
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "there").write_text("mine")
    (out / "link").symlink_to(tmp_path)
    paths = ["a.txt", "folder/b.txt"]
    paths.insert(place, bad)
    assert list(save([Artifact(path=path, data=b"x") for path in paths], out)) == [bad]
    assert (out / "a.txt").read_bytes() == (out / "folder/b.txt").read_bytes() == b"x"
    assert (out / "there").read_text() == "mine"


@pytest.mark.parametrize(
    ("globs", "there"),
    [
        (["a.csv"], "a.csv"),
        (["*.csv"], "a.csv"),
        (["x", "out/*.csv"], "out/a.csv"),
        (["**"], "deep/er/a"),
        (["**/*.csv"], "deep/er/a.csv"),
        (["deep/**/a"], "deep/a"),
        (["*"], "link"),
        ([".envrc"], None),
        (["a/.git/*"], None),
    ],
)
def test_file_that_is_there_already_is_refused_before_the_job_runs(
    tmp_path: Path, globs: list[str], there: str | None
) -> None:
    if there == "link":
        (tmp_path / there).symlink_to("nowhere")
    elif there is not None:
        (tmp_path / there).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / there).touch()
    with pytest.raises(InvalidJob, match=f"{there or 'hidden'}.*--overwrite allows it"):
        prepare(tmp_path, globs, overwrite=False)
    prepare(tmp_path, globs, overwrite=True)


@pytest.mark.parametrize("globs", [["*.csv"], ["out/*"], ["**/*.csv"], ["deep/*/b"], ["deep"]])
def test_folder_with_other_files_is_good_enough(tmp_path: Path, globs: list[str]) -> None:
    (tmp_path / "deep/er").mkdir(parents=True)
    for path in ("a.txt", "deep/a", "deep/er/a"):
        (tmp_path / path).touch()
    prepare(tmp_path, globs, overwrite=False)


def test_a_folder_that_cannot_be_made_is_the_callers_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidJob, match="not a folder to write to"):
        save([], tmp_path / "file")


def test_a_skipped_artifact_reads_back() -> None:
    one = SkippedArtifact(path="a", reason="b")
    assert SkippedArtifact.model_validate_json(one.model_dump_json()) == one
