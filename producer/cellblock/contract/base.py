"""What every model of the contract has in common."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from cellblock.errors import InvalidJob


class Contract(BaseModel):
    """A frozen model. Its errors name where the input is wrong and never show the input itself."""

    # hide_input: a validation error can end up in a log, and its input is a tenant's code.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True)


class CheckedModel(Contract):
    """A model whose construction from bad input raises :class:`InvalidJob`, not pydantic's own error."""

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise InvalidJob.from_validation(error) from None

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """As pydantic's, raising :class:`InvalidJob`."""
        try:
            return super().model_validate(obj, **options)
        except ValidationError as error:
            raise InvalidJob.from_validation(error) from None

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        """As pydantic's, raising :class:`InvalidJob`."""
        try:
            return super().model_validate_json(json_data, **options)
        except ValidationError as error:
            raise InvalidJob.from_validation(error) from None
