"""Frames from a sandbox: the same ones however the bytes arrive, and nothing oversized is ever held."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellblock_workers.guest.messages import HEADER
from cellblock_workers.worker.frames import LIMIT_BYTES, FrameReader, ProtocolViolation, frame

Frame = tuple[bytes, bytes]
STDOUT, STDERR = 1, 2
KINDS = sorted(LIMIT_BYTES)

frames = st.sampled_from(KINDS).flatmap(
    lambda kind: st.tuples(st.just(kind), st.binary(max_size=min(40, LIMIT_BYTES[kind])))
)
places = st.lists(st.integers(0, 10_000), max_size=25)


def cut(data: bytes, at: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in at), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


def wrap(stream: int, data: bytes) -> bytes:
    """As the Docker daemon wraps what a container writes."""
    return struct.pack(">BxxxI", stream, len(data)) + data


def read(framing: str, chunks: list[bytes]) -> list[Frame]:
    reader = FrameReader(framing)
    return [found for chunk in chunks for found in reader.feed(chunk)]


@given(sent=st.lists(frames, max_size=8), at=places)
def test_raw_frames_arrive_whole_however_the_bytes_are_cut(sent: list[Frame], at: list[int]) -> None:
    data = b"".join(frame(kind, payload) for kind, payload in sent)
    assert read("raw", cut(data, at)) == sent


@given(
    sent=st.lists(frames, max_size=8),
    at=places,
    pieces=places,
    noise=st.lists(st.binary(max_size=30), max_size=5),
)
def test_docker_frames_arrive_whole_however_both_layers_are_cut(
    sent: list[Frame], at: list[int], pieces: list[int], noise: list[bytes]
) -> None:
    data = b"".join(frame(kind, payload) for kind, payload in sent)
    wrapped = [wrap(STDOUT, piece) for piece in cut(data, pieces)]
    for position, junk in enumerate(noise):  # the sandbox's stderr, between any two pieces
        wrapped.insert(2 * position % (len(wrapped) + 1), wrap(STDERR, junk))
    assert read("docker", cut(b"".join(wrapped), at)) == sent


def test_a_frame_on_the_sandboxes_stderr_is_no_frame() -> None:
    forged = frame(b"X", b'{"code": 0}')
    assert read("docker", [wrap(STDERR, forged)]) == []
    assert read("docker", [wrap(STDERR, forged) + wrap(STDOUT, frame(b"R", b""))]) == [(b"R", b"")]


@pytest.mark.parametrize("kind", KINDS)
def test_the_longest_allowed_payload_passes(kind: bytes) -> None:
    payload = b"x" * LIMIT_BYTES[kind]
    assert read("raw", [frame(kind, payload)]) == [(kind, payload)]


@pytest.mark.parametrize("framing", ["raw", "docker"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_longer_one_is_refused_by_its_header_alone(framing: str, kind: bytes) -> None:
    header = HEADER.pack(kind, LIMIT_BYTES[kind] + 1)
    with pytest.raises(
        ProtocolViolation, match=f"{LIMIT_BYTES[kind] + 1} bytes; at most {LIMIT_BYTES[kind]}"
    ):
        read(framing, [wrap(STDOUT, header) if framing == "docker" else header])


@pytest.mark.parametrize("length", [0xFFFFFFFF, 0x7FFFFFFF, 64 * 1024 + 1])
def test_an_announced_gigabyte_is_refused_before_a_byte_of_it_is_awaited(length: int) -> None:
    reader = FrameReader("raw")
    with pytest.raises(ProtocolViolation, match=f"O of {length} bytes"):
        list(reader.feed(HEADER.pack(b"O", length)))


@pytest.mark.parametrize("kind", [b"J", b"I", b"Q", b"\0", b"\xff", b"o"])
def test_an_unknown_kind_is_refused_with_its_value(kind: bytes) -> None:
    with pytest.raises(ProtocolViolation, match="unknown kind"):
        read("raw", [frame(kind, b"")])
    with pytest.raises(ProtocolViolation) as caught:
        read("raw", [kind + b"\0\0\0\0"])
    assert repr(kind) in str(caught.value)


def test_frames_before_a_violation_are_still_delivered() -> None:
    reader = FrameReader("raw")
    stream = reader.feed(frame(b"R", b"") + frame(b"O", b"kept") + b"?bad?")
    assert next(stream) == (b"R", b"")
    assert next(stream) == (b"O", b"kept")
    with pytest.raises(ProtocolViolation):
        next(stream)


@given(st.binary(max_size=400))
def test_random_bytes_make_frames_or_a_violation_and_nothing_else(data: bytes) -> None:
    for framing in ("raw", "docker"):
        try:
            for kind, payload in read(framing, [data]):
                assert len(payload) <= LIMIT_BYTES[kind]
        except ProtocolViolation:
            pass


def test_what_is_delivered_is_not_kept() -> None:
    reader = FrameReader("docker")
    piece = wrap(STDOUT, frame(b"O", b"x" * 32_000)) + wrap(STDERR, b"y" * 32_000)
    for _ in range(200):
        assert len(list(reader.feed(piece))) == 1
    assert len(reader._raw) + len(reader._guest) == 0
