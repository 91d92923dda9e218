"""What every model of the contract has in common."""

from __future__ import annotations

from difflib import get_close_matches
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
            raise _invalid(type(self), error) from None

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """As pydantic's, raising :class:`InvalidJob`."""
        try:
            return super().model_validate(obj, **options)
        except ValidationError as error:
            raise _invalid(cls, error) from None

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        """As pydantic's, raising :class:`InvalidJob`."""
        try:
            return super().model_validate_json(json_data, **options)
        except ValidationError as error:
            raise _invalid(cls, error) from None


def _invalid(model: type[BaseModel], error: ValidationError) -> InvalidJob:
    """The error for the first wrong field; for one that does not exist, with the field that was meant."""
    invalid = InvalidJob.from_validation(error)
    first = error.errors(include_url=False)[0]
    if first["type"] != "extra_forbidden" or len(first["loc"]) != 1:
        return invalid
    meant = _meant(model, str(first["loc"][0]), first["input"])
    return (
        invalid if meant is None else InvalidJob(invalid.field, f"{invalid.problem}; did you mean {meant}?")
    )


def _meant(model: type[BaseModel], wrong: str, value: object) -> str | None:
    """The field that a name without one resembles, also one of a model within."""
    shown = repr(value) if isinstance(value, int | float) else "…"  # never a program or its data
    known = {name: name for name in model.model_fields}
    for outer, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, CheckedModel):
            for name in field.annotation.model_fields:
                known.setdefault(name, f"{outer}={{{name!r}: {shown}}}")
    close = get_close_matches(wrong, known, n=1)
    return known[close[0]] if close else None
