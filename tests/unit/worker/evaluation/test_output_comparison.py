"""Whether what was printed is the answer."""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellblock.contract.evaluations import StdioCase, StdioCheck
from cellblock_workers.worker.evaluation.output_comparison import difference


def check(**fields: Any) -> StdioCheck:
    return StdioCheck(cases=(StdioCase(stdin="", stdout=""),), **fields)


@pytest.mark.parametrize(
    ("compare", "expected", "printed", "right"),
    [
        ("exact", "1 2\n", b"1 2\n", True),
        ("exact", "1 2\n", b"1 2", False),
        ("exact", "ä", "ä".encode(), True),
        ("exact", "", b"", True),
        ("whitespace", "1 2\n3\n", b"1   2 3", True),
        ("whitespace", "1 2", b"12", False),
        ("whitespace", "1 2", b"1 2 3", False),
        ("whitespace", "1 2 3", b"1 2", False),
        ("whitespace", "", b"\n\n", True),
        ("whitespace", "", b"x", False),
        ("whitespace", "1.0", b"1", False),
        ("whitespace", "YES", b"yes", False),
        ("whitespace", "x", b"x\xff", False),
        ("float", "1.0 a", b"1.0000001 a", True),
        ("float", "1.0 a", b"1.01 a", False),
        ("float", "1.0 a", b"1.0 b", False),
        ("float", "1e9", b"1000000500", True),
        ("float", "1e9", b"1000500000", False),
        ("float", "1000000", b"1000001", False),
        ("float", "1000000", b"+1000000", True),
        ("float", "1000000", b"1000000.5", True),
        ("float", "12345678901234567890", b"12345678901234567891", False),
        ("float", "0", b"-0.0000009", True),
        ("float", "1", b"+1.", True),
        ("float", "nan", b"nan", True),
        ("float", "1", b"nan", False),
        ("float", "1", b"inf", False),
        ("float", "1e999", b"2e999", False),
        ("float", "1", b"1_0", False),
        ("float", "1", "１".encode(), False),  # noqa: RUF001 - another script's digit
    ],
)
def test_what_is_the_same(compare: str, expected: str, printed: bytes, right: bool) -> None:
    assert (difference(check(compare=compare), expected, printed) is None) is right


def test_the_tolerance_is_the_problems() -> None:
    assert difference(check(compare="float", tolerance=0.1), "2", b"2.15") is None
    assert difference(check(compare="float", tolerance=0), "2", b"2.0") is None
    assert difference(check(compare="float", tolerance=0), "2", b"2.0000001") is not None


def test_what_is_wrong_is_said_briefly() -> None:
    said = difference(check(), "1 2 3", b"1 9 3")
    assert said == "word 2: expected '2', printed '9'"
    long = difference(check(compare="exact"), "a" * 10_000, b"\xff" * 1_000_000)
    assert long is not None
    assert len(long) < 400
    assert "999880 bytes more" in long


def test_a_word_takes_no_longer_than_its_length() -> None:
    """A program chooses its words; looking for a number in them once took the square of their length."""
    began = time.monotonic()
    for word in (b"1" * 2_000_000 + b"x", b"1." * 1_000_000, b"1e" * 1_000_000, b"." * 2_000_000):
        assert difference(check(compare="float"), "1.5", word) is not None
    assert time.monotonic() - began < 5


def test_a_wrong_word_is_found_without_keeping_the_rest() -> None:
    printed = b"ab " * 2_000_000
    tracemalloc.start()
    try:
        assert difference(check(), "abc", printed) is not None
        assert difference(check(), "ab", printed) is not None
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@given(st.text(), st.binary())
def test_no_bytes_break_it(expected: str, printed: bytes) -> None:
    for compare in ("exact", "whitespace", "float"):
        difference(check(compare=compare), expected, printed)
        assert difference(check(compare=compare), expected, expected.encode()) is None
