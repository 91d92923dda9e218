"""What comes back of real jobs: filtered, counted, blocked, and withheld when the filter itself fails."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock import Client, JobResult, JobSpec, Outcome
from parts import NAMESPACES, cellblock, launcher_process, worker_process

pytestmark = pytest.mark.docker

BODY = base64.b64encode(random.Random(7).randbytes(1190)).decode()
PEM = "\n".join(
    [
        "-----BEGIN " + "RSA PRIVATE KEY-----",
        *(BODY[at : at + 64] for at in range(0, len(BODY), 64)),
        "-----END " + "RSA PRIVATE KEY-----",
    ]
)


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("contexts")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, contexts: Path) -> Iterator[Path]:
    roots = {"CELLBLOCK_LAUNCHER_CONTEXT_ROOTS": json.dumps([str(contexts)])}
    with launcher_process(tmp_path_factory.mktemp("launcher"), **roots, **NAMESPACES) as (socket, _):
        yield socket


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, module_redis_url: str, fleet: Path) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("worker")
    with worker_process(folder, module_redis_url, fleet), Client(module_redis_url) as client:
        yield client


def run(client: Client, code: str, **fields: object) -> JobResult:
    return client.submit(JobSpec.model_validate({"code": code, **fields})).result(timeout_s=40)


def context_of(folder: Path, text: str) -> str:
    path = folder / "context"
    path.write_text(text)
    path.chmod(0o644)
    return str(path)


@pytest.mark.parametrize(
    "statement",
    [
        "print(k)",
        "print(k[:800])",
        "print(k[800:])",
        "import base64; print(base64.b64encode(k.encode()).decode())",
        "print(k[::-1])",
        "print('\\n'.join(k))",
    ],
    ids=["whole", "first half", "second half", "base64", "reversed", "a character a line"],
)
def test_no_key_survives_being_printed(client: Client, contexts: Path, statement: str) -> None:
    """R14: printing a context that holds a private key."""
    path = context_of(contexts, f"notes\n{PEM}\nmore notes\n")
    result = run(client, f"k = ctx.read(6, {len(PEM)})\n{statement}", context_path=path)
    assert result.outcome is Outcome.OK, "what is left of it is no copy of the context"
    plain = "".join(result.stdout.split())
    for text in (BODY, BODY[::-1], base64.b64encode(PEM.encode()).decode()):
        assert not any(text[at : at + 20] in plain for at in range(len(text) - 20))
    assert {(one.kind, one.stream) for one in result.redactions} == {("private_key", "stdout")}


def test_a_copy_of_the_context_is_blocked_and_a_snippet_is_not(client: Client, contexts: Path) -> None:
    rng = random.Random(3)
    text = " ".join(str(rng.randrange(10**6)) for _ in range(30_000))
    path = context_of(contexts, text)
    blocked = run(client, "print('mine'); print(ctx.read(5000, 3000)); 42", context_path=path)
    assert blocked.outcome is Outcome.LEAK_BLOCKED
    assert blocked.error is not None
    assert (blocked.error.type, blocked.error.message) == (
        "DataLeakageError",
        "Do not print raw context. Summarize it.",
    )
    assert (blocked.stdout, blocked.value, blocked.value_kind) == ("", None, None)
    assert blocked.usage.output_bytes == 3006
    assert [one.kind for one in blocked.redactions] == ["context_echo"]
    fine = run(client, "print(ctx.snippet(9000)); print(ctx.size)", context_path=path)
    assert fine.outcome is Outcome.OK
    assert len(fine.stdout) > 500
    again = run(client, "import sys; sys.stderr.write(ctx.read(70_000, 2000)[::-1])", context_path=path)
    assert again.outcome is Outcome.LEAK_BLOCKED


def test_what_a_job_raises_returns_and_leaves_is_filtered_too(client: Client) -> None:
    code = """
