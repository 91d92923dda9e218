"""What every group of settings is: nothing unknown in it, no number that is none, and fixed once read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr

#: Set to nothing is not set: the folder one happens to be in is nobody's file, and no text is a secret.
OptionalPath = Annotated[Path | None, BeforeValidator(lambda given: given or None)]
OptionalSecret = Annotated[SecretStr | None, BeforeValidator(lambda given: given or None)]
PositiveSeconds = Annotated[float, Field(gt=0, le=86_400)]


class SettingsGroup(BaseModel):
    """One group; its fields are the settings ``CELLBLOCK_<GROUP>_<NAME>``."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
