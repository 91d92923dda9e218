"""Finds values with a checksum, which need no promising place: keys of wallets."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from hashlib import sha256

_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_DIGITS = {char: value for value, char in enumerate(_BASE58)}
_B58 = f"[{_BASE58}]"


def from_base58(text: str) -> bytes:
    """The bytes of a number in base 58; each leading "1" is a zero byte."""
    number = 0
    for char in text:
        number = number * 58 + _DIGITS[char]
    zeros = len(text) - len(text.lstrip("1"))
    return b"\0" * zeros + number.to_bytes((number.bit_length() + 7) // 8, "big")


def _base58check(text: str) -> bool:
    raw = from_base58(text)
    return len(raw) > 4 and sha256(sha256(raw[:-4]).digest()).digest()[:4] == raw[-4:]


def _minikey(text: str) -> bool:
    return sha256(f"{text}?".encode()).digest()[0] == 0


def _crc16(text: str) -> bool:
    raw = base64.b32decode(text)
    crc = 0
    for byte in raw[:-2]:
        crc ^= byte << 8
        for _ in range(8):
            crc = ((crc << 1) ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc.to_bytes(2, "little") == raw[-2:]


#: For each value its pattern, the check of its checksum, and the kind to report.
CHECKED: tuple[tuple[re.Pattern[str], Callable[[str], bool], str], ...] = (
    (re.compile(rf"(?<![A-Za-z0-9])[5KLc9]{_B58}{{50,51}}(?![A-Za-z0-9])"), _base58check, "wallet_key"),
    (re.compile(rf"(?<![A-Za-z0-9])[a-zA-Z]prv{_B58}{{107,108}}(?![A-Za-z0-9])"), _base58check, "wallet_key"),
    (re.compile(rf"(?<![A-Za-z0-9])6P{_B58}{{56}}(?![A-Za-z0-9])"), _base58check, "wallet_key"),
    (re.compile(rf"(?<![A-Za-z0-9])S{_B58}{{21,29}}(?![A-Za-z0-9])"), _minikey, "wallet_key"),
    (re.compile(r"(?<![A-Za-z0-9])S[A-Z2-7]{55}(?![A-Za-z0-9])"), _crc16, "wallet_key"),
)
_CANDIDATE = re.compile(r"[A-Za-z0-9]{22,}")


def find(text: str) -> Iterator[tuple[str, int, int]]:
    """Kind and place of every value with a correct checksum."""
    for candidate in _CANDIDATE.finditer(text):
        for pattern, check, kind in CHECKED:
            if pattern.fullmatch(text, *candidate.span()) and check(candidate[0]):
                yield kind, *candidate.span()
