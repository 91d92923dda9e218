"""All that one job says, filtered as one: values, errors, files, and what a cut goes through."""

from __future__ import annotations

import base64
import bz2
import gc
import gzip
import io
import json
import lzma
import random
import string
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from cellblock.contract.outcomes import JobError
from cellblock.contract.results import Artifact, RedactionCount, SkippedArtifact
from cellblock.contract.values import TableValue
from cellblock.egress import ContextSource, Governed, Governor, Outgoing, filter_outgoing
from cellblock_config import EgressSettings

RNG = random.Random(20261122)
TOKEN = "gh" + "p_" + "".join(RNG.choice(string.ascii_letters + string.digits) for _ in range(36))
SETTINGS = EgressSettings()
TAKEN = "[REDACTED: github_token]"


def governed(text: str, settings: EgressSettings = SETTINGS) -> Governed:
    governor = Governor(settings)
    for at in range(0, len(text), 7):  # a secret comes in pieces
        governor.feed(text[at : at + 7].encode())
    return governor.close()


def leave(said: Outgoing, context: Any = None, settings: EgressSettings = SETTINGS) -> Outgoing:
    return filter_outgoing(said, settings, context)


def counted(kept: Outgoing) -> dict[tuple[str, str], int]:
    return {(one.kind, one.stream): one.count for one in kept.redactions}


def test_every_stream_is_filtered_and_every_redaction_counted() -> None:
    kept = leave(
        Outgoing(
            stdout=governed(f"{TOKEN}\n{TOKEN}\n"),
            stderr=governed(f"warning: {TOKEN}\n\x1b[2J"),
            value_error=f"value[{TOKEN!r}] is a set",
            error=JobError(type="ValueError", message=TOKEN, traceback=f"File x\nValueError: {TOKEN}"),
            evidence={"fault": f"outside: {TOKEN}", "oom_kills": 1},
            artifacts_skipped=(SkippedArtifact(path=f"{TOKEN}.txt", reason="too large"),),
        )
    )
    assert kept.stdout.text == f"{TAKEN}\n{TAKEN}\n"
    assert kept.stderr.text == f"warning: {TAKEN}\n␛[2J"
    assert TOKEN not in repr(kept)
    assert kept.evidence["oom_kills"] == 1
    assert counted(kept) == {
        ("control", "stderr"): 1,
        ("github_token", "artifacts"): 1,
        ("github_token", "error"): 3,
        ("github_token", "stderr"): 1,
        ("github_token", "stdout"): 2,
        ("github_token", "value"): 1,
    }


@pytest.mark.parametrize("before", [*range(960, 1002, 6), 500, 20_000])
def test_a_secret_that_the_cut_goes_through_goes_on_both_sides(before: int) -> None:
    text = "." * before + TOKEN + "." * 60_000 + TOKEN + "," * (3000 - 18)
    kept = leave(Outgoing(stdout=governed(text))).stdout
    for at in range(len(TOKEN) - 6):
        assert TOKEN[at : at + 6] not in kept.text
    assert kept.dropped_bytes == len(text) - 4000
    assert len(kept.text) < 4200


def test_a_secret_in_halves_goes_from_both_streams() -> None:
    kept = leave(Outgoing(stdout=governed(f"one {TOKEN[:20]}\n"), stderr=governed(f"{TOKEN[20:]} two")))
    assert (kept.stdout.text, kept.stderr.text) == (f"one {TAKEN}", f"{TAKEN} two")


def test_notices_do_not_make_an_output_much_longer() -> None:
    kept = leave(Outgoing(stdout=governed("\x9b" * 1900))).stdout
    assert len(kept.text.encode()) <= 4100
    assert "TRUNCATED" in kept.text


