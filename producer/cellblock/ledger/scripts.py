"""The Lua transitions of scripts/, loaded and called; nothing else in cellblock changes a job's state."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import cast

from redis import Redis
from redis.commands.core import Script
from redis.exceptions import NoScriptError

from cellblock.errors import CellblockError
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
    "seat",
    "vacate",
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

    def run_and_get(
        self, name: str, keys: Sequence[str], args: Sequence[object], key: str
    ) -> tuple[list[str], str | None]:
        """The script's reply, and what this key holds afterwards, in one round trip: a long value does not go
        through Lua. Raises as :meth:`run`."""
        script, given = self._script(name), [str(arg) for arg in args]
        with store_errors(f"running {name}"):
            pipe = self._redis.pipeline(transaction=False)
            pipe.evalsha(script.sha, len(keys), *keys, *given)
            pipe.get(key)
            reply, value = pipe.execute(raise_on_error=False)
            if isinstance(reply, NoScriptError):  # the first call, or Redis was restarted
                return self.run(name, keys, args), cast(str | None, self._redis.get(key))
            for answer in (reply, value):
                if isinstance(answer, Exception):
                    raise answer
        return _checked(name, reply), value

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
