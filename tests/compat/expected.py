"""``expected.toml``: which cases do not pass in a sandbox, and which control of ours is the reason."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from compat.targets import Found, Target
from suite.ways import EVERY_WAY

FILE = Path(__file__).with_name("expected.toml")


@dataclass(frozen=True)
class Reason:
    """A control, where it stands, and what it stops on these ways.

    ``by_chance``: they may pass too, as which of two things comes first decides.
    """

    control: str
    why: str
    on: tuple[str, ...]
    cases: frozenset[tuple[str, str]]  #: target and case
    by_chance: bool


@cache
def reasons() -> tuple[Reason, ...]:
    """All of them. Raises ValueError for an entry that names no way, no control or no case."""
    found = []
    for entry in tomllib.loads(FILE.read_text()).get("reason", []):
        reason = Reason(
            control=entry["control"],
            why=entry["why"],
            on=tuple(entry["on"]),
            cases=frozenset((target, case) for target, cases in entry["cases"].items() for case in cases),
            by_chance=entry.get("by_chance", False),
        )
        if unknown := set(reason.on) - set(EVERY_WAY):
            raise ValueError(f"{FILE.name}: {', '.join(sorted(unknown))} is no way of making sandboxes")
        if not (reason.control.strip() and reason.why.strip() and reason.on and reason.cases):
            raise ValueError(
                f"{FILE.name}: an entry lacks its control, why, on or cases: {entry['control']!r}"
            )
        found.append(reason)
    return tuple(found)


def expected_of(target: Target, way: str) -> dict[str, Reason]:
    """The listed cases of a target in a way."""
    return {
        case: reason
        for reason in reasons()
        if way in reason.on
        for name, case in reason.cases
        if name == target.name
    }


@dataclass(frozen=True)
class Compared:
    """One target in one way beside the same bare."""

    target: str
    way: str
    bare: int  #: cases that pass bare
    inside: int  #: of these, those that pass inside
    listed: dict[str, str]  #: those that do not, with the control that stops them
    unlisted: dict[str, str]  #: those that do not and have no reason, with what came of them
    stale: tuple[str, ...]  #: listed, and pass, or do not pass bare
    unsteady: dict[str, str]  #: passed at the second look alone, with what came of them at the first

    @property
    def problems(self) -> list[str]:
        """What is wrong: nothing, if the list is true."""
        said = [] if self.bare else [f"{self.way} {self.target}: passes no case bare: the selection is wrong"]
        said += [f"{self.way} {self.target} {case}: {why}" for case, why in self.unlisted.items()]
        return said + [
            f"{self.way} {self.target} {case}: is listed, and passes, or does not pass bare"
            for case in self.stale
        ]


def compare(target: Target, way: str, bare: Found, inside: Found, second: Found) -> Compared:
    """What passes bare has to pass inside, at the first or at a second look, or be listed."""
    expected = expected_of(target, way)
    always = {case for case, reason in expected.items() if not reason.by_chance}
    passed = inside.passed | second.passed
    failed = bare.passed - passed
    return Compared(
        target=target.name,
        way=way,
        bare=len(bare.passed),
        inside=len(bare.passed & passed),
        listed={case: expected[case].control for case in sorted(failed & set(expected))},
        unlisted={case: _why(case, inside, second) for case in sorted(failed - set(expected))},
        stale=tuple(sorted(always - failed)),
        unsteady={case: inside.why(case) for case in sorted(bare.passed & second.passed - inside.passed)},
    )


def second_look(target: Target, way: str, bare: Found, inside: Found) -> list[str]:
    """Cases to run once more with nothing beside them: what fails only beside others is unsteady."""
    return sorted(bare.passed - inside.passed - set(expected_of(target, way)))


def _why(case: str, inside: Found, second: Found) -> str:
    return second.why(case) if case in second.cases else inside.why(case)
