"""The Lua transitions of scripts/, loaded and called; nothing else in cellblock changes a job's state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import cast

from redis import Redis
from redis.commands.core import Script
from redis.exceptions import NoScriptError

from cellblock.errors import CellblockError, StoreUnavailable
from cellblock.ledger.connection import store_errors

NAMES = (
    "admit",
    "pick",
    "claim",
    "beat",
    "finish",
    "release",
    "cancel",
    "reap",
    "expire",
    "wake",
    "refresh_lane",
    "free_slot",
    "retry",
    "drop",
    "tick",
    "resign",
    "forget",
    "trim",
    "owed",
    "release_blobs",
)


class BadCall(CellblockError):
    """A script was called with arguments that do not fit, and changed nothing: a defect of ours."""


@dataclass(frozen=True, slots=True)
class Call:
    """One of several calls of a script. ``get``: a key whose value is wanted as it is afterwards: a long one
    does not go through Lua."""

    keys: Sequence[str]
    args: Sequence[object]
    get: str | None = None


#: The script's reply and the value of ``get``, or why the store refused the call.
Answer = tuple[list[str], str | None] | StoreUnavailable


class Scripts:
    """Calls transitions by name. Each runs whole or not at all, on the server's clock.

    ``embedded``: for the in-process Redis of embedded runs, which knows neither memory limits nor flags.
    """

    def __init__(self, redis: Redis, *, embedded: bool) -> None:
        self._redis = redis
        self._plain = embedded
        self._scripts: dict[str, Script] = {}

    def run(self, name: str, keys: Sequence[str], args: Sequence[object]) -> list[str]:
        """The script's reply. Raises :class:`StoreUnavailable`, :class:`BadCall`."""
        with store_errors(f"running {name}"):
            reply = cast(list[str], self._script(name)(keys=list(keys), args=[str(arg) for arg in args]))
        return _checked(name, reply)

    def run_each(self, name: str, calls: Sequence[Call]) -> list[Answer]:
        """The answer to each call, in one round trip for them all. Others may run between them.

        Raises :class:`StoreUnavailable` where nothing came back, :class:`BadCall`.
        """
        script = self._script(name)
        with store_errors(f"running {name}"):
            pipe = self._redis.pipeline(transaction=False)
            for call in calls:
                pipe.evalsha(script.sha, len(call.keys), *call.keys, *map(str, call.args))
                if call.get is not None:
                    pipe.get(call.get)
            answers = iter(pipe.execute(raise_on_error=False))
        return [
            self._answer(name, call, next(answers), next(answers) if call.get is not None else None)
            for call in calls
        ]

    def _answer(self, name: str, call: Call, reply: object, value: object) -> Answer:
        try:
            if isinstance(reply, NoScriptError):  # the first call, or Redis was restarted
                reply = self.run(name, call.keys, call.args)
                with store_errors(f"running {name}"):
                    value = self._redis.get(call.get) if call.get is not None else None
            with store_errors(f"running {name}"):
                for answer in (reply, value):
                    if isinstance(answer, Exception):
                        raise answer
        except StoreUnavailable as error:
            return error
        return _checked(name, cast(list[str], reply)), cast(str | None, value)

    def _script(self, name: str) -> Script:
        if name not in self._scripts:
            self._scripts[name] = _load(self._redis, name, plain=self._plain)
        return self._scripts[name]


def _checked(name: str, reply: list[str]) -> list[str]:
    if reply and reply[0] == "invalid":
        raise BadCall(f"{name}: {reply[1]} is missing, of the wrong kind or one too many")
    return reply


def _load(redis: Redis, name: str, *, plain: bool) -> Script:
    folder = resources.files("cellblock.ledger") / "scripts"
    # A full Redis has to shed load at admission and still let running jobs beat and end.
    flags = "" if plain or name == "admit" else "#!lua flags=allow-oom\n"
    prelude = (folder / "prelude.lua").read_text()
    return redis.register_script(flags + prelude + (folder / f"{name}.lua").read_text())
