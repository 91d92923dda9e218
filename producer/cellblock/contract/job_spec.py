"""What a job is: its program, what it gets, its limits, who pays."""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from cellblock.contract import paths
from cellblock.contract.base import CheckedModel
from cellblock.contract.evaluations import Evaluation
from cellblock.contract.values import InputValue, encode_input
from cellblock.errors import InvalidJob
from cellblock_config import LevelName, PriorityClass
from cellblock_config.names import JOB_ID, NAME
from cellblock_config.plans import COST_MOST_MICROS

#: Fields that a job with one program may have, and an evaluation must not have.
_NOT_OF_EVALUATIONS = (
    *("code", "files", "entrypoint", "args", "stdin", "inputs", "context_path", "artifacts"),
    *("confidential", "retries"),
)
_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


class Limits(CheckedModel):
    """The limits of one run. The level gives values that are left out; the operator's settings bound all."""

    timeout_s: float | None = Field(None, gt=0, description="Wall-clock seconds.")
    cpu_s: float | None = Field(
        None, gt=0, description="CPU seconds of any one process; by default only the timeout counts."
    )
    memory_bytes: int | None = Field(None, gt=0, description="Everything the sandbox holds, tmpfs included.")
    cpus: float | None = Field(None, gt=0, description="Share of the host's cores.")
    pids: int | None = Field(None, gt=0, description="Processes and threads alive at once.")
    output_bytes: int | None = Field(None, gt=0, description="stdout and stderr together; more ends the job.")


def _as_bytes(value: object) -> object:
    return value.encode() if isinstance(value, str) else value


FileBytes = Annotated[bytes, BeforeValidator(_as_bytes)]


class ReducedContext(CheckedModel):
    """What a confidential job gets as its variable ``ctx``, in place of its context as plain text."""

    summary: str = Field("", max_length=64 * 1024)
    embeddings: tuple[tuple[float, ...], ...] = Field((), max_length=4096)
    roles: tuple[Annotated[str, Field(max_length=256)], ...] = Field((), max_length=256)
    metadata: dict[str, str | int | float | bool] = Field({}, max_length=256)