class TestValues:
    """JSON and tables."""

    def test_a_value_keeps_its_shape(self) -> None:
        value = {"token": TOKEN, "n": [1, 2.5, None, True, "fine"], "inner": {"password": "Xk29dk-W0s!"}}
        kept = leave(Outgoing(value=value, value_kind="json"))
        assert kept.value == {
            "token": TAKEN,
            "n": [1, 2.5, None, True, "fine"],
            "inner": {"password": "[REDACTED: assigned_secret]"},
        }
        assert counted(kept) == {("assigned_secret", "value"): 1, ("github_token", "value"): 1}

    @pytest.mark.parametrize(
        "value",
        [
            list(TOKEN),
            list(TOKEN.encode()),
            {TOKEN: 1},
            [TOKEN[:20], TOKEN[20:]],
            [TOKEN] * 3000,
        ],
        ids=["characters", "codes", "key", "halves", "many"],
    )
    def test_what_no_part_of_it_shows_alone_is_withheld_whole(self, value: object) -> None:
        kept = leave(Outgoing(value=value, value_kind="json"))
        assert (kept.value, kept.value_kind) == (None, None)
        assert kept.value_error is not None
        assert "withheld: it holds something that must not leave (" in kept.value_error

    def test_an_honest_value_is_the_same_object(self) -> None:
        value = {"rows": [{"id": n, "name": f"row {n}"} for n in range(100)]}
        assert leave(Outgoing(value=value, value_kind="json")).value is value

    def test_a_table_with_a_secret_is_withheld_and_another_is_not(self) -> None:
        import pyarrow

        def table(cells: list[str]) -> TableValue:
            sink = io.BytesIO()
            made = pyarrow.table({"cell": cells})
            with pyarrow.ipc.new_stream(sink, made.schema) as writer:
                writer.write_table(made)
            return TableValue(sink.getvalue())

        for cells in ([TOKEN], list(TOKEN)):
            kept = leave(Outgoing(value=table(cells), value_kind="table"))
            assert (kept.value, kept.value_kind) == (None, None)
        honest = table(["one", "two", "three"])
        assert leave(Outgoing(value=honest, value_kind="table")).value is honest

    def test_a_table_that_poses_as_an_archive_is_withheld_and_no_fault_of_ours(self) -> None:
        kept = leave(Outgoing(value=TableValue(b"\x1f\x8b" + b"x" * 50), value_kind="table"))
        assert (
            kept.value_error == "the value is withheld: it is an archive that cannot be opened (BadGzipFile)"
        )


def zipped(content: bytes, name: str = "inner.txt") -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return sink.getvalue()


def tarred(content: bytes) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        info = tarfile.TarInfo("inner.txt")
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return sink.getvalue()


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "zip": zipped,
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "tar": tarred,
    "zip of a gzip": lambda content: zipped(gzip.compress(content)),
    "tar.gz": lambda content: gzip.compress(tarred(content)),
    "UTF-16": lambda content: content.decode().encode("utf-16"),
    "binary": lambda content: b"\0\1\2\3" + content + b"\xff\xfe\xfd",
}


