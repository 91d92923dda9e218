"""Settings of sandboxes: the limits, images and isolations that jobs can ask for, level by level."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Annotated, get_args

from pydantic import Field, model_validator

from cellblock_config.group import PositiveSeconds, SettingsGroup
from cellblock_config.levels import LEVELS, MIB, Isolation, LevelDefaults, LevelName, Unisolated

#: The name of a top-level module: numpy stands for numpy.linalg too.
ModuleName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


# fmt: off
_STDLIB = (
    "bisect", "collections", "copy", "dataclasses", "datetime", "decimal", "enum", "functools",
    "hashlib", "heapq", "itertools", "json", "math", "random", "re", "statistics",
    "string", "textwrap", "typing",
)
# fmt: on
_PRELOAD = {"python": _STDLIB, "datascience": (*_STDLIB, "numpy", "pandas")}


class SandboxSettings(SettingsGroup):
    """The limits, images and isolations that a job can ask for."""

    isolations: tuple[Isolation, ...] = Field(
        ("gvisor", "runc", "systemd", "namespaces"),
        description='What this host may use at all; ["gvisor"] refuses every fallback.',
    )
    unisolated: Unisolated | None = Field(
        None,
        description="For development only: also run jobs of level permissive with no isolation at all.",
    )
    chains: dict[LevelName, tuple[Isolation, ...]] = Field(
        {}, description="Per level, what satisfies it, best first; the level's own chain by default."
    )
    module_guard: bool = Field(
        False, description="Jobs import only their level's modules: a policy, not a security boundary."
    )
    modules: dict[LevelName, tuple[ModuleName, ...]] = Field(
        {}, description="Per level, what the guard allows; the level's own list by default."
    )
    images: dict[str, str] = Field(
        {"python": "cellblock/python:latest", "datascience": "cellblock/datascience:latest"},
        description="What jobs may ask for by name, and the image each name stands for.",
    )
    default_image: str = Field("python", description="The image of jobs that name none.")
    preload: dict[str, tuple[str, ...]] = Field(
        _PRELOAD,
        description="Per image, modules a fork-server imports once for all its sandboxes; other sandboxes "
        "import ahead, each for itself, those of them that are not in the standard library.",
    )
    gvisor_series: bool = Field(
        True,
        description="Under gVisor by an OCI runtime, let the trials of one evaluation's job share a sandbox, "
        "whose kernel keeps them apart; without it each starts its own, some 0.2 s of CPU time more.",
    )
    timeout_max_s: PositiveSeconds = Field(
        300.0, description="The most wall-clock time that a job may ask for."
    )
    memory_max_bytes: int = Field(
        2048 * MIB, ge=64 * MIB, description="The most memory that a job may ask for."
    )
    memory_min_bytes: int = Field(
        64 * MIB, ge=32 * MIB, description="The least memory that a job may ask for."
    )
    image_memory_min_bytes: dict[str, int] = Field(
        {"datascience": 192 * MIB},
        description="Per image, the least memory a job may ask for: with less its interpreter may fail.",
    )
    cpus_max: float = Field(1.0, gt=0, le=64, description="The most processors that a job may ask for.")
    cpus_min: float = Field(
        0.05, gt=0, description="The smallest share of a processor that a job may ask for."
    )
    pids_max: int = Field(
        256, ge=1, le=4096, description="The most processes and threads that a job may ask for."
    )
    output_max_bytes: int = Field(
        64 * MIB, ge=1024, description="The most output that a job may ask for; printing more ends it."
    )
    trial_output_max_bytes: int = Field(
        4 * MIB,
        ge=1024,
        description="What one trial of an evaluation may print; its worker keeps all of it.",
    )
    trial_max_s: PositiveSeconds = Field(
        900.0, description="How long all cases of one trial may take together."
    )
    tmp_bytes: int = Field(
        64 * MIB, ge=MIB, description="Size of a sandbox's /tmp, where its work folder is."
    )
    shm_bytes: int = Field(
        64 * MIB,
        ge=MIB,
        description="How much a sandbox may keep in /dev/shm, where multiprocessing has its locks and shared "
        "memory; it counts against the job's memory.",
    )
    env_allowed: tuple[str, ...] = Field(
        ("*",), description="Globs of environment variables a job may set; [] for none."
    )
    env_refused: tuple[str, ...] = Field(
        (
            "LD_*",
            "PYTHON*",
            "GLIBC_TUNABLES",
            "MALLOC_*",
            "BASH_ENV",
            "ENV",
            "IFS",
            "PATH",
            "HOME",
            "TMPDIR",
            "USER",
            "LOGNAME",
            "LANG",
            "LC_ALL",
            "LC_CTYPE",
        ),
        description="Globs of those it must not set: what loaders, shells and the sandbox read.",
    )
    artifacts_s: PositiveSeconds = Field(10.0, description="How long collecting a job's files may take.")
    kill_grace_s: PositiveSeconds = Field(2.0, description="The host kills this long after the guest should.")
    start_timeout_s: PositiveSeconds = Field(30.0, description="How long a sandbox may take to start.")

    @model_validator(mode="after")
    def _no_isolation_is_asked_for_by_name(self) -> SandboxSettings:
        if not self.usable:
            raise ValueError(
                f"sandbox.isolations is empty: name at least one of {', '.join(get_args(Isolation)[:4])}"
            )
        named = [("sandbox.isolations", self.isolations)]
        named += [(f"sandbox.chains[{level}]", chain) for level, chain in self.chains.items()]
        for where, chain in named:
            for isolation in set(chain) & set(get_args(Unisolated)):
                if where == "sandbox.isolations" and isolation == self.unisolated:
                    raise ValueError(
                        f"{where} names {isolation}, which isolates nothing and which "
                        f"CELLBLOCK_SANDBOX_UNISOLATED={isolation} allows already: take it out"
                    )
                if where == "sandbox.isolations" or isolation != self.unisolated:
                    raise ValueError(
                        f"{where} names {isolation}, which isolates nothing: for development only, "
                        f"set CELLBLOCK_SANDBOX_UNISOLATED={isolation}; else take it out"
                    )
        return self

    @model_validator(mode="after")
    def _bounds_agree(self) -> SandboxSettings:
        if self.default_image not in self.images:
            raise ValueError(
                f"sandbox.default_image ({self.default_image!r}) is not one of sandbox.images "
                f"({', '.join(sorted(self.images))})"
            )
        unknown = set(self.image_memory_min_bytes) - set(self.images)
        if unknown and "image_memory_min_bytes" in self.model_fields_set:
            raise ValueError(
                f"sandbox.image_memory_min_bytes names {', '.join(sorted(unknown))}; "
                f"sandbox.images has {', '.join(sorted(self.images))}"
            )
        if self.memory_min_bytes > self.memory_max_bytes:
            raise ValueError(
                f"sandbox.memory_min_bytes ({self.memory_min_bytes}) is above "
                f"sandbox.memory_max_bytes ({self.memory_max_bytes})"
            )
        if self.modules and not self.module_guard:
            raise ValueError(
                f"sandbox.modules (for {', '.join(self.modules)}) is set and sandbox.module_guard is off: "
                "turn the guard on, or leave the modules out"
            )
        return self

    def allowed_modules(self, level: LevelName) -> tuple[str, ...] | None:
        """The modules that a job of this level may import; None for everything in its image."""
        return self.modules.get(level, LEVELS[level].modules) if self.module_guard else None

    def preloaded(self, image: str) -> list[str]:
        """The modules that a sandbox with an interpreter of its own imports before its job comes."""
        # The guest has imported its part of the standard library; each further module costs gVisor 3 ms.
        return [name for name in self.preload.get(image, ()) if name not in sys.stdlib_module_names]

    @property
    def usable(self) -> tuple[Isolation, ...]:
        """Every isolation this host may use for any level."""
        return (*self.isolations, self.unisolated) if self.unisolated else self.isolations

    def defaults_of(self, level: LevelName) -> LevelDefaults:
        """A level's limits, within the bounds of this host."""
        default = LEVELS[level]
        return replace(
            default,
            timeout_s=min(default.timeout_s, self.timeout_max_s),
            memory_bytes=max(self.memory_min_bytes, min(default.memory_bytes, self.memory_max_bytes)),
            cpus=max(self.cpus_min, min(default.cpus, self.cpus_max)),
            pids=min(default.pids, self.pids_max),
            output_bytes=min(default.output_bytes, self.output_max_bytes),
        )

    def chain(self, level: LevelName) -> tuple[Isolation, ...]:
        """The isolations this host may use for a level, best first; empty where it may use none."""
        chain = self.chains.get(level)
        if chain is None:
            # Too weak for every other level: for those the operator has to write the chain down.
            last = (self.unisolated,) if self.unisolated and level == "permissive" else ()
            chain = (*LEVELS[level].chain, *last)
        return tuple(isolation for isolation in chain if isolation in self.usable)
