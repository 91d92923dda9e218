"""Every setting of cellblock, read once at the edge and passed in.

Environment variables are ``CELLBLOCK_<GROUP>_<NAME>`` (``CELLBLOCK_REDIS_URL``,
``CELLBLOCK_WORKER_CONCURRENCY``); a ``.env`` file in the working directory is read too.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from socket import gethostname
from typing import Annotated, Literal, cast, get_args, get_origin
from urllib.parse import urlsplit

from dotenv import dotenv_values
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict
from pydantic_settings import SettingsError as SourceError

from cellblock_config.levels import LEVELS, MIB, Isolation, LevelName, Unisolated
from cellblock_config.signing import SigningSettings

Way = Literal["oci", "docker"]
PositiveSeconds = Annotated[float, Field(gt=0, le=86_400)]
#: Of the top alone: numpy stands for numpy.linalg too.
ModuleName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class SettingsError(ValueError):
    """A setting is missing, unknown or contradicts another; the message names it and the remedy."""


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class RedisSettings(_Group):
    """Where the ledger and the broker live. Without a url, ``cellblock run`` runs embedded."""

    url: SecretStr | None = None
    broker_url: SecretStr | None = Field(None, description="Celery's Redis; the ledger's own by default.")
    key_prefix: str = Field("{cellblock}", min_length=1, max_length=64)
    connect_timeout_s: PositiveSeconds = 1.0
    socket_timeout_s: PositiveSeconds = 2.0

    @field_validator("url", "broker_url", mode="after")
    @classmethod
    def _is_a_redis_url(cls, url: SecretStr | None) -> SecretStr | None:
        if url is None or url.get_secret_value() == "":
            return None
        if not url.get_secret_value().startswith(("redis://", "rediss://")):
            raise ValueError("must start with redis:// or rediss://, for example redis://127.0.0.1:6379/0")
        try:
            urlsplit(url.get_secret_value()).port  # noqa: B018 - parsing it is the check
        except ValueError:
            raise ValueError("names a port that is not a number from 0 to 65535") from None
        return url


class LedgerSettings(_Group):
    """The job protocol's constants (design section 4)."""

    lease_s: PositiveSeconds = 10.0
    beat_s: PositiveSeconds = 3.0
    reap_s: PositiveSeconds = 1.0
    loss_limit: int = Field(3, ge=1, le=100)
    republish_after_s: PositiveSeconds = 5.0
    queue_depth: int = Field(100_000, ge=1)
    job_ttl_s: int = Field(7 * 86_400, ge=60, description="A job that never ends is forgotten after this.")
    result_ttl_s: int = Field(86_400, ge=10)
    events_kept: int = Field(100_000, ge=100, description="Approximate length of the event stream.")
    code_bytes: int = Field(1 * MIB, ge=1, le=16 * MIB)
    stdin_bytes: int = Field(8 * MIB, ge=0, le=16 * MIB)
    files_bytes: int = Field(8 * MIB, ge=0, le=32 * MIB, description="All files of a job, with their names.")
    files_count: int = Field(256, ge=0, le=10_000)
    env_bytes: int = Field(32 * 1024, ge=0, le=MIB)
    inputs_bytes: int = Field(8 * MIB, ge=0, le=32 * MIB, description="All inputs, as JSON or Arrow.")
    value_bytes: int = Field(1 * MIB, ge=0, le=16 * MIB, description="A longer value is left out.")
    artifacts_count: int = Field(64, ge=0, le=10_000)
    artifact_bytes: int = Field(4 * MIB, ge=0, le=32 * MIB, description="One file; a larger one is left out.")
    artifacts_bytes: int = Field(16 * MIB, ge=0, le=64 * MIB, description="All returned files of one job.")

    @model_validator(mode="after")
    def _lease_outlives_two_beats(self) -> LedgerSettings:
        if self.lease_s <= 2 * self.beat_s:
            raise ValueError(
                f"ledger.lease_s ({self.lease_s}) must be more than twice ledger.beat_s ({self.beat_s}): "
                "one lost beat may not cost a job its lease"
            )
        return self

    @model_validator(mode="after")
    def _one_artifact_fits_all(self) -> LedgerSettings:
        if self.artifact_bytes > self.artifacts_bytes:
            raise ValueError(
                f"ledger.artifact_bytes ({self.artifact_bytes}) is above ledger.artifacts_bytes "
                f"({self.artifacts_bytes}): one file has to fit into what all may have"
            )
        return self


