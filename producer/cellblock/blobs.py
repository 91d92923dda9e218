"""The blob store: bytes by their SHA-256, beside Redis, for parts that are too long for Redis.

A blob is named ``<period>/<owner><sha256>``: the period, ``sweep_after_s`` long, in which it was put there,
and a digest of whose it is. Each has one owner, a job or one of its attempts, so it can be removed as soon as
that lets go of it: no other puts the same name there meanwhile. The sweep removes what was left behind, only
from old periods: so it cannot conflict with a submission under way, without a lock.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, cast
from urllib.parse import unquote, urlsplit

from cellblock.errors import BlobLost, BlobsUnavailable, NotConfigured
from cellblock.folder_rights import close_to_others
from cellblock_config.blobs import BlobSettings

NAME = r"[0-9a-f]{8}/[a-z2-7]{7}[0-9a-f]{64}"
#: The object that names the one store which removes blobs here.
OWNER = "owner"
_OWNER_MOST = 64
_PAGE = 500
_PROBE = b"cellblock"
#: Digits of an owner in a name, in base 32: the archive takes names of 80 characters. Where they are the same
#: for two owners, these would have to put the same bytes there within seconds to meet.
_OWNER_DIGITS = 7
_SHA256_DIGITS = 64


class Blobs(Protocol):
    """Bytes kept under their digests. Raises :class:`BlobsUnavailable`. Thread-safe."""

    def name_of(self, data: bytes, owner: str) -> str:
        """The name of these bytes of an owner's, stored or not; within one period always the same."""

    def put(self, data: bytes, name: str) -> None:
        """Stores these bytes under a name of theirs, of this period or of an earlier one."""

    def get(self, name: str, size_bytes: int) -> bytes:
        """The bytes of this name. Raises :class:`BlobLost` where they are missing or altered."""

    def owner(self) -> str | None:
        """The store that owns these blobs; None without an owner."""

    def own(self, store: str) -> str:
        """Makes this store the owner of the blobs, unless they have one. Returns the owner."""

    def old(self) -> Iterator[list[str]]:
        """Names in periods that get no new blobs, in pages."""

    def expired(self, name: str) -> bool:
        """Whether a blob is older than any job."""

    def put_before(self, name: str, when: float) -> bool:
        """Whether a blob might be from before this time (Unix seconds)."""

    def remove(self, names: Sequence[str]) -> None:
        """Removes these blobs, as far as they are there."""


def digest_of(name: str) -> str:
    """The SHA-256 of a blob of this name."""
    return name[-_SHA256_DIGITS:]


def open_blobs(settings: BlobSettings) -> Blobs | None:
    """The blob store of these settings; None without one. It does not connect yet.

    Raises :class:`NotConfigured` without the extra, or for an address that the library does not accept.
    """
    if settings.url is None:
        return None
    try:
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    except ModuleNotFoundError as error:
        raise NotConfigured(
            "CELLBLOCK_BLOBS_URL is set, and the blob store's library is missing: "
            "pip install 'cellblock[blobs]'"
        ) from error
    url = settings.url.get_secret_value()
    options: dict[str, Any] = {}
    if url.startswith("file:"):
        _make_folder(url)
    else:
        # A request can be tried twice; both tries together must fit into timeout_s.
        each_s = max(1, round(settings.timeout_s / 2))
        in_the_clear = os.environ.get("AWS_ALLOW_HTTP", "").lower() in {"true", "1"}
        options = {
            "client_options": {
                "timeout": f"{each_s}s",
                "connect_timeout": f"{min(3, each_s)}s",
                "allow_http": in_the_clear,  # the library also reads a variable for this; these options win
            },
            "retry_config": {"max_retries": 1, "retry_timeout": timedelta(seconds=settings.timeout_s)},
        }
    try:
        return ObjectBlobs(from_url(url, **options), settings)
    except (BaseError, OSError, ValueError) as error:
        raise NotConfigured(
            f"CELLBLOCK_BLOBS_URL: the blob store cannot be opened ({type(error).__name__})"
        ) from None


def _make_folder(url: str) -> None:
    """Makes the folder, but not its parents: if they are missing, the address is probably wrong.

    What is in it is as open as the folder itself: no other user can enter that.
    """
    folder = Path(unquote(urlsplit(url).path))
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        problem = close_to_others(folder, is_ours=all(_is_ours(path.name) for path in folder.iterdir()))
        if problem is None and not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            problem = f"user {os.geteuid()} cannot read and write in {folder}"
    except OSError as error:
        raise NotConfigured(
            f"CELLBLOCK_BLOBS_URL: {folder}: {error.strerror}{_remedy(folder, error)}"
        ) from None
    if problem is not None:
        raise NotConfigured(f"CELLBLOCK_BLOBS_URL: {problem}")


