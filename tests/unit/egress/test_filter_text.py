"""The filter of one text: what goes, however it is written down, and what stays."""

from __future__ import annotations

import base64
import codecs
import json
import random
import re
import string
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import SecretStr

from cellblock.egress import FilterReport, filter_text
from cellblock_config import EgressSettings

RNG = random.Random(20261122)
ALNUM = string.ascii_letters + string.digits


def drawn(length: int, alphabet: str = ALNUM) -> str:
    return "".join(RNG.choice(alphabet) for _ in range(length))


def pem(kind: str = "RSA ") -> str:
    body = base64.b64encode(RNG.randbytes(1190)).decode()
    lines = [body[at : at + 64] for at in range(0, len(body), 64)]
    return "\n".join([f"-----BEGIN {kind}PRIVATE KEY-----", *lines, f"-----END {kind}PRIVATE KEY-----"])


GITHUB = "gh" + "p_" + drawn(36)
KEY = pem()

DISGUISES: dict[str, Callable[[str], str]] = {
    "plain": str,
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 twice": lambda text: base64.b64encode(base64.b64encode(text.encode())).decode(),
    "base64 in lines": lambda text: base64.encodebytes(text.encode()).decode(),
    "base64 in a letter's quotation": lambda text: re.sub(
        "(.{12})", r"> \1\n", base64.b64encode(f"the key is {text}".encode()).decode()
    ),
    "hex": lambda text: text.encode().hex(),
    "url": lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
    "url quoted": lambda text: quote(text),
    "reversed": lambda text: text[::-1],
    "base64 of reversed": lambda text: base64.b64encode(text[::-1].encode()).decode(),
    "reversed base64": lambda text: base64.b64encode(text.encode()).decode()[::-1],
    "a character a line": "\n".join,
    "a character a blank": " ".join,
    "lines of seven": lambda text: "\n".join(text[at : at + 7] for at in range(0, len(text), 7)),
    "zero-width": "\u200b".join,
    "JSON": json.dumps,
    "list": lambda text: repr(list(text)),
    "codes": lambda text: repr(list(text.encode())),
    "rot13": lambda text: codecs.encode(text, "rot13"),
    "compressed": lambda text: base64.b64encode(zlib.compress(text.encode())).decode(),
    "colours": lambda text: "".join(f"\x1b[3{n % 8}m{c}" for n, c in enumerate(text)),
}

#: What encodings are made of, and what stands between.
FRAGMENTS = [
    *"Az09+/_->=%\\,:;~<&!$'\" \t\n\r\x00\x1bé\u200b\ud800",
    *("\n> ", "=\n", "<~", "~>", "0x", "x\x9c", "eJx", "H4sI", "QUJD", "414243", "=41", "&#x41;", "\\u0041"),
    *("QUJDQUJDQUJDQUJD", "MFRGGZDFMZTWQ2LK", "0o101 ", "65, ", "01000001"),
]


def remains(report: FilterReport, disguised: str) -> int:
    """The longest stretch of what was to go that is still there."""
    longest = 0
    for at in range(0, max(1, len(disguised) - 24), 8):
        if disguised[at : at + 24] in report.text:
            longest = max(longest, 24)
    return longest


@pytest.mark.parametrize("disguise", DISGUISES)
@pytest.mark.parametrize("secret", [GITHUB, KEY], ids=["token", "key"])
def test_a_secret_goes_however_it_is_written(secret: str, disguise: str) -> None:
    disguised = DISGUISES[disguise](secret)
    report = filter_text(f"The first line.\n{disguised}\nThe last line of all.")
    assert remains(report, disguised) == 0
    assert "The first line" in report.text or disguise in {"a character a line", "a character a blank"}
    assert report.text.endswith("last line of all.")
    assert any(redaction.kind != "control" for redaction in report.redactions)


@given(st.lists(st.sampled_from(FRAGMENTS), min_size=3, max_size=40).map("".join))
@example(">QUJDq\nQUJDq")  # a sign that is no digit of base64 in what was decoded as such
def test_no_text_is_too_odd_to_be_read(text: str) -> None:
    """An exception here is a job whose output nobody sees: a filter that fails lets nothing pass."""
    filter_text(text)


