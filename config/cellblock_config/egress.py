"""Settings of a job's output: which part is kept, and which texts must not leave at all."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, field_validator, model_validator

from cellblock_config.group import OptionalPath, SettingsGroup
from cellblock_config.levels import MIB

#: Field names under which answers of models carry hidden reasoning.
_HIDDEN_FIELDS = (
    "reasoning_content",
    "reasoning_details",
    "chain_of_thought",
    "thinking",
    "thinking_blocks",
    "hidden_reasoning",
    "internal_monologue",
    "scratchpad",
)
_SECRET_LEAST_CHARS = 6


class EgressSettings(SettingsGroup):
    """Output bounds and filters."""

    output_limit_bytes: int = Field(
        4000, ge=64, le=16 * MIB, description="How much of stdout, and as much of stderr, a result keeps."
    )
    output_head_bytes: int = Field(
        1000, ge=0, description="How much of the beginning of longer output is kept."
    )
    output_tail_bytes: int = Field(3000, ge=0, description="How much of the end of longer output is kept.")
    secrets: dict[str, SecretStr] = Field(
        {}, description="Values that must not leave, by the name to report them under; as JSON."
    )
    secrets_file: OptionalPath = Field(None, description="More of them, a NAME=value on each line.")
    entropy_bits: float = Field(
        4.5, ge=0, le=6, description="Shannon entropy per character above which a run is taken for a secret."
    )
    entropy_chars: int = Field(256, ge=0, description="Shorter runs are not judged by it; 0 switches it off.")
    echo_bytes: int = Field(
        800, ge=0, le=16 * 1024, description="A chunk of the context to compare with; 0 switches it off."
    )
    echo_similarity: float = Field(
        0.8, gt=0, le=1, description="Share of a chunk's n-grams from which on output counts as a copy."
    )
    echo_memory_bytes: int = Field(256 * MIB, ge=MIB, description="For the index of one context.")
    filter_cpu_s: float = Field(
        5.0, gt=0, le=600, description="CPU time for looking through what a job said, whatever its size."
    )
    filter_cpu_s_per_mib: float = Field(
        12.0, ge=0, le=60, description="CPU seconds more for each MiB. What takes longer is withheld."
    )
    filter_memory_bytes: int = Field(
        256 * MIB,
        ge=32 * MIB,
        description="Memory for looking through what one job said; and for all looks that are set aside.",
    )
    filter_large_at_once: int = Field(
        2,
        ge=1,
        le=64,
        description="How many jobs that said over 64 KiB are looked through at once, not all of one tenant; "
        "each for a turn of a CPU second, if others wait.",
    )
    hidden_fields: tuple[Annotated[str, Field(pattern=r"^\w{1,64}$")], ...] = Field(
        _HIDDEN_FIELDS, description="JSON members that hold a model's hidden reasoning."
    )

    @model_validator(mode="after")
    def _head_and_tail_fit(self) -> EgressSettings:
        if self.output_head_bytes + self.output_tail_bytes > self.output_limit_bytes:
            raise ValueError(
                f"egress.output_head_bytes ({self.output_head_bytes}) and egress.output_tail_bytes "
                f"({self.output_tail_bytes}) together exceed egress.output_limit_bytes "
                f"({self.output_limit_bytes})"
            )
        return self

    @field_validator("secrets")
    @classmethod
    def _secrets_are_long_enough(cls, secrets: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name, value in secrets.items():
            _check_length(name, value.get_secret_value())
        return secrets

    @field_validator("secrets_file")
    @classmethod
    def _secrets_file_is_readable(cls, file: Path | None) -> Path | None:
        if file is not None:
            _read_secrets(file)
        return file

    @cached_property
    def registered(self) -> dict[str, str]:
        """Every registered value that must not leave, by its name."""
        held = {name: value.get_secret_value() for name, value in self.secrets.items()}
        return held if self.secrets_file is None else {**_read_secrets(self.secrets_file), **held}


def _read_secrets(file: Path) -> dict[str, str]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{file} cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8'}"
        ) from None
    held = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, sign, value = line.partition("=")
        if not sign or not name.strip():
            raise ValueError(f"{file}, line {number}: write NAME=value")
        _check_length(name.strip(), value.strip())
        held[name.strip()] = value.strip()
    return held


def _check_length(name: str, value: str) -> None:
    if len(value) < _SECRET_LEAST_CHARS:
        raise ValueError(
            f"{name}: a value of fewer than {_SECRET_LEAST_CHARS} characters would be found everywhere"
        )
