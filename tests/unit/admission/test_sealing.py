"""Confidential jobs: what is sealed, to whom, and what stays in the clear."""

from __future__ import annotations

import pytest
from nacl.public import PublicKey, SealedBox
from pydantic import SecretStr

from cellblock import (
    CannotOpen,
    InvalidJob,
    JobResult,
    JobSpec,
    NotConfigured,
    Outcome,
    ReducedContext,
    Usage,
)
from cellblock import open_result as opened
from cellblock.admission.idempotency import IdempotencyKey
from cellblock.admission.intake import Intake
from cellblock.admission.resolve import Manifest, resolve
from cellblock.admission.sealing import (
    _CLEAR,
    _PAYLOAD,
    new_pair,
    open_if_fitting,
    open_manifest,
    seal_manifest,
    seal_result,
    tenant_key,
)
from cellblock.contract.outcomes import JobError
from cellblock.contract.results import Artifact, RedactionCount, Timings
from cellblock_config import Settings, load_settings
from cellblock_config.sealing import SealingSettings, sealing_key

MARKER = "marker-5d1e"
PRIVATE, PUBLIC = new_pair()
OTHER_PRIVATE, OTHER_PUBLIC = new_pair()
FLEET_PRIVATE, FLEET_PUBLIC = new_pair()
BOTH = SealingSettings(
    tenant_keys={"acme": PUBLIC}, fleet_key=FLEET_PUBLIC, fleet_private_key=SecretStr(FLEET_PRIVATE)
)


def spec(**fields: object) -> JobSpec:
    return JobSpec.model_validate(
        {
            "code": f"print({MARKER!r})",
            "files": {f"{MARKER}.txt": MARKER},
            "args": [MARKER],
            "stdin": MARKER,
            "env": {"MODE": MARKER},
            "inputs": {"x": MARKER},
            "artifacts": [MARKER],
            "tenant": "acme",
            "confidential": True,
            **fields,
        }
    )


def result() -> JobResult:
    return JobResult(
        job_id="job",
        outcome=Outcome.EXIT,
        exit_code=1,
        stdout=f"{MARKER}\n" * 3,
        stderr=MARKER,
        value={MARKER: [1, MARKER, None]},
        value_kind="json",
        error=JobError(type=MARKER, message=MARKER, traceback=MARKER),
        artifacts=(Artifact(path=MARKER, data=MARKER.encode()),),
        evidence={"fault": MARKER, "oom_kills": 2},
        redactions=(RedactionCount(kind="registered:db", stream="stdout", count=1),),
        level="standard",
        isolation="gvisor",
        usage=Usage(wall_ms=5),
        timings=Timings(submitted=1, admitted=2),
        trace_id="0" * 32,
    )


def test_the_stored_manifest_holds_nothing_its_author_wrote(redis_url: str) -> None:
    settings = load_settings(redis={"url": redis_url}, sealing=BOTH)
    manifest = Intake(settings).prepare("job", spec()).manifest
    stored = manifest.model_dump_json()
    assert MARKER not in stored
    assert manifest.seal_to == PUBLIC
    plain = open_manifest("job", manifest, BOTH)
    assert plain.code == f"print({MARKER!r})"
    assert plain.files == {f"{MARKER}.txt": MARKER.encode()}
    assert (plain.args, plain.stdin, plain.env) == ((MARKER,), MARKER.encode(), {"MODE": MARKER})
    assert plain.inputs["x"].data == f'"{MARKER}"'.encode()
    assert plain.artifacts == (MARKER,)
    assert plain.payload is None


def test_a_sealed_result_shows_how_it_ended_and_sizes() -> None:
    sealed = seal_result(result(), PUBLIC)
    assert MARKER not in sealed.model_dump_json()
    assert (sealed.outcome, sealed.exit_code, sealed.usage.wall_ms) == (Outcome.EXIT, 1, 5)
    assert sealed.evidence == {"oom_kills": 2}
    assert sealed.error == JobError(
        type="Sealed", message="sealed to its tenant; open it with the private key"
    )
    assert sealed.redactions == (RedactionCount(kind="registered", stream="stdout", count=1),)
    assert sealed.summary is not None
    assert sealed.summary.model_dump() == {
        "stdout_bytes": 36,
        "stdout_lines": 3,
        "stderr_bytes": 11,
        "stderr_lines": 1,
        "value": "object of 1 (array of 3 (integer, null, string))",
        "artifacts": 1,
        "artifacts_bytes": 11,
    }
    assert opened(JobResult.model_validate_json(sealed.model_dump_json()), PRIVATE) == result()


def test_every_field_is_either_sealed_or_known_to_be_no_plaintext() -> None:
    """Who adds a field decides which it is."""
    sealed = {"code", "files", "entrypoint", "args", "stdin", "env", "inputs", "artifacts"}
    assert sealed == _PAYLOAD
    clear = "tenant plan charge parent depth level image limits priority expires_s retries trace_id submitted"
    refused_or_ours = {"context_path", "evaluation", "modules", "seal_to", "payload", "signature"}
    digests = {"blobs", "long_results"}  # of what was sealed before
    assert set(Manifest.model_fields) == sealed | set(clear.split()) | refused_or_ours | digests
    said = {
        "stdout",
        "stderr",
        "value",
        "value_kind",
        "value_error",
        "error",
        "artifacts",
        "artifacts_skipped",
    }
    made = {"redactions", "evidence", "summary", "sealed"}
    no_confidential_job_has = {"trials"}
    assert set(JobResult.model_fields) == said | made | no_confidential_job_has | set(_CLEAR)


