"""What each process of a host is told: the variables that it uses, and nothing else of its parent's.

A list of what a process must not know would miss what is named by others: ``AWS_SECRET_ACCESS_KEY``,
``PGPASSWORD``, and every variable of an operator's shell.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import cast, get_origin

from pydantic import BaseModel

from cellblock.errors import NotConfigured
from cellblock_config import Settings

_PREFIX = "CELLBLOCK_"
_PR_SET_DUMPABLE = 4
#: Where programs, libraries and folders are, in which language and time zone; and what coverage.py is told.
_PLACES = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TZ", "LANG", "LANGUAGE", "VIRTUAL_ENV")
_PLACES_BEGIN = ("PYTHON", "LC_", "LD_", "XDG_", "MALLOC_", "COVERAGE_")
#: Whose certificates are believed.
_TLS = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
#: What the blob stores of Amazon, Microsoft and Google are opened with.
_BLOB_STORES = ("AWS_", "AZURE_", "GOOGLE_")
#: What libpq is told: password, files of certificates, Kerberos.
_POSTGRESQL = ("PG", "KRB5")
_REDIS = frozenset({"redis.url", "redis.sentinel_password"})
_SIGNING_KEYS = frozenset({"signing.key", "signing.trusted"})
#: Settings that would be refused without a key, set to what is not.
_WITHOUT_SIGNING_KEYS = {
    "CELLBLOCK_SIGNING_KEY_ID": "",
    "CELLBLOCK_SIGNING_REQUIRE_SIGNATURE": "false",
    "CELLBLOCK_SIGNING_MAX_AGE_S": "0",
}
_SECRETS_FILE = "CELLBLOCK_EGRESS_SECRETS_FILE"


@dataclass(frozen=True, slots=True)
class Needs:
    """The secret settings of one kind of process, and the variables that are not cellblock's.

    ``settings``: whether it reads cellblock's settings at all. The names of ``variables`` and ``beginnings``
    are compared in capitals.
    """

    secrets: frozenset[str] = frozenset()
    variables: tuple[str, ...] = ()
    beginnings: tuple[str, ...] = ()
    settings: bool = True


#: A launcher neither judges nor posts. A secret that it does not hold cannot be found by its sandboxes.
LAUNCHER = Needs()
WORKER = Needs(
    _REDIS
    | _SIGNING_KEYS
    | {
        "redis.broker_url",
        "blobs.url",
        "egress.secrets",
        "sealing.fleet_private_key",
        "telemetry.sentry_dsn",
    },
    (*_TLS, *_PROXIES),
    (*_BLOB_STORES, "SENTRY_", "OTEL_"),
)
ARCHIVER = Needs(_REDIS | {"archive.url"}, _TLS, _POSTGRESQL)
#: Flower, which reads both stores and asks for a password.
MONITOR = Needs(_REDIS | {"redis.broker_url", "monitor.password"}, _TLS, ("FLOWER_",))
REDIS_SERVER = Needs(settings=False)


def environment_of(needs: Needs, variables: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a process with these needs, out of the variables of who starts it.

    A secret setting that is not for it is set to nothing, so that no ``.env`` in its folder gives it one.
    Raises :class:`NotConfigured` for a variable that holds secrets of several processes.
    """
    told = {name: value for name, value in variables.items() if _is_told(name, needs)}
    if not needs.settings:
        return told
    return {**told, **_nothing_else(needs)}


def _is_told(name: str, needs: Needs) -> bool:
    known = name.upper()
    if known.startswith(_PREFIX):
        return needs.settings and _is_told_setting(name, needs)
    return (
        known in _PLACES
        or known.startswith(_PLACES_BEGIN)
        or known in needs.variables
        or known.startswith(needs.beginnings)
    )


def _is_told_setting(name: str, needs: Needs) -> bool:
    group, _, field = name.upper().removeprefix(_PREFIX).lower().partition("_")
    secrets = {secret for secret in _secrets() if secret.startswith(f"{group}.")}
    if field:
        return f"{group}.{field}" not in secrets - needs.secrets
    if secrets - needs.secrets:  # one variable with all settings of a group, as JSON
        raise NotConfigured(
            f"{name}: not every process may know all of these settings; set each by itself, as {name}_…"
        )
    return True


def _nothing_else(needs: Needs) -> dict[str, str]:
    nothing = {
        f"{_PREFIX}{secret.replace('.', '_', 1)}".upper(): empty
        for secret, empty in _secrets().items()
        if secret not in needs.secrets
    }
    if not needs.secrets & _SIGNING_KEYS:
        nothing |= _WITHOUT_SIGNING_KEYS
    if "egress.secrets" not in needs.secrets:
        nothing[_SECRETS_FILE] = ""
    return nothing


@cache
def _secrets() -> dict[str, str]:
    """Every secret setting, with what it is when it is not set."""
    return dict(_secret_settings())


def _secret_settings() -> Iterator[tuple[str, str]]:
    nothing: dict[object, str] = {tuple: "[]", dict: "{}"}
    for group, described in Settings.model_fields.items():
        for name, setting in cast(type[BaseModel], described.annotation).model_fields.items():
            if "SecretStr" in str(setting.annotation):
                yield f"{group}.{name}", nothing.get(get_origin(setting.annotation), "")


def keep_to_itself() -> None:
    """Lets no other process of this user read this one's memory or environment; root still can.

    Where all processes of a fleet are one ordinary user's, that is all that keeps them apart. A program that
    this process executes begins without it.
    """
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def write_for_no_others() -> None:
    """Has what this process writes be readable by its user, and by a group where its umask allows that."""
    os.umask(os.umask(0o077) | 0o007)
