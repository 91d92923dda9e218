"""Honest outputs that look random: numbers, sequences, ids, dumps, public keys, encoded prose."""

from __future__ import annotations

import base64
import itertools
import math
import random
import struct
import textwrap
import zlib
from collections.abc import Callable

from bench.egress.honest_records import address, b64, hexed, lines, stamp, uid, version, word
from bench.egress.prose import prose, sentence, words

Rng = random.Random
#: What a public key of each kind begins with.
DER = {
    "PUBLIC KEY": ("30820122300d06092a864886f70d01010105000382010f003082010a0282010100", 261),
    "RSA PUBLIC KEY": ("3082010a0282010100", 261),
    "CERTIFICATE": ("308203d5308202bda003020102021400", 960),
    "CERTIFICATE REQUEST": ("308202a13082018902010030", 660),
    "PGP PUBLIC KEY BLOCK": ("99010d04", 1180),
    "PGP SIGNATURE": ("8901330401", 560),
    "DH PARAMETERS": ("308201080282010100", 259),
}
VALUES = (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1)
SIGNS = ("M", "CM", "D", "CD", "C", "XC", "L", "XL", "X", "IX", "V", "IV", "I")


def integers(rng: Rng) -> str:
    count, top = rng.randint(10, 2000), 10 ** rng.randint(1, 12)
    numbers = [rng.randrange(top) for _ in range(count)]
    return rng.choice(
        (repr, lambda found: "\n".join(map(str, found)), lambda found: " ".join(map(str, found)))
    )(numbers)


def byte_list(rng: Rng) -> str:
    """Values of pixels or samples."""
    return repr([min(255, max(0, round(rng.gauss(128, 50)))) for _ in range(rng.randint(20, 900))])


def floats(rng: Rng) -> str:
    return repr([rng.gauss(0, 10 ** rng.randint(-3, 6)) for _ in range(rng.randint(5, 300))])


def matrix(rng: Rng) -> str:
    """As numpy prints one."""
    width = rng.randint(2, 9)
    rows = (" ".join(f"{rng.gauss(0, 3): .8f}" for _ in range(width)) for _ in range(rng.randint(2, 40)))
    return "[[" + "]\n [".join(rows) + "]]"


def primes(rng: Rng) -> str:
    start = rng.randint(2, 10**5)
    found = (n for n in itertools.count(start) if all(n % k for k in range(2, math.isqrt(n) + 1)))
    return ", ".join(map(str, itertools.islice(found, rng.randint(10, 200))))


def digits(rng: Rng) -> str:
    """The digits of a root, a factorial, a power."""
    count = rng.randint(100, 3000)
    root = math.isqrt(rng.randrange(2, 10**6) * 100**count)
    return str(
        rng.choice((root, math.factorial(rng.randint(30, 900)), rng.randint(2, 99) ** rng.randint(50, 900)))
    )


def sequence(rng: Rng) -> str:
    """DNA or protein, as FASTA."""
    letters = rng.choice(("ACGT", "acgt", "ACDEFGHIKLMNPQRSTVWY"))
    body = "".join(rng.choices(letters, k=rng.randint(60, 3000)))
    head = f">sp|P{rng.randrange(10**5):05}|{word(rng).upper()}_HUMAN {sentence(rng)}\n"
    return rng.choice((head + "\n".join(textwrap.wrap(body, 60)), body))


def ids(rng: Rng) -> str:
    """Identifiers of public things."""
    base32, base62 = (
        "0123456789ABCDEFGHJKMNPQRSTVWXYZ",
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
    )
    forms: tuple[Callable[[], str], ...] = (
        lambda: uid(rng),
        lambda: f"01H{''.join(rng.choices(base32, k=23))}",
        lambda: hexed(rng, 24),
        lambda: f"https://youtu.be/{''.join(rng.choices(base62 + '-_', k=11))}",
        lambda: f"https://example.com/s/{''.join(rng.choices(base62, k=8))}",
        lambda: f"tx {hexed(rng, 64)}  {rng.random():.8f}",
        lambda: f"bc1q{''.join(rng.choices('qpzry9x8gf2tvdw0s3jn54khce6mua7l', k=38))}",
        lambda: f"0x{hexed(rng, 40)}  {rng.randrange(99)} tokens",
        lambda: "1" + "".join(rng.choices(base62.replace("0", "").replace("l", ""), k=33)),
        lambda: (
            ":".join(hexed(rng, 2) for _ in range(6))
            + f"  {address(rng)}  fe80::{hexed(rng, 4)}:{hexed(rng, 4)}"
        ),
        lambda: (
            f"978-{rng.randrange(10)}-{rng.randrange(10**4):04}-{rng.randrange(10**4):04}-{rng.randrange(10)}"
        ),
        lambda: f"+49 30 555{rng.randrange(10**5):05}",
        lambda: f"doi:10.{rng.randrange(1000, 9999)}/{word(rng)}.{stamp(rng)[:4]}.{rng.randrange(10**6)}",
        lambda: f"v{version(rng)}-rc.{rng.randrange(9)}+{hexed(rng, 7)}",
    )
    return lines(rng, rng.choice(forms), 1, 30)


def cluster(rng: Rng) -> str:
    """Names of machines and buckets."""

    def pod() -> str:
        name = f"{word(rng)}-{hexed(rng, 10)}-{''.join(rng.choices('bcdfghjklmnpqrstvwxz2456789', k=5))}"
        return f"{name}  1/1  Running  0  {rng.randint(1, 99)}d  {address(rng)}"

    def cloud() -> str:
        return rng.choice(
            (f"arn:aws:s3:::{word(rng)}-{rng.randrange(10**12)}", f"i-0{hexed(rng, 16)}  {address(rng)}")
        )

    return lines(rng, rng.choice((pod, cloud)), 3, 20)


