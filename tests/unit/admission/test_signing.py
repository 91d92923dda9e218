"""Signatures of jobs: what they cover, what they refuse, and that no key shows anywhere."""

from __future__ import annotations

import base64
import hmac
import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr, ValidationError

from cellblock import JobSpec, NotConfigured
from cellblock.admission.resolve import Manifest, Signature, resolve
from cellblock.admission.signing import Refusal, Signer, Verifier, new_key
from cellblock_config import SettingsError, SigningSettings, load_settings

KINDS = ("hmac", "ed25519")
JOB = "0f" * 16


class Pair:
    """A producer and a worker that trusts it, by one fresh key of this kind."""

    def __init__(self, kind: Any, key_id: str = "k1", **worker: Any) -> None:
        self.key, self.trusted = new_key(kind)
        self.signer = Signer(SigningSettings(key=SecretStr(self.key), key_id=key_id))
        keys: dict[str, Any] = {"trusted": {key_id: self.trusted}}
        self.verifier = Verifier(SigningSettings.model_validate({**keys, **worker}))

    def signed(self, job_id: str = JOB, **spec: Any) -> Manifest:
        """A job as the store gives it back to a worker."""
        return stored(self.signer.signed(job_id, manifest(**spec)))

    def verdict(self, manifest: Manifest, job_id: str = JOB) -> str:
        """The refusal's kind, or ok."""
        refusal = self.verifier.refusal(job_id, manifest)
        return refusal.kind if refusal else "ok"


def manifest(**spec: Any) -> Manifest:
    return resolve(JobSpec(**{"code": "print(6*7)", "stdin": "in", "args": ("a",), **spec}), load_settings())


def stored(manifest: Manifest) -> Manifest:
    return Manifest.model_validate_json(manifest.model_dump_json())


@pytest.fixture(params=KINDS)
def pair(request: pytest.FixtureRequest) -> Pair:
    return Pair(request.param)


def test_a_signed_job_is_taken(pair: Pair) -> None:
    assert pair.verdict(pair.signed()) == "ok"


RICH: dict[str, Any] = {
    "files": {"lib/one.py": b"\xff\x00", "b.txt": "x"},
    "env": {"B": "1", "A": "2"},
    "inputs": {"given": {"b": 1, "a": [1.5, None, "ü", 2**70, True]}},
    "artifacts": ("*.csv",),
    "limits": {"timeout_s": 3},
}


@pytest.mark.parametrize(
    "spec",
    [
        RICH,
        {"code": "print('ü€😀')", "stdin": bytes(range(256)), "args": ("ü", "\x1b")},
        {"limits": {"timeout_s": 0.1, "memory_bytes": 64 * 2**20, "cpus": 1}},
        {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "priority": "low", "level": "strict"},
    ],
)
def test_every_kind_of_value_survives_the_store(pair: Pair, spec: dict[str, Any]) -> None:
    assert pair.verdict(pair.signed(**spec)) == "ok"


ALTERATIONS: dict[str, dict[str, Any]] = {
    "code": {"code": "print(6*8)"},
    "stdin": {"stdin": b"other"},
    "args": {"args": ("a", "b")},
    "level": {"level": "permissive"},
    "tenant": {"tenant": "acme"},
    "image": {"image": "datascience"},
    "age": {"submitted": time.time() + 1e-3},
}


@pytest.mark.parametrize("change", ALTERATIONS.values(), ids=ALTERATIONS)
def test_an_altered_job_is_refused(pair: Pair, change: dict[str, Any]) -> None:
    assert pair.verdict(pair.signed().model_copy(update=change)) == "SignatureInvalid"


def altered(model: BaseModel) -> Iterator[tuple[str, BaseModel]]:
    """The model with each field replaced, those of its parts included."""
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            for inner, changed in altered(value):
                yield f"{name}.{inner}", model.model_copy(update={name: changed})
        yield name, model.model_copy(update={name: "altered"})


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # "altered" is of no field's type
def test_every_field_is_signed_whatever_fields_there_are(pair: Pair) -> None:
    signed = pair.signed()
    changed = {name: changed for name, changed in altered(signed) if name.partition(".")[0] != "signature"}
    assert set(Manifest.model_fields) - {"signature"} <= set(changed)
    assert "limits.memory_bytes" in changed
    verdicts = {name: pair.verdict(each) for name, each in changed.items()}  # type: ignore[arg-type]
    assert set(verdicts.values()) == {"SignatureInvalid"}, verdicts


