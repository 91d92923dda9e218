"""The contract: bad input is an InvalidJob naming field, value and bound; what is stored reads back."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from cellblock import (
    Artifact,
    Event,
    InvalidJob,
    JobError,
    JobResult,
    JobSpec,
    JobState,
    Limits,
    Outcome,
    SkippedArtifact,
    TableValue,
    Timings,
    Usage,
)
from cellblock.errors import CallerError

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"

#: fields, the field that must be named, and what else the message must hold: the value, or the bound
BAD: dict[str, tuple[dict[str, Any], str, tuple[str, ...]]] = {
    "missing code": ({"code": ...}, "code", ("missing",)),
    "empty code": ({"code": ""}, "code", ("empty", "one statement")),
    "blank code": ({"code": " \n\t"}, "code", ("empty",)),
    "NUL in code": ({"code": "ab\0c"}, "code", ("NUL", "offset 2")),
    "lone surrogate in code": ({"code": "x = '\ud800'"}, "code", ("surrogate", "offset 5")),
    "bytes that are not text": ({"code": b"\xff\xfe"}, "code", ("valid string",)),
    "code as a number": ({"code": 42}, "code", ("valid string",)),
    "NUL in an argument": ({"args": ("a", "b\0")}, "args", ("NUL", "offset 1")),
    "surrogate in an argument": ({"args": ("\udfff",)}, "args", ("surrogate",)),
    "too many arguments": ({"args": ("a",) * 257}, "args", ("256", "257")),
    "too long arguments": ({"args": ("a" * 65_537,)}, "args", ("65536",)),
    "surrogate in stdin": ({"stdin": "\ud800"}, "stdin", ("surrogate",)),
    "unknown field": ({"timeout": 5}, "timeout", ("unknown field", "limits={'timeout_s': 5}")),
    "unknown limit": ({"limits": {"ram": 5}}, "limits.ram", ("unknown field",)),
    "unknown level": ({"level": "paranoid"}, "level", ("'paranoid'", "'strict'")),
    "unknown priority": ({"priority": "urgent"}, "priority", ("'urgent'", "'high'")),
    "tenant with a space": ({"tenant": "a b"}, "tenant", ("'a b'", "is not a name")),
    "tenant with a newline": ({"tenant": "acme\n"}, "tenant", ("is not a name",)),
    "tenant with a glob": ({"tenant": "*"}, "tenant", ("'*'",)),
    "empty tenant": ({"tenant": ""}, "tenant", ("''",)),
    "long tenant": ({"tenant": "a" * 129}, "tenant", ("128 at most",)),
    "empty idempotency key": ({"idempotency_key": ""}, "idempotency_key", ("''",)),
    "long image": ({"image": "x" * 65}, "image", ("64",)),
    "negative timeout": ({"limits": {"timeout_s": -1}}, "limits.timeout_s", ("-1", "greater than 0")),
    "zero memory": ({"limits": {"memory_bytes": 0}}, "limits.memory_bytes", ("0", "greater than 0")),
    "NaN timeout": ({"limits": {"timeout_s": math.nan}}, "limits.timeout_s", ("nan", "finite")),
    "infinite cpu": ({"limits": {"cpu_s": math.inf}}, "limits.cpu_s", ("inf", "finite")),
    "negative infinity": ({"limits": {"cpus": -math.inf}}, "limits.cpus", ("-inf",)),
    "half a process": ({"limits": {"pids": 1.5}}, "limits.pids", ("1.5", "integer")),
    "limits as a list": ({"limits": [1]}, "limits", ("[1]",)),
    "code and an entrypoint": (
        {"files": {"a.py": "1"}, "entrypoint": "a.py"},
        "entrypoint",
        ("one of the two",),
    ),
    "an entrypoint that is no file": (
        {"code": ..., "files": {"a.py": "1"}, "entrypoint": "b.py"},
        "entrypoint",
        ("'b.py'", "not one of files"),
    ),
    "files without an entrypoint": ({"code": ..., "files": {"a.py": "1"}}, "code", ("entrypoint",)),
    "a file in the place of the code": ({"files": {"main.py": ""}}, "files", ("'main.py'",)),
    "a file upwards": ({"files": {"a/../../b": ""}}, "files", ("'a/../../b'", "'..'")),
    "an absolute file": ({"files": {"/etc/passwd": ""}}, "files", ("'/etc/passwd'", "relative")),
    "a file without a name": ({"files": {"": ""}}, "files", ("relative",)),
    "a file with a NUL": ({"files": {"a\0": ""}}, "files", ("NUL",)),
    "a file with a surrogate": ({"files": {"\ud800": ""}}, "files", ("surrogate",)),
    "a file too deep": ({"files": {"d/" * 40 + "a": ""}}, "files", ("32 parts",)),
    "a long part": ({"files": {"a" * 256: ""}}, "files", ("255 bytes",)),
    "a file and its folder": ({"files": {"a": "", "a/b": ""}}, "files", ("'a'", "'a/b'")),
    "a file as a number": ({"files": {"a": 5}}, "files.a", ("bytes",)),
    "a variable that is not one": ({"env": {"A B": "x"}}, "env", ("'A B'",)),
    "a variable with a sign": ({"env": {"A=B": "x"}}, "env", ("'A=B'",)),
    "a variable's value with a NUL": ({"env": {"A": "x\0"}}, "env.A", ("NUL", "offset 1")),
    "a variable's value as a number": ({"env": {"A": 5}}, "env.A", ("string",)),
    "an input that is no variable": ({"inputs": {"a-b": 1}}, "inputs.'a-b'", ("variable",)),
    "an input named by a keyword": ({"inputs": {"class": 1}}, "inputs.'class'", ("variable",)),
    "an input named ctx": ({"inputs": {"ctx": 1}}, "inputs.ctx", ("choose another",)),
    "an input named result": ({"inputs": {"result": 1}}, "inputs.result", ("choose another",)),
    "an input over a builtin": ({"inputs": {"__builtins__": 1}}, "inputs.__builtins__", ("choose another",)),
    "inputs as a list": ({"inputs": [1]}, "inputs", ("dictionary",)),
    "an absolute glob": ({"artifacts": ("/etc/*",)}, "artifacts", ("'/etc/*'", "relative")),
    "a glob upwards": ({"artifacts": ("../*",)}, "artifacts", ("'../*'",)),
    "too many globs": ({"artifacts": ("*",) * 33}, "artifacts", ("32", "33")),
    "a relative context": ({"context_path": "data.txt"}, "context_path", ("absolute",)),
    "a context upwards": ({"context_path": "/a/../b"}, "context_path", ("'..'",)),
    "a context with a NUL": ({"context_path": "/a\0"}, "context_path", ("NUL",)),
    "traceparent of zeros": ({"traceparent": f"00-{'0' * 32}-{SPAN}-01"}, "traceparent", ("W3C",)),
    "traceparent span of zeros": ({"traceparent": f"00-{TRACE}-{'0' * 16}-01"}, "traceparent", ("W3C",)),
    "traceparent in capitals": ({"traceparent": f"00-{TRACE.upper()}-{SPAN}-01"}, "traceparent", ("W3C",)),
    "traceparent and a newline": ({"traceparent": f"00-{TRACE}-{SPAN}-01\n"}, "traceparent", ("W3C",)),
    "traceparent of another version": ({"traceparent": f"ff-{TRACE}-{SPAN}-01"}, "traceparent", ("W3C",)),
}


@pytest.mark.parametrize(("fields", "field", "said"), BAD.values(), ids=BAD)
def test_bad_input_is_an_invalid_job_that_says_where_and_why(
    fields: dict[str, Any], field: str, said: tuple[str, ...]
) -> None:
    given_fields = {name: value for name, value in {"code": "pass", **fields}.items() if value is not ...}
    with pytest.raises(InvalidJob) as caught:
        JobSpec(**given_fields)
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field}: ")
    for part in said:
        assert part in caught.value.problem


def test_an_invalid_job_is_the_callers_to_change_and_a_value_error() -> None:
    with pytest.raises(CallerError):
        JobSpec(code="")
    with pytest.raises(ValueError, match="code"):
        JobSpec(code="")


@pytest.mark.parametrize("field", ["code", "stdin"])
def test_an_error_never_repeats_code_or_stdin(field: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        JobSpec(**{"code": "pass", field: {"secret": "payload"}})  # type: ignore[arg-type]  # bad on purpose
    assert "payload" not in str(caught.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"env": {"A": "payload\0"}},
        {"env": {"A": ["payload"]}},
        {"env": "payload"},
        {"files": {"a": ["payload"]}},
        {"files": "payload"},
        {"inputs": {"a": b"payload"}},
        {"inputs": "payload"},
    ],
)
def test_an_error_never_repeats_files_inputs_or_values_of_variables(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidJob) as caught:
        JobSpec(code="pass", **fields)
    assert "payload" not in str(caught.value)


@pytest.mark.parametrize("traceparent", [f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00"])
def test_a_w3c_traceparent_is_taken(traceparent: str) -> None:
    assert JobSpec(code="pass", traceparent=traceparent).traceparent == traceparent


def test_what_is_left_out_has_the_documented_default() -> None:
    spec = JobSpec(code="pass")
    assert (spec.tenant, spec.level, spec.priority, spec.stdin, spec.args) == (
        "default",
        "standard",
        "normal",
        b"",
        (),
    )
    assert set(spec.limits.model_dump().values()) == {None}
    assert (spec.files, spec.entrypoint, spec.env, spec.inputs) == ({}, None, {}, {})
    assert (spec.context_path, spec.artifacts) == (None, ())


def test_stdin_takes_text_and_raw_bytes() -> None:
    assert JobSpec(code="pass", stdin="é").stdin == b"\xc3\xa9"
    assert JobSpec(code="pass", stdin=b"\xff\0").stdin == b"\xff\0"


def test_a_job_cannot_be_changed_after_its_check() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        JobSpec(code="pass").code = ""  # type: ignore[misc]


@pytest.mark.parametrize("model", [Artifact, Event, JobError, JobResult, SkippedArtifact, Timings, Usage])
def test_no_model_accepts_and_ignores_a_field(model: type[BaseModel]) -> None:
    with pytest.raises(ValidationError) as caught:
        model.model_validate({"surprise": 1})
    assert ("surprise",) in [
        error["loc"] for error in caught.value.errors() if error["type"] == "extra_forbidden"
    ]


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
results = st.builds(
    JobResult,
    job_id=st.uuids().map(lambda id: id.hex),
    outcome=st.sampled_from(Outcome),
    exit_code=st.none() | st.integers(0, 255),
    signal=st.none() | st.integers(1, 64),
    stdout=text,
    stderr=text,
    error=st.none() | st.builds(JobError, type=text, message=text, traceback=text),
    artifacts=st.lists(st.builds(Artifact, path=text, data=st.binary(max_size=20)), max_size=2).map(tuple),
    artifacts_skipped=st.lists(st.builds(SkippedArtifact, path=text, reason=text), max_size=2).map(tuple),
    level=st.sampled_from(["permissive", "standard", "strict"]),
    usage=st.builds(Usage, wall_ms=st.integers(0, 2**53), output_bytes=st.integers(0, 2**53)),
    truncated=st.dictionaries(st.sampled_from(["stdout", "stderr"]), st.integers(1, 2**53)),
    evidence=st.dictionaries(text, st.booleans() | st.integers(-(2**53), 2**53) | text, max_size=3),
    timings=st.builds(Timings, submitted=st.floats(0, 2e9), admitted=st.floats(0, 2e9)),
    trace_id=st.just(TRACE),
)


@given(results)
def test_a_result_reads_back_as_it_was_written(result: JobResult) -> None:
    assert JobResult.model_validate_json(result.model_dump_json()) == result
    assert result.ok is (result.outcome is Outcome.OK)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=10,
)


@given(result=results, value=json_values)
def test_a_value_reads_back_as_it_was_written(result: JobResult, value: Any) -> None:
    with_value = result.model_copy(update={"value": value, "value_kind": "json"})
    assert JobResult.model_validate_json(with_value.model_dump_json()) == with_value


@given(result=results, ipc=st.binary(max_size=50))
def test_a_table_reads_back_as_it_was_written(result: JobResult, ipc: bytes) -> None:
    table = result.model_copy(update={"value": TableValue(ipc), "value_kind": "table"})
    stored = table.model_dump_json()
    assert json.loads(stored)["value"] == base64.b64encode(ipc).decode()
    assert JobResult.model_validate_json(stored) == table


def test_a_deep_and_a_long_value_read_back() -> None:
    result = JobResult(
        job_id="j",
        outcome=Outcome.OK,
        level="strict",
        timings=Timings(submitted=1, admitted=1),
        trace_id=TRACE,
    )
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    for value in (deep, 10**4000, -(10**4000), {"a" * 100_000: 0.1}):
        with_value = result.model_copy(update={"value": value, "value_kind": "json"})
        assert JobResult.model_validate_json(with_value.model_dump_json()).value == value


def test_a_table_and_its_kind_cannot_contradict_each_other() -> None:
    fields = {
        "job_id": "j",
        "outcome": "ok",
        "level": "standard",
        "timings": {"submitted": 1, "admitted": 1},
        "trace_id": TRACE,
    }
    for wrong in (
        {"value": "not base64!", "value_kind": "table"},
        {"value": 1, "value_kind": "table"},
        {"value": TableValue(b"x"), "value_kind": "json"},
    ):
        with pytest.raises(ValidationError):
            JobResult.model_validate({**fields, **wrong})


def test_an_event_reads_back_from_its_stream_fields() -> None:
    fields = {"type": "agent.run.failed", "job_id": "j", "tenant": "acme", "at_ms": "1500", "attempt": "3"}
    event = Event.from_fields("7-0", {**fields, "outcome": "worker_lost", "worker": "", "trace_id": TRACE})
    assert (event.id, event.at, event.attempt, event.outcome, event.worker) == (
        "7-0",
        1.5,
        3,
        Outcome.WORKER_LOST,
        None,
    )
    assert Event.model_validate_json(event.model_dump_json()) == event


def test_event_leaves_out_fields_of_a_later_version() -> None:
    fields = {
        "type": "agent.run.queued",
        "job_id": "j",
        "tenant": "t",
        "at_ms": "1",
        "attempt": "0",
        "trace_id": TRACE,
    }
    event = Event.from_fields("1-0", {**fields, "code": "print()"})
    assert event == Event.from_fields("1-0", fields), "a reader that refused them would lose the event"


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_ends_in_one_terminal_state(outcome: Outcome) -> None:
    expected = {
        Outcome.OK: JobState.SUCCEEDED,
        Outcome.CANCELLED: JobState.CANCELLED,
        Outcome.REJECTED: JobState.REJECTED,
    }.get(outcome, JobState.FAILED)
    assert JobState.after(outcome) is expected
    assert JobState.after(outcome).terminal


def test_a_job_under_way_is_in_no_terminal_state() -> None:
    under_way = [JobState.QUEUED, JobState.PARKED, JobState.RUNNING]
    assert [state for state in JobState if not state.terminal] == under_way


def test_every_state_but_waiting_for_a_slot_has_its_event() -> None:
    fields = {"id": "1-0", "job_id": "j", "tenant": "t", "at": 1.0, "attempt": 1, "trace_id": TRACE}
    for state in set(JobState) - {JobState.PARKED}:
        kind = "started" if state is JobState.RUNNING else state.value
        assert Event.model_validate({**fields, "type": f"agent.run.{kind}"}).terminal is state.terminal


def test_limits_alone_and_within_a_job_name_the_same_field() -> None:
    with pytest.raises(InvalidJob, match=r"^timeout_s: .*greater than 0 \(got -1\)"):
        Limits(timeout_s=-1)
    for make in (JobSpec, lambda **fields: JobSpec.model_validate(fields)):
        with pytest.raises(InvalidJob, match=r"^limits\.timeout_s: .*greater than 0 \(got -1\)"):
            make(code="1", limits={"timeout_s": -1})


def test_json_that_is_no_job_is_an_invalid_job() -> None:
    with pytest.raises(InvalidJob, match="code: required, and missing"):
        JobSpec.model_validate_json("{}")