# fmt: off
_STDLIB = (
    "bisect", "collections", "copy", "dataclasses", "datetime", "decimal", "enum", "functools",
    "hashlib", "heapq", "itertools", "json", "math", "random", "re", "statistics",
    "string", "textwrap", "typing",
)
# fmt: on
_PRELOAD = {"python": _STDLIB, "datascience": (*_STDLIB, "numpy", "pandas")}


class SandboxSettings(_Group):
    """What a job may ask for, and which isolations satisfy it."""

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
    images: dict[str, str] = {
        "python": "cellblock/python:latest",
        "datascience": "cellblock/datascience:latest",
    }
    default_image: str = "python"
    preload: dict[str, tuple[str, ...]] = Field(
        _PRELOAD,
        description="Per image, modules a fork-server imports once for all its sandboxes; other sandboxes "
        "import ahead, each for itself, those of them that are not in the standard library.",
    )
    timeout_max_s: PositiveSeconds = 300.0
    memory_max_bytes: int = Field(2048 * MIB, ge=64 * MIB)
    memory_min_bytes: int = Field(64 * MIB, ge=32 * MIB)
    cpus_max: float = Field(1.0, gt=0, le=64)
    cpus_min: float = Field(0.05, gt=0)
    pids_max: int = Field(256, ge=1, le=4096)
    output_max_bytes: int = Field(64 * MIB, ge=1024)
    tmp_bytes: int = Field(64 * MIB, ge=MIB)
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
        ),
        description="Globs of those it may not: what loaders, shells and the sandbox itself read.",
    )
    artifacts_s: PositiveSeconds = Field(10.0, description="How long collecting a job's files may take.")
    kill_grace_s: PositiveSeconds = Field(2.0, description="The host kills this long after the guest should.")
    start_timeout_s: PositiveSeconds = 30.0

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
        """What a job of this level may import; None for everything its image has."""
        return self.modules.get(level, LEVELS[level].modules) if self.module_guard else None

    def preloaded(self, image: str) -> list[str]:
        """What a sandbox with an interpreter of its own imports before its job comes."""
        # What the guest needs of the standard library is there; more of it costs gVisor 3 ms for each module.
        return [name for name in self.preload.get(image, ()) if name not in sys.stdlib_module_names]

    @property
    def usable(self) -> tuple[Isolation, ...]:
        """Every isolation this host may use for any level."""
        return (*self.isolations, self.unisolated) if self.unisolated else self.isolations

    def chain(self, level: LevelName) -> tuple[Isolation, ...]:
        """The isolations this host may use for a level, best first; empty where it may use none."""
        chain = self.chains.get(level)
        if chain is None:
            # Below every other level's floor: for those the operator has to write the chain down.
            last = (self.unisolated,) if self.unisolated and level == "permissive" else ()
            chain = (*LEVELS[level].chain, *last)
        return tuple(isolation for isolation in chain if isolation in self.usable)


def _default_launcher_socket() -> Path:
    if runtime_dir := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime_dir) / "cellblock" / "launcher.sock"
    if os.geteuid() == 0:
        return Path("/run/cellblock/launcher.sock")
    return Path(f"/tmp/cellblock-{os.getuid()}/launcher.sock")  # noqa: S108 - a shared folder is no use to others


def _default_state() -> Path:
    if os.geteuid() == 0:
        return Path("/run/cellblock/sandboxes")
    return _default_launcher_socket().with_name("sandboxes")


def _default_image_roots() -> Path:
    system = Path("/var/lib/cellblock/images")
    if os.geteuid() == 0 or os.access(system, os.R_OK | os.X_OK):
        return system
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "cellblock" / "images"