@pytest.mark.parametrize("kind", ["RSA ", "", "EC ", "DSA ", "OPENSSH ", "ENCRYPTED "])
@pytest.mark.parametrize("half", [slice(None, 700), slice(700, None)], ids=["first", "second"])
def test_half_a_key_goes(kind: str, half: slice) -> None:
    text = pem(kind)[half]
    report = filter_text(f"what I found:\n{text}\n")
    assert remains(report, text) == 0
    assert report.counts == {"private_key": 1}


def test_a_key_without_its_armour_goes() -> None:
    bare = base64.b64encode(bytes.fromhex("308204a30201000282010100") + RNG.randbytes(1100)).decode()
    assert filter_text(f"n = {bare}").counts == {"private_key": 1}


def test_where_it_stood_and_how_it_was_hidden() -> None:
    hidden = base64.b64encode(GITHUB[::-1].encode()).decode()
    (found,) = filter_text(f"one two {hidden} three").redactions
    assert (found.kind, found.start, found.end) == ("github_token", 8, 8 + len(hidden))
    assert found.how == ("base64", "reversed")


@pytest.mark.parametrize(
    "line",
    [
        "password = getpass.getpass()",
        "token = tokens[0]",
        "max_tokens=4096, pad_token_id=50256",
        '{"password": null, "token_type": "bearer", "api_key": "your-api-key"}',
        "def login(user: str, password: str | None = None) -> Token:",
        "raise AuthenticationError('invalid password for user admin')",
        "postgres://user:password@localhost/db",
        "commit 3b18e512dba79e4c8300dd08aeb37f8e728b8dad",
        "d41d8cd98f00b204e9800998ecf8427e  empty.txt",
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08  test.bin",
        f'"integrity": "sha512-{base64.b64encode(bytes(range(64))).decode()}"',
        "550e8400-e29b-41d4-a716-446655440000",
        "-----BEGIN PRIVATE KEY----- is how such a file begins.",
        "the sky-high risk-averse task-oriented desk-bound disk-space brisk-looking clerk",
    ],
)
def test_honest_text_stays(line: str) -> None:
    report = filter_text(f"{line}\n" * 3)
    assert report == FilterReport(f"{line}\n" * 3)


def test_a_traceback_and_a_listing_stay() -> None:
    for file in (codecs.__file__, json.__file__, random.__file__, base64.__file__):
        text = Path(file).read_text()
        assert [one for one in filter_text(text).redactions if one.kind != "control"] == []


BOMB = base64.b64encode(zlib.compress(b"A" * 2**20, 9)).decode()


@pytest.mark.parametrize(
    "text",
    [
        f"{BOMB}\n{GITHUB[::-1]}",
        f"{BOMB}\n{GITHUB.encode().hex()}",
        BOMB + "\n" + "\u200b".join(GITHUB),
        f"x{GITHUB}",
        f"xghp_{GITHUB}",
        "0.113\n" + GITHUB.encode().hex(" "),
        GITHUB[:15] + "\n" + GITHUB[15:],
        "AKIA" + "Q3RT2Y5U4IO6\n7BCD",
        json.dumps("Ω" + GITHUB),
        GITHUB + "\u0130",
    ],
    ids=[
        "bomb",
        "bomb hex",
        "bomb zero-width",
        "letter",
        "decoy",
        "number",
        "half",
        "half AWS",
        "JSON",
        "grows",
    ],
)
def test_what_hostile_readers_have_found(text: str) -> None:
    """Each of these once left whole or in part."""
    report = filter_text(text)
    assert [one.kind for one in report.redactions if one.kind in {"github_token", "aws_access_key"}]
    for at in range(len(GITHUB) - 16):
        assert GITHUB[at : at + 16] not in report.text.replace("\u200b", "")


def test_any_number_of_bombs_hides_nothing() -> None:
    bombs = "\n".join(base64.b64encode(zlib.compress(b"a" * (4000 + n))).decode() for n in range(60))
    token = base64.b64encode(f"token is {GITHUB}".encode()).decode()
    assert token not in filter_text(f"{bombs}\n{token}").text


def test_what_grows_too_far_to_be_read_goes_itself() -> None:
    assert filter_text(f"a {BOMB} b").text == "a [REDACTED: packed_data] b"


