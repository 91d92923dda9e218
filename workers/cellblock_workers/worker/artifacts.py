"""The files of a job as its guest sends them: parsed within bounds, with nothing believed.

The stream is the one that guest/artifacts.py writes. No honest guest leaves the bounds it was given, so
one that does costs its sandbox: :class:`ProtocolViolation`.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cellblock.contract.paths import check_relative
from cellblock.contract.results import Artifact, SkippedArtifact
from cellblock_config import LedgerSettings
from cellblock_workers.guest.messages import HEADER
from cellblock_workers.worker.frames import ProtocolViolation

_HEADER_BYTES = 8 * 1024
_SKIPPED_MOST = 100


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    path: str
    size: int = Field(ge=0)


class _Skipped(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    path: str
    reason: str = Field(max_length=1000)


class ArtifactReader:
    """Takes the stream piece by piece; holds no more than the bytes that all artifacts together may have."""

    def __init__(self, bounds: LedgerSettings) -> None:
        self._bounds = bounds
        self._bytes_left = bounds.artifacts_bytes
        self._inbox = bytearray()
        self._open: _File | None = None
        self._files: dict[str, bytes] = {}
        self._skipped: list[SkippedArtifact] = []

    def feed(self, piece: bytes) -> None:
        """Takes the next bytes. Raises :class:`ProtocolViolation`."""
        self._inbox += piece
        while self._take_file() or self._take_header():
            pass

    def close(self, *, whole: bool) -> tuple[tuple[Artifact, ...], tuple[SkippedArtifact, ...]]:
        """What arrived, and what was left out. ``whole``: the guest says that nothing is missing.

        Raises :class:`ProtocolViolation` if that is not true.
        """
        if whole and (self._inbox or self._open):
            raise ProtocolViolation("the artifacts end within a file")
        return tuple(Artifact(path=path, data=data) for path, data in self._files.items()), tuple(
            self._skipped
        )

    def _take_file(self) -> bool:
        if self._open is None or len(self._inbox) < self._open.size:
            return False
        self._files[self._open.path] = bytes(self._inbox[: self._open.size])
        del self._inbox[: self._open.size]
        self._open = None
        return True

    def _take_header(self) -> bool:
        if self._open is not None or len(self._inbox) < HEADER.size:
            return False
        kind, length = HEADER.unpack_from(self._inbox)
        if kind not in {b"F", b"S"} or length > _HEADER_BYTES:
            raise ProtocolViolation("an artifact header no honest guest sends")
        if len(self._inbox) < HEADER.size + length:
            return False
        text = bytes(self._inbox[HEADER.size : HEADER.size + length])
        del self._inbox[: HEADER.size + length]
        try:
            if kind == b"F":
                self._begin(_File.model_validate_json(text))
            else:
                self._skip(_Skipped.model_validate_json(text))
        except ValidationError:
            raise ProtocolViolation("an artifact header that is malformed") from None
        return True

    def _begin(self, file: _File) -> None:
        try:
            check_relative(file.path)
        except ValueError as error:
            raise ProtocolViolation(f"an artifact outside of the work folder: {error}") from None
        self._bytes_left -= file.size
        if (
            file.size > self._bounds.artifact_bytes
            or self._bytes_left < 0
            or len(self._files) >= self._bounds.artifacts_count
            or file.path in self._files
        ):
            raise ProtocolViolation("more artifacts than were asked for")
        self._open = file

    def _skip(self, skipped: _Skipped) -> None:
        if len(self._skipped) >= _SKIPPED_MOST:
            raise ProtocolViolation("more skipped artifacts than are listed")
        self._skipped.append(SkippedArtifact(path=skipped.path, reason=skipped.reason))