def _remedy(folder: Path, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return (
            f": {folder.parent} is missing too. If `cellblock up` printed it, that fleet has ended: unset "
            "CELLBLOCK_BLOBS_URL"
        )
    if isinstance(error, PermissionError):
        return f": user {os.geteuid()} cannot write in {folder.parent}; name a folder of its own"
    return ""


def _is_ours(name: str) -> bool:
    """Whether it is a period's folder or the owner's mark: a folder of anything else keeps its rights."""
    return name == OWNER or re.fullmatch(r"[0-9a-f]{8}", name) is not None


class ObjectBlobs:
    """Blobs in an object store: S3, Google's, Azure's, or a folder."""

    def __init__(self, store: Any, settings: BlobSettings, now: Callable[[], float] = time.time) -> None:
        self._store = store
        self._settings = settings
        self._now = now

    def name_of(self, data: bytes, owner: str) -> str:
        """The name of these bytes of an owner's, stored or not."""
        whose = base64.b32encode(hashlib.sha256(owner.encode()).digest()).decode().lower()[:_OWNER_DIGITS]
        return f"{self._period():08x}/{whose}{hashlib.sha256(data).hexdigest()}"

    def put(self, data: bytes, name: str) -> None:
        """Stores these bytes."""
        from obstore.exceptions import AlreadyExistsError

        with _errors("keeping a blob"):
            try:
                with suppress(AlreadyExistsError):  # then the bytes are there: the name is their digest
                    self._store.put(name, data, mode="create")
            except NotImplementedError:  # a server without conditional puts
                self._store.put(name, data)

    def get(self, name: str, size_bytes: int) -> bytes:
        """The bytes of this name."""
        digest = digest_of(name)
        if not re.fullmatch(NAME, name):
            raise BlobLost(digest, "cellblock did not give it this name")
        with _errors("fetching a blob"):
            try:
                found = self._store.get(name)
                if int(found.meta["size"]) != size_bytes:  # before reading: it could have any length
                    raise BlobLost(digest, f"it has {found.meta['size']} bytes, and had {size_bytes}")
                data = bytes(found.bytes())
            except FileNotFoundError:
                raise BlobLost(
                    digest, "it is not in the blob store: is CELLBLOCK_BLOBS_URL the same everywhere?"
                ) from None
        if hashlib.sha256(data).hexdigest() != digest:
            raise BlobLost(digest, "its bytes are others than those that were put there")
        return data

    def owner(self) -> str | None:
        """The store that owns these blobs; None without an owner."""
        with _errors("asking whose blobs these are"):
            try:
                found = bytes(self._store.get(OWNER).bytes())
            except FileNotFoundError:
                return None
        return found.decode(errors="replace")[:_OWNER_MOST]

    def own(self, store: str) -> str:
        """Makes this store the owner of the blobs, unless they have one. Returns the owner."""
        from obstore.exceptions import AlreadyExistsError

        if (owner := self.owner()) is not None:
            return owner
        with _errors("saying whose blobs these are"):
            try:
                with suppress(AlreadyExistsError):
                    self._store.put(OWNER, store.encode(), mode="create")
            except NotImplementedError:  # a server without conditional puts
                self._store.put(OWNER, store.encode())
        return self.owner() or store

    def old(self) -> Iterator[list[str]]:
        """Names from at least two periods ago, in pages."""
        with _errors("listing blobs"):
            periods = cast(list[str], self._store.list_with_delimiter("")["common_prefixes"])
        for period in sorted(periods):
            if re.fullmatch(r"[0-9a-f]{8}", period) and int(period, 16) < self._period() - 1:
                with _errors("listing blobs"):
                    for page in self._store.list(period, chunk_size=_PAGE):
                        yield [str(one["path"]) for one in page if re.fullmatch(NAME, str(one["path"]))]

    def expired(self, name: str) -> bool:
        """Whether a blob is older than any job."""
        return self._now() - self._put_at(name) > self._settings.ttl_s

    def put_before(self, name: str, when: float) -> bool:
        """Whether a blob might be from before this time (Unix seconds)."""
        return self._put_at(name) < when

    def _put_at(self, name: str) -> int:
        """The earliest time it can have been put there: when its period began (Unix seconds)."""
        return int(name[:8], 16) * self._settings.sweep_after_s

    def remove(self, names: Sequence[str]) -> None:
        """Removes these blobs, as far as they are there."""
        if not names:
            return
        with _errors("removing blobs"):
            try:
                self._store.delete(list(names))
            except FileNotFoundError:  # some stores say so, and need not have gone on behind it
                for name in names:
                    with suppress(FileNotFoundError):
                        self._store.delete(name)

    def _period(self) -> int:
        return int(self._now()) // self._settings.sweep_after_s


def of_another(owner: str, store: str) -> str:
    """The message about blobs that another store owns, with the remedy."""
    return (
        f"the blobs at CELLBLOCK_BLOBS_URL belong to the store {owner!r}, and this one is {store!r}: give "
        f"each store a path of its own; where the other is gone for good, remove the object {OWNER!r} there"
    )


def check_blobs(blobs: Blobs) -> None:
    """Stores a blob and fetches it, as a test. Raises :class:`BlobsUnavailable`, :class:`BlobLost`."""
    name = blobs.name_of(_PROBE, "probe")
    blobs.put(_PROBE, name)
    blobs.get(name, len(_PROBE))


#: The process that has used the library: it has threads from then on, and hangs in a child forked later.
_used_by: int | None = None


def _check_not_forked() -> None:
    global _used_by
    if _used_by not in {None, os.getpid()}:
        raise BlobsUnavailable(
            "the blob store was used before this process was forked, and its library cannot go on here: "
            "start processes by spawn (multiprocessing.set_start_method('spawn')), or fork before the first "
            "long payload or result"
        )
    _used_by = os.getpid()


@contextmanager
def _errors(doing: str) -> Iterator[None]:
    """Translates the library's errors without their text, which can name addresses and credentials."""
    from obstore.exceptions import BaseError

    _check_not_forked()
    try:
        yield
    except (BaseError, OSError, TimeoutError, ValueError) as error:
        kind = type(error).__name__
        remedy = {
            "PermissionDeniedError": "its credentials do not allow that",
            "UnauthenticatedError": "its credentials are missing or wrong",
            "NotFoundError": "there is no such bucket",
            "FileNotFoundError": "there is no such bucket or folder",
            "PermissionError": "this user has no right to write there",
            "GenericError": "is it running, and are CELLBLOCK_BLOBS_URL, region and credentials right?",
        }.get(kind, "is it running, and is CELLBLOCK_BLOBS_URL its address?")
        raise BlobsUnavailable(f"the blob store failed while {doing} ({kind}): {remedy}") from None
