"""The stores of a fleet that is all on this host, made for the users of the services that use them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pydantic import SecretStr

from cellblock.folder_rights import replaceable
from cellblock_config import Settings
from cellblock_workers.host_services import ARCHIVER_ACCOUNT, WORKER_ACCOUNT, service_user
from cellblock_workers.supervisor import group_of


def stores_of_its_own(settings: Settings, folder: Path) -> dict[str, str]:
    """A blob store and an archive for a fleet that is all on this host, if none are configured."""
    users = {
        "blobs": service_user(WORKER_ACCOUNT, settings.worker.user),
        "archive": service_user(ARCHIVER_ACCOUNT),
    }
    found = {}
    for name, user in users.items():
        if getattr(settings, name).url is None:
            own = folder / name
            own.mkdir(mode=0o700)
            if user is not None:  # root, which submits, can write there too
                os.chown(own, user, group_of(user))
            url = f"file://{own}" if name == "blobs" else f"sqlite:///{own}/jobs.db"
            found[f"CELLBLOCK_{name.upper()}_URL"] = url
    return found


def make_blob_folder(settings: Settings) -> None:
    """Makes a configured folder that is missing, for the worker's user, who might have no right to."""
    url = settings.blobs.url.get_secret_value() if settings.blobs.url is not None else ""
    folder = Path(unquote(urlsplit(url).path))
    user = service_user(WORKER_ACCOUNT, settings.worker.user)
    if not url.startswith("file:") or user is None or folder.exists() or not folder.parent.is_dir():
        return
    if replaceable(folder.parent, {0}) is not None:  # the worker refuses it, and says so
        return
    folder.mkdir(mode=0o700)
    os.chown(folder, user, group_of(user), follow_symlinks=False)


def with_redis(settings: Settings, own: Mapping[str, str]) -> Settings:
    """Settings that name the fleet's Redis, also one of its own."""
    if (url := own.get("CELLBLOCK_REDIS_URL")) is None:
        return settings
    return settings.model_copy(
        update={"redis": settings.redis.model_copy(update={"url": SecretStr(url), "broker_url": None})}
    )