class LauncherSettings(_Group):
    """The privileged half of a host. The worker's requests are checked against these."""

    socket: Path = Field(default_factory=_default_launcher_socket)
    owner: str = Field(
        default_factory=gethostname,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$",
        description="Labels everything created; two launchers on one host need two names.",
    )
    allowed_uids: tuple[int, ...] = Field((), description="Besides the launcher's own uid.")
    backends: tuple[Way, ...] = Field(
        ("oci", "docker"), min_length=1, description="How gvisor and runc are started; the first that works."
    )
    docker_url: str = "unix:///var/run/docker.sock"
    state: Path = Field(
        default_factory=_default_state, description="What is made without a daemon: records, bundles."
    )
    image_roots: Path = Field(
        default_factory=_default_image_roots,
        description="Unpacked images, one folder each; make images fills it.",
    )
    slice: str = Field(
        "cellblock-sandbox.slice",
        pattern=r"^[A-Za-z0-9_]+(-[A-Za-z0-9_]+)*\.slice$",
        max_length=128,
        description="Of the isolation systemd: every sandbox is in it; its unit file bounds them all.",
    )
    warm: int = Field(2, ge=0, le=64, description="Sandboxes kept ready for each profile in use.")
    warm_total: int = Field(8, ge=0, le=256, description="Sandboxes kept ready in all.")
    sandboxes_max: int = Field(64, ge=1, le=1024)
    starters: int = Field(2, ge=1, le=16, description="Sandboxes started at the same time.")
    context_roots: tuple[Path, ...] = Field(
        (),
        description="Folders whose files jobs may ask for as their context; only operators may write there.",
    )
    sweep_s: PositiveSeconds = 30.0

    @model_validator(mode="after")
    def _pool_fits(self) -> LauncherSettings:
        if self.warm > self.warm_total:
            raise ValueError(f"launcher.warm ({self.warm}) is above launcher.warm_total ({self.warm_total})")
        if self.warm_total > self.sandboxes_max:
            raise ValueError(
                f"launcher.warm_total ({self.warm_total}) is above "
                f"launcher.sandboxes_max ({self.sandboxes_max})"
            )
        return self


class WorkerSettings(_Group):
    """The unprivileged half of a host: talks to Redis and reads what sandboxes send."""

    concurrency: int = Field(8, ge=1, le=256)
    user: str | None = Field(None, description="Started as root, the worker becomes this user.")
    visibility_timeout_s: int = Field(1800, ge=60)
    probe_s: PositiveSeconds = Field(1.0, description="How often a paused worker asks its launcher again.")
    canaries: bool = Field(
        True, description="Attack every isolation before the first claim, and use none that lets one through."
    )
    canary_s: PositiveSeconds = Field(3600.0, description="How often the attacks are run again.")


class EgressSettings(_Group):
    """What of a job's output is kept (requirement R8)."""

    output_limit_bytes: int = Field(4000, ge=64, le=16 * MIB)
    output_head_bytes: int = Field(1000, ge=0)
    output_tail_bytes: int = Field(3000, ge=0)

    @model_validator(mode="after")
    def _head_and_tail_fit(self) -> EgressSettings:
        if self.output_head_bytes + self.output_tail_bytes > self.output_limit_bytes:
            raise ValueError(
                f"egress.output_head_bytes ({self.output_head_bytes}) and egress.output_tail_bytes "
                f"({self.output_tail_bytes}) together exceed egress.output_limit_bytes "
                f"({self.output_limit_bytes})"
            )
        return self


