"""Decisions by a service of the operator's, asked over HTTP. A missing or malformed answer is a denial."""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from dataclasses import asdict

import httpx
from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError

from cellblock.admission.policy.deadline import Deadline
from cellblock.admission.policy.decision import Decision, Question
from cellblock.errors import PolicyUnavailable
from cellblock_config.policy import PolicySettings

_CACHED_MAX = 10_000
_ANSWER_MAX_BYTES = 64 * 1024


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore")

    allowed: StrictBool
    reasons: list[str] = Field(default_factory=list, max_length=100)


class RemotePolicies:
    """Asks by POST: ``{"principal", "action", "tenant", "context"}``, expects ``{"allowed", "reasons"}``.

    Thread-safe. An answer is reused for ``cache_s`` seconds; nothing else is remembered.
    """

    def __init__(self, settings: PolicySettings) -> None:
        token = settings.token.get_secret_value() if settings.token else None
        self._url = settings.url or ""
        self._cache_s = settings.cache_s
        self._timeout_s = settings.timeout_s
        self._http = httpx.Client(
            timeout=settings.timeout_s,
            follow_redirects=False,
            trust_env=False,
            limits=httpx.Limits(max_keepalive_connections=0),  # a deadline cuts a whole connection
            headers={"Authorization": f"Bearer {token}"} if token else {},
        )
        self._lock = threading.Lock()
        self._cached: OrderedDict[str, tuple[float, Decision]] = OrderedDict()

    def decide(self, question: Question) -> Decision:
        """Asks the service, unless the cache has the answer. Raises :class:`PolicyUnavailable`."""
        body = json.dumps(asdict(question), sort_keys=True, default=dict)
        known = self._known(body)
        if known is not None:
            return known
        answer = self._ask(body)
        decision = Decision(answer.allowed, tuple(answer.reasons))
        with self._lock:
            self._cached[body] = (time.monotonic(), decision)
            self._cached.move_to_end(body)
            while len(self._cached) > _CACHED_MAX:
                self._cached.popitem(last=False)
        return decision

    def _known(self, body: str) -> Decision | None:
        with self._lock:
            at, decision = self._cached.get(body, (float("-inf"), None))
        return decision if time.monotonic() - at < self._cache_s else None

    def _ask(self, body: str) -> _Answer:
        deadline = Deadline(self._timeout_s)
        try:
            with (
                deadline,
                self._http.stream(
                    "POST",
                    self._url,
                    content=body,
                    headers={"Content-Type": "application/json", "Accept-Encoding": "identity"},
                    extensions={"trace": deadline.on_event},
                ) as got,
            ):
                if got.status_code != 200:
                    raise PolicyUnavailable(f"the policy decision point answered {got.status_code}")
                said = b""
                for chunk in got.iter_raw():  # unrequested compression makes it invalid JSON
                    said += chunk
                    if len(said) > _ANSWER_MAX_BYTES:
                        raise PolicyUnavailable("the policy decision point's answer is too long")
            if deadline.over:
                raise PolicyUnavailable("the policy decision point did not answer in time")
            return _Answer.model_validate_json(said)
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            raise PolicyUnavailable(
                f"the policy decision point did not answer: {type(error).__name__}"
            ) from None
        except ValidationError:
            raise PolicyUnavailable("the policy decision point's answer is not a decision") from None
