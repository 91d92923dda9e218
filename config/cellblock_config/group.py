"""The base of all groups of settings: no unknown names, no infinite numbers, no changes after reading."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr

#: An empty text means not set: it must not become the working directory, or an empty secret.
OptionalPath = Annotated[Path | None, BeforeValidator(lambda given: given or None)]
OptionalSecret = Annotated[SecretStr | None, BeforeValidator(lambda given: given or None)]
PositiveSeconds = Annotated[float, Field(gt=0, le=86_400)]


class SettingsGroup(BaseModel):
    """One group of settings; its fields are the settings ``CELLBLOCK_<GROUP>_<NAME>``."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
