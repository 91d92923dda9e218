"""Reads the texts in a file: its text, its strings, and those of files packed in it.

Archives and compressed files are opened within bounds. Stops secrets and copies of the context from leaving
in a zip of a gzip, and an archive from growing beyond its memory budget.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from cellblock.egress import printable

_UNPACKED_BYTES = 16 * 1024 * 1024
_MEMBERS = 2000
_DEPTH = 3
_PIECE_BYTES = 64 * 1024
_ZIP_MEMBER = b"PK\x03\x04"
#: The first bytes of formats that we cannot open: xz's old form, zstd, 7z, lz4, rar.
_UNKNOWN = (b"\x5d\0\0", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf\x27\x1c", b"\x04\x22\x4d\x18", b"Rar!\x1a\x07")
_LZMA_BYTES = 64 * 1024 * 1024
_ZIP_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2}
_STREAM_BEGINS = re.compile(rb"\x1f\x8b\x08|\x78[\x01\x5e\x9c\xda]")
_STREAM_LEAST, _STREAM_BYTES, _STREAM_HEAD_BYTES = 16, 256 * 1024, 64


class Opaque(Exception):
    """A file that cannot be opened; the message says why, without any of its content."""


@dataclass
class UnpackBudget:
    """The bytes and files that may be unpacked from all files of one job."""

    bytes_left: int = _UNPACKED_BYTES
    members_left: int = _MEMBERS

    def take(self, size: int) -> None:
        """Takes ``size`` bytes from the budget. Raises :class:`Opaque` if it is used up."""
        self.bytes_left -= size
        if self.bytes_left < 0:
            raise Opaque(f"it unpacks to more than {_UNPACKED_BYTES} bytes")

    def take_member(self) -> None:
        """Takes one file from the budget. Raises :class:`Opaque` if it is used up."""
        self.members_left -= 1
        if self.members_left < 0:
            raise Opaque(f"it holds more than {_MEMBERS} files")


def as_text(data: bytes) -> str | None:
    """The content if it is plain text in UTF-8, else None."""
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def read(data: bytes, budget: UnpackBudget, fragments: list[str] | None = None) -> list[str] | str:
    """All readable texts of a file: its strings and those of files packed in it.

    ``fragments`` gets, where it is given, the printable runs that are not text (printable.py). For a file
    that is locked, broken or beyond the bounds: the reason as one text.
    """
    try:
        return list(_texts(data, budget, _DEPTH, fragments))
    except Opaque as why:
        return str(why)


def _texts(data: bytes, budget: UnpackBudget, depth: int, fragments: list[str] | None) -> Iterator[str]:
    packed = False
    if data.startswith(_UNKNOWN):
        raise Opaque("it is packed in a way that is not looked into")
    try:
        for name, content in _unpacked(data, budget):
            packed = True
            if depth == 0:
                raise Opaque(f"it is packed more than {_DEPTH} times")
            yield name
            yield from _texts(content, budget, depth - 1, fragments)
    except (
        zipfile.BadZipFile,
        tarfile.TarError,
        OSError,
        EOFError,
        zlib.error,
        lzma.LZMAError,
        RuntimeError,
        NotImplementedError,
        ValueError,
        KeyError,
        MemoryError,
    ) as error:
        raise Opaque(f"it is an archive that cannot be opened ({type(error).__name__})") from None
    text = None if packed else as_text(data)
    if text is not None:
        yield text
        return
    # Containers too can have strings: comments, and text between or behind their members.
    yield "\n".join(_strings(data))
    if fragments is not None:
        fragments.append(printable.fragments(data))
    if data[:4] != _ZIP_MEMBER:  # members of a zip are such streams, and read above
        yield from _streams_within(data, int(packed), budget)


def _strings(data: bytes) -> Iterator[str]:
    yield printable.stretches(data)
    if data[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        yield data.decode("utf-16", "replace")


def _unpacked(data: bytes, budget: UnpackBudget) -> Iterator[tuple[str, bytes]]:
    """The members of a container with their names; nothing for a file that is not a container."""
    if data[:4] in {_ZIP_MEMBER, b"PK\x05\x06"} or zipfile.is_zipfile(io.BytesIO(data)):
        yield from _zip_members(data, budget)
    elif data[:2] == b"\x1f\x8b":
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            yield "", _drained(stream, budget)
    elif data[:3] == b"BZh":
        with bz2.BZ2File(io.BytesIO(data)) as stream:
            yield "", _drained(stream, budget)
    elif data[:6] == b"\xfd7zXZ\0":
        unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_LZMA_BYTES)
        content = unpacker.decompress(data, budget.bytes_left + 1)
        budget.take(len(content))
        yield "", content
    elif data[257:262] == b"ustar":
        yield from _tar_members(data, budget)


def _zip_members(data: bytes, budget: UnpackBudget) -> Iterator[tuple[str, bytes]]:
    inside = 0
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            budget.take_member()
            if info.flag_bits & 1:
                raise Opaque("it is an archive with a password")
            if info.compress_type not in _ZIP_METHODS:
                raise Opaque("it is packed in a way that is not looked into")
            with archive.open(info) as member:
                content = _drained(member, budget)
            inside += 1 + (content.count(_ZIP_MEMBER) if info.compress_type == zipfile.ZIP_STORED else 0)
            yield info.filename, content
    if data.count(_ZIP_MEMBER) > inside:  # other programs find what this one was not told of
        raise Opaque("it is an archive that does not list all of its files")


def _tar_members(data: bytes, budget: UnpackBudget) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        for info in archive:
            budget.take_member()
            content = archive.extractfile(info) if info.isfile() else None
            yield f"{info.name} {info.linkname}", _drained(content, budget) if content is not None else b""


def _streams_within(data: bytes, after: int, budget: UnpackBudget) -> Iterator[str]:
    """The text at the beginning of each compressed stream in a file, as in a PDF or behind another stream.

    Pictures are such streams too, and large: a stream beyond the bound is not a reason to withhold a file,
    more text in all of them than may be unpacked is one.
    """
    whole = memoryview(data)
    for found in _STREAM_BEGINS.finditer(data, after):
        content = _stream(whole[found.start() :])
        if len(content) >= _STREAM_LEAST:
            text = "\n".join(_strings(content))
            budget.take(len(text))
            yield text


def _stream(data: memoryview) -> bytes:
    """The beginning of a compressed stream; empty for samples, which can begin like one."""
    if printable.are_samples(bytes(data[:_STREAM_HEAD_BYTES])):
        return b""  # they unpack to copies of copies, some of them printable
    unpacker = zlib.decompressobj(wbits=47)
    content = bytearray()
    try:
        for at in range(0, len(data), _PIECE_BYTES):
            content += unpacker.decompress(data[at : at + _PIECE_BYTES], _STREAM_BYTES - len(content))
            if unpacker.eof or len(content) >= _STREAM_BYTES:
                break
    except zlib.error:
        return b""
    return bytes(content)


def _drained(stream: IO[bytes] | bz2.BZ2File | gzip.GzipFile, budget: UnpackBudget) -> bytes:
    pieces = []
    while piece := stream.read(_PIECE_BYTES):
        budget.take(len(piece))
        pieces.append(piece)
    return b"".join(pieces)
