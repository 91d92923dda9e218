"""Wallet keys whose last characters are a checksum, and phrases of the words that wallets use."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from bench.egress.wide.making import Rng, picked
from bench.egress.wide.vocabulary import WALLET_WORDS

BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def base58_checked(data: bytes) -> str:
    whole = data + hashlib.sha256(hashlib.sha256(data).digest()).digest()[:4]
    number, digits = int.from_bytes(whole, "big"), ""
    while number:
        number, digit = divmod(number, 58)
        digits = BASE58[digit] + digits
    return "1" * (len(whole) - len(whole.lstrip(b"\x00"))) + digits


def _wif(rng: Rng) -> tuple[str, bool]:
    key = base58_checked(b"\x80" + rng.randbytes(32) + rng.choice((b"", b"\x01")))
    return _shown(
        rng, key, ("{}", "dumpprivkey: {}", "importprivkey {} label false", "WIF: {}", '"wif":"{}"')
    )


def _extended(rng: Rng) -> tuple[str, bool]:
    version = rng.choice(("0488ade4", "049d7878", "04b2430c"))
    head = bytes.fromhex(version) + bytes([rng.randint(0, 5)]) + rng.randbytes(8)
    key = base58_checked(head + rng.randbytes(32) + b"\x00" + rng.randbytes(32))
    return _shown(rng, key, ("{}", "master: {}", "BIP32 Root Key  {}", '{{"xpriv": "{}", "path": "m/84h"}}'))


def _encrypted_key(rng: Rng) -> tuple[str, bool]:
    key = base58_checked(b"\x01\x42\xc0" + rng.randbytes(36))
    return _shown(rng, key, ("BIP38: {}", "{}", "encrypted private key: {}"))


def _phrase(rng: Rng, count: int, between: str = " ") -> str:
    return between.join(rng.choice(WALLET_WORDS) for _ in range(count))


def _mnemonic_line(rng: Rng) -> tuple[str, bool]:
    phrase = _phrase(rng, rng.choice((12, 12, 24)))
    return _shown(
        rng, phrase, ("{}", "Mnemonic: {}", 'MNEMONIC="{}"', "seed phrase = {}", '{{"mnemonic": "{}"}}')
    )


def _mnemonic_list(rng: Rng) -> tuple[str, bool]:
    words = [rng.choice(WALLET_WORDS) for _ in range(12)]
    shown = rng.choice(
        (repr(words), "\n".join(words), ", ".join(words), "\n".join(f'"{one}",' for one in words))
    )
    return f"Write these words down:\n\u00ab{shown}\u00bb\n", True


def _mnemonic_numbered(rng: Rng) -> tuple[str, bool]:
    shown = "\n".join(f"{n}. {rng.choice(WALLET_WORDS)}" for n in range(1, 13))
    return f"Recovery phrase\n\u00ab{shown}\u00bb\n", True


def _minikey(rng: Rng) -> tuple[str, bool]:
    while True:
        key = "S" + picked(rng, "s", 29)
        if hashlib.sha256((key + "?").encode()).digest()[0] == 0:
            return _shown(rng, key, ("mini private key: {}", "casascius {}"))


def _shown(rng: Rng, core: str, forms: tuple[str, ...]) -> tuple[str, bool]:
    return rng.choice(forms).format(f"\u00ab{core}\u00bb"), True


CHECKED: dict[str, Callable[[Rng], tuple[str, bool]]] = {
    "bitcoin-wif": _wif,
    "bip32-extended": _extended,
    "bip38-encrypted": _encrypted_key,
    "bip39-line": _mnemonic_line,
    "bip39-list": _mnemonic_list,
    "bip39-numbered": _mnemonic_numbered,
    "bitcoin-minikey": _minikey,
}
