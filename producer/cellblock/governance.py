"""Overrides of plans that operators set at run time, and the record of who set what."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from redis import Redis

from cellblock.contract.names import check_tenant
from cellblock.errors import InvalidJob, PolicyError
from cellblock.ledger.connection import store_errors
from cellblock.ledger.keys import Keys
from cellblock_config.names import problem_of
from cellblock_config.plans import EVERYBODY, Override, override_from

#: How long a process uses the overrides that it read last.
_FRESH_S = 1.0
_AUDIT_KEPT = 100_000
_WHO_MAX = 200


class OverrideChange(BaseModel):
    """One entry of the audit."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    at: float = Field(description="Unix seconds, the store's clock.")
    who: str
    tenant: str = Field(description="* for everybody.")
    key: str
    before: Any = None
    after: Any = None


class Governance:
    """Overrides set at run time, for one tenant or all. Thread-safe. Raises :class:`StoreUnavailable`."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis = redis
        self._keys = keys
        self._change = redis.register_script((resources.files("cellblock") / "governance.lua").read_text())
        self._read: dict[str, dict[str, Any]] = {}
        self._read_at = float("-inf")

    def overrides(self, tenant: str) -> Override:
        """The overrides for this tenant now: its own win over those for all tenants."""
        now = time.monotonic()
        if now - self._read_at > _FRESH_S:
            self._read, self._read_at = self._stored(), now
        said = {**self._read.get(EVERYBODY, {}), **self._read.get(tenant, {})}
        try:
            return override_from(said)
        except ValidationError as error:
            key = str(error.errors()[0]["loc"][0])
            raise PolicyError(
                f"what was set for {key} cannot be read: cellblock plans unset {key}, for {tenant!r} or all"
            ) from None

    def set(self, tenant: str, key: str, value: str, who: str) -> OverrideChange:
        """Sets a key for a tenant, or all (``*``). Raises :class:`InvalidJob` with key, value and reason."""
        try:
            parsed: Any = json.loads(value)
        except (ValueError, RecursionError):
            parsed = value
        if key in Override.names() and (isinstance(parsed, bool) or not isinstance(parsed, int | float)):
            raise InvalidJob(key, f"{value!r:.80} is not a number; to remove it: cellblock plans unset")
        try:
            override_from({key: parsed})
        except ValidationError as error:
            problem = error.errors()[0]
            known = ", ".join(Override.names())
            if problem["type"] == "extra_forbidden":
                raise InvalidJob(key, f"there is no such key; there are {known}") from None
            raise InvalidJob(key, f"{value!r:.80}: {problem_of(problem)}") from None
        return self._changed(tenant, key, json.dumps(parsed), who)

    def unset(self, tenant: str, key: str, who: str) -> OverrideChange:
        """Removes an override, so that the plan's own value applies again."""
        if key not in Override.names():
            raise InvalidJob(key, f"there is no such key; there are {', '.join(Override.names())}")
        return self._changed(tenant, key, "", who)

    def audit(self, *, limit: int = 100) -> list[OverrideChange]:
        """The latest changes, latest first."""
        with store_errors("reading the audit"):
            found = cast(
                list[tuple[str, dict[str, str]]],
                self._redis.xrevrange(self._keys.audit, count=limit),
            )
        return [_entry(name, fields) for name, fields in found]

    def _changed(self, tenant: str, key: str, value: str, who: str) -> OverrideChange:
        if tenant != EVERYBODY:
            check_tenant(tenant, remedy="; for everybody leave it out")
        if not who.isprintable() or not 0 < len(who) <= _WHO_MAX:
            raise InvalidJob("by", f"{who!r:.80} is not a name: 1 to {_WHO_MAX} printable characters")
        with store_errors("changing an override"):
            name = cast(
                str,
                self._change(
                    keys=[self._keys.governance, self._keys.audit],
                    args=[tenant, key, value, who, _AUDIT_KEPT],
                ),
            )
            if not name:
                raise InvalidJob(key, f"nothing is set for {tenant!r}")
            ((found, fields),) = cast(
                list[tuple[str, dict[str, str]]], self._redis.xrange(self._keys.audit, name, name)
            )
        self._read_at = float("-inf")
        return _entry(found, fields)

    def _stored(self) -> dict[str, dict[str, Any]]:
        with store_errors("reading overrides"):
            stored = cast(dict[str, str], self._redis.hgetall(self._keys.governance))
        found: dict[str, dict[str, Any]] = {}
        for name, value in stored.items():
            tenant, _, key = name.rpartition(" ")
            found.setdefault(tenant, {})[key] = json.loads(value)
        return found


def _entry(name: str, fields: Mapping[str, str]) -> OverrideChange:
    def value(text: str) -> Any:
        return json.loads(text) if text else None

    return OverrideChange(
        id=name,
        at=int(name.split("-")[0]) / 1000,
        who=fields["who"],
        tenant=fields["tenant"],
        key=fields["key"],
        before=value(fields["before"]),
        after=value(fields["after"]),
    )


def shown(change: OverrideChange) -> Iterator[str]:
    """A change as lines of text."""
    before, after = (
        json.dumps(value) if value is not None else "-" for value in (change.before, change.after)
    )
    when = time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(change.at))
    yield f"{when}  {change.who}  {change.tenant}  {change.key}: {before} -> {after}"
