"""Places that promise a secret and values that look like one, each judged apart from the other."""

# ruff: noqa: E501

from __future__ import annotations

import base64
import codecs
import random
import time
import tracemalloc
import zlib
from pathlib import Path

import pytest

from cellblock.egress import filter_text
from cellblock.egress.places.assessment import Setting, is_secret
from cellblock.egress.places.lexicon import Promise, promised
from cellblock.egress.rules import RULES
from cellblock.egress.values import seeds
from cellblock.egress.values.checksums import from_base58
from cellblock.egress.values.scorer import score
from cellblock.egress.views import ReadingBudget, views

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


#: Out of what programs print that nobody wrote for the filter; the first two are reports of CPython's own tests.
FOUND = {
    "a report of test_uuid": (
        "test_uuid1 (test.test_uuid.TestUUIDWithExtModule.test_uuid1) ... ok\n"
        "test_find_under_heading_ipv6 (test.test_uuid.TestInternalsWithoutExtModule.test_find_under_heading_ipv6) ... ok\n"
        "test_decode (test.test_base64.LegacyBase64TestCase.test_decode) ... ok\n"
        "testIssue8621 (test.test_uuid.TestUUIDWithExtModule.testIssue8621) ... skipped 'requires getpass'\n"
    ),
    "a report of test_shutil": (
        "test_make_tarball_extended_ascii (test.test_shutil.TestArchives.test_make_tarball_extended_ascii) ... ok\n"
        "test_copyfile_same_file2 (test.test_shutil.TestCopyFileObj2Win32Utf8.test_win32_destination_passwd9) ... ok\n"
    ),
    "a certificate as openssl shows it": (
        "        Serial Number: 8401224907861490260 (0x7497258ac73f7a54)\n"
        "        Issuer: serialNumber = G63287510, O = Buypass AS-983163327\n"
        "    Signature Value:\n        89:a8:72:7f:8c:eb:ce:2e:18:c4:10:80:2d:10:0c:ff:fb:14:23:9a\n"
    ),
    "flags of a compiler": "  -pass-exit-codes         Exit with highest error code\n  -print-multi-directory   Display the root\n",
    "flags below each other": "     --send-keys     export keys\n     --receive-keys     import keys\n     --search-keys     look\n",
    "a record of files": "docker/version.py,sha256=7BJkAx-Ukdj2ZMkpwQL5UiiByEpcRSxeUr6tJZh03WM,240\na=3Db\n",
    "a verb": "# raises if we pass axis=0 (on Index and Categorical)\nPass --bold-refs to our help2man unless disabled.\n",
    "a signature of a format": "Signature: 8a477f597d28d172789f06886806bc55\n# This file is a cache directory tag\n",
    "an argument": "virtualenv v -ppython2.7: v/bin/python -> python2.7\n",
    "rows of a frame": "   package  tokens     sha\n0    6250  ee2aade7495e3740697584544d2441e4b93060c0\n1    5678  d520a276\n",
    "an expanded row": "Instance | pass | 51cb9761-b588-4598-8940-91c11ccdce3b\nInstance | fail | 41cb9761-b588-4598-8940-91c11ccdce3b\n",
    "identifiers in sentences": "Properties `chaos_secondary_pass`, `coherence_non_latin` and `w_counter` from a secret Ed25519 key\n",
    "a variable behind a user": 'curl -fsS -u "$USER:$PASSWORD" "$URL"\n',
    "a mode": '  print("+")\nx = f(nargs=\'+\', password_encryption="scram-sha-256")\n',
    "a line of a protocol": "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\n",
}


@pytest.mark.parametrize("text", FOUND.values(), ids=list(FOUND))
def test_what_programs_of_others_print_stays(text: str) -> None:
    assert filter_text(text).redactions == ()


