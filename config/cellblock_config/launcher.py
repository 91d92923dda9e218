"""Settings of a host's launcher: where and how it makes sandboxes."""

from __future__ import annotations

import os
from pathlib import Path
from socket import gethostname
from typing import Literal

from pydantic import Field, model_validator

from cellblock_config.group import PositiveSeconds, SettingsGroup

#: User ids of the host for sandboxes, from launcher.first_user_id on: each way has a range of its own.
USER_IDS_EACH, USER_IDS_APART = 60_000, 100_000
USER_IDS = 2 * USER_IDS_APART + USER_IDS_EACH
#: The kernel's last id means "no user"; below the first are accounts, `nobody`, and useradd's first users.
_FIRST_USER_ID, _LAST_USER_ID = 100_000, 2**32 - 2
#: The user ids that services take which root starts, where they have no account.
WORKER_USER_ID, ARCHIVER_USER_ID, MONITOR_USER_ID = 299_999, 299_998, 299_997
#: The two ways to start a container.
ContainerBackend = Literal["oci", "docker"]


def _default_launcher_socket() -> Path:
    if runtime_dir := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime_dir) / "cellblock" / "launcher.sock"
    if os.geteuid() == 0:
        return Path("/run/cellblock/launcher.sock")
    return Path(f"/tmp/cellblock-{os.getuid()}/launcher.sock")  # noqa: S108 - others cannot use this folder


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


class LauncherSettings(SettingsGroup):
    """The privileged half of a host. The worker's requests are checked against these."""

    socket: Path = Field(
        default_factory=_default_launcher_socket,
        description="Unix socket on which the launcher listens and workers ask.",
    )
    owner: str = Field(
        default_factory=gethostname,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$",
        description="Labels everything created; two launchers on one host need two names.",
    )
    allowed_uids: tuple[int, ...] = Field((), description="Users that may ask the launcher, besides its own.")
    backends: tuple[ContainerBackend, ...] = Field(
        ("oci", "docker"), min_length=1, description="How gvisor and runc are started; the first that works."
    )
    docker_url: str = Field("unix:///var/run/docker.sock", description="Where the Docker daemon listens.")
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
        description="Slice of the isolation systemd: it holds and bounds all sandboxes.",
    )
    warm: int = Field(2, ge=0, le=64, description="Sandboxes kept ready for each profile asked for often.")
    warm_total: int = Field(8, ge=0, le=256, description="Sandboxes kept ready in all.")
    sandboxes_max: int = Field(
        64, ge=1, le=1024, description="How many sandboxes may be alive at once, ready ones included."
    )
    starters: int = Field(
        3,
        ge=1,
        le=16,
        description="Sandboxes started at the same time; one tenant has half while others share the host.",
    )
    context_roots: tuple[Path, ...] = Field(
        (),
        description="Folders whose files jobs may ask for as their context; only operators may write there.",
    )
    sweep_s: PositiveSeconds = Field(
        30.0, description="How often what gone owners left on the host is removed."
    )
    first_user_id: int = Field(
        200_000,
        ge=_FIRST_USER_ID,
        le=_LAST_USER_ID - USER_IDS + 1,
        description=f"Sandboxes have the {USER_IDS:,} host ids from this on, which no one else may have; "
        "all launchers of a host begin with the same.",
    )

    @model_validator(mode="after")
    def _ids_are_no_services(self) -> LauncherSettings:
        services = {"worker": WORKER_USER_ID, "archiver": ARCHIVER_USER_ID, "monitor": MONITOR_USER_ID}
        for service, user_id in services.items():
            into = user_id - self.first_user_id
            if 0 <= into < USER_IDS and into % USER_IDS_APART < USER_IDS_EACH:
                raise ValueError(
                    f"launcher.first_user_id ({self.first_user_id}) gives sandboxes the id {user_id}, "
                    f"which is the {service}'s: take another one"
                )
        return self

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