class TestFiles:
    """Artifacts."""

    def one(self, data: bytes, path: str = "out.bin", context: Any = None) -> Outgoing:
        return leave(Outgoing(artifacts=(Artifact(path=path, data=data),)), context)

    def test_text_is_filtered_and_its_control_characters_stay(self) -> None:
        kept = self.one("a\x1b[1m\0\n"[:-2].encode() + TOKEN.encode())
        assert kept.artifacts[0].data == b"a\x1b[1m" + TAKEN.encode()

    @pytest.mark.parametrize("packed", PACKED)
    def test_what_cannot_be_filtered_is_withheld(self, packed: str) -> None:
        kept = self.one(PACKED[packed](f"token: {TOKEN}\n".encode()))
        assert kept.artifacts == ()
        (skipped,) = kept.artifacts_skipped
        assert skipped.reason.startswith("withheld: it holds something that must not leave (")
        assert "github_token" in skipped.reason

    @pytest.mark.parametrize("packed", PACKED)
    def test_what_is_honest_is_byte_for_byte_the_same(self, packed: str) -> None:
        data = PACKED[packed](b"an honest line\n" * 200)
        assert self.one(data).artifacts == (Artifact(path="out.bin", data=data),)

    @pytest.mark.parametrize(
        ("data", "why"),
        [
            (gzip.compress(bytes(200_000_000), 1), "unpacks to more than 16777216 bytes"),
            (zipped(zipped(zipped(zipped(zipped(b"deep"))))), "packed more than 3 times"),
            (zipped(b"x" * 500)[:200] + b"PK\x05\x06" + bytes(18), "does not list all of its files"),
            (zipped(b"x" * 500)[:-30], "cannot be opened"),
            (gzip.compress(b"x" * 500)[:-12], "cannot be opened"),
        ],
        ids=["bomb", "deep", "unlisted", "cut zip", "cut gzip"],
    )
    def test_what_cannot_be_looked_into_is_withheld(self, data: bytes, why: str) -> None:
        kept = self.one(data)
        assert kept.artifacts == ()
        assert why in kept.artifacts_skipped[0].reason

    def test_an_archive_that_asks_for_much_memory_is_withheld(self) -> None:
        data = bytearray(lzma.compress(b"x" * 50))
        data[14 + 2] = 40  # the dictionary's size: 4 GiB, in the block's header
        assert self.one(bytes(data)).artifacts == ()

    @pytest.mark.parametrize("packed", ["zip", "bzip2", "gzip", "tar"])
    def test_what_stands_beside_an_archive_is_read_too(self, packed: str) -> None:
        honest = PACKED[packed](b"an honest line\n" * 20)
        for data in (honest + TOKEN.encode(), TOKEN.encode() + b"\n" + honest):
            kept = self.one(data)
            assert TOKEN.encode() not in b"".join(file.data for file in kept.artifacts)

    def test_streams_within_other_files_are_read(self) -> None:
        page = b"%PDF-1.7\n1 0 obj <</Filter/FlateDecode>> stream\n" + zlib.compress(
            b"(%s) Tj" % TOKEN.encode()
        )
        assert self.one(page + b"\nendstream").artifacts == ()

    def test_large_pictures_leave(self) -> None:
        picture = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + zlib.compress(bytes(40_000_000))
        assert self.one(picture).artifacts == (Artifact(path="out.bin", data=picture),)

    def test_many_files_are_unpacked_to_one_bound(self) -> None:
        files = [Artifact(path=f"{n}.gz", data=gzip.compress(bytes(5_000_000), 1)) for n in range(5)]
        kept = leave(Outgoing(artifacts=tuple(files)))
        assert len(kept.artifacts) == 3

    def test_an_archive_with_a_password_is_withheld(self) -> None:
        locked = bytearray(zipped(b"x" * 50))
        for sign, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
            locked[locked.index(sign) + place] |= 1
        assert "password" in self.one(bytes(locked)).artifacts_skipped[0].reason

    def test_a_name_that_tells_is_not_told(self) -> None:
        kept = self.one(b"honest", path=f"{TOKEN}.txt")
        assert kept.artifacts == ()
        assert TOKEN not in repr(kept)


def prose(size: int, seed: int) -> str:
    rng = random.Random(seed)
    words = [
        "".join(rng.choice(string.ascii_lowercase) for _ in range(rng.randint(2, 9))) for _ in range(3000)
    ]
    sentences, length = [], 0
    while length < size:
        sentences.append(" ".join(rng.choice(words) for _ in range(9)).capitalize() + ".\n")
        length += len(sentences[-1])
    return "".join(sentences)[:size]


CONTEXT = prose(300_000, 1)
SLICE = CONTEXT[120_000:123_500]
COPIES = {
    "as it is": SLICE,
    "upper case": SLICE.upper(),
    "base64": base64.b64encode(SLICE.encode()).decode(),
    "hex": SLICE.encode().hex(),
    "reversed": SLICE[::-1],
    "repr": repr(SLICE),
    "JSON": json.dumps({"text": SLICE}),
    "numbered": "\n".join(f"{n:4}: {line}" for n, line in enumerate(SLICE.splitlines())),
    "quoted": "\n".join(f"> {line}" for line in SLICE.splitlines()),
    "without blanks": "".join(SLICE.split()),
    "one word a line": "\n".join(SLICE.split()),
    "behind a summary": "My summary of it all. " * 20 + SLICE[:1200],
    "lines in another order": "\n".join(sorted(SLICE.splitlines())),
}


