"""Admission: a job leaves it with nothing open, and every value within the operator's bounds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellblock import InvalidJob, JobSpec
from cellblock.admission.resolve import Manifest, resolve
from cellblock.contract.evaluations import Evaluation, StdioCase, StdioCheck, Trial
from cellblock_config import LEVELS, LevelName, SettingsError, load_settings

MIB = 2**20


def limits(**asked: Any) -> JobSpec:
    return JobSpec(code="pass", limits=asked)


@pytest.mark.parametrize("level", LEVELS)
def test_a_job_that_names_only_its_level_gets_the_levels_limits(level: LevelName) -> None:
    manifest = resolve(JobSpec(code="pass", level=level), load_settings())
    expected = LEVELS[level]
    got = manifest.limits
    assert (got.timeout_s, got.memory_bytes, got.cpus, got.pids, got.output_bytes) == (
        expected.timeout_s,
        expected.memory_bytes,
        expected.cpus,
        expected.pids,
        expected.output_bytes,
    )
    assert got.cpu_s > expected.timeout_s, "the wall clock speaks first unless asked"
    assert manifest.level == level


def test_what_a_job_asks_for_wins_over_its_level() -> None:
    asked = {
        "timeout_s": 7.5,
        "cpu_s": 2.0,
        "memory_bytes": 65 * MIB,
        "cpus": 0.25,
        "pids": 3,
        "output_bytes": 10,
    }
    assert resolve(limits(**asked), load_settings()).limits.model_dump() == asked


def test_cpu_time_follows_the_timeout_a_job_asks_for() -> None:
    assert resolve(limits(timeout_s=120), load_settings()).limits.cpu_s == 121


BOUNDS: list[tuple[str, float, float, str]] = [
    ("timeout_s", 300, 301, "300.0 (CELLBLOCK_SANDBOX_TIMEOUT_MAX_S)"),
    ("cpu_s", 300, 300.5, "above the bound of 300"),
    (
        "memory_bytes",
        2048 * MIB,
        4096 * MIB,
        "2147483648 (2048M, CELLBLOCK_SANDBOX_MEM",
    ),
    (
        "memory_bytes",
        64 * MIB,
        32 * MIB,
        "67108864 (64M, CELLBLOCK_SANDBOX_MEM",
    ),
    ("cpus", 1.0, 1.5, "above the bound of 1.0 (CELLBLOCK_SANDBOX_CPUS_MAX)"),
    ("cpus", 0.05, 0.01, "below the bound of 0.05"),
    ("pids", 256, 257, "above the bound of 256 (CELLBLOCK_SANDBOX_PIDS_MAX)"),
    ("output_bytes", 64 * MIB, 128 * MIB, "above the bound"),
]


@pytest.mark.parametrize(("name", "allowed", "refused", "said"), BOUNDS)
def test_every_limit_is_held_to_the_operators_bound(
    name: str, allowed: float, refused: float, said: str
) -> None:
    assert getattr(resolve(limits(**{name: allowed}), load_settings()).limits, name) == allowed
    with pytest.raises(InvalidJob) as caught:
        resolve(limits(**{name: refused}), load_settings())
    assert caught.value.field == f"limits.{name}"
    assert said in caught.value.problem
    assert str(refused) in caught.value.problem


def test_a_smaller_machine_lowers_the_levels_defaults() -> None:
    small = load_settings(sandbox={"cpus_max": 0.5, "pids_max": 10, "output_max_bytes": 2048})
    got = resolve(JobSpec(code="pass"), small).limits
    assert (got.cpus, got.pids, got.output_bytes) == (0.5, 10, 2048)


def test_a_trial_prints_no_more_than_its_worker_can_keep() -> None:
    check = StdioCheck(cases=(StdioCase(stdin="", stdout=""),))
    evaluation = Evaluation(checks=(check,), trials=(Trial(id="a", source="pass", check=0),))
    assert resolve(JobSpec(evaluation=evaluation), load_settings()).limits.output_bytes == 4 * MIB
    assert resolve(limits(), load_settings()).limits.output_bytes == 16 * MIB, "it is cut as it comes"
    asked = JobSpec(evaluation=evaluation, limits={"output_bytes": 5 * MIB})
    with pytest.raises(InvalidJob, match="4M, CELLBLOCK_SANDBOX_TRIAL_OUTPUT_MAX_BYTES"):
        resolve(asked, load_settings())
    settings = load_settings(sandbox={"trial_output_max_bytes": 8 * MIB})
    assert resolve(asked, settings).limits.output_bytes == 5 * MIB


def test_an_unknown_image_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidJob) as caught:
        resolve(JobSpec(code="pass", image="windows"), load_settings())
    assert caught.value.field == "image"
    for part in ("'windows'", *load_settings().sandbox.images):
        assert part in caught.value.problem


def test_an_image_has_the_memory_that_it_starts_with() -> None:
    asked = JobSpec(code="pass", image="datascience", limits={"memory_bytes": 128 * MIB})
    with pytest.raises(InvalidJob, match=r"memory_bytes: .* \(192M\) that the image 'datascience' needs"):
        resolve(asked, load_settings())
    settings = load_settings(sandbox={"image_memory_min_bytes": {"datascience": 100 * MIB}})
    assert resolve(asked, settings).limits.memory_bytes == 128 * MIB


def test_an_image_that_there_is_not_has_no_least_memory() -> None:
    with pytest.raises(SettingsError, match=r"min_bytes names datasience; sandbox\.images has"):
        load_settings(sandbox={"image_memory_min_bytes": {"datasience": 100 * MIB}})


def test_a_job_without_an_image_gets_the_operators_default() -> None:
    fleet = load_settings(sandbox={"images": {"only": "registry/only:1"}, "default_image": "only"})
    assert resolve(JobSpec(code="pass"), fleet).image == "only"


@pytest.mark.parametrize("field", ["code", "stdin"])
def test_sizes_are_counted_in_bytes_and_the_bound_is_named(field: str) -> None:
    tight = load_settings(ledger={f"{field}_bytes": 10})
    ten_bytes = "é" * 5
    resolve(JobSpec(**{"code": "pass", field: ten_bytes}), tight)
    with pytest.raises(InvalidJob) as caught:
        resolve(JobSpec(**{"code": "pass", field: f"{ten_bytes}s"}), tight)
    assert caught.value.field == field
    for part in ("11 bytes", "at most 10", f"CELLBLOCK_LEDGER_{field.upper()}_BYTES"):
        assert part in caught.value.problem


def test_the_callers_trace_goes_on_and_a_new_one_starts_without() -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    spec = JobSpec(code="pass", traceparent=f"00-{trace}-b7ad6b7169203331-01")
    assert resolve(spec, load_settings()).trace_id == trace
    fresh = {resolve(JobSpec(code="pass"), load_settings()).trace_id for _ in range(3)}
    assert len(fresh) == 3
    assert all(len(id) == 32 and int(id, 16) for id in fresh)


@given(
    code=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=50).map(
        "#{}".format
    ),
    args=st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=9), max_size=3
    ),
    stdin=st.binary(max_size=60),
    files=st.dictionaries(st.sampled_from(["a", "b/c", "d/é"]), st.binary(max_size=30)),
)
def test_a_manifest_reads_back_as_it_was_stored(
    code: str, args: list[str], stdin: bytes, files: dict[str, bytes]
) -> None:
    spec = JobSpec(code=code, args=tuple(args), stdin=stdin, files=files, inputs={"x": [code]})
    manifest = resolve(spec, load_settings())
    assert Manifest.model_validate_json(manifest.model_dump_json()) == manifest
    assert (manifest.code, manifest.args, manifest.stdin) == (code, tuple(args), stdin)
    assert manifest.files == files
    assert json.loads(manifest.inputs["x"].data) == [code]


@pytest.mark.parametrize(
    ("fields", "field", "size"),
    [
        ({"files": {"é": "12345678"}}, "files", 10),
        ({"env": {"A": "é" * 4 + "1"}}, "env", 10),
        ({"inputs": {"x": "12345678"}}, "inputs", 10),
    ],
)
def test_files_variables_and_inputs_are_held_to_their_bytes(
    fields: dict[str, Any], field: str, size: int
) -> None:
    resolve(JobSpec(code="pass", **fields), load_settings(ledger={f"{field}_bytes": size}))
    with pytest.raises(InvalidJob) as caught:
        resolve(JobSpec(code="pass", **fields), load_settings(ledger={f"{field}_bytes": size - 1}))
    assert caught.value.field == field
    for part in (f"{size} bytes", f"at most {size - 1}", f"CELLBLOCK_LEDGER_{field.upper()}_BYTES"):
        assert part in caught.value.problem


def test_more_files_than_the_operator_takes_are_refused() -> None:
    spec = JobSpec(code="pass", files={"a": "", "b": ""})
    with pytest.raises(InvalidJob, match=r"are 2; 1 at most .*CELLBLOCK_LEDGER_FILES_COUNT"):
        resolve(spec, load_settings(ledger={"files_count": 1}))


@pytest.mark.parametrize(
    "name",
    [
        *("PATH", "HOME", "LD_PRELOAD", "PYTHONPATH", "PYTHONSTARTUP", "BASH_ENV", "GLIBC_TUNABLES"),
        *("PYTHONHASHSEED", "PYTHONUNBUFFERED", "LANG", "LC_ALL", "LC_CTYPE"),
    ],
)
def test_what_loaders_shells_and_the_sandbox_read_may_not_be_set(name: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        resolve(JobSpec(code="pass", env={name: "secret"}), load_settings())
    assert caught.value.field == f"env.{name}"
    assert "CELLBLOCK_SANDBOX_ENV_REFUSED" in caught.value.problem
    assert "secret" not in caught.value.problem


def test_the_operator_says_which_variables_may_be_set() -> None:
    strict = load_settings(sandbox={"env_allowed": ["APP_*"]})
    assert resolve(JobSpec(code="pass", env={"APP_MODE": "x"}), strict).env == {"APP_MODE": "x"}
    for fleet in (strict, load_settings(sandbox={"env_allowed": []})):
        with pytest.raises(InvalidJob, match="CELLBLOCK_SANDBOX_ENV_ALLOWED"):
            resolve(JobSpec(code="pass", env={"MODE": "x"}), fleet)


def test_the_same_files_in_another_order_are_the_same_job() -> None:
    one = resolve(JobSpec(code="pass", files={"a": "1", "b": "2"}, env={"A": "", "B": ""}), load_settings())
    other = resolve(JobSpec(code="pass", files={"b": "2", "a": "1"}, env={"B": "", "A": ""}), load_settings())
    changing = {"submitted", "trace_id"}
    assert one.model_dump_json(exclude=changing) == other.model_dump_json(exclude=changing)