def changes(value: Any) -> Iterator[Any]:
    """The JSON value with one thing changed: each leaf, each member removed or doubled."""
    match value:
        case dict():
            yield {**value, "more": "x"}
            for name in value:
                rest = {other: value[other] for other in value if other != name}
                yield rest
                yield {**rest, f"{name}x": value[name]}
                for changed in changes(value[name]):
                    yield {**value, name: changed}
        case list():
            yield [*value, "x"]
            for at, item in enumerate(value):
                yield [*value[:at], *value[at + 1 :]]
                for changed in changes(item):
                    yield [*value[:at], changed, *value[at + 1 :]]
        case bool() | None:
            yield not value
        case int() | float():
            yield value + 1
        case str():
            yield from (f"{value}x", f"x{value}", "", "AAAA", "permissive" if value == "standard" else None)


def test_nothing_in_the_stored_document_can_be_changed(pair: Pair) -> None:
    signed = pair.signed(**RICH)
    document = json.loads(signed.model_dump_json())
    bare = signed.model_copy(update={"signature": None})
    tried = 0
    for change in changes({name: value for name, value in document.items() if name != "signature"}):
        tried += 1
        try:
            read = Manifest.model_validate_json(json.dumps({**change, "signature": document["signature"]}))
        except ValidationError:
            continue
        if (
            read.model_copy(update={"signature": None}) != bare
            or read.model_fields_set != signed.model_fields_set
        ):
            assert pair.verdict(read) == "SignatureInvalid", change
    assert tried > 80


class LaterManifest(Manifest):
    """The manifest of a version that has one field more."""

    reach: str = "nowhere"


def test_a_field_of_a_later_version_is_covered_without_refusing_jobs_signed_before_it(pair: Pair) -> None:
    before = LaterManifest.model_validate_json(pair.signed().model_dump_json())
    assert pair.verdict(before) == "ok", "it waited through an upgrade"
    assert pair.verdict(before.model_copy(update={"reach": "everywhere"})) == "SignatureInvalid"

    fields = manifest().model_dump()
    after = pair.signer.signed(JOB, LaterManifest(**{**fields, "reach": "near"})).model_dump(mode="json")
    without = {name: value for name, value in after.items() if name != "reach"}
    for document, verdict in (
        (after, "ok"),
        ({**after, "reach": "nowhere"}, "SignatureInvalid"),
        (without, "SignatureInvalid"),
    ):
        assert pair.verdict(LaterManifest.model_validate_json(json.dumps(document))) == verdict


def test_a_signature_holds_for_its_own_job_id_only(pair: Pair) -> None:
    signed = pair.signed()
    assert pair.verdict(signed, "another-id") == "SignatureInvalid"
    assert pair.verdict(signed, JOB[:-1]) == "SignatureInvalid"


def mutated(text: str, chance: random.Random) -> str:
    """The stored document with one to three characters changed, dropped, doubled or moved."""
    characters = list(text)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(characters))
        match chance.randrange(4):
            case 0:
                characters[at] = chance.choice('0123456789abcxyz"{}[]:,.-\\ \n')
            case 1:
                del characters[at]
            case 2:
                characters.insert(at, characters[at])
            case _:
                characters.insert(chance.randrange(len(characters)), characters.pop(at))
    return "".join(characters)


def test_no_mutation_of_the_stored_document_runs_anything_else(pair: Pair) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    signed = pair.signed()
    text = signed.model_dump_json()
    judged = 0
    for _ in range(3000):
        try:
            read = Manifest.model_validate_json(mutated(text, chance))
        except ValidationError:
            continue  # unreadable: the ledger rejects it
        judged += 1
        same = read.model_copy(update={"signature": None}) == signed.model_copy(update={"signature": None})
        assert same or pair.verdict(read) != "ok", read
    assert judged > 100, "enough of them were still manifests"


def test_signatures_swapped_between_two_jobs_are_refused(pair: Pair) -> None:
    one, two = pair.signed("one"), pair.signed("two", code="print('other')")
    assert pair.verdict(one.model_copy(update={"signature": two.signature}), "one") == "SignatureInvalid"
    assert pair.verdict(two.model_copy(update={"signature": one.signature}), "two") == "SignatureInvalid"


def flipped(value: str) -> str:
    raw = bytearray(base64.b64decode(value))
    raw[-1] ^= 1
    return base64.b64encode(raw).decode()