def urls(rng: Rng) -> str:
    def one() -> str:
        asked = {
            "utm_campaign": word(rng),
            "gclid": b64(rng, 40).replace("+", "-").replace("/", "_").rstrip("="),
            "id": uid(rng),
            "page_token": str(rng.randrange(99)),
            "q": "+".join(words(rng, 3)),
            "key": word(rng),
            "v": hexed(rng, 20),
        }
        chosen = "&".join(
            f"{name}={value}" for name, value in rng.sample(list(asked.items()), rng.randint(0, 4))
        )
        return f"https://www.example.com/{word(rng)}/{word(rng)}-{rng.randrange(10**6)}?{chosen}"

    return lines(rng, one, 1, 20)


def hex_dump(rng: Rng) -> str:
    data = (
        prose(rng, rng.randint(40, 900)).encode()
        if rng.random() < 0.6
        else rng.randbytes(rng.randint(40, 900))
    )
    shown = bytes(byte if 32 <= byte < 127 else 46 for byte in data).decode()
    rows = range(0, len(data), 16)
    return "\n".join(f"{at:08x}: {data[at : at + 16].hex(' ', -2):39}  {shown[at : at + 16]}" for at in rows)


def plain_hex(rng: Rng) -> str:
    """Prose or bytes printed as hex."""
    data = (
        prose(rng, rng.randint(20, 400)).encode()
        if rng.random() < 0.7
        else rng.randbytes(rng.randint(8, 300))
    )
    return rng.choice((data.hex(), data.hex(" "), repr(data), data.hex(":").upper()))


def plain_b64(rng: Rng) -> str:
    data = prose(rng, rng.randint(30, 1500), rng.choice(("english", "german", "russian"))).encode()
    return rng.choice((base64.b64encode, base64.encodebytes, base64.urlsafe_b64encode, base64.b32encode))(
        data
    ).decode()


def picture(rng: Rng) -> str:
    """A real PNG as a data URI."""
    width, height = rng.randint(2, 24), rng.randint(2, 24)
    pixels = b"".join(b"\0" + rng.randbytes(3 * width) for _ in range(height))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    png = b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")
    encoded = base64.b64encode(png).decode()
    return rng.choice(
        ('<img alt="{}" src="data:image/png;base64,{}">', "![{}](data:image/png;base64,{})")
    ).format(word(rng), encoded)


def public_key(rng: Rng) -> str:
    title = rng.choice(list(DER))
    start, count = DER[title]
    body = base64.b64encode(bytes.fromhex(start) + rng.randbytes(count)).decode()
    head = "\n" if title.startswith("PGP") else ""
    return (
        f"-----BEGIN {title}-----\n{head}" + "\n".join(textwrap.wrap(body, 64)) + f"\n-----END {title}-----\n"
    )


def ssh_public(rng: Rng) -> str:
    rsa = base64.b64encode(
        bytes.fromhex("000000077373682d727361000000030100010000010100") + rng.randbytes(256)
    ).decode()
    ed25519 = base64.b64encode(
        bytes.fromhex("0000000b7373682d6564323535313900000020") + rng.randbytes(32)
    ).decode()
    forms = (
        f"ssh-rsa {rsa} {word(rng)}@laptop",
        f"ssh-ed25519 {ed25519} {word(rng)}@laptop",
        f"|1|{b64(rng, 20)}|{b64(rng, 20)} ssh-ed25519 {ed25519}",
        f"git.example.com ssh-rsa {rsa}",
        f"256 SHA256:{b64(rng, 32)[:43]} {word(rng)}@laptop (ED25519)",
        f"age1{''.join(rng.choices('qpzry9x8gf2tvdw0s3jn54khce6mua7l', k=58))}",
        f"[Peer]\nPublicKey = {b64(rng, 32)}\nAllowedIPs = 10.8.0.2/32",
        f"SHA256 Fingerprint={':'.join(hexed(rng, 2).upper() for _ in range(32))}",
    )
    return rng.choice(forms) + "\n"


def chess(rng: Rng) -> str:
    if rng.random() < 0.5:
        ranks = "/".join("".join(rng.choices("rnbqkpRNBQKP12", k=6)) for _ in range(8))
        return f"{ranks} {rng.choice('wb')} KQkq - 0 {rng.randint(1, 60)}\n"
    moves = (
        f"{n}. {rng.choice('NBRQK')}{rng.choice('abcdefgh')}{n % 8 + 1} {rng.choice('abcdefgh')}5"
        for n in range(1, 40)
    )
    return '[Event "Casual game"]\n[Result "1-0"]\n\n' + " ".join(moves) + " 1-0\n"


def roman(rng: Rng) -> str:
    def of(n: int) -> str:
        written = ""
        for value, sign in zip(VALUES, SIGNS, strict=True):
            written, n = written + sign * (n // value), n % value
        return written

    return lines(rng, lambda: of(rng.randint(1, 3999)))


NUMBERS: dict[str, tuple[int, Callable[[Rng], str]]] = {
    "integers": (80, integers),
    "byte list": (40, byte_list),
    "floats": (50, floats),
    "matrix": (60, matrix),
    "primes": (30, primes),
    "digits": (40, digits),
    "sequence": (60, sequence),
    "ids": (160, ids),
    "cluster": (50, cluster),
    "urls": (80, urls),
    "hex dump": (60, hex_dump),
    "hex": (60, plain_hex),
    "base64 of prose": (80, plain_b64),
    "picture": (40, picture),
    "public key": (60, public_key),
    "ssh public": (60, ssh_public),
    "chess": (40, chess),
    "roman": (20, roman),
}
