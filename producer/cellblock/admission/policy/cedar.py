"""Decisions by Cedar policies in a folder: default deny, and a forbid outweighs every permit."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cedarpy

from cellblock.admission.policy.decision import Decision, Principal, Question
from cellblock.errors import PolicyError, PolicyUnavailable

_log = logging.getLogger(__name__)
#: The folder is checked for changes at most once in this time.
_LOOK_S = 1.0


class CedarPolicies:
    """Reads all ``*.cedar`` of a folder, and reads them again when they change. Thread-safe.

    Policies that become unreadable change nothing: the earlier ones stay in force, and the log says why.
    """

    def __init__(self, folder: Path) -> None:
        """Raises :class:`PolicyError` for unreadable policies: there are no earlier ones to keep."""
        self._folder = folder
        self._stamp = self._look()
        self._policies, self._names = _read(folder)
        self._looked = time.monotonic()

    def decide(self, question: Question) -> Decision:
        """Asks the policies in force. Raises :class:`PolicyUnavailable` if one cannot be evaluated."""
        self._refresh()
        names = self._names
        answer = cedarpy.is_authorized(_request(question), self._policies, _entities(question))
        if answer.diagnostics.errors:  # a policy that errs is left out by Cedar: a forbid too
            raise PolicyUnavailable(f"a policy cannot be evaluated: {answer.diagnostics.errors[0]}")
        return Decision(answer.allowed, tuple(names.get(one, one) for one in answer.diagnostics.reasons))

    def _refresh(self) -> None:
        now = time.monotonic()
        if now - self._looked < _LOOK_S:
            return
        self._looked = now
        stamp = self._look()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._policies, self._names = _read(self._folder)
            _log.info("policies read again from %s", self._folder)
        except PolicyError as error:
            _log.error("policies not changed: %s", error)

    def _look(self) -> list[tuple[str, int, int, int]]:
        found = []
        for file in sorted(self._folder.glob("*.cedar")):
            try:
                state = file.stat()
            except OSError:
                continue
            found.append((file.name, state.st_mtime_ns, state.st_size, state.st_ino))
        return found


def _read(folder: Path) -> tuple[cedarpy.PolicySet, Mapping[str, str]]:
    files = sorted(folder.glob("*.cedar"))
    if not files:
        raise PolicyError(f"{folder}: no *.cedar in it: nothing would be permitted")
    texts = []
    for file in files:
        try:
            text = file.read_text("utf-8")
            cedarpy.PolicySet.from_str(text)
        except (OSError, UnicodeDecodeError, ValueError) as error:
            raise PolicyError(f"{file}: {error}") from None
        texts.append(text)
    whole = "\n".join(texts)
    found: dict[str, Any] = json.loads(cedarpy.policies_to_json_str(whole))["staticPolicies"]
    names = {given: policy.get("annotations", {}).get("id") or given for given, policy in found.items()}
    return cedarpy.PolicySet.from_str(whole), names


def _request(question: Question) -> dict[str, Any]:
    return {
        "principal": _who(question.principal),
        "action": {"type": "Action", "id": question.action},
        "resource": {"type": "Tenant", "id": question.tenant},
        "context": dict(question.context),
    }


def _who(principal: Principal) -> dict[str, str]:
    if principal.key_id is None:
        return {"type": "Producer", "id": "producer"}
    return {"type": "Key", "id": principal.key_id}


def _entities(question: Question) -> list[dict[str, Any]]:
    principal = question.principal
    attributes: dict[str, Any] = {}
    if principal.key_id is not None:
        owner = {"__entity": {"type": "Tenant", "id": principal.tenant or ""}}
        attributes = {"capabilities": list(principal.capabilities), "tenant": owner}
    return [
        {"uid": _who(principal), "attrs": attributes, "parents": []},
        {"uid": {"type": "Tenant", "id": question.tenant}, "attrs": {}, "parents": []},
    ]