BROKEN: dict[str, Callable[[str], str]] = {
    "empty": lambda value: "",
    "truncated": lambda value: value[:-8],
    "one byte of it": lambda value: value[:4],
    "no base64": lambda value: "!" + value[1:],
    "no ascii": lambda value: "ü" + value[1:],
    "a line end": lambda value: value + "\n",
    "twice": lambda value: value + value,
    "padded": lambda value: base64.b64encode(base64.b64decode(value) + b"\0").decode(),
    "a bit flipped": flipped,
    "in hex": lambda value: base64.b64decode(value).hex(),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_broken_signature_is_refused(pair: Pair, broken: Callable[[str], str]) -> None:
    signed = pair.signed()
    assert signed.signature
    signature = Signature(key_id="k1", value=broken(signed.signature.value))
    assert pair.verdict(signed.model_copy(update={"signature": signature})) == "SignatureInvalid"


def test_a_public_key_is_no_hmac_secret() -> None:
    """The classic confusion: the public half is known to all, so a worker must never take it for a secret."""
    pair = Pair("ed25519")
    public = base64.b64decode(pair.trusted.partition(":")[2])
    signed = pair.signed()
    document = signed.model_dump(mode="json", exclude={"signature"})
    text = json.dumps({"job_id": JOB, "manifest": document}, sort_keys=True, separators=(",", ":"))
    forged = hmac.digest(public, b"cellblock-job-v1\n" + text.encode(), "sha256")
    as_hmac = Verifier(
        SigningSettings.model_validate({"trusted": {"k1": "hmac:" + base64.b64encode(public).decode()}})
    )
    signature = Signature(key_id="k1", value=base64.b64encode(forged).decode())
    attack = signed.model_copy(update={"signature": signature})
    assert as_hmac.refusal(JOB, attack) is None, "the forgery is a right HMAC, so the message format is known"
    assert pair.verdict(attack) == "SignatureInvalid"


def test_a_signature_cannot_name_how_it_is_checked() -> None:
    assert set(Signature.model_fields) == {"key_id", "value"}


def test_another_key_of_the_same_name_is_refused(pair: Pair) -> None:
    for kind in KINDS:
        assert pair.verdict(Pair(kind).signed()) == "SignatureInvalid"


def test_a_signature_nobody_here_can_check_is_none(pair: Pair) -> None:
    stranger = Pair("hmac", key_id="k2")
    assert pair.verdict(stranger.signed()) == "SignatureKeyUnknown"
    nobody = Verifier(SigningSettings())
    refusal = nobody.refusal(JOB, stranger.signed())
    assert refusal
    assert (refusal.kind, "'k2'" in refusal.why) == ("SignatureKeyUnknown", True)
    assert "CELLBLOCK_SIGNING_TRUSTED" in refusal.why


def test_an_unsigned_job_runs_unless_signatures_are_required(pair: Pair) -> None:
    unsigned = stored(manifest())
    assert pair.verdict(unsigned) == "ok"
    refusal = Pair("hmac", require_signature=True).verifier.refusal(JOB, unsigned)
    assert refusal == Refusal("SignatureMissing", refusal.why if refusal else "")
    assert "CELLBLOCK_SIGNING_KEY" in refusal.why


@pytest.mark.parametrize(
    ("age_s", "verdict"), [(0, "ok"), (50, "ok"), (200, "SignatureExpired"), (-200, "SignatureExpired")]
)
def test_a_signed_job_grows_too_old(age_s: float, verdict: str) -> None:
    pair = Pair("hmac", max_age_s=100)
    asked = manifest().model_copy(update={"submitted": time.time() - age_s})
    assert pair.verdict(stored(pair.signer.signed(JOB, asked))) == verdict


def test_without_a_limit_no_job_is_too_old(pair: Pair) -> None:
    asked = manifest().model_copy(update={"submitted": 1.0})
    assert pair.verdict(stored(pair.signer.signed(JOB, asked))) == "ok"


def test_a_process_takes_what_it_signs_itself(pair: Pair) -> None:
    own = Verifier(
        SigningSettings.model_validate({"key": pair.key, "key_id": "k1", "require_signature": True})
    )
    assert own.refusal(JOB, pair.signed()) is None


def test_without_a_key_a_job_stays_as_it_is() -> None:
    asked = manifest()
    assert Signer(SigningSettings()).signed(JOB, asked) is asked


def test_an_old_key_is_taken_while_the_new_one_signs() -> None:
    old, new = Pair("hmac", "old"), Pair("ed25519", "new")
    worker = Verifier(SigningSettings.model_validate({"trusted": {"old": old.trusted, "new": new.trusted}}))
    assert worker.refusal(JOB, old.signed()) is None
    assert worker.refusal(JOB, new.signed()) is None


# --- settings ------------------------------------------------------------------------------------

SECRET = base64.b64encode(b"hunter2-and-more" * 2).decode()
HMAC = f"hmac:{SECRET}"
SEED = f"ed25519:{SECRET}"
PUBLIC = f"ed25519-public:{SECRET}"

REFUSED: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "key without id": ({"key": HMAC}, ("signing.key ", "signing.key_id")),
    "id without key": ({"key_id": "k1"}, ("signing.key_id", "signing.key is not set")),
    "required, no key": ({"require_signature": True}, ("signing.require_signature", "signing.trusted")),
    "age, no key": ({"max_age_s": 60}, ("signing.max_age_s", "signing.trusted")),
    "age below the lease": (
        {"max_age_s": 10, "trusted": {"k1": HMAC}},
        ("signing.max_age_s (10)", "ledger.lease_s (10)"),
    ),
    "short secret": ({"key": "hmac:aHVudGVyMg==", "key_id": "k"}, ("7 bytes", "32 or more")),
    "seed of another length": ({"key": SEED + "aaaa", "key_id": "k"}, ("signing.key", "base64")),
    "short seed": ({"key": "ed25519:aHVudGVyMg==", "key_id": "k"}, ("7 bytes", "exactly 32")),
    "no kind": ({"key": SECRET, "key_id": "k"}, ("signing.key",)),
    "unknown kind": ({"key": f"rsa:{SECRET}", "key_id": "k"}, ("must start with hmac:",)),
    "no base64": ({"key": "hmac:hunter2-and-more", "key_id": "k"}, ("base64",)),
    "public key to sign": ({"key": PUBLIC, "key_id": "k"}, ("public key", "cannot sign")),
    "seed to check": ({"trusted": {"k1": SEED}}, ("signing.trusted", "'k1'", "seed")),
    "short trusted": ({"trusted": {"k1": "hmac:aHVudGVyMg=="}}, ("'k1'", "7 bytes")),
    "id and key swapped": ({"trusted": {HMAC: "k1"}}, ("signing.trusted",)),
    "swapped, and no text": ({"trusted": {HMAC: 5}}, ("signing.trusted",)),
    "key as an id": ({"key": HMAC, "key_id": HMAC}, ("signing.key_id",)),
    "no table": ({"trusted": HMAC}, ("signing.trusted",)),
}