def test_what_never_ran_is_our_own_word_and_stays_readable() -> None:
    refused = result().model_copy(update={"isolation": None})
    assert seal_result(refused, PUBLIC) is refused


def test_a_key_that_cannot_be_sealed_to_is_found_before_the_job_runs() -> None:
    zeros = "x25519-public:" + "A" * 43 + "="
    with pytest.raises(NotConfigured, match="not a valid sealing public key"):
        tenant_key(spec(), SealingSettings(tenant_keys={"acme": zeros}))


def test_an_idempotency_key_gives_nothing_away() -> None:
    first, second = (
        IdempotencyKey.of(spec(code=code, idempotency_key="k"))
        for code in ("print('deny')", "print('allow')")
    )
    assert first == second, "or a guess could be checked"
    assert IdempotencyKey.of(spec(idempotency_key="k", level="strict")) != first


def test_nobody_elses_key_opens_it_and_none_is_named() -> None:
    sealed = seal_result(result(), PUBLIC)
    for key in (OTHER_PRIVATE, FLEET_PRIVATE):
        with pytest.raises(CannotOpen, match="does not fit") as refused:
            opened(sealed, key)
        assert key not in str(refused.value)
    with pytest.raises(CannotOpen, match="must be x25519:"):
        opened(sealed, PUBLIC)
    settings = SealingSettings(private_key=SecretStr(OTHER_PRIVATE))
    assert open_if_fitting(sealed, settings) is sealed, "another tenant's stays as it is"


def test_an_altered_result_or_another_jobs_is_not_opened() -> None:
    sealed = seal_result(result(), PUBLIC)
    assert sealed.sealed is not None
    altered = bytearray(sealed.sealed)
    altered[-1] ^= 1
    with pytest.raises(CannotOpen, match="does not fit"):
        opened(sealed.model_copy(update={"sealed": bytes(altered)}), PRIVATE)
    with pytest.raises(CannotOpen, match="another job's"):
        opened(sealed.model_copy(update={"job_id": "other"}), PRIVATE)


def test_an_altered_or_foreign_payload_is_not_opened() -> None:
    manifest = seal_manifest("job", resolve(spec(), Settings()).model_copy(update={"seal_to": PUBLIC}), BOTH)
    assert open_manifest("job", manifest, BOTH).code is not None
    for altered in ({"seal_to": OTHER_PUBLIC}, {"seal_to": None}, {"tenant": "mallory"}):
        with pytest.raises(CannotOpen, match="another job's, or for another reader"):
            open_manifest("job", manifest.model_copy(update=altered), BOTH)
    with pytest.raises(CannotOpen, match="another job's"):
        open_manifest("other", manifest, BOTH)
    for odd in (b"[1]", b"null", b"3", b'{"bound": 1, "payload": {"level": "permissive"}}', b"[" * 5000):
        sealed = bytes(SealedBox(PublicKey(sealing_key(FLEET_PUBLIC, "x25519-public"))).encrypt(odd))
        with pytest.raises(CannotOpen, match="not a job of this version"):
            open_manifest("job", manifest.model_copy(update={"payload": sealed}), BOTH)
    with pytest.raises(NotConfigured, match="FLEET_PRIVATE_KEY"):
        open_manifest("job", manifest, SealingSettings())
    with pytest.raises(CannotOpen, match="does not fit"):
        open_manifest("job", manifest, SealingSettings(fleet_private_key=SecretStr(OTHER_PRIVATE)))


def test_what_is_missing_is_named_before_anything_is_stored(redis_url: str) -> None:
    with pytest.raises(NotConfigured, match=r"'acme'.*CELLBLOCK_SEALING_TENANT_KEYS"):
        Intake(load_settings(redis={"url": redis_url})).prepare("job", spec())
    only_tenant = SealingSettings(tenant_keys={"acme": PUBLIC})
    with pytest.raises(NotConfigured, match="CELLBLOCK_SEALING_FLEET_KEY"):
        Intake(load_settings(redis={"url": redis_url}, sealing=only_tenant)).prepare("job", spec())


def test_the_reduced_context_takes_the_place_of_a_plain_one() -> None:
    with pytest.raises(InvalidJob, match="context_path: a confidential job sees no plain context"):
        spec(context_path="/data/c")
    with pytest.raises(InvalidJob, match="reduced_context: is for confidential jobs"):
        spec(confidential=False, reduced_context={"summary": "s"})
    reduced = ReducedContext(summary="s", embeddings=((0.5, 1.0),), roles=("analyst",), metadata={"n": 1})
    manifest = resolve(spec(reduced_context=reduced), Settings())
    assert b'"summary": "s"' in manifest.inputs["ctx"].data


@pytest.mark.parametrize(
    "fields",
    [
        {"args": [b"marker"]},
        {"reduced_context": {"summary": ["marker"]}},
        {"reduced_context": {"metadata": {"marker": ["marker"]}}},
        {"reduced_context": {"embeddings": [["marker"]]}},
    ],
)
def test_a_refusal_quotes_nothing(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidJob) as refused:
        spec(**fields)
    assert "marker" not in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"private_key": PUBLIC}, "must be x25519:"),
        ({"fleet_key": PRIVATE}, "must be x25519-public:"),
        ({"tenant_keys": {"acme": "x25519-public:AAAA"}}, "is 3 bytes"),
        ({"tenant_keys": {PRIVATE: PUBLIC}}, "names a tenant by something that is not a tenant's name"),
        ({"private_key": "x25519:???"}, "is not base64"),
    ],
)
def test_a_wrong_key_is_refused_and_not_repeated(fields: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        load_settings(sealing=fields)
    assert PRIVATE.partition(":")[2] not in str(refused.value)
