"""The context file: seen by its job alone, read-only, searched in memory that does not grow with it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock import JobState, Outcome
from parts import wait_until
from sandbox.conftest import Run
from sandbox.harness import MIB, Host
from suite.ways import FAST_WAYS

pytestmark = pytest.mark.docker

GIB = 1024 * MIB
TEXT = "début\n" + "line of é\n" * 1000 + "the NEEDLE is here\nend"

_LOOKS = 50  #: in a row, 20 ms apart


@pytest.fixture
def context(host: Host) -> Iterator[Path]:
    """A small file where the launcher lets contexts lie."""
    path = host.contexts / "small.txt"
    path.write_text(TEXT)
    yield path
    path.unlink()


def test_a_job_has_its_context_as_ctx(run: Run, way: str, context: Path) -> None:
    code = """
((place, found),) = ctx.search('NEEDLE')
result = [ctx.size, ctx.read(0, 6), place, found, ctx.snippet(place, 20), ctx.read(place, 6)]
"""
    place = TEXT.encode().index(b"NEEDLE")
    result = run(code, way=way, context_path=str(context))
    assert result.value == [
        len(TEXT.encode()),
        "début",
        place,
        "NEEDLE",
        TEXT.encode()[place - 10 : place + 10].decode(),
        "NEEDLE",
    ], result


def test_the_context_cannot_be_changed(run: Run, way: str, context: Path) -> None:
    code = """
import os
for action in (lambda: open('/mnt/context_data', 'w'), lambda: os.unlink('/mnt/context_data'),
               lambda: os.chmod('/mnt/context_data', 0o777), lambda: os.truncate('/mnt/context_data', 0),
               lambda: os.rename('/mnt/context_data', '/tmp/x'), lambda: open('/mnt/other', 'w')):
    try: action(); print('CHANGED')
    except OSError: pass
print(os.access('/mnt/context_data', os.W_OK))
"""
    before = context.stat()
    assert run(code, way=way, context_path=str(context)).stdout == "False\n"
    after = context.stat()
    assert (after.st_mode, after.st_size, after.st_mtime_ns) == (
        before.st_mode,
        before.st_size,
        before.st_mtime_ns,
    )


def test_nothing_beside_the_file_is_seen(run: Run, way: str, host: Host, context: Path) -> None:
    (host.contexts / "neighbour").write_text("secret of the neighbour")
    code = """
import os
print(os.listdir('/mnt'))
for path in ('/mnt/neighbour', '/mnt/context_data/../neighbour'):
    print(os.path.exists(path))
"""
    result = run(code, way=way, context_path=str(context))
    assert result.stdout == "['context_data']\nFalse\nFalse\n"


def test_the_next_job_finds_no_context(run: Run, way: str, context: Path, host: Host) -> None:
    run("ctx.size", way=way, context_path=str(context))
    code = """
