"""Which isolation a level ends up with. The backends are stand-ins: every way of failing can be injected."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from cellblock_config import Isolation, LevelName, load_settings
from cellblock_workers.launcher.backend import (
    BackendUnavailable,
    NotOnThisHost,
    Profile,
    Sandbox,
    StartFailed,
)
from cellblock_workers.launcher.cascade import Cascade, LevelRefused, NothingChosen


@dataclass
class StandIn:
    """A backend that fails as told."""

    isolation: Isolation
    name: str = "oci"
    sweeps: str = "stand-in"
    fails: Exception | None = None
    start_fails: Exception | None = None
    probes: int = field(default=0)

    def probe(self) -> None:
        self.probes += 1
        if self.fails:
            raise self.fails

    def start(self, profile: Profile) -> Sandbox:
        if self.start_fails:
            raise self.start_fails
        return cast(Sandbox, (self.isolation, self.name))

    def sweep(self) -> int:
        return 1

    def close(self) -> None:
        raise AssertionError("nobody closes a cascade here")


def profile(level: LevelName) -> Profile:
    return Profile(
        **cast(dict[str, Any], {"level": level, "image": "python", "memory_bytes": 1, "cpus": 1, "pids": 1})
    )


CHAINS: dict[LevelName, tuple[Isolation, ...]] = {
    "strict": ("gvisor", "runc"),
    "standard": ("gvisor", "runc", "namespaces"),
    "permissive": ("namespaces", "gvisor"),
}


def cascade(*backends: StandIn) -> Cascade:
    by_isolation: dict[Isolation, list[StandIn]] = {"gvisor": [], "runc": [], "namespaces": []}
    for backend in backends:
        by_isolation[backend.isolation].append(backend)
    return Cascade(by_isolation, CHAINS)


def test_each_level_gets_the_first_of_its_own_chain() -> None:
    gvisor, runc, namespaces = StandIn("gvisor"), StandIn("runc"), StandIn("namespaces")
    chosen = cascade(gvisor, runc, namespaces).probe()
    assert chosen == {"strict": "gvisor", "standard": "gvisor", "permissive": "namespaces"}
    assert (gvisor.probes, runc.probes, namespaces.probes) == (1, 0, 1), "only what somebody needs, and once"


def test_the_first_way_that_works_makes_an_isolation() -> None:
    direct = StandIn("gvisor", "oci", fails=StartFailed("no bundle"))
    found = cascade(direct, StandIn("gvisor", "docker"), StandIn("runc"), StandIn("namespaces"))
    found.probe()
    assert cast(object, found.start(profile("strict"))) == ("gvisor", "docker")
    assert found.reasons == {"gvisor/oci": "no bundle"}
    assert not found.is_best()


def test_a_level_never_leaves_its_chain() -> None:
    found = cascade(
        StandIn("gvisor", fails=NotOnThisHost("gvisor: no runsc; apt-get install runsc")),
        StandIn("runc", fails=NotOnThisHost("runc: needs root")),
        StandIn("namespaces"),
    )
    assert found.probe() == {"standard": "namespaces", "permissive": "namespaces"}
    with pytest.raises(
        LevelRefused, match=r"level strict needs gvisor or runc: .*apt-get install runsc.*root"
    ):
        found.start(profile("strict"))


def test_a_level_whose_isolations_are_here_but_fail_waits_instead_of_being_refused() -> None:
    found = cascade(
        StandIn("gvisor", fails=StartFailed("the canary got out")),
        StandIn("runc", fails=NotOnThisHost("needs root")),
        StandIn("namespaces"),
    )
    found.probe()
    with pytest.raises(NothingChosen, match="the canary got out"):
        found.start(profile("strict"))


def test_a_backend_that_cannot_be_asked_is_not_stepped_over() -> None:
    gvisor = StandIn("gvisor", fails=BackendUnavailable("the daemon is starting"))
    found = cascade(gvisor, StandIn("runc"), StandIn("namespaces"))
    assert found.probe() == {"permissive": "namespaces"}
    gvisor.fails = None
    assert found.probe()["strict"] == "gvisor"


def test_a_chain_with_nothing_allowed_is_refused_naming_the_settings() -> None:
    empty: dict[LevelName, tuple[Isolation, ...]] = {**CHAINS, "strict": ()}
    found = Cascade({"gvisor": [StandIn("gvisor")], "namespaces": [StandIn("namespaces")]}, empty)
    found.probe()
    with pytest.raises(LevelRefused, match="CELLBLOCK_SANDBOX_ISOLATIONS"):
        found.start(profile("strict"))


def test_a_start_that_could_not_be_asked_for_puts_all_levels_of_that_backend_in_doubt() -> None:
    gvisor = StandIn("gvisor", start_fails=BackendUnavailable("gone"))
    found = cascade(gvisor, StandIn("runc"), StandIn("namespaces"))
    found.probe()
    with pytest.raises(BackendUnavailable):
        found.start(profile("standard"))
    assert found.chosen == {"permissive": "namespaces"}
    with pytest.raises(NothingChosen):
        found.start(profile("strict"))


def test_one_sweep_covers_all_that_share_what_is_swept() -> None:
    assert cascade(StandIn("gvisor"), StandIn("runc"), StandIn("namespaces", sweeps="records")).sweep() == 2


def test_settings_filter_and_override_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings().sandbox.chain("strict") == ("gvisor", "runc")
    monkeypatch.setenv("CELLBLOCK_SANDBOX_ISOLATIONS", '["namespaces"]')
    sandbox = load_settings().sandbox
    assert (sandbox.chain("strict"), sandbox.chain("standard")) == ((), ("namespaces",))
    monkeypatch.setenv("CELLBLOCK_SANDBOX_CHAINS", '{"strict": ["namespaces"]}')
    assert load_settings().sandbox.chain("strict") == ("namespaces",)
