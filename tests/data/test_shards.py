"""Vectors in files, read in pieces, against the same vectors in memory."""

from __future__ import annotations

import gc
import pickle

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from safetensors.numpy import save_file

from likelyshot.data import shards
from likelyshot.data.shards import Scratch, Shards, open_shard
from likelyshot.errors import InputError


def lists(rows: np.ndarray) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])


@pytest.fixture
def mixed(tmp_path, monkeypatch):
    """The same rows in memory and in a file of each kind."""
    monkeypatch.setattr(shards, "BATCH", 64)
    rows = np.random.default_rng(0).random((1_000, 6)).astype(np.float16)
    np.save(tmp_path / "a.npy", rows[:300])
    save_file({"features": rows[300:500]}, tmp_path / "b.safetensors")
    parquet.write_table(pa.table({"embedding": lists(rows[500:])}), tmp_path / "c.parquet", row_group_size=170)
    return rows, Shards([open_shard(path) for path in sorted(tmp_path.iterdir())])


def test_every_way_to_ask_gives_the_rows(mixed):
    rows, found = mixed
    assert (found.shape, found.dtype, len(found)) == (rows.shape, rows.dtype, len(rows))
    anywhere = np.random.default_rng(1).permutation(1_000)[:200]
    mask = np.arange(1_000) % 3 == 0
    for key in (slice(None), slice(290, 510), slice(None, None, 7), slice(5, 5), anywhere, mask, [0, -1]):
        np.testing.assert_array_equal(found[key], rows[key])
    np.testing.assert_array_equal(found[-1], rows[-1])
    np.testing.assert_array_equal(np.asarray(found), rows)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(found))[600:700], rows[600:700])


def test_parquet_is_decoded_once_in_order(mixed, monkeypatch):
    rows, found = mixed
    made = []
    known = shards._Cursor
    monkeypatch.setattr(shards, "_Cursor", lambda *given: made.append(given) or known(*given))
    blocks = [found[start : start + 50] for start in range(500, 1_000, 50)]
    np.testing.assert_array_equal(np.concatenate(blocks), rows[500:])
    assert len(made) == 1


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


def test_what_cannot_be_read_in_pieces_is_left_to_others(tmp_path):
    np.save(tmp_path / "integers.npy", np.ones((2, 2), int))
    np.save(tmp_path / "fortran.npy", np.asfortranarray(np.ones((2, 3))))
    np.save(tmp_path / "flat.npy", np.ones(3))
    save_file({"train.features": np.ones((1, 2)), "test.features": np.ones((1, 2))}, tmp_path / "splits.safetensors")
    (tmp_path / "broken.safetensors").write_bytes(b"\xff" * 20)
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY\x01\x00")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    parquet.write_table(pa.table({"path": ["a.jpg"]}), tmp_path / "paths.parquet")
    assert [open_shard(path) for path in tmp_path.iterdir()] == [None] * 8


def test_files_that_do_not_fit_are_refused(tmp_path, mixed):
    _, found = mixed
    np.save(tmp_path / "wide.npy", np.ones((2, 7), np.float32))
    with pytest.raises(InputError, match=r"of one length in all files, but got 6 in 'a.npy' and 7 in 'wide.npy'"):
        Shards([*found.files, open_shard(tmp_path / "wide.npy")])
    uneven = pa.array([[1.0, 2.0], [1.0]])
    parquet.write_table(pa.table({"vector": uneven}), tmp_path / "uneven.parquet")
    with pytest.raises(InputError, match=r"lists of numbers of one length in .*uneven"):
        Shards([open_shard(tmp_path / "uneven.parquet")])[:]


def test_a_file_that_is_gone_or_changed_is_named(tmp_path, mixed):
    _, found = mixed
    np.save(tmp_path / "a.npy", np.ones((2, 6), np.float16))
    with pytest.raises(InputError, match=r"a\.npy has changed while it was used"):
        found[:3]
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(InputError, match=r"b\.safetensors, but .* has no such file: put it on a disk"):
        found[300:303]


def test_scratch_gives_back_what_was_written_and_goes(tmp_path):
    scratch = Scratch(tmp_path / "new", 2)
    for row in (2, 0, 1):
        scratch.write(row, np.full((1, 2), row))
    assert scratch.read(2).tolist() == [2.0, 2.0]
    rows = scratch.rows(2)
    assert rows[:].tolist() == [[0.0, 0.0], [1.0, 1.0]]
    assert len(list((tmp_path / "new").iterdir())) == 1
    del scratch
    gc.collect()
    assert rows[1].tolist() == [1.0, 1.0]  # it stays as long as its rows
    del rows
    gc.collect()
    assert not list((tmp_path / "new").iterdir())
