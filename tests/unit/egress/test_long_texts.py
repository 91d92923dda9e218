"""The filter looks at all of a long text, in time proportional to it: no count ends the search silently."""

from __future__ import annotations

import base64
import time

import pytest

from cellblock.egress import filter_text

LAST = "Hunter2Secret99"
HOST = "gh" + "p_" + "x7Kq9Zt2Lm4Rv8Bw1Nc6Pd3Hs5Jf0Gy7Qa2X"
MANY = 2100


def _rows(form: str) -> str:
    return "".join(form.format(n=n, value=f"Pw{n:05}xK!q") for n in range(MANY))


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("password: a\n" * 21_000 + f"password: {LAST}\n", LAST),
        ("password: a\n" * 21_000 + f"DB_PASSWORD={LAST}\n", LAST),
        ("password: a\n" * 21_000 + f"user,password\nann,{LAST}\n", LAST),
        (f"id,user,password\n{_rows('{n},u{n},w{n}' + chr(10))}7,ann,{LAST}\n", LAST),
        (f"id,user,password\n{_rows('{n},u{n},{value}' + chr(10))}", f"Pw{MANY - 1:05}xK!q"),
        (f"id    user   password\n{_rows('{n:<6}u{n:<6}{value}' + chr(10))}", f"Pw{MANY - 1:05}xK!q"),
        (f"{','.join(f'c{n}' for n in range(500))},password\n{'1,' * 500}{LAST}\n", LAST),
        (
            f'{{"columns": ["id", "password"], "rows": [{_rows("[{n}, {value!r}],")}]}}',
            f"Pw{MANY - 1:05}xK!q",
        ),
        (f"backup_passwords: [{_rows('{value!r},')}]", f"Pw{MANY - 1:05}xK!q"),
        ("backup_passwords:\n" + _rows("  - {value}\n"), f"Pw{MANY - 1:05}xK!q"),
        ("password: |\n" + _rows("  {value}\n"), f"Pw{MANY - 1:05}xK!q"),
        ("a@b\n" * MANY + f"bob:{LAST}!x@db.example.com\n", LAST),
        (f"{f'x{HOST[:4]}{chr(97) * 30} ' * 70}x{HOST[:4]}{'a' * 600}{HOST}", HOST),
        (base64.b85encode(f"{'some plain words, ' * 1000}password={LAST}".encode()).decode(), "+}Ys"),
    ],
    ids=[
        *("name", "assignment", "table behind names", "table", "delimited", "aligned", "wide table"),
        *("json table", "list", "list of lines", "block", "address", "decoys", "long base85"),
    ],
)
def test_a_secret_is_found_however_much_stands_before_it(text: str, secret: str) -> None:
    secret = text[-12:] if secret == "+}Ys" else secret
    assert secret in text
    report = filter_text(text)
    assert secret not in report.text
    assert report.redactions


@pytest.mark.parametrize(
    "line",
    [
        "10:00:{n:02} INFO worker-{n} request took {n} ms, tokens=12{n} user=ann token cache hit\n",
        "{n},row {n},item_{n},{n}.25\n",
        "token   w{n}\n",
    ],
    ids=["log", "table", "two columns"],
)
def test_honest_text_of_25000_lines_stays(line: str) -> None:
    text = "id,name,key,amount\n" + "".join(line.format(n=n) for n in range(25_000))
    assert filter_text(text).redactions == ()


@pytest.mark.parametrize(
    "piece",
    [
        "secret,token\n",
        "secret,token\ntoken,secret\nuser,pass\n",
        "user pass\n",
        "secret:\n  - secret:\n",
        "password: |\n ",
        '{"columns": ["id", "password"], "r": [[1, "a"]]} ',
        "password: \u201c",
        '"' + " " * 40_000,
        "password=a " * 180 + "\t" * 2_000 + "x\n",
        "secret=a;",
        "0u8;\n",
        "".join(
            f"user{' ' * n}pass{' ' * (n % 7 + 1)}token\nfoo{' ' * n}bar{' ' * n}b\n" for n in range(2, 80)
        ),
    ],
    ids=[
        *("headings", "other headings", "aligned", "lists", "blocks", "columns", "open", "blanks"),
        *("blanks behind names", "names", "numbers", "many aligned"),
    ],
)
def test_places_within_places_take_time_in_proportion_to_the_text(piece: str) -> None:
    def cpu_s(chars: int) -> float:
        text = (piece * (chars // len(piece) + 1))[:chars]
        started = time.process_time()
        filter_text(text)
        return time.process_time() - started

    cpu_s(1_000)
    assert cpu_s(32_000) < 24 * cpu_s(4_000) + 0.2


def test_a_run_of_letters_of_any_length_is_read() -> None:
    text = "password: a\n" * 300 + "x" * 5_000 + f"password: {LAST}\n"
    assert LAST not in filter_text(text).text
