"""Inputs and values: exactly what JSON and Arrow can hold, in both directions, and nothing executed."""

from __future__ import annotations

import json
from typing import Any

import pandas
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellblock import InvalidJob, JobSpec
from cellblock.contract.values import InputValue, TableValue, encode_input, read_json_value
from cellblock_workers.guest import values as inside
from cellblock_workers.worker.reported import read_value

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=20,
)


@given(plain)
def test_a_plain_value_comes_through_both_ways_as_it_was(value: Any) -> None:
    given_value = encode_input("x", value)
    assert inside.decode_input("x", given_value.kind, given_value.data) == value
    sent = inside.encode_value(value, 1 << 20)
    if value is not None:
        assert read_value(sent, 1 << 20).content == value


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


cycle: list[Any] = []
cycle.append(cycle)


class Sub(int):
    pass


NOT_PLAIN: dict[str, tuple[Any, str]] = {
    "set": ({1}, "set"),
    "bytes": (b"x", "bytes"),
    "object": (object(), "object"),
    "function": (len, "builtin_function_or_method"),
    "NaN": ([1, float("nan")], "nan"),
    "infinity": (float("-inf"), "-inf"),
    "cycle": (cycle, "contains itself"),
    "too deep": (nested(200), "deeper than 100"),
    "number as a key": ({1: 2}, "key 1"),
    "subclass": (Sub(1), "Sub"),
    "lone surrogate": ("\ud800", "surrogate"),
    "endless digits": (10**5000, "JSON"),
}


@pytest.mark.parametrize(("value", "said"), NOT_PLAIN.values(), ids=NOT_PLAIN)
def test_what_has_no_form_is_refused_in_and_explained_out(value: Any, said: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        JobSpec(code="pass", inputs={"x": value})
    assert caught.value.field.startswith("inputs.x")
    assert said in str(caught.value)
    out = read_value(inside.encode_value(value, 1 << 20), 1 << 20)
    assert (out.content, out.kind) == (None, None)
    assert said in str(out.error)


def test_a_tuple_and_a_numpy_number_come_out_as_json_has_them() -> None:
    numpy = pytest.importorskip("numpy")
    value = {"t": (1, (2,)), "mean": numpy.float64(1.5), "n": numpy.int64(3)}
    sent = inside.encode_value(value, 1000)
    assert read_value(sent, 1000).content == {"t": [1, [2]], "mean": 1.5, "n": 3}


def test_no_value_is_neither_content_nor_error() -> None:
    assert inside.encode_value(None, 1000) == b""
    out = read_value(b"", 1000)
    assert (out.content, out.kind, out.error) == (None, None, None)


def test_a_value_over_its_bound_is_left_out_with_the_bound() -> None:
    for value in ("x" * 1001, list(range(1000)), {"k" * 2000: 1}, pandas.DataFrame({"a": range(1000)})):
        out = read_value(inside.encode_value(value, 1000), 1000)
        assert (out.content, out.kind) == (None, None)
        assert "1000" in str(out.error)
    assert "1000" in str(read_value(b"j" + b"1" * 1001, 1000).error)


FORGED = [
    b"j",
    b"j{",
    b"jNaN",
    b"jInfinity",
    b"j1e999",
    b"j[1e400]",
    b'j"\\ud800"',
    b'j{"\\udfff": 1}',
    b"j\xff\xfe",
    b"j" + b"[" * 100_000,
    b"j" + b"[" * 150 + b"]" * 150,
    b'j{"a":' * 150,
    b"j" + b"9" * 5000,
    b"z42",
    b"\x80\x04\x95pickle",
]


@pytest.mark.parametrize("payload", FORGED, ids=range(len(FORGED)))
def test_a_forged_value_is_an_error_and_never_more(payload: bytes) -> None:
    out = read_value(payload, 1 << 20)
    assert (out.content, out.kind) == (None, None)
    assert out.error


@given(st.binary(max_size=200))
def test_any_bytes_at_all_end_as_a_value_or_an_error(payload: bytes) -> None:
    out = read_value(payload, 1 << 20)
    assert payload == b"" or (out.kind is None) != (out.error is None)


def test_an_error_of_the_jobs_own_words_is_kept_short_and_readable() -> None:
    assert read_value(b"e" + b"\xff" * 10_000, 1 << 20).error == "\ufffd" * 2000


def test_json_that_is_read_is_exactly_json() -> None:
    assert read_json_value(b'{"a": [1, 2.5, null, true, "\xc3\xa9"]}') == {"a": [1, 2.5, None, True, "é"]}


def frame() -> pandas.DataFrame:
    return pandas.DataFrame(
        {
            "n": [1, 2, 3],
            "f": [0.5, None, 1.5],
            "s": ["a", "é", None],
            "t": pandas.to_datetime(["2024-01-01", "2024-06-01", None]),
            "c": pandas.Categorical(["x", "y", "x"]),
        },
        index=pandas.Index(["p", "q", "r"], name="key"),
    )


def test_a_dataframe_goes_in_and_comes_out_equal() -> None:
    given_value = encode_input("df", frame())
    assert given_value.kind == "dataframe"
    pandas.testing.assert_frame_equal(inside.decode_input("df", "dataframe", given_value.data), frame())
    out = read_value(inside.encode_value(frame(), 1 << 20), 1 << 20)
    assert out.kind == "table"
    assert isinstance(out.content, TableValue)
    pandas.testing.assert_frame_equal(out.content.to_pandas(), frame())


def test_a_table_goes_in_and_comes_out_equal() -> None:
    table = pyarrow.table({"a": [[1], [2, 3]], "b": [b"x", None]})
    given_value = encode_input("t", table)
    assert inside.decode_input("t", given_value.kind, given_value.data).equals(table)
    out = read_value(inside.encode_value(table, 1 << 20), 1 << 20).content
    assert isinstance(out, TableValue)
    assert out.to_table().equals(table)


def test_a_dataframe_arrow_cannot_hold_is_refused_in_and_explained_out() -> None:
    mixed = pandas.DataFrame({"a": [1, "x", {2}]})
    with pytest.raises(InvalidJob, match=r"^inputs\.df: .*Arrow"):
        JobSpec(code="pass", inputs={"df": mixed})
    assert read_value(inside.encode_value(mixed, 1 << 20), 1 << 20).error


@pytest.mark.parametrize("ipc", [b"", b"garbage", b"\xff" * 1000])
def test_bytes_that_are_no_table_are_a_value_error(ipc: bytes) -> None:
    with pytest.raises(ValueError, match="Arrow"):
        TableValue(ipc).to_table()


def test_a_table_cut_or_altered_anywhere_is_a_table_or_a_value_error() -> None:
    whole = inside.encode_value(frame(), 1 << 20)[1:]
    for place in range(0, len(whole), 7):
        for broken in (whole[:place], whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :]):
            try:
                TableValue(broken).to_table()
            except ValueError:
                continue