class TestRegistered:
    """Values that an operator names."""

    VALUE = "plain words 42"
    SETTINGS = EgressSettings(secrets={"db": SecretStr(VALUE)})

    @pytest.mark.parametrize("disguise", DISGUISES)
    def test_a_registered_value_goes_however_it_is_written(self, disguise: str) -> None:
        disguised = DISGUISES[disguise](self.VALUE)
        report = filter_text(f"Some text first. {disguised} And some after.", settings=self.SETTINGS)
        assert disguised not in report.text
        assert "registered:db" in report.counts

    def test_in_any_case_and_within_other_words(self) -> None:
        report = filter_text(f"x{self.VALUE.upper()}y", settings=self.SETTINGS)
        assert report.text == "x[REDACTED: registered:db]y"

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ("Tr0ub4dor-x9Q2z", "\u0130 Tr0ub4dor-x9Q2z"),
            ("pässwörd-Ω9xyz", json.dumps("pässwörd-Ω9xyz")),
            ("pässwörd-Ω9xyz", "-".join("pässwörd-Ω9xyz")),
            ("\U0001f511-key-words", json.dumps("\U0001f511-key-words")),
        ],
    )
    def test_of_any_script(self, value: str, text: str) -> None:
        settings = EgressSettings(secrets={"db": SecretStr(value)})
        assert filter_text(text, settings=settings).counts == {"registered:db": 1}

    def test_a_file_of_them(self, tmp_path: Path) -> None:
        file = tmp_path / "secrets"
        file.write_text(f"# values\n\ndb={self.VALUE}\n")
        settings = EgressSettings(secrets_file=file)
        assert filter_text(self.VALUE, settings=settings).counts == {"registered:db": 1}

    @pytest.mark.parametrize(
        ("lines", "why"),
        [("db\n", "line 1: write NAME=value"), ("\ndb=ab\n", "db: a value of fewer than 6 characters")],
    )
    def test_a_wrong_file_is_named_without_a_value(self, tmp_path: Path, lines: str, why: str) -> None:
        file = tmp_path / "secrets"
        file.write_text(lines)
        with pytest.raises(ValueError, match=why):
            EgressSettings(secrets_file=file)


class TestEntropy:
    """R6 on runs of encoded-looking text."""

    NOTICE = "[SECURITY REDACTION: High Entropy Data Detected - Potential Secret Leak]"

    def test_a_random_run_goes_and_says_so_in_the_words_of_the_requirement(self) -> None:
        report = filter_text(f"data: {base64.b64encode(RNG.randbytes(300)).decode()} end")
        assert report.text == f"data: {self.NOTICE} end"

    def test_hexadecimal_is_judged_by_its_own_alphabet(self) -> None:
        assert filter_text(RNG.randbytes(300).hex()).text == self.NOTICE
        assert filter_text("00ff" * 150).redactions == ()

    def test_the_thresholds_are_settings(self) -> None:
        run = base64.b64encode(RNG.randbytes(300)).decode()
        for settings in (EgressSettings(entropy_chars=500), EgressSettings(entropy_bits=6.0)):
            assert filter_text(run, settings=settings).redactions == ()
        assert filter_text(run[:100], settings=EgressSettings(entropy_chars=80)).text == self.NOTICE

    @pytest.mark.parametrize("width", [64, 70, 76, 80])
    def test_however_it_is_wrapped(self, width: int) -> None:
        body = base64.b64encode(RNG.randbytes(900)).decode()
        for text in (body, f"ssh-rsa {body}", f"-----BEGIN CERTIFICATE-----\n{body}"):
            wrapped = "\n".join(text[at : at + width] for at in range(0, len(text), width))
            assert "high_entropy" in filter_text(wrapped).counts

    def test_what_is_public_or_readable_stays(self) -> None:
        body = base64.encodebytes(b"\x30\x82\x03\x80" + RNG.randbytes(896)).decode()
        for text in (
            f"-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n",
            f"ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQ{drawn(300)} me@host",
            base64.b64encode(b"It was a dark and stormy night; the rain fell in torrents. " * 9).decode(),
            "".join(f"{RNG.randbytes(32).hex()}  file{n}\n" for n in range(40)),
        ):
            assert filter_text(text).redactions == ()


