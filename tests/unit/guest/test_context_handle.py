"""``ctx``: finds what is there, wherever the chunks are cut, and takes any bytes for what they are."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cellblock import context_prompt
from cellblock_workers.guest.context import ContextHandle


class Small(ContextHandle):
    """Chunks so small that every test crosses their borders."""

    CHUNK_BYTES = 32
    MATCH_BYTES = 16
    BEHIND_BYTES = 8


def handle(folder: Path, content: bytes, kind: type[ContextHandle] = Small) -> ContextHandle:
    path = folder / "context"
    path.write_bytes(content)
    return kind(str(path))


def test_reads_and_snippets_are_text_of_bytes_and_never_fail(tmp_path: Path) -> None:
    ctx = handle(tmp_path, "aé漢🎉z".encode())
    assert ctx.size == 11
    assert ctx.read(0, 100) == "aé漢🎉z"
    assert ctx.read(0, 2) == "a\ufffd"
    assert ctx.read(2, 1) == "\ufffd"
    assert (ctx.read(11, 5), ctx.read(10**15, 5), ctx.read(0, 0)) == ("", "", "")
    assert ctx.snippet(10, window=2) == "\ufffdz"
    assert ctx.snippet(0, window=2) == "a\ufffd"
    for wrong in ({"start": -1, "length": 1}, {"start": 0, "length": -1}):
        with pytest.raises(ValueError, match="negative"):
            ctx.read(**wrong)


def test_a_search_is_in_order_with_offsets_in_bytes_and_no_more_than_asked(tmp_path: Path) -> None:
    ctx = handle(tmp_path, ("é" * 50 + "needle1 " + "漢" * 30 + "needle2 needle3").encode())
    assert ctx.search(r"needle\d", 2) == [(100, "needle1"), (198, "needle2")]
    assert ctx.search(rb"needle\d")[-1] == (206, b"needle3")
    assert ctx.search("nothing") == []
    assert ctx.search(re.compile("NEEDLE3", re.IGNORECASE)) == [(206, "needle3")]
    with pytest.raises(ValueError, match="max_results"):
        ctx.search("x", 0)


def test_anchors_and_lookbehind_hold_across_the_borders(tmp_path: Path) -> None:
    lines = [f"line {n:04}" for n in range(40)]
    ctx = handle(tmp_path, "\n".join(lines).encode())
    assert [found for _, found in ctx.search(r"(?m)^line \d+$", 100)] == lines
    assert len(ctx.search(r"^line", 100)) == 1
    assert [found for _, found in ctx.search(r"(?<=line )\d{4}", 100)] == [line[5:] for line in lines]
    assert [place for place, _ in ctx.search(r"\d\Z")] == [ctx.size - 1]


@settings(deadline=None)  # a machine under load is not a fault
@given(
    content=st.text("ab\né漢", max_size=300).map(str.encode),
    pattern=st.sampled_from(["a", "ab", "a+b", "(?m)^b", "é", "漢a", r"\b", "b?", "[ab]{1,5}", "a$"]),
    wanted=st.sampled_from([1, 5, 1000]),
)
def test_searching_in_chunks_finds_what_searching_at_once_finds(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, pattern: str, wanted: int
) -> None:
    text = content.decode()
    expected = [(len(text[: m.start()].encode()), m.group()) for m in re.finditer(pattern, text)]
    if any(len(found) > 16 for _, found in expected):
        return
    assert handle(tmp_path_factory.getbasetemp(), content).search(pattern, wanted) == expected[:wanted]


@given(
    content=st.binary(max_size=300), pattern=st.sampled_from([rb"a", rb"[\x80-\xff]{2}", rb"\x00+?", rb"."])
)
def test_bytes_that_are_not_text_are_searched_as_bytes(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, pattern: bytes
) -> None:
    expected = [(m.start(), m.group()) for m in re.finditer(pattern, content)]
    ctx = handle(tmp_path_factory.getbasetemp(), content)
    assert ctx.search(pattern, 1000) == expected
    for offset, _ in ctx.search("[^a]", 1000):
        assert 0 <= offset < len(content)


def test_a_long_match_is_cut_and_the_search_goes_on(tmp_path: Path) -> None:
    ctx = handle(tmp_path, b"x" * 200 + b"y")
    found = ctx.search("x+", 100)
    assert all(len(match) <= 48 for _, match in found)
    assert sum(len(match) for _, match in found) == 200
    assert ctx.search("y") == [(200, "y")]


def test_an_empty_file_is_an_empty_context(tmp_path: Path) -> None:
    ctx = handle(tmp_path, b"")
    assert (ctx.size, ctx.read(0, 5), ctx.snippet(0), ctx.search("a")) == (0, "", "", [])


def test_a_mount_point_that_nothing_was_mounted_on_does_not_pass_for_the_file(tmp_path: Path) -> None:
    (tmp_path / "context").touch()
    with pytest.raises(OSError, match="not mounted"):
        ContextHandle(str(tmp_path / "context"), at_least=1)


def test_the_prompt_teaches_what_the_handle_has(tmp_path: Path) -> None:
    prompt = context_prompt(1_234_567)
    assert "1,234,567 bytes" in prompt
    assert "many bytes" in context_prompt()
    taught = set(re.findall(r"ctx\.(\w+)", prompt))
    ctx = handle(tmp_path, b"fine\nERROR: no room left\nfine", ContextHandle)
    assert taught == {name for name in dir(ctx) if not name.startswith("_") and name.islower()}
    example = prompt.partition("Example:\n")[2]
    said: list[tuple[object, ...]] = []
    exec(textwrap.dedent(example), {"ctx": ctx, "print": lambda *words: said.append(words)})
    assert said == [(5, "fine\nERROR: no room left\nfine")]