class JobSpec(CheckedModel):
    """One job: Python source and how to run it.

    Either ``code``, with ``files`` beside it if it needs some, or ``files`` and the ``entrypoint`` among
    them. Raises :class:`InvalidJob` naming field, value and bound. Bounds an operator sets (sizes, limits,
    images, names of the environment) are checked by the client before anything is stored.
    """

    code: str | None = Field(None, strict=True, description="Python source, run as __main__.")
    evaluation: Evaluation | None = Field(
        None, description="In place of code: programs to judge, each where none ran before."
    )
    files: dict[str, FileBytes] = Field({}, description="Bytes by relative path, put into the work folder.")
    entrypoint: str | None = Field(None, description="Which of the files runs as __main__.")
    args: tuple[Annotated[str, Field(strict=True)], ...] = Field(
        (), max_length=256, description="sys.argv behind the program's name."
    )
    stdin: FileBytes = Field(b"", description="What the program reads on stdin; text is sent as UTF-8.")
    env: dict[str, str] = Field({}, description="Environment variables beside the sandbox's own.")
    inputs: dict[str, InputValue] = Field(
        {}, description="Global variables: plain values (JSON), a pyarrow.Table, a pandas.DataFrame."
    )
    context_path: str | None = Field(
        None, description="A file on the worker's host, readable in the job as ctx, never copied."
    )
    confidential: bool = Field(
        False,
        description="Its program is sealed to the fleet, its result to the tenant; no one else reads them.",
    )
    reduced_context: ReducedContext | None = Field(
        None, description="What a confidential job has as ctx: summary, embeddings, roles, metadata."
    )
    artifacts: tuple[str, ...] = Field(
        (),
        max_length=32,
        description="Globs of files to return, relative to the work folder; ** is any depth.",
    )
    tenant: str = Field("default", pattern=NAME, description="Who is charged, and whose limits hold.")
    plan: str | None = Field(
        None,
        pattern=NAME,
        description="The tenant's plan; those of listed tenants are in the file of plans.",
    )
    role: str | None = Field(None, pattern=NAME, description="Whose run it is, within the plan.")
    max_cost_micros: int | None = Field(
        None, ge=1, le=COST_MOST_MICROS, description="Stop the job when it has cost this much; plans only."
    )
    nested_cost_micros: int = Field(
        0, ge=0, le=COST_MOST_MICROS, description="Held beside its own for runs nested in it; plans only."
    )
    level: LevelName = Field("standard", description="What isolation it asks for.")
    image: str | None = Field(None, max_length=64, description="A name from sandbox.images.")
    limits: Limits = Field(Limits(), description="Of one run; what is left out has the level's value.")
    priority: PriorityClass = Field("normal", description="Its place among the jobs of its own tenant.")
    expires_s: float | None = Field(
        None,
        gt=0,
        description="Not started within this many seconds, it is rejected; the fleet's by default.",
    )
    retries: int = Field(0, ge=0, le=10, description="How often to run again what the program itself failed.")
    idempotency_key: str | None = Field(
        None, pattern=NAME, description="Submitted again under the same key, it is the first job."
    )
    parent: str | None = Field(
        None,
        pattern=JOB_ID,
        description="The running job it is part of: it has its slot, its limits and its money.",
    )
    traceparent: str | None = Field(None, description="W3C trace context of the caller.")

    @field_validator("code")
    @classmethod
    def _code_is_source(cls, code: str | None) -> str | None:
        if code is None:
            return None
        if not code.strip():
            raise ValueError("is empty; give at least one statement")
        return _plain_text(code)

    @field_validator("inputs", mode="before")
    @classmethod
    def _inputs_are_encoded(cls, inputs: object) -> object:
        if not isinstance(inputs, dict):
            return inputs
        return {name: encode_input(str(name), value) for name, value in inputs.items()}

    @field_validator("inputs")
    @classmethod
    def _inputs_are_variables(cls, inputs: dict[str, InputValue]) -> dict[str, InputValue]:
        for name in inputs:
            paths.check_variable(name)
        return inputs

    @field_validator("env")
    @classmethod
    def _env_is_plain(cls, env: dict[str, str]) -> dict[str, str]:
        for name, value in env.items():
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,127}", name):
                raise ValueError(f"{name!r:.80} is not a variable's name; letters, digits and _ are")
            try:
                _plain_text(value)
            except ValueError as error:
                raise InvalidJob(name, str(error)) from None
        return env

    @field_validator("files")
    @classmethod
    def _files_stay_inside(cls, files: dict[str, bytes]) -> dict[str, bytes]:
        paths.check_files(files)
        return files

    @field_validator("artifacts")
    @classmethod
    def _globs_stay_inside(cls, artifacts: tuple[str, ...]) -> tuple[str, ...]:
        for glob in artifacts:
            paths.check_relative(glob)
        return artifacts

    @field_validator("context_path")
    @classmethod
    def _context_is_absolute(cls, path: str | None) -> str | None:
        if path is not None:
            paths.check_absolute(path)
        return path

    @model_validator(mode="after")
    def _one_program(self) -> Self:
        if self.evaluation is not None:
            return self._evaluation_alone()
        if self.code is None and self.entrypoint is None:
            raise InvalidJob("code", "required, and missing; or give files and an entrypoint")
        if self.entrypoint is not None:
            if self.code is not None:
                raise InvalidJob("entrypoint", "there is code as well; give one of the two")
            if self.entrypoint not in self.files:
                raise InvalidJob("entrypoint", f"{self.entrypoint!r:.200} is not one of files")
        elif "main.py" in self.files:
            raise InvalidJob("files", "'main.py' is where code goes; rename it, or make it the entrypoint")
        return self

    def _evaluation_alone(self) -> Self:
        for field in _NOT_OF_EVALUATIONS:
            if getattr(self, field):
                raise InvalidJob(field, "belongs to a job that is one program; an evaluation has its own")
        return self

    @model_validator(mode="after")
    def _context_fits(self) -> Self:
        if self.confidential and self.context_path is not None:
            raise InvalidJob(
                "context_path", "a confidential job sees no plain context; give reduced_context instead"
            )
        if self.reduced_context is not None and not self.confidential:
            raise InvalidJob("reduced_context", "is for confidential jobs; set confidential, or give inputs")
        return self

    @field_validator("args")
    @classmethod
    def _args_are_plain(cls, args: tuple[str, ...]) -> tuple[str, ...]:
        if sum(len(_plain_text(arg)) for arg in args) > 65_536:
            raise ValueError("all arguments together are longer than 65536 characters")
        return args

    @field_validator("traceparent")
    @classmethod
    def _traceparent_is_w3c(cls, traceparent: str | None) -> str | None:
        if traceparent is not None and not _TRACEPARENT.fullmatch(traceparent):
            raise ValueError("must be a W3C traceparent such as 00-<32 hex>-<16 hex>-01")
        return traceparent


def _plain_text(text: str) -> str:
    if "\0" in text:
        raise ValueError(f"holds a NUL character at offset {text.index(chr(0))}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"is not valid Unicode text: lone surrogate at offset {error.start}") from None
    return text
