"""Honest outputs with records in them: tables, JSON, logs, listings, lock files."""

from __future__ import annotations

import base64
import csv
import io
import json
import random
import uuid
from collections.abc import Callable

from bench.egress.prose import sentence, words

Rng = random.Random
TELLING = {"token", "tokens", "key", "keys", "secret", "secrets", "password", "auth", "credentials"}
LEVELS = ("DEBUG", "INFO", "INFO", "INFO", "WARNING", "ERROR")
PACKAGES = ["redis", "pyjwt", "passlib", "keyring", "tokenizers", "secretstorage", "cryptography"]


def word(rng: Rng) -> str:
    """A word that does not make a secret of what it names."""
    return next(found for found in words(rng, 9) if found not in TELLING)


def uid(rng: Rng) -> str:
    return str(uuid.UUID(bytes=rng.randbytes(16), version=4))


def hexed(rng: Rng, count: int) -> str:
    """That many hex digits."""
    return rng.randbytes((count + 1) // 2).hex()[:count]


def b64(rng: Rng, count: int) -> str:
    """That many random bytes."""
    return base64.b64encode(rng.randbytes(count)).decode()


def version(rng: Rng) -> str:
    return f"{rng.randint(0, 12)}.{rng.randint(0, 30)}.{rng.randint(0, 12)}"


def stamp(rng: Rng) -> str:
    day = f"2031-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
    return f"{day}T{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:{rng.randint(0, 59):02}"


def address(rng: Rng) -> str:
    return f"10.{rng.randint(0, 255)}.{rng.randint(0, 255)}.{rng.randint(1, 254)}"


def lines(rng: Rng, make: Callable[[], str], least: int = 4, most: int = 40) -> str:
    """Some lines of a kind."""
    return "\n".join(make() for _ in range(rng.randint(least, most))) + "\n"


def table_rows(rng: Rng) -> list[list[str]]:
    """With a header; ids of several kinds among numbers and names."""
    columns: dict[str, Callable[[], str]] = {
        "id": lambda: str(rng.randrange(10**6)),
        "uuid": lambda: uid(rng),
        "name": lambda: word(rng).capitalize(),
        "email": lambda: f"{word(rng)}@example.com",
        "score": lambda: f"{rng.gauss(50, 20):.6f}",
        "share": lambda: f"{rng.random():.3e}",
        "created": lambda: stamp(rng),
        "sha": lambda: hexed(rng, 40),
        "tokens": lambda: str(rng.randrange(9000)),
        "key": lambda: word(rng),
        "password_set": lambda: rng.choice(("True", "False")),
    }
    names = rng.sample(list(columns), rng.randint(2, 7))
    return [names, *([columns[name]() for name in names] for _ in range(rng.randint(3, 30)))]


def aligned(rng: Rng) -> str:
    """As pandas prints a frame."""
    rows = table_rows(rng)
    numbered = [["", *rows[0]], *([str(n), *row] for n, row in enumerate(rows[1:]))]
    widths = [max(map(len, column)) for column in zip(*numbered, strict=True)]
    return "\n".join("  ".join(map(str.rjust, row, widths)) for row in numbered) + "\n"


def psql(rng: Rng) -> str:
    rows = table_rows(rng)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    shown = [" | ".join(map(str.ljust, row, widths)) for row in rows]
    return "\n".join(
        (shown[0], "-+-".join("-" * width for width in widths), *shown[1:], f"({len(rows) - 1} rows)")
    )


def markdown_table(rng: Rng) -> str:
    rows = table_rows(rng)
    shown = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join((shown[0], "|---" * len(rows[0]) + "|", *shown[1:])) + "\n"


def as_csv(rng: Rng) -> str:
    out = io.StringIO()
    csv.writer(out, delimiter=rng.choice(",;\t")).writerows(table_rows(rng))
    return out.getvalue()


def tree(rng: Rng, depth: int = 3) -> object:
    """Something for JSON, ids and sums included."""
    leaves: tuple[Callable[[], object], ...] = (
        lambda: rng.randrange(10**9),
        lambda: round(rng.gauss(0, 100), 4),
        lambda: uid(rng),
        lambda: hexed(rng, rng.choice((24, 32, 40, 64))),
        lambda: stamp(rng) + "Z",
        lambda: sentence(rng),
        lambda: rng.choice((None, True, False)),
        lambda: f"https://example.com/{word(rng)}/{rng.randrange(10**6)}?page={rng.randint(1, 9)}",
        lambda: f"sha256:{hexed(rng, 64)}",
    )
    if depth == 0 or rng.random() < 0.3:
        return rng.choice(leaves)()
    if rng.random() < 0.4:
        return [tree(rng, depth - 1) for _ in range(rng.randint(1, 6))]
    fixed = {
        "id": uid(rng),
        "token_count": rng.randrange(9000),
        "password": None,
        "next_token": None,
        "keys": [],
    }
    known = dict(rng.sample(list(fixed.items()), rng.randint(0, 3)))
    return {**known, **{word(rng): tree(rng, depth - 1) for _ in range(rng.randint(1, 6))}}


def as_json(rng: Rng) -> str:
    return json.dumps(tree(rng), indent=rng.choice((None, 2, 4)))


def nginx(rng: Rng) -> str:
    def line() -> str:
        asked = f"GET /{word(rng)}/{rng.randrange(9999)}?ref={word(rng)}&utm_source={word(rng)} HTTP/1.1"
        status = rng.choice((200, 304, 404))
        return f'{address(rng)} - - [{stamp(rng)} +0000] "{asked}" {status} {rng.randrange(9**6)}'

    return lines(rng, line)


def syslog(rng: Rng) -> str:
    said = (
        lambda: (
            f"sshd[{rng.randrange(99)}]: Accepted publickey for git from {address(rng)} port 5102 ssh2: RSA "
            f"SHA256:{b64(rng, 32)[:43]}"
        ),
        lambda: (
            f"sshd[{rng.randrange(9999)}]: Failed password for invalid user {word(rng)} from {address(rng)}"
        ),
        lambda: f"kernel: [{rng.random() * 1e5:12.6f}] {word(rng)}0: {sentence(rng)}",
        lambda: f"systemd[1]: Started session-{rng.randrange(999)}.scope - {sentence(rng)}",
    )
    return lines(
        rng, lambda: f"Mar {rng.randint(1, 28):2} 04:{rng.randint(10, 59)}:07 host {rng.choice(said)()}"
    )


def json_log(rng: Rng) -> str:
    def line() -> str:
        ids = {"request_id": uid(rng), "trace_id": hexed(rng, 32), "span_id": hexed(rng, 16)}
        return json.dumps({"ts": stamp(rng), "level": rng.choice(LEVELS), "msg": sentence(rng), **ids})

    return lines(rng, line, 2, 20)


def app_log(rng: Rng) -> str:
    said = (
        lambda: sentence(rng),
        lambda: f"token bucket refilled, {rng.randrange(99)} tokens left",
        lambda: f"cache key user:{rng.randrange(10**6)}:profile missed",
        lambda: f"refreshed access token for client {word(rng)}, expires in 3600 s",
        lambda: f'job {uid(rng)} done in {rng.random():.3f}s etag W/"{hexed(rng, 32)}"',
        lambda: "password changed for user " + word(rng),
    )
    return lines(
        rng,
        lambda: f"{stamp(rng).replace('T', ' ')},123 {rng.choice(LEVELS)} {word(rng)}: {rng.choice(said)()}",
    )


def git_log(rng: Rng) -> str:
    def entry() -> str:
        who = f"Author: {word(rng)} <{word(rng)}@example.com>\nDate:   {stamp(rng)}"
        return f"commit {hexed(rng, 40)}\n{who}\n\n    {sentence(rng)}\n"

    short = rng.random() < 0.5
    return lines(
        rng, lambda: f"{hexed(rng, rng.choice((7, 8, 10)))} {sentence(rng)}" if short else entry(), 3, 20
    )


def sums(rng: Rng) -> str:
    size = rng.choice((32, 40, 64, 96, 128))
    return lines(
        rng, lambda: f"{hexed(rng, size)}  ./{word(rng)}/{word(rng)}.{rng.choice(('py', 'gz', 'bin'))}", 1
    )


def pip_hashes(rng: Rng) -> str:
    def entry() -> str:
        hashes = " \\\n".join(f"    --hash=sha256:{hexed(rng, 64)}" for _ in range(rng.randint(1, 6)))
        return f"{rng.choice(PACKAGES)}=={version(rng)} \\\n{hashes}\n    # via -r requirements.in"

    return lines(rng, entry, 2, 12)


def npm_lock(rng: Rng) -> str:
    def entry() -> tuple[str, object]:
        name, number = f"node_modules/{word(rng)}-{word(rng)}", version(rng)
        url = f"https://registry.npmjs.org/{name}/-/{name}-{number}.tgz"
        return name, {"version": number, "resolved": url, "integrity": f"sha512-{b64(rng, 64)}"}

    return json.dumps(
        {"lockfileVersion": 3, "packages": dict(entry() for _ in range(rng.randint(1, 15)))}, indent=2
    )


def other_locks(rng: Rng) -> str:
    forms: tuple[Callable[[], str], ...] = (
        lambda: f"github.com/{word(rng)}/{word(rng)} v{version(rng)} h1:{b64(rng, 32)}",
        lambda: (
            f'[[package]]\nname = "{word(rng)}"\nversion = "{version(rng)}"\nchecksum = "{hexed(rng, 64)}"\n'
        ),
        lambda: (
            f'{word(rng)}@^{version(rng)}:\n  version "{version(rng)}"\n  integrity sha512-{b64(rng, 64)}\n'
        ),
        lambda: f'    {{file = "{word(rng)}-{version(rng)}.whl", hash = "sha256:{hexed(rng, 64)}"}},',
        lambda: f"    {word(rng)} (= {version(rng)}) sha256={hexed(rng, 64)}",
        lambda: f'<script src="https://cdn.test/{word(rng)}.js" integrity="sha384-{b64(rng, 48)}"></script>',
    )
    return lines(rng, rng.choice(forms), 2, 20)


def docker_images(rng: Rng) -> str:
    def line() -> str:
        name = f"{word(rng)}/{word(rng):12} {version(rng):10}"
        return f"{name} {hexed(rng, 12)}   3 weeks ago   {rng.randint(5, 900)}MB"

    digests = lines(
        rng, lambda: f"{version(rng)}: digest: sha256:{hexed(rng, 64)} size: {rng.randrange(9999)}", 1, 4
    )
    return "REPOSITORY TAG IMAGE ID CREATED SIZE\n" + lines(rng, line, 2, 15) + digests


def file_listing(rng: Rng) -> str:
    def long() -> str:
        name = f"{word(rng)}.{word(rng)}"
        return f"-rw-r--r-- 1 root root {rng.randrange(10**7):8} Mar {rng.randint(1, 28):2} 04:17 {name}"

    def found() -> str:
        return (
            "./"
            + "/".join(word(rng) for _ in range(rng.randint(2, 7)))
            + rng.choice((".py", ".key", "_token.go", ""))
        )

    return lines(rng, rng.choice((long, found)))


def pip_install(rng: Rng) -> str:
    got = [(name, version(rng)) for name in rng.sample(PACKAGES, rng.randint(1, len(PACKAGES)))]
    fetched = "".join(
        f"Collecting {name}\n  Downloading {name}-{number}-py3-none-any.whl.metadata (4.6 kB)\n"
        f"   ━━━━━━━━━━━━━━━━━━━━ {rng.randint(10, 900)}.1/900.1 kB 5.1 MB/s eta 0:00:00\n"
        for name, number in got
    )
    return fetched + "Successfully installed " + " ".join(f"{name}-{number}" for name, number in got) + "\n"


RECORDS: dict[str, tuple[int, Callable[[Rng], str]]] = {
    "frame": (90, aligned),
    "psql": (60, psql),
    "markdown table": (50, markdown_table),
    "csv": (80, as_csv),
    "json": (160, as_json),
    "nginx log": (50, nginx),
    "syslog": (50, syslog),
    "json log": (60, json_log),
    "application log": (80, app_log),
    "git log": (70, git_log),
    "checksums": (60, sums),
    "pip hashes": (50, pip_hashes),
    "npm lock": (50, npm_lock),
    "other locks": (70, other_locks),
    "docker images": (40, docker_images),
    "file listing": (60, file_listing),
    "pip install": (40, pip_install),
}
