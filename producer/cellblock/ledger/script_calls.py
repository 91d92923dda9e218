"""The Lua transitions of scripts/, called by name; nothing else in cellblock changes a job's state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self, TypeVar, cast

from redis import Redis
from redis.commands.core import Script
from redis.exceptions import NoScriptError

from cellblock.errors import StoreUnavailable
from cellblock.ledger.connection import get_bytes, store_errors
from cellblock.ledger.declarations import Arguments, BadCall, CallKeys, declaration_of, prelude, source_of


class Reply(Protocol):
    """The typed reply of a script (replies.py)."""

    #: The name of the script's file, without its suffix.
    script: ClassVar[str]

    @classmethod
    def read(cls, values: Sequence[str]) -> Self:
        """The reply that these values are."""
        ...


R = TypeVar("R", bound=Reply)


class BrokenReply(StoreUnavailable):
    """A script ran and its reply lacks a number: the job's record is not whole, or not ours."""


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """One of several calls of a script.

    ``get``: a key whose value to read after the call, as bytes. So a long value does not go through Lua.
    """

    keys: CallKeys
    arguments: Arguments
    get: str | None = None

    @property
    def size_bytes(self) -> int:
        """The approximate size of the call on the wire, without its keys."""
        values = self.arguments.values()
        return sum(len(value if isinstance(value, str | bytes) else str(value)) for value in values)


class Scripts:
    """Calls scripts by the type of their reply. Each runs whole or not at all, on the server's clock.

    ``embedded``: for the in-process Redis of embedded runs, which knows neither memory limits nor flags.
    """

    def __init__(self, redis: Redis, *, embedded: bool) -> None:
        self._redis = redis
        self._embedded = embedded
        self._scripts: dict[str, Script] = {}

    def call(self, reply: type[R], keys: CallKeys, arguments: Arguments) -> R:
        """Calls a script, its keys and arguments by name.

        Raises :class:`StoreUnavailable`, :class:`BadCall`.
        """
        return _checked(reply, self._run(reply.script, ScriptCall(keys, arguments)))

    def call_each(
        self, reply: type[R], calls: Sequence[ScriptCall]
    ) -> list[tuple[R, bytes | None] | StoreUnavailable]:
        """The reply to each call with the value of its ``get``, or why it is missing: the store refused the
        call, or :class:`BrokenReply`.

        All go in one round trip; calls of other clients can run between them. Raises
        :class:`StoreUnavailable` where no reply came back, :class:`BadCall`.
        """
        declared, script = declaration_of(reply.script), self._script(reply.script)
        with store_errors(f"running {reply.script}"):
            pipe = self._redis.pipeline(transaction=False)
            for call in calls:
                keys = declared.key_list(call.keys)
                pipe.evalsha(script.sha, len(keys), *keys, *declared.argument_list(call.arguments))
                if call.get is not None:
                    get_bytes(pipe, call.get)
            answers = iter(pipe.execute(raise_on_error=False))
        return [
            self._answer(reply, call, next(answers), next(answers) if call.get is not None else None)
            for call in calls
        ]

    def _answer(
        self, reply: type[R], call: ScriptCall, answer: object, value: object
    ) -> tuple[R, bytes | None] | StoreUnavailable:
        try:
            if isinstance(answer, NoScriptError):  # the first call, or Redis was restarted
                answer = self._run(reply.script, call)
                with store_errors(f"running {reply.script}"):
                    value = get_bytes(self._redis, call.get) if call.get is not None else None
            with store_errors(f"running {reply.script}"):
                for one in (answer, value):
                    if isinstance(one, Exception):
                        raise one
        except StoreUnavailable as error:
            return error
        try:
            return _checked(reply, cast(list[str], answer)), cast(bytes | None, value)
        except ValueError as error:  # other calls of the round trip have had their effect
            return BrokenReply(f"{reply.script}: {error}")

    def _run(self, name: str, call: ScriptCall) -> list[str]:
        declared = declaration_of(name)
        keys, arguments = declared.key_list(call.keys), declared.argument_list(call.arguments)
        with store_errors(f"running {name}"):
            return cast(list[str], self._script(name)(keys=keys, args=arguments))

    def _script(self, name: str) -> Script:
        if name not in self._scripts:
            # A full Redis must refuse admissions, and still let running jobs beat and end.
            flags = "" if self._embedded or name == "admit" else "#!lua flags=allow-oom\n"
            self._scripts[name] = self._redis.register_script(flags + prelude() + source_of(name))
        return self._scripts[name]


def _checked(reply: type[R], values: list[str]) -> R:
    if values and values[0] == "invalid":
        raise BadCall(f"{reply.script}: {values[1]} is missing, of the wrong kind or one too many")
    return reply.read(values)