def test_a_certificate_cut_at_its_beginning_is_as_public_as_a_whole_one() -> None:
    body = "\n".join(base64.b64encode(RNG.randbytes(48)).decode() for _ in range(8))
    assert filter_text(f"{body}\n-----END CERTIFICATE-----\n").redactions == ()
    assert filter_text(f"{body}\n-----END-----\n").redactions


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
        ('CREATE USER app IDENTIFIED BY "3l-qMp0whUz8yS";', "3l-qMp0whUz8yS"),
        ("SET PASSWORD FOR 'app'@'%' = '_river766lilac';", "_river766lilac"),
        ("db.auth('jdoe', 'wUrxnr8Wmi-xBds72WaR')", "wUrxnr8Wmi-xBds72WaR"),
        ("log in with svc_report / R3b-nBGZdv$SK", "R3b-nBGZdv$SK"),
        ("zip -P VwOyGUnfboYaSmi5 out.zip *.csv", "VwOyGUnfboYaSmi5"),
        ("Enter passphrase for key '/root/id': donkey-circus-carpet-hammer", "donkey-circus-carpet-hammer"),
        ("<ann> whats the wifi password?\n<bob> Maple$Temple975", "Maple$Temple975"),
        ('[{app, [{db_password, "nLS^S+k@?1P$U?tB"}]}].', "nLS^S+k@?1P$U?tB"),
        ("Row 1: ['User', 'Password']\nRow 2: ['ann', 'Elif1991??']", "Elif1991??"),
        ("Driver={SQL};Uid=ann;Pwd={BDkzs2HQG1hFBRKJ};", "BDkzs2HQG1hFBRKJ"),
        ("https://host.example/join/verify/g2sWYJIUKODRY4AWk7GjhiyLRkmeBA", "g2sWYJIUKODRY4AWk7GjhiyLRkmeBA"),
        ('{"recovery_codes": ["qAcSH0SbZx", "JgQx1I50BD"]}', "JgQx1I50BD"),
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


PIECES = ("cGFzc3dvc", "mQ6IFhrOW", "1QcTJ2VHp", "SdyBmb3Ig", "c3RhZ2luZw")
CONCATENATED = 's = "pass" + "word: Xk9" + "mPq2vTz"'


@pytest.mark.parametrize(
    "text",
    [
        CONCATENATED,
        "".join(f"{n},{piece}\n" for n, piece in enumerate(PIECES, 1)),
        "part 1/3: password\npart 2/3: =Xk9mPq\npart 3/3: 2vTzRw\n",
        str(int.from_bytes(b"password=Xk9mPq2vTz", "big")),
        "\n".join(f"{n} {char}" for n, char in enumerate("password=Xk9mPq2vTz")),
        "p\u0430ssw\u043erd=Xk9mPq2vTz",
    ],
    ids=["concatenated", "numbered cells", "labelled", "big integer", "indexed", "look-alike"],
)
def test_layouts_and_codecs_are_undone(text: str) -> None:
    assert filter_text(text).redactions


def test_a_text_read_backwards_is_not_looked_through_for_numbers() -> None:
    assert filter_text("42.7143,0505 :nip\nd5145cf0503cbadbe277:moc.elpmaxe@bob\n").redactions == ()


def test_in_other_letters_words_are_no_values() -> None:
    words = codecs.encode("password: apple river stone window\n", "rot13")
    assert filter_text(words).redactions == ()
    assert filter_text(codecs.encode("password: Xk9mPq2vTzRw\n", "rot13")).redactions


def test_a_mark_that_ends_a_quotation_is_a_joint_and_no_other() -> None:
    text = "f(nargs='+', x='+', y='')\n"
    assert not any("concatenated" in view.how for view in views(text))
    assert any("concatenated" in view.how for view in views(CONCATENATED))


def test_readings_of_a_job_share_a_budget_and_what_is_beyond_it_goes() -> None:
    text = f"x\n{base64.b64encode(b'some harmless words, and more of them').decode()}\n"
    assert any(view.how for view in views(text))
    spent = ReadingBudget(chars_left=10)
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
@pytest.mark.long("half a minute each")
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
    # Most of it for texts of emoji, four bytes a letter; a worker holds each request to memory of its own
    # (filter_memory_bytes).
    assert peak < 300 * 65_536
    started = time.process_time()
    filter_text(text)
    assert time.process_time() - started < 8 * honest_s
