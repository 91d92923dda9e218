"""The most that one job may put into the store, as docs/guarantees.md adds it up."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from redis import Redis

from cellblock import Artifact
from cellblock.admission.resolve import Manifest
from cellblock.contract.evaluations import Evaluation, FunctionCheck, Trial
from cellblock.ledger.stored_results import longest_bytes, stored
from cellblock_config import load_settings
from cellblock_config.plans import load_plans
from ledger.kit import admit, claim, manifest, open_ledger, operation, result_of

pytestmark = pytest.mark.no_rerun

MIB = 1024**2
BOUNDS = load_settings().ledger
PAGE = (Path(__file__).resolve().parents[2] / "docs/guarantees.md").read_text()
#: JSON needs six bytes for it.
DEAREST = "\x01"


def figure(row: str) -> int:
    """What the page says of a row, in MiB."""
    found = re.findall(rf"^\| {row}.*\| (\d+) MiB", PAGE, re.MULTILINE)
    assert len(found) == 1, "the page has another row: name it here"
    return int(found[0])


def largest_program() -> Manifest:
    stdin, files, inputs = BOUNDS.stdin_bytes, BOUNDS.files_bytes, BOUNDS.inputs_bytes
    return manifest(
        code=DEAREST * BOUNDS.code_bytes,
        stdin=bytes(stdin),
        files={"f": bytes(files - 1)},
        inputs={"x": "x" * (inputs - 2)},  # with its quotes
        env={"LC_X": DEAREST * (BOUNDS.env_bytes - 4)},
        args=(DEAREST * 65_536,),
    )


def largest_evaluation() -> Manifest:
    check, program = FunctionCheck(functions=("f",), tests="pass"), DEAREST * (BOUNDS.evaluation_bytes - 4)
    judged = Evaluation(trials=(Trial(id="t", source=program, check=0),), checks=(check,))
    return manifest(code=None, evaluation=judged)


@pytest.mark.parametrize(
    ("row", "largest"), [("one program", largest_program), ("an evaluation", largest_evaluation)]
)
def test_a_payload_takes_no_more_than_the_page_says(row: str, largest: Callable[[], Manifest]) -> None:
    taken = len(largest().model_dump_json()) / MIB
    assert 0.9 * figure(row) <= taken <= figure(row)


def test_a_result_takes_no_more_than_the_page_says(redis_url: str) -> None:
    with open_ledger("redis", redis_url) as (ledger, redis):
        admit(ledger)
        before, held = _bytes_of(redis), claim(ledger)
        each, files = BOUNDS.artifact_bytes, BOUNDS.artifacts_bytes // BOUNDS.artifact_bytes
        ended = result_of(
            held,
            stdout=DEAREST * 4000,
            stderr=DEAREST * 4000,
            value="x" * (BOUNDS.value_bytes - 2),
            value_kind="json",
            artifacts=tuple(Artifact(path=str(n), data=bytes(each)) for n in range(files)),
        )
        assert ledger.finish(held, ended, operation()).word == "finished"
        taken = (_bytes_of(redis) - before) / MIB
        assert 0.9 * figure("its result") <= taken <= figure("its result")
        assert 0.9 * longest_bytes(load_settings()) <= len(stored(ended)) <= longest_bytes(load_settings())


@pytest.mark.parametrize("name", sorted(load_plans().plans))
def test_every_plan_that_comes_with_it_has_room_for_the_longest_result(name: str) -> None:
    plan = load_plans().plans[name]
    assert min(plan.bytes_held or 0, plan.bytes_stored or 0) >= figure("its result") * MIB


def _bytes_of(redis: Redis) -> int:
    return sum(int(redis.memory_usage(key, samples=0) or 0) for key in redis.scan_iter())
