"""The contract: bad input is an InvalidJob naming field, value and bound; what is stored reads back."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from cellblock import (
    Event,
    InvalidJob,
    JobError,
    JobResult,
    JobSpec,
    JobState,
    Limits,
    Outcome,
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
    "unknown field": ({"timeout": 5}, "timeout", ("unknown field",)),
    "unknown limit": ({"limits": {"ram": 5}}, "limits.ram", ("unknown field",)),
    "unknown level": ({"level": "paranoid"}, "level", ("'paranoid'", "'strict'")),
    "unknown priority": ({"priority": "urgent"}, "priority", ("'urgent'", "'high'")),
    "tenant with a space": ({"tenant": "a b"}, "tenant", ("'a b'", "pattern")),
    "tenant with a newline": ({"tenant": "acme\n"}, "tenant", ("pattern",)),
    "tenant with a glob": ({"tenant": "*"}, "tenant", ("'*'",)),
    "empty tenant": ({"tenant": ""}, "tenant", ("''",)),
    "long tenant": ({"tenant": "a" * 129}, "tenant", ("127",)),
    "empty idempotency key": ({"idempotency_key": ""}, "idempotency_key", ("''",)),
    "long image": ({"image": "x" * 65}, "image", ("64",)),
    "negative timeout": ({"limits": {"timeout_s": -1}}, "limits.timeout_s", ("-1", "greater than 0")),
    "zero memory": ({"limits": {"memory_bytes": 0}}, "limits.memory_bytes", ("0", "greater than 0")),
    "NaN timeout": ({"limits": {"timeout_s": math.nan}}, "limits.timeout_s", ("nan", "finite")),
    "infinite cpu": ({"limits": {"cpu_s": math.inf}}, "limits.cpu_s", ("inf", "finite")),
    "negative infinity": ({"limits": {"cpus": -math.inf}}, "limits.cpus", ("-inf",)),
    "half a process": ({"limits": {"pids": 1.5}}, "limits.pids", ("1.5", "integer")),
    "limits as a list": ({"limits": [1]}, "limits", ("[1]",)),
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


def test_stdin_takes_text_and_raw_bytes() -> None:
    assert JobSpec(code="pass", stdin="é").stdin == b"\xc3\xa9"
    assert JobSpec(code="pass", stdin=b"\xff\0").stdin == b"\xff\0"


def test_a_job_cannot_be_changed_after_its_check() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        JobSpec(code="pass").code = ""  # type: ignore[misc]


@pytest.mark.parametrize("model", [Event, JobError, JobResult, Timings, Usage])
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


def test_an_event_with_an_unknown_field_is_refused() -> None:
    fields = {
        "type": "agent.run.queued",
        "job_id": "j",
        "tenant": "t",
        "at_ms": "1",
        "attempt": "0",
        "trace_id": TRACE,
    }
    with pytest.raises(ValidationError, match="code"):
        Event.from_fields("1-0", {**fields, "code": "print()"})


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_ends_in_one_terminal_state(outcome: Outcome) -> None:
    expected = {Outcome.OK: JobState.SUCCEEDED, Outcome.CANCELLED: JobState.CANCELLED}.get(
        outcome, JobState.FAILED
    )
    assert JobState.after(outcome) is expected
    assert JobState.after(outcome).terminal


def test_a_job_under_way_is_in_no_terminal_state() -> None:
    assert [state for state in JobState if not state.terminal] == [JobState.QUEUED, JobState.RUNNING]


def test_every_terminal_state_has_its_event() -> None:
    fields = {"id": "1-0", "job_id": "j", "tenant": "t", "at": 1.0, "attempt": 1, "trace_id": TRACE}
    for state in JobState:
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
