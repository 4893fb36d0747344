"""Vectors in Parquet files: which columns they are, and what cannot be read."""

from __future__ import annotations

import decimal

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import likelyshot.data.parquet
from likelyshot.data.parquet import parquet_rows
from likelyshot.data.shards import Shards, open_shard, same_columns
from likelyshot.errors import InputError


def shards(folder, **tables):
    """Write tables to files, and open these as one array."""
    for name, columns in tables.items():
        parquet.write_table(pa.table(columns), folder / f"{name}.parquet")
    return Shards(same_columns([open_shard(folder / f"{name}.parquet") for name in tables]))


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
def test_lists_keep_their_precision(tmp_path, kind):
    rows = np.arange(12).reshape(4, 3).astype(kind.to_pandas_dtype())
    parquet.write_table(pa.table({"features": pa.array(list(rows), pa.list_(kind))}), tmp_path / "a.parquet")
    found = Shards([open_shard(tmp_path / "a.parquet")])
    assert found.dtype == rows.dtype
    np.testing.assert_array_equal(found[:], rows)


def test_columns_of_numbers_are_vectors(tmp_path):
    table = pa.table({"id": [1, 2], "x0": [0.5, 1.5], "x1": [2, 3], "label": [7, 7]})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert Shards([open_shard(tmp_path / "a.parquet")])[:].tolist() == [[0.5, 2.0], [1.5, 3.0]]


def test_a_file_is_decoded_once_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr(likelyshot.data.parquet, "BATCH", 64)
    rows = np.random.default_rng(0).random((500, 6))
    parquet.write_table(pa.table({"vector": list(rows)}), tmp_path / "a.parquet", row_group_size=170)
    made = []
    known = likelyshot.data.parquet._Cursor
    monkeypatch.setattr(likelyshot.data.parquet, "_Cursor", lambda *given: made.append(given) or known(*given))
    found = Shards([open_shard(tmp_path / "a.parquet")])
    blocks = [found[start : start + 50] for start in range(0, 500, 50)]
    np.testing.assert_array_equal(np.concatenate(blocks), rows)
    assert len(made) == 1


def test_columns_belong_together_by_their_names(tmp_path):
    found = shards(tmp_path, a={"x0": [1.0], "x1": [2.0], "x2": [3.0]}, b={"x2": [6.0], "x0": [4], "x1": [5.0]})
    assert found[:].tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    table = parquet_rows(tmp_path / "b.parquet", ["x1", "x2"], 0, 1)
    assert table.to_pylist() == [{"x1": 5.0, "x2": 6.0}]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"x0": [1.0]}, "'b.parquet' lacks 'x1', compared with 'a.parquet'"),
        ({"x0": [1.0], "x1": [1.0], "width": [3]}, "'b.parquet' has 'width' besides"),
        ({f"y{n}": [1.0] for n in range(5)}, "lacks 'x0', 'x1' and has 'y0', 'y1', 'y2' and 2 more besides"),
        ({"x0": [1.0], "x1": ["a"]}, "lacks 'x1'"),
        ({"embedding": [[1.0, 2.0]]}, "lacks 'x0', 'x1' and has 'embedding' besides"),
    ],
)
def test_other_columns_in_a_later_file_are_refused(tmp_path, other, words):
    with pytest.raises(InputError, match=rf"same columns of vectors in all files, .*{words}.*: write all"):
        shards(tmp_path, a={"x0": [1.0], "x1": [2.0]}, b=other)


def test_a_column_twice_is_refused(tmp_path):
    table = pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], names=["x0", "x0"])
    parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"^a\.parquet: expected one column named 'x0', but got 2: rename"):
        open_shard(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ({"x0": [1.0] * 99, "x1": [2] * 98 + [None]}, "row 99: expected a number in column 'x1', but got an empty"),
        ({"vector": [[1.0, 2.0]] * 98 + [[1.0]]}, r"row 99: expected 2 numbers, but got \[1.0\]"),
        ({"vector": [[1.0, 2.0]] * 98 + [None]}, "row 99: expected 2 numbers, but got None"),
        ({"vector": [[1.0, 2.0]] * 98 + [[1.0, None]]}, r"row 99: expected 2 numbers, but got \[1.0, None\]"),
        ({"vector": [[1.0, 2.0]] * 96 + [[1.0], [1.0, 2.0, 3.0]]}, r"row 97: expected 2 numbers, but got \[1.0\]"),
        ({"vector": [[1.0, 2.0]] * 50 + [[1.0]] * 50}, "row 51: expected 2 numbers"),
    ],
)
def test_gaps_are_named_by_file_row_and_column(tmp_path, monkeypatch, cells, words):
    monkeypatch.setattr(likelyshot.data.parquet, "BATCH", 10)
    found = shards(tmp_path, a={name: column[:1] for name, column in cells.items()}, b=cells)
    with pytest.raises(InputError, match=rf"b\.parquet: {words}.*: correct or drop the row$"):
        [found[start : start + 10] for start in range(0, len(found), 10)]


@pytest.mark.parametrize("cells", [{"x0": [None, 1.0]}, {"vector": [None, [1.0]]}, {"vector": [[]]}])
def test_a_gap_at_the_beginning_is_told_at_once(tmp_path, cells):
    with pytest.raises(InputError, match=r"^a\.parquet: row 1: expected .*: correct or drop the row$"):
        shards(tmp_path, a=cells)


def test_lists_of_words_are_no_vectors(tmp_path):
    with pytest.raises(InputError, match=r"expected lists of numbers in the column of vectors, but got list<.*string>"):
        shards(tmp_path, a={"vector": [["a", "b"]]})


def test_integers_and_decimals_are_numbers(tmp_path):
    whole = {"x0": pa.array([1, 2], pa.int8()), "x1": pa.array([3, 4], pa.uint64())}
    found = shards(tmp_path, a=whole, b={"x1": [decimal.Decimal("0.25")], "x0": [decimal.Decimal("1.50")]})
    assert found[:].tolist() == [[1.0, 3.0], [2.0, 4.0], [1.5, 0.25]]
    assert shards(tmp_path, c={"vector": [[1, 2], [3, 4]]})[:].dtype == np.float32


def test_a_large_row_group_is_not_read_at_once(tmp_path):
    rows = np.random.default_rng(0).random((150_000, 64), dtype=np.float32)
    cells = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), 64)
    parquet.write_table(pa.table({"vector": cells}), tmp_path / "a.parquet", row_group_size=len(rows))
    before = pa.total_allocated_bytes()
    found = Shards([open_shard(tmp_path / "a.parquet")])
    del cells
    for start in range(0, 5_000, 1_000):
        np.testing.assert_array_equal(found[start : start + 1_000], rows[start : start + 1_000])
        assert pa.total_allocated_bytes() - before < rows.nbytes / 3
    found[len(rows) - 1]
    assert pa.total_allocated_bytes() - before < 2**20  # nothing is kept of a file that was read to its end


def test_a_file_that_was_written_again_is_read_again(tmp_path):
    rows = [shards(tmp_path, a={"x0": [number, 0.0]})[0].tolist() for number in (1.0, 2.0)]
    assert rows == [[1.0], [2.0]]