class TestEcho:
    """R7 on what a job says."""

    @pytest.mark.parametrize("copy", COPIES)
    def test_a_copy_of_the_context_blocks_all_of_it(self, copy: str) -> None:
        settings = EgressSettings(output_limit_bytes=16_000)
        said = Outgoing(
            stdout=governed(COPIES[copy], settings),
            value={"answer": 42},
            value_kind="json",
            artifacts=(Artifact(path="a", data=b"x"),),
            evidence={"fault": "words", "oom_kills": 1},
        )
        kept = leave(said, CONTEXT, settings)
        assert kept == Outgoing(
            evidence={"oom_kills": 1},
            redactions=(RedactionCount(kind="context_echo", stream="all", count=1),),
            blocked=True,
        )

    @pytest.mark.parametrize("where", ["stderr", "value", "error", "artifact", "zip", "halves"])
    def test_wherever_it_is(self, where: str) -> None:
        said = {
            "stderr": Outgoing(stderr=governed(SLICE)),
            "value": Outgoing(value=[SLICE[:600], SLICE[600:]], value_kind="json"),
            "error": Outgoing(error=JobError(type="ValueError", message=SLICE)),
            "artifact": Outgoing(artifacts=(Artifact(path="copy.txt", data=SLICE.encode()),)),
            "zip": Outgoing(artifacts=(Artifact(path="copy.zip", data=zipped(SLICE.encode())),)),
            "halves": Outgoing(stdout=governed(SLICE[:500]), stderr=governed(SLICE[500:1000])),
        }[where]
        assert leave(said, CONTEXT).blocked

    @pytest.mark.parametrize(
        "said",
        [
            f"It says: {SLICE[:200]!r}, and that is all there is.",
            "\n".join(f"offset {at}: ...{CONTEXT[at : at + 500]}..." for at in range(1000, 250_000, 50_000)),
            "\n".join(CONTEXT[at : at + 60] for at in range(0, 300_000, 9_000)),
            prose(4000, 2),
            str({word: CONTEXT.count(word) for word in CONTEXT.split()[:80]}),
        ],
        ids=["quotation", "snippets", "lines", "other text", "counts"],
    )
    def test_a_summary_with_quotations_passes(self, said: str) -> None:
        kept = leave(Outgoing(stdout=governed(said)), CONTEXT)
        assert not kept.blocked
        assert kept.stdout.text == said

    def test_in_pieces_over_many_files_or_words_of_ours(self) -> None:
        pieces = [SLICE[at : at + 500] for at in range(0, 3000, 500)]
        files = tuple(Artifact(path=f"{n}", data=piece.encode()) for n, piece in enumerate(pieces))
        skipped = tuple(SkippedArtifact(path=f"{n}", reason=piece) for n, piece in enumerate(pieces))
        for said in (
            Outgoing(artifacts=files),
            Outgoing(artifacts_skipped=skipped),
            Outgoing(value_error=SLICE),
            Outgoing(error=JobError(type=SLICE, message="")),
            Outgoing(evidence={"fault": SLICE}),
        ):
            assert leave(said, CONTEXT).blocked

    @pytest.mark.parametrize("line", ["the same line of text again\n", "ab", "0"])
    def test_a_context_that_repeats_itself_is_known_too(self, line: str) -> None:
        context = line * (1_000_000 // len(line))
        assert leave(Outgoing(stdout=governed(context[:3500])), context).blocked

    def test_a_short_context_may_not_be_printed_whole(self) -> None:
        context = CONTEXT[:300]
        assert leave(Outgoing(stdout=governed(f"Here: {context}")), context).blocked
        assert not leave(Outgoing(stdout=governed(f"Here: {context[:120]}")), context).blocked

    def test_a_line_of_a_context_that_repeats_itself_is_no_copy_of_it(self) -> None:
        context = "2031-01-01 INFO worker heartbeat is fine\n" * 5000
        line = "The log says: 2031-01-01 INFO worker heartbeat is fine, again and again."
        assert not leave(Outgoing(stdout=governed(line * 3)), context).blocked
        assert leave(Outgoing(stdout=governed(context[:3000])), context).blocked

    def test_a_file_of_any_size_is_read_through_its_descriptor(self, tmp_path: Any) -> None:
        file = tmp_path / "context"
        file.write_bytes(b"".join(prose(1_000_000, seed).encode() for seed in range(8)) + SLICE.encode())
        with file.open("rb") as opened:
            source = ContextSource.of_descriptor(opened.fileno())
            assert leave(Outgoing(stdout=governed(SLICE)), source).blocked
            assert not leave(Outgoing(stdout=governed(prose(3000, 99))), source).blocked

    def test_the_threshold_is_a_setting(self) -> None:
        quoted = Outgoing(stdout=governed(SLICE[:400]))
        assert not leave(quoted, CONTEXT).blocked
        assert leave(quoted, CONTEXT, EgressSettings(echo_bytes=400)).blocked
        assert not leave(Outgoing(stdout=governed(SLICE)), CONTEXT, EgressSettings(echo_bytes=0)).blocked

    def test_a_source_is_indexed_once_and_its_index_goes_with_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from cellblock.egress import echo

        built: list[int] = []
        build = echo.ContextIndex.build

        def counted(source: ContextSource, **options: int) -> echo.ContextIndex:
            built.append(source.size)
            return build(source, **options)

        monkeypatch.setattr(echo.ContextIndex, "build", counted)
        before = len(echo._of_sources)
        files = tuple(Artifact(path=f"{n}", data=prose(900, 100 + n).encode()) for n in range(5))
        assert not leave(Outgoing(stdout=governed(prose(900, 77)), artifacts=files), CONTEXT).blocked
        gc.collect()
        assert (len(built), len(echo._of_sources)) == (1, before)

    def test_the_index_stays_within_its_memory(self) -> None:
        from cellblock.egress.echo import ContextIndex

        text = prose(4_000_000, 5)
        index = ContextIndex.build(ContextSource.of(text), memory_bytes=64 * 1024)
        assert 0 < index.memory_bytes <= 64 * 1024
        assert index.is_echoed([text[2_000_000:2_004_000]], chunk_bytes=800, similarity=0.8)


def test_a_secret_in_halves_goes_also_where_stderr_begins_it() -> None:
    kept = leave(Outgoing(stdout=governed(f"{TOKEN[20:]} two"), stderr=governed(f"one {TOKEN[:20]}\n")))
    assert (kept.stdout.text, kept.stderr.text) == (f"{TAKEN} two", f"one {TAKEN}")


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_table_whose_buffers_are_compressed_is_withheld(compression: str) -> None:
    import pyarrow

    sink, made = io.BytesIO(), pyarrow.table({"cell": ["an honest cell"] * 1000})
    options = pyarrow.ipc.IpcWriteOptions(compression=compression)
    with pyarrow.ipc.new_stream(sink, made.schema, options=options) as writer:
        writer.write_table(made)
    kept = leave(Outgoing(value=TableValue(sink.getvalue()), value_kind="table"))
    assert (kept.value, kept.value_error) == (None, "the value is withheld: its buffers are compressed")


def test_a_few_lines_of_a_context_that_repeats_itself_are_no_copy_of_it() -> None:
    line = "2031-01-01 INFO worker heartbeat is fine\n"
    assert not leave(Outgoing(stdout=governed(line * 12)), line * 5000).blocked


def test_notices_make_a_result_no_longer_than_it_may_be() -> None:
    line = "pw: Zx81kQ\n"
    files = tuple(Artifact(path=f"{n}.txt", data=(line * 8_000).encode()) for n in range(6))
    kept = filter_outgoing(
        Outgoing(artifacts=files, value=[line * 8_000], value_kind="json"), EgressSettings()
    )
    came = sum(len(file.data) for file in files)
    assert sum(len(file.data) for file in kept.artifacts) <= came + 64 * 1024
    assert {file.path for file in kept.artifacts_skipped} == {file.path for file in files}
    assert "longer than a result may be" in kept.artifacts_skipped[0].reason
    assert kept.value is None
    assert "longer than a result may be" in (kept.value_error or "")
    assert "Zx81kQ" not in str(kept)


def test_a_file_of_one_secret_may_become_longer() -> None:
    file = Artifact(path="a.ini", data=b"pw: Zx81kQ\n")
    (kept,) = filter_outgoing(Outgoing(artifacts=(file,)), EgressSettings()).artifacts
    assert kept.data == b"pw: [REDACTED: assigned_secret]\n"