class TestControls:
    """What acts instead of being read."""

    @pytest.mark.parametrize(
        ("given", "shown"),
        [
            ("\x1b[31mred\x1b[0m", "red"),
            ("\x1b]0;title\x07", "␛]0;title␇"),
            ("\x1b[2J\x1b[H", "␛[2J␛[H"),
            ("a\rb", "a\nb"),
            ("a\r\nb\tc\n", "a\r\nb\tc\n"),
            ("a\u202eb\u2066c", "a\\u202eb\\u2066c"),
            ("nul\0", "nul␀"),
            ("\x9b31m", "\\u009b31m"),
            ("tag\U000e0041", "tag\\U000e0041"),
            ("lone\ud800", "lone\\ud800"),
        ],
    )
    def test_is_shown_and_not_obeyed(self, given: str, shown: str) -> None:
        report = filter_text(given)
        assert report.text == shown
        assert bool(report.redactions) is (given != shown)
        report.text.encode()

    @pytest.mark.parametrize(
        "text",
        [
            "\u05e9\u05dc\u05d5\u05dd (abc)\u200f, \u0633\u0644\u0627\u0645\u061c 1\u200e2",
            "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
            "long\u200bword\u2060s",
            "\ufeffid,name\n1,ann\n",
        ],
        ids=["direction", "flag", "width", "byte order mark"],
    )
    def test_marks_of_honest_text_stay(self, text: str) -> None:
        assert filter_text(text) == FilterReport(text)

    @pytest.mark.parametrize("mark", "\u200b\u200e\u200f\u061c\u2060\ufeff")
    def test_a_secret_divided_by_such_marks_goes(self, mark: str) -> None:
        report = filter_text(f"see {mark.join(GITHUB)} and {mark}on")
        assert report.counts == {"github_token": 1}
        assert report.text.endswith(f" and {mark}on")

    def test_text_written_in_such_marks_goes(self) -> None:
        assert filter_text("a" + "\u200b\u200e" * 20 + "b").text == "ab"

    def test_letters_of_all_scripts_and_emoji_stay(self) -> None:
        text = "Grüße, мир, 世界, שלום, नमस्ते, 👩\u200d👩\u200d👧, ❤\ufe0f"
        assert filter_text(text) == FilterReport(text)


class TestHiddenReasoning:
    """D16: what a model thought and did not say."""

    def test_by_the_names_of_json_members(self) -> None:
        answer = json.dumps({"content": "42", "reasoning_content": 'first "x", then y'})
        assert json.loads(filter_text(answer).text)["content"] == "42"
        assert "then y" not in filter_text(answer).text

    def test_between_the_tags_of_open_models(self) -> None:
        report = filter_text("<think>\nWell, the user wants a number.\n</think>\n42")
        assert report.text == "[REDACTED: hidden_reasoning]\n42"

    def test_which_names_is_a_setting(self) -> None:
        settings = EgressSettings(hidden_fields=())
        assert filter_text('{"thinking": "some thought"}', settings=settings).redactions == ()


KILLERS = {
    "dashes": "-" * 50_000,
    "begins": "-----BEGIN " * 5_000,
    "armour without end": "-----BEGIN RSA PRIVATE KEY-----\n" * 1_500,
    "last lines": "AAAA\n-----END RSA PRIVATE KEY-----\n" * 1_500,
    "names": "password" * 6_000,
    "names and signs": "password: " * 5_000,
    "quotes": "'\"" * 25_000,
    "escapes": "\\x41" * 12_000,
    "percents": "%" * 50_000,
    "zeros": "0" * 50_000,
    "lines": "\n" * 50_000,
    "base64": "QUJD" * 12_000,
    "numbers": "65, " * 12_000,
    "single characters": "a, " * 16_000,
    "addresses": "http://" * 7_000,
    "colons": "a:" * 25_000,
    "mysql": "mysql -u root " * 3_500,
    "tags": "<think>" * 7_000,
    "members": '"thinking": "' * 4_000,
    "eyJ": "eyJhbGciOi." * 4_500,
    "escape sequences": "\x1b[" * 25_000,
    "nested base64": "",
}


@pytest.mark.long("each takes several times what ordinary text does: minutes together")
@pytest.mark.parametrize("name", KILLERS)
def test_hostile_text_takes_no_more_than_several_times_what_ordinary_text_does(name: str) -> None:
    ordinary = (Path(__file__).read_text() * 10)[:50_000]
    text = KILLERS[name]
    if name == "nested base64":
        text = "x" * 600
        while len(text) < 50_000:
            text = base64.b64encode(text.encode()).decode() + "\n" + text
    started = time.perf_counter()
    filter_text(ordinary)
    honest_s = time.perf_counter() - started
    started = time.perf_counter()
    filter_text(text[:60_000])
    assert time.perf_counter() - started < 12 * honest_s