def stream(table: pyarrow.Table, **options: Any) -> bytes:
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema, options=pyarrow.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_table_that_would_grow_when_read_is_refused(compression: str) -> None:
    zeros = pyarrow.table({"a": pyarrow.array([0] * 1_000_000)})
    bomb = stream(zeros, compression=compression)
    assert len(bomb) < 100_000
    with pytest.raises(ValueError, match="compressed"):
        TableValue(bomb).to_table()
    words = pyarrow.table({"a": pyarrow.array(["x" * 1000] * 5).dictionary_encode()})
    with pytest.raises(ValueError, match="compressed"):
        TableValue(stream(words, compression=compression)).to_table()
    assert TableValue(stream(words)).to_table().equals(words)


def test_rows_that_no_byte_stands_for_are_refused() -> None:
    nothing = stream(pyarrow.table({"a": pyarrow.nulls(1 << 30)}))
    assert len(nothing) < 1000
    with pytest.raises(ValueError, match="1073741824 rows"):
        TableValue(nothing).to_table()


def test_an_input_that_is_encoded_already_is_taken_as_it_is() -> None:
    once = JobSpec(code="pass", inputs={"x": [1]})
    again = JobSpec(code="pass", inputs=once.inputs)
    assert again.inputs == {"x": InputValue(kind="json", data=json.dumps([1]).encode())}


def _stream(column: Any) -> TableValue:
    batch = pyarrow.record_batch([column], names=["a"])
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return TableValue(ipc=sink.getvalue().to_pybytes())


MANY = 2**31 - 1


@pytest.mark.parametrize(
    "column",
    [
        lambda: pyarrow.ListArray.from_arrays(pyarrow.array([0, MANY], pyarrow.int32()), pyarrow.nulls(MANY)),
        lambda: pyarrow.FixedSizeListArray.from_arrays(pyarrow.nulls(MANY), MANY),
        lambda: pyarrow.nulls(MANY),
    ],
)
def test_a_few_bytes_that_claim_many_values_are_no_table(column: Any) -> None:
    with pytest.raises(ValueError, match=r"claims \d+ rows"):
        _stream(column()).to_table()


@pytest.mark.parametrize(
    "column",
    [
        lambda: pyarrow.array(["y" * 1000] * 10, pyarrow.string_view()),
        lambda: pyarrow.StructArray.from_arrays([pyarrow.array(["y"] * 10).dictionary_encode()], names=["x"]),
        lambda: pyarrow.RunEndEncodedArray.from_arrays(pyarrow.array([10], pyarrow.int32()), ["y" * 100]),
    ],
)
def test_a_table_whose_values_pandas_would_multiply_is_for_to_table_alone(column: Any) -> None:
    value = _stream(column())
    assert value.to_table().num_rows == 10
    with pytest.raises(ValueError, match="use to_table"):
        value.to_pandas()


def test_a_categorical_goes_through() -> None:
    assert list(_stream(pyarrow.array(["b", "a", "b"]).dictionary_encode()).to_pandas()["a"]) == [
        "b",
        "a",
        "b",
    ]