import os
print('ctx' in globals(), os.path.exists('/mnt/context_data') and os.path.getsize('/mnt/context_data') > 0)
"""
    for _ in range(3):
        assert run(code, way=way).stdout == "False False\n"


def quiet_pool(host: Host) -> dict[str, int]:
    """The counts of a pool that has stopped filling up: it pauses after each sandbox that it lends."""
    seen: list[dict[str, int]] = []

    def is_quiet() -> bool:
        seen.append(dict(host.launcher.probe().counts or {}))
        lately = seen[-_LOOKS:]
        return len(lately) == _LOOKS and all(one == lately[0] and not one["starting"] for one in lately)

    wait_until(is_quiet, 30, "a quiet pool")
    return seen[-1]


def test_a_sandbox_with_a_context_is_never_kept_ready(host: Host, context: Path) -> None:
    idle = quiet_pool(host)["idle"]
    for size in range(3):
        limits = {"memory_bytes": (128 + size) * MIB}
        assert host.run("ctx.size", context_path=str(context), limits=limits).outcome is Outcome.OK
    assert quiet_pool(host)["idle"] <= idle


REFUSED = {
    "outside": ("/etc/hostname", "in none of"),
    "missing": ("missing", "cannot be read"),
    "a folder": ("folder", "not a regular file"),
    "a link out": ("link-out", "in none of"),
    "a link within": ("link-loop", "cannot be read"),
    "a device": ("/dev/null", "in none of"),
    "a pipe": ("pipe", "not a regular file"),
    "private": ("private", "chmod o+r"),
    "the host's root": ("/", "in none of"),
    "a kernel file": ("/proc/1/environ", "in none of"),
    "the docker socket": ("/var/run/docker.sock", "in none of"),
    "a folder of a similar name": ("../contexts-not/file", "in none of"),
}


@pytest.fixture
def traps(host: Host) -> Iterator[Path]:
    """What a taken-over worker might ask for, in the folder of contexts."""
    folder = host.contexts
    (folder / "folder").mkdir()
    (folder / "link-out").symlink_to("/etc/hostname")
    (folder / "link-loop").symlink_to("link-loop")
    os.mkfifo(folder / "pipe")
    (folder / "private").write_text("x")
    (folder / "private").chmod(0o600)
    beside = folder.with_name("contexts-not")
    beside.mkdir()
    (beside / "file").write_text("x")
    yield folder
    for path in (
        folder / "link-out",
        folder / "link-loop",
        folder / "pipe",
        folder / "private",
        beside / "file",
    ):
        path.unlink()
    for path in (beside, folder / "folder"):
        path.rmdir()


@pytest.mark.parametrize(("path", "said"), REFUSED.values(), ids=REFUSED)
def test_no_other_file_is_ever_mounted(host: Host, traps: Path, path: str, said: str) -> None:
    asked = os.path.normpath(traps / path)
    job_id = host.admit("print(open('/mnt/context_data').read())", context_path=asked)
    host.runner.run(job_id)
    result = host.ledger.reads.result(job_id)
    assert result is not None
    assert (result.outcome, result.isolation, result.stdout) == (Outcome.REJECTED, None, "")
    assert result.error is not None
    assert result.error.type == "ContextNotMounted"
    assert said in result.error.message
    assert host.ledger.reads.status(job_id).state is JobState.REJECTED
    events = [event.type for event in host.ledger.reads.events(limit=10_000) if event.job_id == job_id]
    assert events == ["agent.run.queued", "agent.run.started", "agent.run.rejected"]


@pytest.mark.timeout(240)
@pytest.mark.long("searches gigabytes")
def test_gigabytes_are_searched_in_flat_memory(run: Run, way: str, host: Host) -> None:
    path = host.contexts / "huge"
    # On each kernel once beyond what four bytes can count.
    end, middle = (4 * GIB + MIB, 3 * GIB) if way in FAST_WAYS else (GIB, GIB // 2)
    with path.open("wb") as file:
        file.truncate(end)
        for place, text in ((0, "début"), (middle - 4, "NEEDLE-1"), (end - 20, "NEEDLE-2 é")):
            file.seek(place)
            file.write(text.encode())
    code = """
import resource
found = ctx.search(rb'NEEDLE-[0-9]')
places = [place for place, _ in found]
result = [ctx.size, places, ctx.snippet(places[1], 24).strip('\\0'), ctx.read(places[1], 8),
          resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]
"""
    try:
        limits = {"timeout_s": 200, "memory_bytes": 128 * MIB}
        result = run(code, way=way, context_path=str(path), limits=limits)
    finally:
        path.unlink()
    assert result.outcome is Outcome.OK, result
    size, places, snippet, read, rss_kib = result.value
    assert (size, places) == (end, [middle - 4, end - 20])
    assert (snippet, read) == ("NEEDLE-2 é", "NEEDLE-2")
    assert rss_kib < 64 * 1024