token = 'gh' + 'p_' + 'aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5'
open('a.txt', 'w').write(token)
open(token, 'w').write('x')
import gzip; gzip.open('b.gz', 'wt').write(token)
raise ValueError(token)
"""
    result = run(client, code, artifacts=["*"])
    assert result.outcome is Outcome.EXIT
    assert "aB3dE5fG7hI9jK" not in result.model_dump_json()
    assert result.error is not None
    assert result.error.message == "[REDACTED: github_token]"
    assert [file.data for file in result.artifacts if file.path == "a.txt"] == [b"[REDACTED: github_token]"]
    assert {one.reason.partition(":")[0] for one in result.artifacts_skipped} == {"withheld"}
    assert {one.stream for one in result.redactions} == {"stderr", "error", "artifacts"}


def test_a_filter_that_fails_lets_nothing_through(tmp_path: Path, redis_url: str, fleet: Path) -> None:
    """Injected: a worker whose filter crashes."""
    crashing = (
        "from cellblock_workers.filtering import template\n"
        "import cellblock_workers.filtering.serving as s\n"
        "def crash(*_): raise RuntimeError('a library quotes marker-77')\n"
        "s.filter_outgoing = crash\n"
        "template.main()"
    )
    program = (
        "-c",
        "import sys, cellblock_workers.filtering.processes as p\n"
        f"p.COMMAND = (sys.executable, '-P', '-c', {crashing!r})\n"
        "from cellblock_workers.worker.main import main; main()",
    )
    quick = {"CELLBLOCK_LEDGER_FAULT_RETRIES": "0"}
    with worker_process(tmp_path, redis_url, fleet, program=program, **quick), Client(redis_url) as client:
        result = run(client, "print('marker-77'); raise ValueError('marker-77')")
    assert result.outcome is Outcome.SANDBOX_ERROR
    assert result.evidence["ended"] == "exit"
    assert result.usage.output_bytes > 0
    assert result.error is not None
    assert result.error.message.startswith("its output could not be filtered (RuntimeError at ")
    assert "marker-77" not in result.model_dump_json() + (tmp_path / "worker.log").read_text()


@pytest.mark.parametrize(
    "code",
    [
        "import sys; sys.stdout.buffer.write(bytes(range(256)) * 900)",
        "import sys; sys.stdout.buffer.write(b'\\xed\\xa0\\x80' * 5000)",
        "print('\\0' * 100_000)",
        "print('x' * 900_000)",
        "print('\\n' * 900_000)",
        "v = 1\nfor _ in range(90): v = [v]\nv",
        "{str(n): {'k' * 50: [None] * 5} for n in range(3000)}",
        "'-----BEGIN ' * 60_000",
        "print('-----BEGIN RSA PRIVATE KEY-----\\n' * 20_000)",
        "raise ValueError('\\ud800' * 1000)",
        "raise type('\\u202e', (Exception,), {})('x')",
    ],
    ids=[
        "bytes",
        "surrogates",
        "NUL",
        "one line",
        "lines",
        "deep",
        "wide",
        "begins",
        "keys",
        "raised",
        "name",
    ],
)
def test_no_output_makes_the_filter_fail(client: Client, code: str) -> None:
    result = run(client, code)
    assert result.outcome in {Outcome.OK, Outcome.EXIT}, result.error
    result.model_dump_json().encode()


def test_redact_on_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_text(f"one\n{PEM}\ntwo\n")
    done = cellblock("redact", str(file), "--explain")
    assert (done.returncode, done.stdout) == (0, "one\n[REDACTED: private_key]\ntwo\n")
    assert done.stderr == f"2:1: {len(PEM)} characters, private_key\n"
    done = cellblock("redact", "-", "--json", stdin="password=Xk29dkW0s")
    assert json.loads(done.stdout)["text"] == "password=[REDACTED: assigned_secret]"
    context = tmp_path / "context"
    context.write_text(" ".join(map(str, random.Random(1).sample(range(10**6), 400))))
    done = cellblock("redact", "-", "--context", str(context), stdin=context.read_text().upper())
    assert (done.returncode, done.stdout) == (1, "[Do not print raw context. Summarize it.]")
    assert "repeats the context" in done.stderr
    assert cellblock("redact", str(tmp_path / "none")).returncode == 2
    assert cellblock("redact", "-", "--context", "none", stdin="x").returncode == 2
    registered = {"CELLBLOCK_EGRESS_SECRETS": '{"db": "quite a plain value"}'}
    done = cellblock("redact", "-", stdin="a quite a plain value b", **registered)
    assert done.stdout == "a [REDACTED: registered:db] b"
