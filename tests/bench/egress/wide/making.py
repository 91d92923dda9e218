"""What the wide corpus is made with: the form of a kind of secret, and how a form is filled from a seed.

A form is the text as a program prints it. In it \u2039A36\u203a stands for 36 characters of an alphabet,
\u2039user\u203a for something of that name, and the secret's core stands between \u00ab and \u00bb.
"""

from __future__ import annotations

import base64
import random
import re
import string
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from bench.egress.wide.vocabulary import COMMON, FIRST_NAMES, HOSTS, USERS

Rng = random.Random
LETTERS, DIGITS = string.ascii_letters, string.digits
ALPHABETS = {
    "A": LETTERS + DIGITS,
    "a": string.ascii_lowercase + DIGITS,
    "U": string.ascii_uppercase + DIGITS,
    "h": "0123456789abcdef",
    "H": "0123456789ABCDEF",
    "d": DIGITS,
    "l": string.ascii_lowercase,
    "L": string.ascii_uppercase,
    "M": LETTERS,
    "B": LETTERS + DIGITS + "+/",
    "u": LETTERS + DIGITS + "_-",
    "y": "./" + DIGITS + LETTERS,
    "T": string.ascii_uppercase + "234567",
    "t": string.ascii_lowercase + "234567",
    "x": "qpzry9x8gf2tvdw0s3jn54khce6mua7l",
    "X": "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
    "z": "0123456789abcdefghjkmnpqrstvwxyz",
    "Z": "0123456789ABCDEFGHJKMNPQRSTVWXYZ",
    "s": "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz",
    "p": LETTERS + DIGITS + "!@#$%^*_-+=~?.",
    "w": LETTERS + DIGITS + "_-.~!*",
    "r": "23456789BCDFGHJKMNPQRTVWXY",
}
BASE62 = DIGITS + string.ascii_uppercase + string.ascii_lowercase
LEET = str.maketrans("aeios", "4310$")
MARK = re.compile("\u2039([A-Za-z]+[0-9]*)(?::([^\u203a]*))?(?:-([0-9]+))?\u203a")
CORE = re.compile("\u00ab(.*?)\u00bb", re.DOTALL)


@dataclass(frozen=True)
class WideSecret:
    """One, as it would be printed."""

    kind: str
    group: str  #: the class that a filter can be made without
    text: str
    core: str  #: the part of ``text`` that must not survive
    marked: bool  #: whether the core alone still tells what it is


def fill(rng: Rng, form: str) -> str:
    """A form with everything made."""

    def made(match: re.Match[str]) -> str:
        name, detail, most = match.groups()
        if name in NAMED:
            return NAMED[name](rng, detail or "")
        letter, least = name[0], int(name[1:] or 1)
        return picked(rng, letter, rng.randint(least, int(most)) if most else least)

    return MARK.sub(made, form)


def split(filled: str) -> tuple[str, str]:
    """The text as printed, and the core in it."""
    found = CORE.search(filled)
    assert found, f"no core in {filled!r}"
    return CORE.sub(lambda match: match[1], filled), found[1]


def picked(rng: Rng, alphabet: str, count: int) -> str:
    return "".join(rng.choices(ALPHABETS[alphabet], k=count))


def human(rng: Rng) -> str:
    """As people choose them: a word or two, made safe for a checker of passwords."""
    one, other = rng.choice(COMMON), rng.choice(COMMON)
    number = rng.choice((str(rng.randint(1950, 2027)), str(rng.randint(1, 999))))
    sign = rng.choice("!?#$*.@_-")
    return rng.choice(
        (
            f"{one.capitalize()}{number}{sign}",
            f"{one.capitalize()}{sign}{other.capitalize()}{number}",
            f"{one.translate(LEET)}{other.capitalize()}{number}",
            f"{sign}{one}{number}{other}",
            f"{rng.choice(FIRST_NAMES)}{number}{sign}{sign}",
            f"{one.capitalize().translate(LEET)}_{number}",
        )
    )


def generated(rng: Rng) -> str:
    """As password managers make them; nothing in it needs quoting in most formats."""
    alphabet = rng.choice(("p", "p", "A", "w", "a"))
    while True:
        made = picked(rng, alphabet, rng.randint(10, 26))
        kinds = sum(any(test(char) for char in made) for test in (str.isalpha, str.isdigit))
        if kinds == 2 and made[0].isalnum():
            return made


def password(rng: Rng, _: str = "") -> str:
    return human(rng) if rng.random() < 0.4 else generated(rng)


def url_password(rng: Rng, _: str = "") -> str:
    return rng.choice((picked(rng, "A", rng.randint(10, 24)), "x" + picked(rng, "w", rng.randint(10, 20))))


def phrase(rng: Rng, between: str = " ") -> str:
    """Plain words, as diceware and Bitwarden make them."""
    return (between or " ").join(rng.choice(COMMON) for _ in range(rng.randint(4, 6)))


def uuid(rng: Rng, _: str = "") -> str:
    digits = picked(rng, "h", 32)
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{rng.choice('89ab')}{digits[17:20]}-{digits[20:]}"


def checked_62(rng: Rng, count: str) -> str:
    """Random characters and their CRC-32 in six digits of base 62, as GitHub and npm append it."""
    body = picked(rng, "A", int(count))
    crc, digits = zlib.crc32(body.encode()), ""
    for _ in range(6):
        crc, digit = divmod(crc, 62)
        digits = BASE62[digit] + digits
    return body + digits


def json_web_token(rng: Rng, claims: str = "") -> str:
    head = rng.choice(
        ('{"alg":"HS256","typ":"JWT"}', '{"typ":"JWT","alg":"RS256","kid":"' + uuid(rng) + '"}')
    )
    body = claims or f'{{"sub":"{rng.choice(USERS)}","iat":{rng.randint(1_700_000_000, 1_790_000_000)}}}'
    length = 32 if "HS256" in head else 256
    return ".".join(_urlsafe(part) for part in (head.encode(), body.encode(), rng.randbytes(length)))


def _urlsafe(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def date(rng: Rng, _: str = "") -> str:
    return f"202{rng.randint(3, 6)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"


def address(rng: Rng, _: str = "") -> str:
    return f"10.{rng.randint(0, 255)}.{rng.randint(0, 255)}.{rng.randint(1, 254)}"


NAMED: dict[str, Callable[[Rng, str], str]] = {
    "pw": password,
    "human": lambda rng, _: human(rng),
    "gen": lambda rng, _: generated(rng),
    "upw": url_password,
    "phrase": phrase,
    "uuid": uuid,
    "Uuid": lambda rng, _: uuid(rng).upper(),
    "user": lambda rng, _: rng.choice(USERS),
    "host": lambda rng, _: rng.choice(HOSTS),
    "word": lambda rng, _: rng.choice(COMMON),
    "name": lambda rng, _: rng.choice(FIRST_NAMES),
    "date": date,
    "time": lambda rng, _: f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:{rng.randint(0, 59):02}",
    "ip": address,
    "jwt": json_web_token,
    "crc": checked_62,
    "b64": lambda rng, count: base64.b64encode(rng.randbytes(int(count))).decode(),
    "safe": lambda rng, count: _urlsafe(rng.randbytes(int(count))),
    "hexed": lambda rng, text: text.encode().hex(),
    "basic": lambda rng, _: base64.b64encode(f"{rng.choice(USERS)}:{password(rng)}".encode()).decode(),
    "year": lambda rng, _: str(rng.randint(1990, 2026)),
    "num": lambda rng, most: str(rng.randint(1, int(most or 9999))),
}
