"""The output governor: head and tail of a stream, exact, in bounded memory, however the stream is cut."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellblock.egress import Governed, Governor
from cellblock_config import EgressSettings

MARKER = re.compile(r"\.\.\. \[TRUNCATED (\d+) bytes\] \.\.\.")
SMALL = EgressSettings(output_limit_bytes=64, output_head_bytes=20, output_tail_bytes=30)


def govern(chunks: Iterable[bytes], settings: EgressSettings = SMALL) -> Governed:
    governor = Governor(settings)
    for chunk in chunks:
        governor.feed(chunk)
    return governor.close()


def whole_characters(text: str, size: int) -> str:
    """The longest beginning of the text whose UTF-8 has at most ``size`` bytes."""
    return text.encode()[:size].decode("utf-8", "ignore")


def reference(text: str, settings: EgressSettings) -> Governed:
    """What has to come out, computed from the whole text at once, character by character."""
    total = len(text.encode())
    if total <= settings.output_limit_bytes:
        return Governed(text, 0)
    head = whole_characters(text, settings.output_head_bytes)
    tail = ""
    for character in reversed(text):
        if len((character + tail).encode()) > settings.output_tail_bytes:
            break
        tail = character + tail
    dropped = total - len(head.encode()) - len(tail.encode())
    return Governed(f"{head}... [TRUNCATED {dropped} bytes] ...{tail}", dropped)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


governors = st.integers(64, 100).flatmap(
    lambda limit: st.integers(0, limit).flatmap(
        lambda head: st.integers(0, limit - head).map(
            lambda tail: EgressSettings(
                output_limit_bytes=limit, output_head_bytes=head, output_tail_bytes=tail
            )
        )
    )
)
characters = st.characters(exclude_categories=["Cs"])
texts = st.text(characters, max_size=150) | st.text(st.sampled_from("aé€😀"), min_size=30, max_size=150)


@given(text=texts, places=st.lists(st.integers(0, 1000), max_size=20), settings=governors)
def test_any_chunking_of_any_text_gives_what_the_whole_text_gives(
    text: str, places: list[int], settings: EgressSettings
) -> None:
    assert govern(cut(text.encode(), places), settings) == reference(text, settings)


@given(data=st.binary(max_size=300), places=st.lists(st.integers(0, 1000), max_size=20), settings=governors)
def test_any_chunking_of_any_bytes_gives_the_same_and_accounts_for_every_byte(
    data: bytes, places: list[int], settings: EgressSettings
) -> None:
    whole = govern([data], settings)
    assert govern(cut(data, places), settings) == whole
    if len(data) <= settings.output_limit_bytes:
        assert whole == Governed(data.decode("utf-8", "replace"), 0)
        return
    kept = len(data) - whole.dropped_bytes
    most = settings.output_head_bytes + settings.output_tail_bytes
    assert most - 6 <= kept <= most, "at most three bytes go at either cut"
    assert f"... [TRUNCATED {whole.dropped_bytes} bytes] ..." in whole.text


def test_a_stream_of_exactly_the_limit_passes_whole() -> None:
    assert govern([b"x" * 64]) == Governed("x" * 64, 0)
    assert govern([b"x"] * 64) == Governed("x" * 64, 0)


def test_one_byte_more_is_cut_to_head_and_tail() -> None:
    data = bytes(range(32, 97))
    assert govern([data]) == Governed(
        f"{data[:20].decode()}... [TRUNCATED 15 bytes] ...{data[-30:].decode()}", 15
    )


@pytest.mark.parametrize("lead", range(4))
def test_a_cut_never_splits_a_character(lead: int) -> None:
    governed = govern([b"a" * lead + "😀".encode() * 40])
    assert "\ufffd" not in governed.text
    head, _, tail = MARKER.split(governed.text)
    assert head == "a" * lead + "😀" * ((20 - lead) // 4)
    assert tail == "😀" * 7


def test_a_character_cut_by_the_chunks_stays_whole() -> None:
    assert govern([bytes([byte]) for byte in "😀é€".encode()]) == Governed("😀é€", 0)


def test_bytes_that_are_not_text_become_replacement_characters() -> None:
    assert govern([b"ab\xff\xfecd"]).text == "ab\ufffd\ufffdcd"


@pytest.mark.parametrize(
    ("head", "tail", "text"),
    [
        (0, 3, "... [TRUNCATED 97 bytes] ...xyz"),
        (3, 0, "abc... [TRUNCATED 97 bytes] ..."),
        (0, 0, "... [TRUNCATED 100 bytes] ..."),
    ],
)
@pytest.mark.parametrize("piece", [1, 7, 100])
def test_head_or_tail_may_be_nothing(head: int, tail: int, text: str, piece: int) -> None:
    settings = EgressSettings(output_limit_bytes=64, output_head_bytes=head, output_tail_bytes=tail)
    data = b"abc" + b"-" * 94 + b"xyz"
    assert govern([data[i : i + piece] for i in range(0, 100, piece)], settings).text == text


def test_an_empty_stream_and_empty_chunks_are_nothing() -> None:
    assert govern([]) == Governed("", 0)
    assert govern([b"", b""]) == Governed("", 0)
    assert govern([b"", b"x" * 65, b"", b""]).dropped_bytes == 15


def peak_bytes(chunks: Iterable[bytes], settings: EgressSettings) -> int:
    tracemalloc.start()
    try:
        governed = govern(chunks, settings)
        assert governed.dropped_bytes > 0
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def pieces(size: int, total: int) -> Iterable[bytes]:
    piece = b"x" * size
    return (piece for _ in range(total // size))


def test_a_hundred_megabytes_in_big_chunks_are_held_in_little_memory() -> None:
    assert peak_bytes(pieces(64 * 1024, 100_000_000), EgressSettings()) < 500_000


def test_a_hundred_megabytes_in_uneven_chunks_are_held_in_little_memory() -> None:
    uneven = (b"x" * (1 + i % 4096) for i in range(10_000))
    assert peak_bytes(uneven, EgressSettings()) < 500_000


def test_a_stream_of_single_bytes_is_held_in_little_memory() -> None:
    assert peak_bytes(pieces(1, 60_000), EgressSettings()) < 500_000


def test_without_a_tail_nothing_piles_up() -> None:
    settings = EgressSettings(output_limit_bytes=64, output_head_bytes=10, output_tail_bytes=0)
    assert peak_bytes(pieces(10, 1_000_000), settings) < 200_000
