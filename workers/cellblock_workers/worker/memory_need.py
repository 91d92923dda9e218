"""How much memory one worker may need at most, by its settings, and whether it may have that much.

Each term is the worst case of one kind of memory at the worst moment; their sum is a ceiling that no tenant's
jobs can make a worker exceed. A worker with less may be ended by the kernel, with every job it runs.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from cellblock_config import Settings
from cellblock_config.levels import MIB

#: The interpreter, what it has imported, its threads and connections (measured); and a template of the
#: filter.
_INTERPRETER_BYTES = 120 * MIB
_TEMPLATE_BYTES = 70 * MIB
#: The part of a filter process that it does not share with its template.
_FILTER_OWN_BYTES = 16 * MIB
_SMALL_SHARE = 4
#: JSON holds bytes as base64; the text of a claim is held while it is decoded.
_BASE64_TIMES = 4 / 3
#: JSON stays bytes, and its texts are decoded: one character beyond U+FFFF makes four bytes of each.
_TEXT_TIMES = 4
#: A result at its end is held twice: as JSON for the ledger, and as the call that takes it there.
_RESULT_COPIES = 2
_FRAMES_BYTES = 4 * MIB
_MARGIN_BYTES = 1 * MIB
#: A trial's output is held this many times: whole, as bytes, and in the files of the checker's job.
_TRIAL_COPIES = 3


@dataclass(frozen=True, slots=True)
class Term:
    """One part of the need, and what it consists of."""

    name: str
    size_bytes: int


def need(settings: Settings) -> list[Term]:
    """Every term; their sum is the ceiling."""
    jobs, egress = settings.worker.concurrency, settings.egress
    filters = min(egress.filter_large_at_once, jobs)
    small = egress.filter_memory_bytes // _SMALL_SHARE
    terms = [
        Term("the interpreter and its libraries", _INTERPRETER_BYTES),
        Term(f"{jobs} jobs at once, each delivered, running or at its end", jobs * _job_bytes(settings)),
        Term("the interpreter that filter processes are forked from", _TEMPLATE_BYTES),
        Term(
            f"{filters} filter processes with large requests",
            filters * (egress.filter_memory_bytes + _sent(settings)),
        ),
    ]
    if others := jobs - filters:  # each job has one process at most
        terms += [
            Term(f"{others} filter processes with small ones", others * (small + _FILTER_OWN_BYTES)),
            Term("large requests that are set aside", egress.filter_memory_bytes),
        ]
    if egress.echo_bytes and _has_contexts():
        terms.append(Term("indices of contexts", egress.echo_memory_bytes))
        terms.append(Term("making one", 3 * egress.echo_memory_bytes))
    return terms


def _job_bytes(settings: Settings) -> int:
    """One job at its largest moment: delivered, with all its output, or as a case of a trial."""
    bounds, sandbox = settings.ledger, settings.sandbox
    payload = bounds.code_bytes + bounds.stdin_bytes + bounds.files_bytes + bounds.inputs_bytes
    payload = max(payload, bounds.evaluation_bytes) + bounds.env_bytes
    others = bounds.stdin_bytes + bounds.files_bytes + bounds.inputs_bytes
    decoded = max(_TEXT_TIMES * bounds.code_bytes + others, _TEXT_TIMES * bounds.evaluation_bytes)
    decoded += _TEXT_TIMES * bounds.env_bytes
    # As the store's answer, held twice while it is read, and decoded; there is one frame at a time.
    delivered = int(2 * payload * _BASE64_TIMES) + decoded + _FRAMES_BYTES
    # The decoded job stays to the end, and beside it its output; then the same as a result.
    result = int(_sent(settings) * _BASE64_TIMES) * _RESULT_COPIES
    ended = decoded + _sent(settings) + result
    trial = decoded + _TRIAL_COPIES * sandbox.trial_output_max_bytes
    return max(delivered, ended, trial) + _MARGIN_BYTES


def _sent(settings: Settings) -> int:
    """All that one job may send."""
    return (
        settings.ledger.artifacts_bytes + settings.ledger.value_bytes + 4 * settings.egress.output_limit_bytes
    )


def _has_contexts() -> bool:
    return find_spec("numpy") is not None


def available_bytes(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> tuple[int, str]:
    """How many bytes this process may have, and which limit says so: the lowest of all limits."""
    return min(_limits(proc, cgroup))


def _limits(proc: Path, cgroup: Path) -> Iterator[tuple[int, str]]:
    for line in (proc / "meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            yield int(line.split()[1]) * 1024, "what this host has left (MemAvailable)"
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    if soft != resource.RLIM_INFINITY:
        yield soft, "RLIMIT_AS"
    for line in (proc / "self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        root, name = (cgroup, "memory.max") if number == "0" else (cgroup / "memory", "memory.limit_in_bytes")
        if number != "0" and "memory" not in controllers.split(","):
            continue
        folder = root / path.lstrip("/")
        # A container sees its own group at the root, whatever its path says.
        for place in (folder, *folder.parents):
            if (place / name).is_file() and (limit := (place / name).read_text().strip()).isdigit():
                yield int(limit), f"the memory limit of its cgroup ({name})"
            if place == root:
                break


@dataclass(frozen=True, slots=True)
class Reckoning:
    """How much a worker with these settings may need, and how much it may have where this process runs.

    ``available_by``: which limit says so. ``shortage``: what is wrong with these settings; None if nothing
    is.
    """

    need_bytes: int
    available_bytes: int
    available_by: str
    shortage: str | None


def reckon(settings: Settings) -> Reckoning:
    """Both sides of the comparison that a worker makes at its start."""
    terms = need(settings)
    wanted, (has, by) = sum(term.size_bytes for term in terms), available_bytes()
    why = (
        None if wanted <= has else _too_little(settings=settings, terms=terms, wanted=wanted, has=has, by=by)
    )
    return Reckoning(wanted, has, by, why)


def shortage(settings: Settings) -> str | None:
    """What is wrong with these settings where this process runs; None if nothing is."""
    return reckon(settings).shortage


def _too_little(settings: Settings, terms: list[Term], wanted: int, has: int, by: str) -> str:
    made_of = ", ".join(f"{term.name}: {term.size_bytes // MIB} MiB" for term in terms)
    return (
        f"jobs may make this worker hold {wanted // MIB} MiB ({made_of}), and it may have {has // MIB} MiB, "
        f"by {by}: raise that, or lower worker.concurrency ({settings.worker.concurrency}), "
        f"egress.filter_memory_bytes ({settings.egress.filter_memory_bytes}), ledger.artifacts_bytes, "
        "ledger.files_bytes, ledger.inputs_bytes or ledger.stdin_bytes"
    )
