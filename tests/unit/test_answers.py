"""Whether what was printed is the answer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellblock.trials import StdioCase, StdioCheck
from cellblock_workers.worker.answers import difference


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


@given(st.text(), st.binary())
def test_no_bytes_break_it(expected: str, printed: bytes) -> None:
    for compare in ("exact", "whitespace", "float"):
        difference(check(compare=compare), expected, printed)
        assert difference(check(compare=compare), expected, expected.encode()) is None
