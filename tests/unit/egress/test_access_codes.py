"""Codes behind their names: read as an expression reads them, in time proportional to them."""

# ruff: noqa: E501

from __future__ import annotations

import random
import re
import time

import pytest

from cellblock.egress import filter_text
from cellblock.egress.places import codes

KEY = "523780-512590-276353-642373-560593-954538-066934-028345"
#: The meaning of what is read, as one expression. It takes time beyond measure for some texts of 100 characters.
AS_EXPRESSION = re.compile(
    r"(?:(?:\d{2,4}(?:-\d{2,4}){1,4}|\d{3,16}|\d{3}[ -]\d{3}|(?:[A-Z0-9]{3,8}[ -]){1,7}[A-Z0-9]{3,8}"
    r"|(?:[a-z0-9]{4,6}-){1,7}[a-z0-9]{4,6}|(?=[A-Za-z]{0,15}\d)[A-Za-z0-9]{8,16})[\s,;|\"']{0,6}){1,20}"
    r"(?:(?<=\")[A-Za-z0-9]{8,16}\"[\s,\"]{0,6}){0,20}(?![\w.-])"
)


def _written(rng: random.Random) -> str:
    signs = rng.choice(["0123456789", "ABC123", "abc123", 'aB1-., \n"\u00e9\u0663_'])
    groups = ["".join(rng.choices(signs, k=rng.randint(1, 9))) for _ in range(rng.randint(1, 6))]
    return (rng.choice(["-", " ", ", ", "\n", '", "', "", "       "]).join(groups))[:30] + rng.choice("_.x ")


def test_codes_are_read_as_the_expression_reads_them() -> None:
    rng = random.Random(20261129)
    told = 0
    for _ in range(4_000):
        text = f"pin: {_written(rng)}"
        start = 5 + len(text[5:]) - len(text[5:].lstrip(" \n\"'"))
        match = AS_EXPRESSION.match(text, start)
        code = match[0].rstrip(" \t\r\n,;|\"'") if match else ""
        tells = len(code) >= 4 and (any(map(str.isdigit, code)) or (code.isupper() and "-" in code))
        expected = [("access_code", start, start + len(code))] if tells else []
        assert list(codes.find(text)) == expected, text
        told += tells
    assert 1_000 < told < 3_900


@pytest.mark.parametrize(
    "text",
    [
        f"BitLocker Recovery Key: {KEY}{KEY}_\n",
        "Recovery Key: " + "-".join(f"{n:06}" for n in range(99)) + "_",
        "PIN: " + "7" * 400 + "_",
        "PIN: " + "7" * 400 + "_ " + "pin: " * 50,
    ],
    ids=["keys", "groups", "digits", "names"],
)
def test_a_run_that_fits_in_no_code_takes_no_time(text: str) -> None:
    started = time.process_time()
    filter_text(text)
    assert time.process_time() - started < 5