class TelemetrySettings(_Group):
    """Logs and error reports. Sentry stays off unless a DSN is set."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["json", "console"] = "json"
    sentry_dsn: SecretStr | None = None
    environment: str = "production"


class MonitorSettings(_Group):
    """Flower, for operators to watch; read-only and behind a password, always."""

    address: str = "127.0.0.1"
    port: int = Field(5555, ge=0, le=65_535)
    user: str = Field("cellblock", pattern=r"^[^:,\s]+$")
    password: SecretStr | None = None

    @field_validator("password")
    @classmethod
    def _password_is_one(cls, password: SecretStr | None) -> SecretStr | None:
        # Flower reads a comma as the end of one login and the start of another.
        if password is not None and (
            "," in password.get_secret_value() or len(password.get_secret_value()) < 8
        ):
            raise ValueError("must have at least 8 characters and no comma")
        return password


class Settings(BaseSettings):
    """All groups. Construct through :func:`load_settings` to get readable errors."""

    model_config = SettingsConfigDict(
        env_prefix="CELLBLOCK_",
        env_nested_delimiter="_",
        env_nested_max_split=1,
        env_file=".env",
        env_file_encoding="utf-8",
        extra="ignore",
        frozen=True,
    )

    redis: RedisSettings = RedisSettings()
    ledger: LedgerSettings = LedgerSettings()
    sandbox: SandboxSettings = SandboxSettings()
    launcher: LauncherSettings = Field(default_factory=LauncherSettings)
    worker: WorkerSettings = WorkerSettings()
    egress: EgressSettings = EgressSettings()
    signing: SigningSettings = SigningSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    monitor: MonitorSettings = MonitorSettings()

    @model_validator(mode="after")
    def _groups_agree(self) -> Settings:
        if self.worker.visibility_timeout_s < 2 * self.sandbox.timeout_max_s:
            raise ValueError(
                f"worker.visibility_timeout_s ({self.worker.visibility_timeout_s}) must be at least twice "
                f"sandbox.timeout_max_s ({self.sandbox.timeout_max_s}): "
                "a shorter one delivers running jobs twice"
            )
        if self.ledger.job_ttl_s < 2 * self.sandbox.timeout_max_s:
            raise ValueError(
                f"ledger.job_ttl_s ({self.ledger.job_ttl_s}) must be at least twice "
                f"sandbox.timeout_max_s ({self.sandbox.timeout_max_s}): "
                "a job may not be forgotten while it runs"
            )
        if self.ledger.files_bytes > self.sandbox.tmp_bytes:
            raise ValueError(
                f"ledger.files_bytes ({self.ledger.files_bytes}) is above sandbox.tmp_bytes "
                f"({self.sandbox.tmp_bytes}): the files have to fit into the work folder"
            )
        if 0 < self.signing.max_age_s <= self.ledger.lease_s:
            raise ValueError(
                f"signing.max_age_s ({self.signing.max_age_s:g}) must be 0 or more than ledger.lease_s "
                f"({self.ledger.lease_s:g}): a job whose worker was lost has to be young enough to run again"
            )
        return self


def load_settings(**groups: object) -> Settings:
    """Read the environment and ``.env``; keyword arguments (one per group) win over both.

    Raises :class:`SettingsError` naming each wrong setting, without its value (it may be a secret).
    """
    for name in os.environ:
        group = name.removeprefix("CELLBLOCK_").split("_", 1)[0].lower()
        if name.startswith("CELLBLOCK_") and group not in Settings.model_fields:
            raise SettingsError(
                f"{name}: there is no group {group!r}; the groups are {', '.join(Settings.model_fields)}"
            )
    for group in groups:
        if group not in Settings.model_fields:
            raise SettingsError(
                f"there is no group {group!r}; the groups are {', '.join(Settings.model_fields)}"
            )
    try:
        return Settings(**groups)  # type: ignore[arg-type]  # pydantic coerces; that is the point
    except SourceError as error:  # a variable that should be JSON and is not; says which
        raise SettingsError(
            f"{_not_json() or error}: lists and tables are JSON, for example "
            "CELLBLOCK_SANDBOX_ISOLATIONS='[\"gvisor\"]'"
        ) from None
    except ValidationError as error:
        lines = [
            f"{_setting_name(e['loc'])}: {e['msg'].removeprefix('Value error, ')}" for e in error.errors()
        ]
        raise SettingsError("; ".join(lines)) from None


def _not_json() -> str | None:
    """Which variables that have to be JSON are not, without their values."""
    variables = {**dotenv_values(".env"), **os.environ} if Path(".env").is_file() else dict(os.environ)
    wrong = []
    for group, described in Settings.model_fields.items():
        for name, setting in cast(type[BaseModel], described.annotation).model_fields.items():
            variable = f"CELLBLOCK_{group}_{name}".upper()
            if get_origin(setting.annotation) in {tuple, dict} and variable in variables:
                try:
                    json.loads(variables[variable] or "")
                except ValueError:
                    wrong.append(variable)
    return f"{', '.join(wrong)} cannot be read" if wrong else None


def _setting_name(location: tuple[int | str, ...]) -> str:
    if not location:
        return "settings"
    name = ".".join(str(part) for part in location)
    return f"{name} (CELLBLOCK_{'_'.join(str(part) for part in location[:2]).upper()})"