@pytest.mark.parametrize(("group", "named"), REFUSED.values(), ids=REFUSED)
def test_wrong_keys_are_refused_and_never_shown(group: dict[str, Any], named: tuple[str, ...]) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(signing=group)
    for part in named:
        assert part in str(caught.value)
    for secret in (SECRET, "hunter2", "aHVudGVyMg"):
        assert secret not in str(caught.value)


def test_keys_are_read_from_the_environment_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELLBLOCK_SIGNING_KEY", HMAC)
    monkeypatch.setenv("CELLBLOCK_SIGNING_KEY_ID", "k1")
    monkeypatch.setenv("CELLBLOCK_SIGNING_TRUSTED", json.dumps({"k1": HMAC, "k2": PUBLIC}))
    monkeypatch.setenv("CELLBLOCK_SIGNING_REQUIRE_SIGNATURE", "true")
    settings = load_settings()
    assert settings.signing.key
    assert settings.signing.key.get_secret_value() == HMAC
    assert settings.signing.trusted["k2"].get_secret_value() == PUBLIC
    assert SECRET not in f"{settings!r} {settings} {settings.model_dump()} {settings.model_dump_json()}"


def test_empty_variables_are_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELLBLOCK_SIGNING_KEY", "")
    monkeypatch.setenv("CELLBLOCK_SIGNING_KEY_ID", "")
    assert load_settings().signing == SigningSettings()


@pytest.mark.parametrize("trusted", [0, 1], ids=["hmac", "ed25519"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_key_that_is_not_the_one_trusted_is_refused_at_the_start(kind: Any, trusted: int) -> None:
    other = new_key("ed25519" if trusted else "hmac")[1]
    settings = SigningSettings.model_validate(
        {"key": new_key(kind)[0], "key_id": "k1", "trusted": {"k1": other}}
    )
    with pytest.raises(NotConfigured, match=r"signing\.key and the key 'k1' of signing\.trusted"):
        Signer(settings)


def test_ed25519_without_its_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Injected: the package that a base install does not have is hidden from the import system."""
    signing = SigningSettings.model_validate({"key": SEED, "key_id": "k1"})
    checking = SigningSettings.model_validate({"trusted": {"k1": PUBLIC}})
    for name in ("nacl", "nacl.signing"):
        monkeypatch.setitem(sys.modules, name, None)
    for start in (
        lambda: Signer(signing),
        lambda: Verifier(checking),
        lambda: new_key("ed25519"),
    ):
        with pytest.raises(NotConfigured, match=r"pip install 'cellblock\[signing\]'"):
            start()
    assert Signer(SigningSettings.model_validate({"key": HMAC, "key_id": "k1"})).signed(JOB, manifest())


def test_keys_are_never_made_twice() -> None:
    assert len({new_key(kind)[0] for kind in KINDS for _ in range(50)}) == 100  # type: ignore[arg-type]
