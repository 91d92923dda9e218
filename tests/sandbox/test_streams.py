"""What goes in and comes out of a job, byte for byte, within bounds, while it runs and when it is cut."""

from __future__ import annotations

import hashlib
import json
import threading
import time

import pytest

from cellblock import Outcome
from cellblock.egress import Governor
from parts import wait_until
from sandbox.conftest import Run
from sandbox.harness import MIB, Host, forget_peak_rss, peak_rss_bytes

pytestmark = pytest.mark.docker


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_endless_output_ends_the_job_and_keeps_head_and_tail_in_bounded_memory(
    run: Run, way: str, stream: str
) -> None:
    code = f"import sys\nprint('HEAD', file=sys.{stream})\nwhile True: sys.{stream}.write('x' * 65536)"
    before = forget_peak_rss()
    result = run(code, way=way)
    assert result.outcome is Outcome.OUTPUT_LIMIT
    kept = str(getattr(result, stream))
    assert kept.startswith("HEAD\nxxx")
    assert "... [TRUNCATED " in kept
    assert kept.endswith("x" * 1000)
    assert len(kept) < 4100
    assert result.usage.output_bytes == 16 * MIB
    assert result.truncated[stream] > 15 * MIB
    assert peak_rss_bytes() - before < 32 * MIB


def test_ten_gigabytes_of_output_cost_the_worker_neither_memory_nor_time(run: Run, way: str) -> None:
    code = (
        "import os\npiece = b'y' * 2**20\nfor _ in range(10 * 1024): os.write(1, piece)\nprint('ALL OF IT')"
    )
    before = forget_peak_rss()
    result = run(code, way=way, limits={"output_bytes": 64 * MIB, "timeout_s": 20})
    assert result.outcome is Outcome.OUTPUT_LIMIT
    assert result.usage.output_bytes == 64 * MIB
    assert "ALL OF IT" not in result.stdout
    assert peak_rss_bytes() - before < 32 * MIB


def test_stdin_of_several_megabytes_arrives_whole(run: Run, way: str) -> None:
    given = bytes(range(256)) * (5 * 4096)
    code = "import sys, hashlib\nprint(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())"
    result = run(code, way=way, stdin=given)
    assert result.stdout.strip() == hashlib.sha256(given).hexdigest()


def test_no_stdin_is_an_empty_one(run: Run, way: str) -> None:
    assert run("import sys; print(repr(sys.stdin.read()))", way=way).stdout == "''\n"


def test_a_job_that_never_reads_its_stdin_ends_all_the_same(run: Run, way: str) -> None:
    result = run("print('not listening')", way=way, stdin=b"x" * (5 * MIB))
    assert (result.outcome, result.stdout) == (Outcome.OK, "not listening\n")


def test_a_job_that_closes_its_stdin_ends_all_the_same(run: Run, way: str) -> None:
    code = "import os, time\nos.close(0)\ntime.sleep(0.3)\nprint('closed')"
    result = run(code, way=way, stdin=b"x" * (MIB // 2))
    assert (result.outcome, result.stdout) == (Outcome.OK, "closed\n")


def test_arguments_arrive_as_given(run: Run, way: str) -> None:
    given = ("a b", "--x=é", "", "'\"$(id)")
    result = run("import sys, json; print(json.dumps(sys.argv[1:]))", way=way, args=given)
    assert tuple(json.loads(result.stdout)) == given


def test_output_that_is_not_text_never_breaks_the_result(run: Run, way: str) -> None:
    code = (
        "import os\nprint('é 漢 🎉')\nos.write(1, b'\\xff\\xfe|\\x00|\\xed\\xa0\\x80|\\n')\nprint('\\udcff')"
    )
    result = run(code, way=way)
    assert result.outcome is Outcome.OK
    assert result.stdout.startswith("é 漢 🎉\n\ufffd\ufffd|\u2400|")
    result.stdout.encode()


def test_closing_its_own_output_is_an_ordinary_end(run: Run, way: str) -> None:
    result = run("import os\nprint('first', flush=True)\nos.close(1)\nos.close(2)\nos._exit(0)", way=way)
    assert (result.outcome, result.stdout) == (Outcome.OK, "first\n")


def test_the_work_folder_takes_files_until_its_bound(run: Run, way: str) -> None:
    code = """
import errno, os
os.makedirs('/tmp/sandbox/a/b')
open('/tmp/sandbox/a/b/file', 'w').write('kept')
print(open('a/b/file').read(), os.getcwd())
try:
    with open('/tmp/sandbox/big', 'wb') as file:
        for _ in range(200):
            file.write(bytes(1 << 20))
except OSError as error:
    print(errno.errorcode[error.errno], os.path.getsize('/tmp/sandbox/big') <= 64 << 20)
"""
    result = run(code, way=way)
    assert (result.outcome, result.stdout) == (Outcome.OK, "kept /tmp/sandbox\nENOSPC True\n")


def test_no_file_survives_into_the_next_job(run: Run, way: str) -> None:
    code = "import os\nprint(os.listdir('/tmp'), os.listdir('/tmp/sandbox'))\nopen('/tmp/mark', 'w').close()"
    for _ in range(3):
        assert run(code, way=way).stdout == "['sandbox'] ['main.py']\n"


def test_a_cancelled_job_dies_within_two_seconds_with_its_output_kept(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = threading.Event()

    class Listening(Governor):
        """The real governor; tells when the job's first words have arrived."""

        def feed(self, chunk: bytes) -> None:
            super().feed(chunk)
            heard.set()

    monkeypatch.setattr("cellblock_workers.worker.session.Governor", Listening)
    with host.running("import time\nprint('partial')\ntime.sleep(25)", limits={"timeout_s": 30}) as (
        job_id,
        wait,
    ):
        wait_until(heard.is_set, what="the job's output")
        asked = time.monotonic()
        assert host.ledger.cancel(job_id).word == "requested"
        host.heart.beat()
        result = wait()
    assert time.monotonic() - asked < 2
    assert (result.outcome, result.stdout, result.exit_code) == (Outcome.CANCELLED, "partial\n", 137)
    wait_until(lambda: host.launcher.probe().counts["in_use"] == 0, what="the sandbox being gone")  # type: ignore[index]
