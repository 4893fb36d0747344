"""Vectors in files, read in pieces, against the same vectors in memory."""

from __future__ import annotations

import gc
import pickle

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_tensors

import likelyshot.data.parquet
from likelyshot.data import shards
from likelyshot.data.shards import Scratch, Shards, open_shard, read_cells
from likelyshot.errors import InputError


def lists(rows: np.ndarray) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])


@pytest.fixture
def mixed(tmp_path, monkeypatch):
    """The same rows in memory and in a file of each kind."""
    for module in (shards, likelyshot.data.parquet):
        monkeypatch.setattr(module, "BATCH", 64)
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


def test_files_without_vectors_have_none(tmp_path):
    np.save(tmp_path / "flat.npy", np.ones(3))
    np.save(tmp_path / "no rows.npy", np.ones((0, 3)))
    np.save(tmp_path / "words.npy", np.array([["a", "b"]]))
    save_file({"train.features": np.ones((1, 2)), "test.features": np.ones((1, 2))}, tmp_path / "splits.safetensors")
    parquet.write_table(pa.table({"path": ["a.jpg"]}), tmp_path / "paths.parquet")
    parquet.write_table(pa.table({"x0": pa.array([], pa.float32())}), tmp_path / "no rows.parquet")
    assert [open_shard(path) for path in tmp_path.iterdir()] == [None] * 6


@pytest.mark.parametrize("name", ["a.npy", "b.safetensors", "c.parquet"])
@pytest.mark.parametrize("kept", [0, 1, 0.5, 0.99])
def test_a_file_that_is_not_whole_is_named(tmp_path, mixed, name, kept):
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data[: int(kept * len(data)) if kept < 1 else 7])
    with pytest.raises(InputError, match=rf"^{name}: .*: write it again$"):
        open_shard(tmp_path / name)


def test_damage_within_a_file_is_told_with_its_name(tmp_path, mixed):
    _, found = mixed
    data = bytearray((tmp_path / "c.parquet").read_bytes())
    data[100:-2_000] = bytes(len(data) - 2_100)
    (tmp_path / "c.parquet").write_bytes(data)
    with pytest.raises(InputError, match=r"c\.parquet .*: write it again$"):
        found[500:]
    with pytest.raises(InputError, match=r"c\.parquet .*: write it again$"):
        read_cells(found.files[2], ["embedding"], 0, 500)


@pytest.mark.parametrize("kind", ["int64", "uint8", "bool", ">f4", "longdouble"])
def test_other_numbers_become_floats(tmp_path, kind):
    rows = np.array([[1, 0], [0, 1], [1, 1]]).astype(kind)
    np.save(tmp_path / "a.npy", rows)
    found = Shards([open_shard(tmp_path / "a.npy")])
    assert found.dtype == (np.float64 if kind == "longdouble" else np.float32)
    np.testing.assert_array_equal(found[1:], rows[1:])


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.int64, torch.uint16, torch.bool])
def test_every_type_of_safetensors_is_read(tmp_path, kind):
    rows = torch.tensor([[1.0, 0.0], [0.0, 3.140625]]).to(kind)
    save_tensors({"features": rows}, tmp_path / "a.safetensors")
    found = Shards([open_shard(tmp_path / "a.safetensors")])
    assert found.dtype == (np.float16 if kind is torch.float16 else np.float32)
    np.testing.assert_array_equal(found[:], rows.float().numpy())


def test_arrays_in_the_order_of_fortran_are_read(tmp_path):
    rows = np.arange(12.0).reshape(4, 3)
    np.save(tmp_path / "a.npy", np.asfortranarray(rows))
    found = Shards([open_shard(tmp_path / "a.npy")])
    for key in (slice(None), slice(1, 3), [3, 0]):
        np.testing.assert_array_equal(found[key], rows[key])


def test_files_that_do_not_fit_are_refused(tmp_path, mixed):
    _, found = mixed
    np.save(tmp_path / "wide.npy", np.ones((2, 7), np.float32))
    with pytest.raises(InputError, match=r"of one length in all files, but got 6 in 'a.npy' and 7 in 'wide.npy'"):
        Shards([*found.files, open_shard(tmp_path / "wide.npy")])


def test_a_file_that_is_gone_or_changed_is_named(tmp_path, mixed):
    _, found = mixed
    np.save(tmp_path / "a.npy", np.ones((2, 6), np.float16))
    with pytest.raises(InputError, match=r"a\.npy: the file has changed while it was used"):
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
