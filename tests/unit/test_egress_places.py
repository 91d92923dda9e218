"""Places that promise a secret and values that look like one, each judged apart from the other."""

from __future__ import annotations

import base64
import random
import time
import tracemalloc
import zlib
from pathlib import Path

import pytest

from cellblock.egress import filter_text
from cellblock.egress.places.lexicon import Promise, promised
from cellblock.egress.rules import RULES
from cellblock.egress.values import seeds
from cellblock.egress.values.checksums import from_base58
from cellblock.egress.values.judging import Setting, is_secret
from cellblock.egress.values.scorer import score
from cellblock.egress.views import Budget, views

RNG = random.Random(20261125)
HEX = RNG.randbytes(20).hex()


@pytest.mark.parametrize(
    "line",
    [
        "sort_key=abc123def456",
        f"cache_key={RNG.randbytes(16).hex()}",
        "tokenizer=gpt2-large-v3b",
        f"GPG_KEY={HEX.upper()}",
        "A" * 120,
        "monkey: h7Gk2pQ9xZ4t",
        "password must be at least 8 characters",
        "max_tokens=4096, next_page_token=",
        'msgid "password"\nmsgstr "Passwort muss mindestens acht Zeichen haben"',
    ],
)
def test_what_only_sounds_like_a_secret_stays(line: str) -> None:
    assert filter_text(f"{line}\nend").redactions == ()


def test_a_notice_leaves_the_name_of_the_next_line() -> None:
    report = filter_text("password=Xk9mPq2vTz\nuser_name=alice\n")
    assert report.text == "password=[REDACTED: assigned_secret]\nuser_name=alice\n"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("user,password,host\nbob,S3cr3t!x,h1\n", "S3cr3t!x"),
        ("| user | password |\n|---|---|\n| bob | S3cr3t!x |\n", "S3cr3t!x"),
        ("   user    password\n0  bob  Qx8fooBar1\n", "Qx8fooBar1"),
        ("password: |\n  Xk3!fooBar\nnext: 1\n", "Xk3!fooBar"),
        ('pw = """\nSecr3tV4lue!\n"""\n', "Secr3tV4lue!"),
        ("cat <<EOF | tool --password-stdin\nhunter22!\nEOF\n", "hunter22!"),
        ("das Passwort für den Server lautet Geheim2024!", "Geheim2024!"),
        ("数据库的密码是Xk9mPq2v!", "Xk9mPq2v!"),
        ("- name: DB_PASSWORD\n  value: Xk9mPq2v\n", "Xk9mPq2v"),
        ("<key>Password</key>\n<string>Xk9mPq2v</string>", "Xk9mPq2v"),
        ("define('DB_PASSWORD', 'Xk9mPq2v');", "Xk9mPq2v"),
        ("password=plum grape tiger moon\n", "plum grape tiger moon"),
        ("passphrase: correct-horse-battery-staple\n", "correct-horse-battery-staple"),
        ("username bob password 7 0822455D0A16\n", "0822455D0A16"),
        ("tool -u bob -p Xk9mPq2vTz run", "Xk9mPq2vTz"),
        ('{"kty":"oct","k":"Xk9mPq2vTzXk9mPq2vTzAAbb"}', "Xk9mPq2vTzXk9mPq2vTzAAbb"),
        ("root:$y$j9T$abcdefgh$0123456789abcdefghijABCDEFGHIJ:1:", "0123456789abcdefghijABCDEFGHIJ"),
    ],
)
def test_a_place_gives_its_value_away(text: str, secret: str) -> None:
    assert secret not in filter_text(text).text


@pytest.mark.parametrize(
    ("name", "promise"),
    [
        ("Benutzerpasswort", Promise.CHOSEN),
        ("dbPassword", Promise.CHOSEN),
        ("access_token", Promise.DRAWN),
        ("key", Promise.FAINT),
        ("sort_key", Promise.NONE),
        ("public_key", Promise.NONE),
        ("tokenizer", Promise.NONE),
        ("password_length", Promise.NONE),
    ],
)
def test_a_name_is_judged_by_its_words(name: str, promise: Promise) -> None:
    assert promised(name) is promise


def test_the_stronger_the_place_the_weaker_the_value() -> None:
    phrase = "plum grape tiger moon"
    assert is_secret(phrase, Promise.CHOSEN, Setting.QUOTED)
    assert not is_secret(phrase, Promise.DRAWN, Setting.QUOTED)
    assert not is_secret(HEX, Promise.FAINT, Setting.QUOTED)


def test_the_scorer_knows_drawn_from_written() -> None:
    assert score("h7Gk2pQ9xZ4tWm3R") > 0 > score("configuration_file_name")


def test_a_seed_phrase_needs_its_checksum() -> None:
    right = "abandon " * 11 + "about"
    assert list(seeds.find(right)) == [(0, len(right))]
    assert list(seeds.find("abandon " * 11 + "above")) == []


def test_base_58_keeps_leading_zeros() -> None:
    assert from_base58("112") == b"\0\0\x01"


CONCATENATED = 's = "pass" + "word: Xk9" + "mPq2vTz"'


@pytest.mark.parametrize(
    "text",
    [
        CONCATENATED,
        "part 1/3: password\npart 2/3: =Xk9mPq\npart 3/3: 2vTzRw\n",
        str(int.from_bytes(b"password=Xk9mPq2vTz", "big")),
        "\n".join(f"{n} {char}" for n, char in enumerate("password=Xk9mPq2vTz")),
        "p\u0430ssw\u043erd=Xk9mPq2vTz",
    ],
    ids=["concatenated", "labelled", "big integer", "indexed", "look-alike"],
)
def test_layouts_and_codecs_are_undone(text: str) -> None:
    assert filter_text(text).redactions


def test_readings_of_a_job_share_a_budget_and_what_is_beyond_it_goes() -> None:
    text = f"x\n{base64.b64encode(b'some harmless words, and more of them').decode()}\n"
    assert any(view.how for view in views(text))
    spent = Budget(chars_left=10)
    assert {view.text for view in views(text, spent) if view.how} == {"\ue000packed\ue000"}
    assert spent.chars_left == 0


GLUED = "".join(rule.literal + "x" for rule in RULES if rule.literal.isascii() and "\n" not in rule.literal)
EMOJI_ZLIB = base64.b64encode(
    zlib.compress("\U0001f511".encode() + RNG.randbytes(150).hex().encode() * 600)
).decode()


@pytest.mark.parametrize(
    "text",
    [
        GLUED * (262_144 // len(GLUED)),
        (EMOJI_ZLIB + "\n") * (262_144 // len(EMOJI_ZLIB)),
        (base64.b64encode(zlib.compress((GLUED * 40).encode())).decode() + "\n") * 64,
    ],
    ids=["glued beginnings", "zlib with an emoji", "both"],
)
def test_hostile_text_of_256_KiB_stays_within_bounds_of_time_and_memory(text: str) -> None:
    text = text[:262_144]
    ordinary = (Path(__file__).read_text() * 100)[:262_144]
    started = time.process_time()
    filter_text(ordinary)
    honest_s = time.process_time() - started
    tracemalloc.start()
    filter_text(text[:65_536])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # 627 before; a worker holds each request to memory of its own (filter_memory_bytes).
    assert peak < 700 * 65_536
    started = time.process_time()
    filter_text(text)
    assert time.process_time() - started < 8 * honest_s
