from __future__ import annotations

import collections
import contextlib
import copy
import itertools
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from likelyshot.data.features import READERS, Base, Features, reading, splits
from likelyshot.data.files import write_container
from likelyshot.errors import InputError
from likelyshot.functional.covariance import within_class_covariance

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
ODD = ("a\nb", "🐦", "<img src=x>", "", " ", "né", '"quoted", \\', "a\x00b")
X = np.arange(12, dtype=np.float32).reshape(6, 2) / 8
Y = np.array(["dog", "cat", "dog", "cat", "eel", "dog"])
IDS = [1, 0, 1, 0, 2, 1]


def features(**options) -> Features:
    return Features.from_arrays(X, Y, **options)


def same(loaded: Features, dtype=torch.float32) -> bool:
    return (
        loaded.vectors.dtype == dtype
        and torch.equal(loaded.vectors, torch.from_numpy(X).to(dtype))
        and loaded.labels.tolist() == IDS
        and loaded.classes == ("cat", "dog", "eel")
    )


def refused(match: str, call, *args, **options) -> str:
    with pytest.raises(InputError, match=match) as caught:
        call(*args, **options)
    message = str(caught.value)
    assert "expected" in message
    assert "but " in message
    return message


class TestConstruction:
    def test_labels_of_any_kind(self):
        assert same(features())
        for labels in (Y.tolist(), Y.astype("S3"), pd.Series(Y), Y.astype(object), tuple(Y)):
            assert Features.from_arrays(X, labels).labels.tolist() == IDS
        loaded = Features.from_arrays(X, [10, 9, 10, 9, 100, 10])
        assert (loaded.classes, loaded.labels.tolist()) == (("9", "10", "100"), IDS)
        for labels in (
            torch.tensor([10, 9, 10, 9, 100, 10]),
            np.array([10.0, 9, 10, 9, 100, 10]),
            np.uint8(IDS),
        ):
            assert Features.from_arrays(X, labels).labels.tolist() == IDS
        assert Features.from_arrays(X, [True, False] * 3).classes == ("False", "True")
        assert Features.from_arrays(X, [0.5, -1.5, 0.5, -1.5, 2, 0.5]).classes == ("-1.5", "0.5", "2")
        assert Features.from_arrays(X, ["nan", "None"] * 3).classes == ("None", "nan")
        assert Features.from_arrays(X, [1, "a", 1, "a", "b", 1]).classes == ("1", "a", "b")
        assert Features.from_arrays(X, pd.to_datetime(["2020-01-01"] * 6)).classes[0].startswith("2020-01-01")

    def test_labels_index_the_classes_given(self):
        loaded = Features.from_arrays(X, IDS, classes=["x", "y", "z", "unused"])
        assert loaded.labels.tolist() == IDS
        assert loaded.classes == ("x", "y", "z", "unused")
        assert loaded.counts.tolist() == [2, 3, 1, 0]
        named = Features.from_arrays(X, Y, classes=np.array(["eel", "dog", "cat"]))
        assert named.labels.tolist() == [1, 2, 1, 2, 0, 1]
        twice = Features.from_arrays(X, IDS, classes=["crane", "crane", "eel"])
        assert twice.classes == ("crane", "crane", "eel")
        refused("twice", Features.from_arrays, X, Y, classes=["cat", "cat", "dog", "eel"])
        refused("'eel'", Features.from_arrays, X, Y, classes=["cat", "dog"])
        refused("2 classes", Features.from_arrays, X, IDS, classes=["cat", "dog"])
        refused("-1", Features.from_arrays, X, [-1, 0, 0, 0, 0, 0], classes=["cat", "dog"])
        refused("single text", Features.from_arrays, X, IDS, classes="abc")

    def test_vectors_of_any_kind(self):
        for dtype in FLOATS:
            assert same(Features.from_arrays(torch.from_numpy(X).to(dtype), Y), dtype)
        for dtype in (np.float16, np.float32, np.float64):
            loaded = Features.from_arrays(X.astype(dtype), Y)
            assert loaded.vectors.numpy().dtype == dtype
        assert same(Features.from_arrays(X.tolist(), Y))
        assert same(Features.from_arrays(list(X), Y))
        assert same(Features.from_arrays(list(torch.from_numpy(X)), Y))
        assert same(Features.from_arrays(X.astype(">f4"), Y))
        assert same(Features.from_arrays(np.asfortranarray(X), Y))
        assert same(Features.from_arrays(X[::-1][::-1], Y))
        assert same(Features.from_arrays(X.astype(np.longdouble), Y), torch.float64)
        assert same(Features.from_arrays(torch.from_numpy(X).requires_grad_(), Y))
        frozen = X.copy()
        frozen.flags.writeable = False
        assert same(Features.from_arrays(frozen, Y))
        for dtype in (np.int64, np.uint8, bool):
            assert Features.from_arrays(np.ones((6, 2), dtype), Y).vectors.dtype == torch.float32
        assert Features.from_arrays([[1, 2]], ["a"]).vectors.dtype == torch.float32

    @pytest.mark.parametrize(
        "vectors",
        [
            [],
            [[]],
            np.zeros((0, 3)),
            np.zeros((3, 0)),
            np.zeros(3),
            np.zeros((1, 2, 3)),
            [[1.0], [1.0, 2.0]],
            [["a"]],
            np.array([[None]]),
            np.zeros((1, 1), complex),
            torch.zeros(1, 1, dtype=torch.complex64),
            torch.zeros(1, 1, device="meta"),
            torch.ones(1, 1).to_sparse(),
            [[10**400]],
            [torch.ones(2), torch.ones(3)],
            None,
            "text",
        ],
    )
    def test_other_vectors_are_refused(self, vectors):
        refused("vectors", Features.from_arrays, vectors, ["a"])

    @pytest.mark.parametrize(
        "labels", [[None], [float("nan")], [[1]], np.zeros((1, 1)), [pd.NA], [pd.NaT], 3, "a", b"a"]
    )
    def test_other_labels_are_refused(self, labels):
        refused("label", Features.from_arrays, [[1.0]], labels)

    def test_masked_entries_are_refused(self):
        masked = np.ma.masked_array(X, mask=X > 1)
        for vectors in (masked, list(masked), pd.Series(list(masked)).tolist()):
            refused("masked array with masked entries", Features.from_arrays, vectors, Y)
        assert same(Features.from_arrays(np.ma.masked_array(X, mask=False), Y))

    def test_lengths_must_agree(self):
        refused("6 rows and 5 labels", Features.from_arrays, X, Y[:5])
        refused("6 rows and 0 labels", Features.from_arrays, X, [])
        refused("for each of 1 classes", Features.from_arrays, X, [2**70] * 6, classes=["a"])

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
    def test_the_first_bad_row_is_named(self, bad, dtype):
        vectors = X.astype(dtype)
        vectors[3:5, 1] = bad
        refused(r"row 4 \(class 'cat'\), 2 of 6 rows", Features.from_arrays, vectors, Y)

    def test_direct_construction_is_checked(self):
        vectors, labels = torch.ones(2, 3), torch.tensor([0, 1])
        assert len(Features(vectors, labels, ("a", "b"), {})) == 2
        refused("int64", Features, vectors, labels.int(), ("a", "b"), {})
        refused("float", Features, vectors.int(), labels, ("a", "b"), {})
        refused("1 classes", Features, vectors, labels, ("a",), {})
        refused("0 classes", Features, vectors, labels, (), {})
        refused("text", Features, vectors, labels, ("a", 1), {})
        refused("text", Features, vectors, labels, ("a", "b"), {"n": 1})
        refused("text", Features, vectors, labels, ("a", "\ud800"), {})
        refused("classes", Features, vectors, labels, ("a", "b"), {"classes": "a"})
        refused("2 x 1 labels", Features, vectors, labels[:, None], ("a", "b"), {})

    def test_properties(self):
        one = features(source={"encoder": "e"})
        assert (len(one), one.dim, one.counts.tolist()) == (6, 2, [2, 3, 1])
        with pytest.raises(AttributeError):
            one.vectors = torch.ones(1)
        assert copy.deepcopy(one).digest == pickle.loads(pickle.dumps(one)).digest == one.digest

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    def test_rectified_loses_nothing(self, dtype):
        signed = Features.from_arrays(torch.randn(6, 3).to(dtype), Y, source={"encoder": "e"})
        split = signed.rectified()
        assert split.vectors.dtype == dtype
        assert split.vectors.min() >= 0
        assert torch.equal(split.vectors[:, :3] - split.vectors[:, 3:], signed.vectors)
        assert split.source == {"encoder": "e", "rectified": "[relu(x), relu(-x)]"}
        assert signed.source == {"encoder": "e"}


class TestDigest:
    def test_is_the_same_everywhere(self):
        assert features().digest == features(source={"any": "where"}).digest
        assert features().digest == "70f78bb96db0de4691e8af896c3aa7700384d98d5bbdc20a2b7875d72095f2c8"

    def test_notices_every_change(self):
        half, nudged = torch.from_numpy(X).half(), X.copy()
        nudged[5, 1] = np.nextafter(nudged[5, 1], 9)
        names = ("cat", "dog", "eel")
        others = [
            features(),
            Features.from_arrays(nudged, Y),
            Features.from_arrays(half, Y),
            Features.from_arrays(half.to(torch.bfloat16), Y),
            Features.from_arrays(X.reshape(3, 4), IDS[:3], classes=names),
            Features.from_arrays(X, IDS[::-1], classes=names),
            Features.from_arrays(X, IDS, classes=("cat", "dog", "Eel")),
            Features.from_arrays(X, IDS, classes=("cat", "dogeel", "")),
            Features.from_arrays(X, IDS, classes=("cat", "dog", "eel", "")),
        ]
        assert len({other.digest for other in others}) == len(others)


class TestSafetensors:
    @pytest.mark.parametrize("dtype", FLOATS)
    def test_round_trip_is_exact(self, dtype, tmp_path):
        vectors = torch.randn(8, 5, dtype=torch.float64).to(dtype)
        one = Features.from_arrays(vectors, range(8), classes=ODD, source={"encoder": "é\n", "split": "val"})
        assert one.save(tmp_path / "a.safetensors") == tmp_path / "a.safetensors"
        two = Features.load(tmp_path / "a.safetensors")
        assert torch.equal(two.vectors.view(torch.uint8), vectors.view(torch.uint8))
        assert (two.classes, two.labels.tolist(), two.digest) == (ODD, list(range(8)), one.digest)
        assert two.source == {"encoder": "é\n", "split": "val", "file": "a.safetensors"}
        assert splits(tmp_path / "a.safetensors") == ()
        assert Base.load(tmp_path / "a.safetensors") is None

    @given(st.lists(st.text(), min_size=1, max_size=4))
    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_any_class_name(self, tmp_path, names):
        one = Features.from_arrays([[1.0]] * len(names), range(len(names)), classes=names)
        one.save(tmp_path / "a.safetensors")
        assert Features.load(tmp_path / "a.safetensors").classes == tuple(names)

    def test_views_are_saved_as_they_look(self, tmp_path):
        one = Features.from_arrays(torch.from_numpy(X).T.contiguous().T[::2], Y[::2])
        one.save(tmp_path / "a.safetensors")
        assert Features.load(str(tmp_path / "a.safetensors")).digest == one.digest

    def test_a_failed_save_leaves_the_old_file(self, tmp_path):
        refused("cannot|expected", lambda: _expected(lambda: features().save(tmp_path)))
        assert list(tmp_path.iterdir()) == []

    def several(self, path, names=("train", "val", "test"), **metadata):
        tensors, classes = {}, {}
        for i, name in enumerate(names):
            tensors |= {
                f"{name}.features": torch.full((4, 3), i + 0.5).half(),
                f"{name}.labels": torch.tensor([0, 1, 1, 0]),
            }
            classes[name] = [f"{name} 0", f"{name} 1"]
        save_file(tensors, path, {"classes": json.dumps(classes), "dataset": "D", **metadata})
        return path

    def test_several_splits(self, tmp_path):
        path = self.several(tmp_path / "a.safetensors", encoder="E")
        assert set(splits(path)) == {"train", "val", "test"}
        test = Features.load(path)
        assert test.source == {"dataset": "D", "encoder": "E", "split": "test", "file": "a.safetensors"}
        assert test.classes == ("test 0", "test 1")
        assert test.vectors.dtype == torch.float16
        train = Features.load(path, split="train")
        assert train.classes == ("train 0", "train 1")
        assert train.vectors.unique().tolist() == [0.5]
        assert "'train'" in refused("trian", Features.load, path, split="trian")
        mean = Base.load(path).mean
        assert (mean.dtype, mean.tolist()) == (torch.float32, [0.5] * 3)

    def test_any_split_names(self, tmp_path):
        path = self.several(tmp_path / "a.safetensors", ("fold.1", "fold.2"))
        assert "fold.1, fold.2" in refused("split", Features.load, path)
        assert "--split fold.1 or, in Python, split='fold.1'" in refused("split", Features.load, path)
        assert Features.load(path, split="fold.2").classes == ("fold.2 0", "fold.2 1")
        assert Base.load(path) is None
        only = self.several(tmp_path / "b.safetensors", ("novel",))
        assert Features.load(only).source["split"] == "novel"
        features().save(tmp_path / "c.safetensors")
        refused("one set", Features.load, tmp_path / "c.safetensors", split="test")

    def test_only_the_wanted_split_is_judged(self, tmp_path):
        tensors = {"train.features": torch.full((2, 2), torch.nan), "train.labels": torch.tensor([0])}
        save_file(
            {**tensors, "test.features": torch.ones(1, 2), "test.labels": torch.tensor([5])},
            tmp_path / "a.safetensors",
        )
        assert Features.load(tmp_path / "a.safetensors").classes == ("5",)
        refused("one label per row", Features.load, tmp_path / "a.safetensors", split="train")
        refused("one label per row", Base.load, tmp_path / "a.safetensors")

    @pytest.mark.parametrize("name", ["train", "base"])
    def test_a_stored_mean_stands_for_its_split(self, name, tmp_path):
        path = tmp_path / "a.safetensors"
        tensors = {"test.features": torch.ones(1, 2), "test.labels": torch.tensor([0])}
        save_file({**tensors, f"{name}.mean": torch.tensor([1.5, 2]).half()}, path)
        assert splits(path) == ("test",)
        assert Base.load(path).mean.tolist() == [1.5, 2.0]
        save_file({**tensors, f"{name}.mean": torch.tensor([3.0, 2]), f"{name}.features": torch.ones(1, 2)}, path)
        assert Base.load(path).mean.tolist() == [3.0, 2.0]
        for mean in (torch.ones(2, 2), torch.tensor([torch.inf, 1])):
            save_file({**tensors, f"{name}.mean": mean}, path)
            refused("mean", Base.load, path)

    def test_a_stored_covariance_stands_for_its_split(self, tmp_path):
        path = tmp_path / "a.safetensors"
        tensors = {"test.features": torch.ones(1, 2), "test.labels": torch.tensor([0]), "train.mean": torch.ones(2)}
        save_file(tensors, path)
        assert Base.load(path).within is None
        save_file({**tensors, "train.within": 3 * torch.eye(2).half()}, path)
        assert Base.load(path).within.tolist() == [[3, 0], [0, 3]]
        assert Base.load(path, rectify=True) is None
        for within in (torch.ones(2), torch.ones(3, 3), torch.full((2, 2), torch.nan)):
            save_file({**tensors, "train.within": within}, path)
            refused("covariance", Base.load, path)

    @pytest.mark.parametrize("rectify", [False, True])
    def test_the_covariance_is_that_of_the_base_classes(self, tmp_path, rectify):
        vectors, labels = torch.randn(12, 3, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 4
        save_file({"base.features": vectors, "base.labels": labels}, tmp_path / "a.safetensors")
        base = Features.from_arrays(vectors, labels)
        base = base.rectified() if rectify else base
        found = Base.load(tmp_path / "a.safetensors", rectify=rectify)
        assert torch.equal(found.within, Base.of(base).within)
        assert torch.equal(found.within, within_class_covariance(base.vectors, labels).float())
        assert torch.allclose(found.mean, base.vectors.mean(0))

    def test_the_mean_is_computed_in_double_precision(self, tmp_path):
        vectors = torch.full((5000, 1), 1.001).half()
        save_file({"train.features": vectors, "train.labels": torch.zeros(5000)}, tmp_path / "a.safetensors")
        assert Base.load(tmp_path / "a.safetensors").mean.item() == pytest.approx(vectors[0].item(), rel=1e-7)

    @pytest.mark.parametrize(
        ("tensors", "classes"),
        [
            ({}, None),
            ({"weight": torch.ones(2)}, None),
            ({"features": torch.ones(2, 2)}, None),
            ({"features": torch.ones(2, 2), "labels": torch.ones(3)}, None),
            ({"features": torch.ones(2), "labels": torch.ones(2)}, None),
            ({"features": torch.ones(0, 2), "labels": torch.ones(0)}, None),
            ({"features": torch.ones(2, 2), "labels": torch.ones(2, 2)}, None),
            ({"features": torch.ones(2, 2), "labels": torch.tensor([0, 7])}, '["a", "b"]'),
            ({"features": torch.ones(2, 2), "labels": torch.tensor([0, 1])}, "{not json"),
            ({"features": torch.ones(2, 2), "labels": torch.tensor([0, 1])}, '"ab"'),
            ({"features": torch.ones(2, 2), "labels": torch.tensor([0, 1])}, "7"),
            ({"features": torch.ones(2, 2), "labels": torch.tensor([0, 1])}, "[[0], null]"),
        ],
    )
    def test_foreign_content(self, tensors, classes, tmp_path):
        save_file(tensors, tmp_path / "a.safetensors", None if classes is None else {"classes": classes})
        refused("a.safetensors: ", Features.load, tmp_path / "a.safetensors")

    def test_what_was_read_outlives_the_file(self, tmp_path):
        features().save(tmp_path / "a.safetensors")
        loaded = Features.load(tmp_path / "a.safetensors")
        os.truncate(tmp_path / "a.safetensors", 0)
        assert same(loaded)

    def test_the_layout_on_disk(self, tmp_path):
        tensors = load_file(features().save(tmp_path / "a.safetensors"))
        assert sorted(tensors) == ["features", "labels"]


def _expected(call):
    try:
        call()
    except InputError as error:
        raise InputError(f"expected; but got {error}") from None


class TestNumpy:
    def test_names(self, tmp_path):
        vectors, labels = ("features", "X", "x", "embeddings", "vectors", "Features"), ("labels", "y", "Y", "targets")
        for x, y in itertools.product(vectors, labels):
            np.savez(tmp_path / "a.npz", **{x: X, y: Y, "other": np.ones(3)})
            assert same(Features.load(tmp_path / "a.npz")), (x, y)

    def test_classes_and_half_precision(self, tmp_path):
        np.savez_compressed(tmp_path / "a.npz", X=X.astype(np.float16), y=IDS, classes=["cat", "dog", "eel"])
        assert same(Features.load(tmp_path / "a.npz"), torch.float16)
        np.savez(tmp_path / "a.npz", X=X, y=Y, embeddings=np.ones((2, 2, 2)))  # the first name wins
        assert same(Features.load(tmp_path / "a.npz"))

    @pytest.mark.parametrize(
        "form", ["{s}.features {s}.labels", "{s}_features {s}_labels", "X_{s} y_{s}", "{s}_x {s}_y"]
    )
    def test_splits(self, form, tmp_path):
        arrays = {}
        for split, scale in (("train", 2), ("test", 1)):
            x, y = form.format(s=split).split()
            arrays |= {x: X * scale, y: Y}
        np.savez(tmp_path / "a.npz", **arrays)
        assert set(splits(tmp_path / "a.npz")) == {"train", "test"}
        assert same(Features.load(tmp_path / "a.npz"))
        assert Features.load(tmp_path / "a.npz", split="train").vectors.max() == X.max() * 2
        assert np.allclose(Base.load(tmp_path / "a.npz").mean, 2 * X.mean(0))

    def test_objects_are_refused_with_a_remedy(self, tmp_path):
        objects = np.array([{"a": 1}] * 6, dtype=object)
        np.savez(tmp_path / "a.npz", X=X, y=objects)
        assert "dtype=str" in refused("objects", Features.load, tmp_path / "a.npz")
        np.save(tmp_path / "a.npy", objects)
        refused("objects", Features.load, tmp_path / "a.npy", labels=Y)

    def test_missing_arrays(self, tmp_path):
        np.savez(tmp_path / "a.npz", X=X)
        refused("no labels", Features.load, tmp_path / "a.npz")
        assert same(Features.load(tmp_path / "a.npz", labels=Y))
        np.savez(tmp_path / "a.npz", data=X)
        refused("data", Features.load, tmp_path / "a.npz")
        np.savez(tmp_path / "a.npz")
        refused("a.npz", Features.load, tmp_path / "a.npz")

    @pytest.mark.parametrize("beside", ["a.labels", "a_labels", "labels"])
    @pytest.mark.parametrize("kind", [".npy", ".txt"])
    def test_npy_with_labels_beside(self, beside, kind, tmp_path):
        np.save(tmp_path / "a.npy", X)
        message = refused("no labels", Features.load, tmp_path / "a.npy")
        assert beside + kind in message
        if kind == ".npy":
            np.save(tmp_path / (beside + kind), Y)
        else:
            (tmp_path / (beside + kind)).write_text("\n".join(Y) + "\n")
        assert same(Features.load(tmp_path / "a.npy"))
        assert Features.load(tmp_path / "a.npy", labels=IDS).classes == ("0", "1", "2")

    def test_labels_from_a_file_named(self, tmp_path):
        np.save(tmp_path / "a.npy", X)
        np.save(tmp_path / "y.npy", Y)
        (tmp_path / "y.txt").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(Y).encode() + b"\r\n\r\n")
        (tmp_path / "y.csv").write_text("\n".join(f'"{y}"' for y in Y))
        for name in ("y.npy", "y.txt", "y.csv"):
            assert same(Features.load(tmp_path / "a.npy", labels=tmp_path / name))
            assert same(Features.load(tmp_path / "a.npy", labels=str(tmp_path / name)))
        (tmp_path / "y.txt").write_text("10\n9\n10\n9\n100\n10\n")
        assert Features.load(tmp_path / "a.npy", labels=tmp_path / "y.txt").classes == ("9", "10", "100")
        (tmp_path / "y.txt").write_text("a, b\n007\na, b\n007\nc\nc\n")
        assert Features.load(tmp_path / "a.npy", labels=tmp_path / "y.txt").classes == ("007", "a, b", "c")
        (tmp_path / "y.txt").write_text("a\n\nb\n")
        refused("row 2", Features.load, tmp_path / "a.npy", labels=tmp_path / "y.txt")
        (tmp_path / "y.csv").write_text("label\n" + "\n".join(Y))
        refused("header", Features.load, tmp_path / "a.npy", labels=tmp_path / "y.csv")
        (tmp_path / "y.csv").write_text("a,b\n")
        refused("columns", Features.load, tmp_path / "a.npy", labels=tmp_path / "y.csv")
        (tmp_path / "y.txt").write_bytes(b"\xff\xfe")
        refused("y.txt", Features.load, tmp_path / "a.npy", labels=tmp_path / "y.txt")
        refused("none.txt", Features.load, tmp_path / "a.npy", labels=tmp_path / "none.txt")

    def test_a_header_that_claims_too_much(self, tmp_path):
        np.save(tmp_path / "a.npy", X)
        data = (tmp_path / "a.npy").read_bytes()
        (tmp_path / "a.npy").write_bytes(data.replace(b"(6, 2), }            ", b"(600000000000, 2), } "))
        refused("a.npy", Features.load, tmp_path / "a.npy", labels=Y)


class TestTables:
    @staticmethod
    def frame(**columns):
        return pd.DataFrame({"path": [f"{i}.jpg" for i in range(6)], "label": Y, **columns})

    @pytest.mark.parametrize("kind", [".csv", ".tsv", ".parquet", ".jsonl"])
    def test_columns_of_numbers(self, kind, tmp_path):
        for label in ("label", "Labels", "CLASS", "target", "y"):
            frame = self.frame(id=range(6), f1=X[:, 0], f0=X[:, 1], notes="seen").rename(columns={"label": label})
            path = self.write(frame, tmp_path / f"a{kind}")
            assert same(Features.load(path)), label
            assert Features.load(path).source == {"file": path.name}
            assert (splits(path), Base.load(path)) == ((), None)

    @staticmethod
    def write(frame, path, index=False):
        if path.suffix == ".parquet":
            frame.to_parquet(path, index=index)
        elif path.suffix == ".jsonl":
            frame.to_json(path, orient="records", lines=True)
        else:
            frame.to_csv(path, index=index, sep="\t" if path.suffix == ".tsv" else ",")
        return path

    @pytest.mark.parametrize("kind", [".csv", ".parquet"])
    def test_the_index_of_pandas_is_no_feature(self, kind, tmp_path):
        frame = self.frame(a=X[:, 0], b=X[:, 1]).iloc[::-1].iloc[::-1]
        frame.index = pd.Index(range(10, 16))
        assert same(Features.load(self.write(frame, tmp_path / f"a{kind}", index=True)))

    def test_vectors_as_text(self, tmp_path):
        forms = ["[{}, {}]", "{} {}", "{};{}", "{},{}", "[{} {}]", "[ {}\n {}]", "({}, {})"]
        names = ["embedding", "Embeddings", "features", "vector"]
        for kind, form, name in itertools.product([".csv", ".tsv", ".parquet", ".jsonl"], forms, names):
            frame = self.frame(**{name: [form.format(*row) for row in X.tolist()]}, extra=1.0)
            assert same(Features.load(self.write(frame, tmp_path / f"a{kind}"))), (kind, form, name)

    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
    def test_lists_in_parquet_keep_their_precision(self, dtype, tmp_path):
        import pyarrow as pa
        from pyarrow import parquet

        of = {"float16": pa.float16(), "float32": pa.float32(), "float64": pa.float64()}[dtype]
        for kind in (pa.list_(of), pa.list_(of, 2), pa.large_list(of)):
            column = pa.array(list(X.astype(dtype)), kind)
            parquet.write_table(pa.table({"embedding": column, "label": Y}), tmp_path / "a.parquet", row_group_size=4)
            assert same(Features.load(tmp_path / "a.parquet"), getattr(torch, dtype))

    @pytest.mark.parametrize("kind", [".csv", ".parquet"])
    def test_splits(self, kind, tmp_path):
        frame = pd.concat(
            [
                self.frame(a=X[:, 0] * 2, b=X[:, 1] * 2, Split="train"),
                self.frame(a=X[:, 0], b=X[:, 1], Split="test"),
            ]
        )
        path = self.write(frame.sample(frac=1, random_state=0).sort_index(kind="stable"), tmp_path / f"a{kind}")
        assert set(splits(path)) == {"train", "test"}
        assert same(Features.load(path))
        assert Features.load(path).source == {"split": "test", "file": path.name}
        assert np.allclose(Base.load(path).mean, X.mean(0) * 2)

    def test_labels_are_kept_as_written(self, tmp_path):
        path = tmp_path / "a.csv"
        path.write_text('label,a\n007,1\n"a\nb",2\ntrue,3\n2020-01-01,4\nNA,5\n')
        assert set(Features.load(path).classes) == {"007", "a\nb", "true", "2020-01-01", "NA"}
        path.write_text("label,a\n10,1\n9,2\n")
        assert Features.load(path).classes == ("9", "10")
        path.write_bytes(b"\xef\xbb\xbflabel,a\r\nx, 1.5 \r\n\r\ny,+2e0\r\n")
        assert Features.load(path).vectors.tolist() == [[1.5], [2.0]]
        pd.DataFrame({"label": pd.Categorical(Y), "a": X[:, 0], "b": X[:, 1]}).to_parquet(tmp_path / "a.parquet")
        assert same(Features.load(tmp_path / "a.parquet"))

    @pytest.mark.parametrize(
        ("text", "match"),
        [
            ("label,a,b\nx,1,2\ny,3\n", "row 2 .*uneven row, 2 cells for 3 columns"),
            ("label,a,b\nx,1,2,3\n", "row 1 .*uneven row, 4 cells for 3 columns"),
            ('label,vector\nx,"[1,,2]"\n', "row 1"),
            ("label,vector\nx,1; 2 3\n", "row 1"),
            ("label,a\nx,1\ny,oops\n", "row 2: .*'a'.*oops"),
            ("label,a\nx,1\ny,2\nz,\n", "row 3: .*empty"),
            ("label,a,b\nx,1,\ny,2,\n", "row 1: .*'b'.*empty"),
            ("label,a\nx,1\n,2\n", "row 2: .*'label'.*empty"),
            ("label,a,split\nx,1,s\ny,2,\n", "row 2: .*'split'.*empty"),
            ('label,vector\nx,"1,2"\ny,"1,2,3"\n', "row 2: expected 2 numbers"),
            ("label,vector\nx,1 2\ny,1 oops\n", "row 2: .*oops"),
            ("label,vector\nx,1 2\ny,\n", "row 2: .*empty"),
            ("label,vector\nx,[]\n", "row 1"),
            ("label,vector\nx,[1 2 ... 3]\n", "row 1"),
            ("label,a\nx,nan\n", r"row 1 \(class 'x'\)"),
            ("label,a\nx,1e300\n", r"row 1 \(class 'x'\)"),
            ("label,a\n", "none"),
            ("label\nx\n", "numbers"),
            ("label,a\nx,text\n", "numbers"),
            ("a,b\n1,2\n", "no labels"),
            ("1,2\n3,4\n", "no labels"),
            ("label,a,Label\nx,1,y\n", "expected one column named 'label', but got 2: rename or remove the others"),
            ("\n", "a.csv"),
        ],
    )
    def test_rows_at_fault_are_named(self, text, match, tmp_path):
        (tmp_path / "a.csv").write_text(text)
        refused(match, Features.load, tmp_path / "a.csv")

    @pytest.mark.parametrize(
        ("kind", "remedy"), [("model", "likelyshot predict"), ("checkpoint", "likelyshot extract IMAGES --checkpoint")]
    )
    def test_other_files_of_ours_are_told_their_use(self, tmp_path, kind, remedy):
        write_container(tmp_path / "a.safetensors", {"x": torch.zeros(1)}, {}, form=f"likelyshot.{kind}/2")
        match = f"expected features, but got a {kind} of likelyshot: use it with {remedy}$"
        refused(match, Features.load, tmp_path / "a.safetensors")

    def test_text_that_is_not_utf8(self, tmp_path, capsys):
        for line, data in (
            (2, b"label,a\nx\xd8,1\n"),
            (3, b"label,a\nx,1\nx\xd8\n"),
            (1, b"l\xd8,a\nx,1\n"),
            (1, "label,a\nx,1".encode("utf-16")),
            (4_002, b"label,a\n" + 4_000 * b"x,1\n" + b"x\xd8,1,2\n"),  # uneven too
            (4_002, b"label,a\n" + 4_000 * b"x,1\n" + b"x\xd8"),
        ):
            (tmp_path / "a.csv").write_bytes(data)
            match = rf"^a.csv: expected text in UTF-8, but line {line:,} is not: save the file as UTF-8$"
            refused(match, Features.load, tmp_path / "a.csv")
        assert capsys.readouterr() == ("", "")

    @pytest.mark.parametrize(
        ("columns", "match"),
        [
            ({"embedding": [[1.0, 2.0], [1.0]], "label": ["a", "b"]}, "row 2: expected 2 numbers"),
            ({"embedding": [[1.0, 2.0], None], "label": ["a", "b"]}, "row 2"),
            ({"embedding": [[1.0, 2.0], [1.0, None]], "label": ["a", "b"]}, "row 2"),
            ({"embedding": [["x"], ["y"]], "label": ["a", "b"]}, "row 1"),
            ({"embedding": [1.0, 2.0], "label": ["a", "b"]}, "lists"),
            ({"a": [1.0, None], "label": ["a", "b"]}, "row 2: .*'a'"),
            ({"a": [1, 2], "label": ["a", None]}, "row 2: .*'label'"),
            ({"a": [1, 2], "label": [["a"], ["b"]]}, "label"),
            ({"a": [], "label": []}, "none"),
            ({}, "a.parquet"),
        ],
    )
    def test_rows_at_fault_in_parquet(self, columns, match, tmp_path):
        import pyarrow as pa
        from pyarrow import parquet

        parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
        refused(match, Features.load, tmp_path / "a.parquet")

    def test_long_rows(self, tmp_path):
        (tmp_path / "a.csv").write_text('label,vector\nx,"' + "1.125 " * 300_000 + '"\n')
        assert Features.load(tmp_path / "a.csv").dim == 300_000


class TestPickles:
    GROUPS = {"dog": X[[0, 2, 5]], "cat": X[[1, 3]], "eel": X[[4]]}  # noqa: RUF012

    @staticmethod
    def grouped(loaded: Features, dtype=torch.float32) -> bool:
        rows = torch.from_numpy(X[[1, 3, 0, 2, 5, 4]]).to(dtype)
        return (
            torch.equal(loaded.vectors, rows)
            and loaded.labels.tolist() == [0, 0, 1, 1, 1, 2]
            and loaded.vectors.dtype == dtype
        )

    def test_class_to_vectors(self, tmp_path):
        lists = collections.defaultdict(list, {name: list(rows) for name, rows in self.GROUPS.items()})
        numbers = {name: rows.tolist() for name, rows in self.GROUPS.items()}
        mean = X.mean(0)
        contents = (self.GROUPS, lists, numbers, [mean, mean, lists, {"other": X * 2}], (mean, self.GROUPS))
        for kind, protocol, content in itertools.product([".pkl", ".pickle", ".plk"], range(6), contents):
            (tmp_path / f"a{kind}").write_bytes(pickle.dumps(content, protocol))
            loaded = Features.load(tmp_path / f"a{kind}")
            assert self.grouped(loaded), (kind, protocol)
            assert loaded.classes == ("cat", "dog", "eel")

    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f4"])
    def test_precision_is_kept(self, dtype, tmp_path):
        groups = {name: rows.astype(dtype) for name, rows in self.GROUPS.items()}
        (tmp_path / "a.pkl").write_bytes(pickle.dumps(groups))
        assert self.grouped(
            Features.load(tmp_path / "a.pkl"), {">f4": torch.float32}.get(dtype) or getattr(torch, dtype)
        )

    @pytest.mark.parametrize("key", [int, np.int64, np.uint8, str])
    def test_order_of_classes(self, key, tmp_path):
        (tmp_path / "a.pkl").write_bytes(pickle.dumps({key(i): np.full((1, 1), float(i)) for i in (10, 9, 2)}))
        loaded = Features.load(tmp_path / "a.pkl")
        assert loaded.classes == (("10", "2", "9") if key is str else ("2", "9", "10"))
        assert loaded.vectors.flatten().tolist() == [float(name) for name in loaded.classes]

    def test_letters_and_empty_classes(self, tmp_path):
        (tmp_path / "a.pkl").write_bytes(pickle.dumps({"x": X, "y": X, "z": []}))
        assert Features.load(tmp_path / "a.pkl").counts.tolist() == [6, 6, 0]

    def test_features_and_labels(self, tmp_path):
        (tmp_path / "a.pkl").write_bytes(pickle.dumps({"features": X, "labels": Y.tolist()}))
        assert same(Features.load(tmp_path / "a.pkl"))
        (tmp_path / "a.pkl").write_bytes(pickle.dumps({"features": X}))
        refused("no labels", Features.load, tmp_path / "a.pkl")

    @pytest.mark.parametrize(
        "held",
        [
            {},
            [],
            5,
            {"a": 1},
            {"a": np.ones(3)},
            {"a": np.ones((1, 2, 3))},
            {"a": np.ones((1, 2)), "b": np.ones((1, 3))},
            {"a": [[1.0], [1.0, 2.0]]},
            {"a": []},
            {"a": np.array([["x"]])},
            {"a": np.full((1, 1), np.nan)},
            {"a": np.array([[None]])},
            [np.ones(3)],
        ],
    )
    def test_other_content(self, held, tmp_path):
        (tmp_path / "a.pkl").write_bytes(pickle.dumps(held))
        refused("a.pkl: ", Features.load, tmp_path / "a.pkl")
        refused("a.pkl: ", lambda: (splits(tmp_path / "a.pkl"), Features.load(tmp_path / "a.pkl")))

    def test_programs_do_not_run(self, tmp_path):
        class Evil:
            def __reduce__(self):
                return os.system, (f"touch {tmp_path}/trace",)

        for name in ("a.pkl", "a.pt"):
            (tmp_path / name).write_bytes(pickle.dumps({"a": Evil()}, 2))
            refused(name, Features.load, tmp_path / name)
        torch.save({"features": Evil()}, tmp_path / "b.pt")
        assert "system" in refused("b.pt", Features.load, tmp_path / "b.pt")
        assert not (tmp_path / "trace").exists()


class TestTorch:
    @pytest.mark.parametrize("kind", [".pt", ".pth"])
    @pytest.mark.parametrize("zipped", [True, False])
    def test_dicts(self, kind, zipped, tmp_path):
        vectors = torch.from_numpy(X)
        path = tmp_path / f"a{kind}"
        torch.save(
            {"features": vectors.half(), "labels": torch.tensor(IDS), "classes": ["cat", "dog", "eel"]},
            path,
            _use_new_zipfile_serialization=zipped,
        )
        assert same(Features.load(path), torch.float16)
        torch.save({"train_x": vectors * 2, "train_y": Y.tolist(), "test_x": vectors, "test_y": Y.tolist()}, path)
        assert same(Features.load(path))
        assert set(splits(path)) == {"train", "test"}
        torch.save({10: vectors[:2], 9: list(vectors[2:])}, path)
        loaded = Features.load(path)
        assert (loaded.classes, loaded.counts.tolist()) == (("9", "10"), [4, 2])

    @pytest.mark.parametrize(
        "held",
        [
            torch.ones(2, 2),
            {"features": torch.ones(2, 2, device="meta"), "labels": torch.ones(2)},
            {"features": torch.ones(2, 2).to_sparse(), "labels": torch.ones(2)},
            {"features": torch.ones(2, 2)},
            {"weight": torch.ones(2), "bias": 1},
            torch.nn.Linear(2, 2),
        ],
    )
    def test_other_content(self, held, tmp_path):
        torch.save(held, tmp_path / "a.pt")
        refused("a.pt: ", Features.load, tmp_path / "a.pt")


def make_all(folder: Path) -> list[Path]:
    """One good file of every format."""
    features().save(folder / "a.safetensors")
    np.savez(folder / "a.npz", X=X, y=Y)
    np.save(folder / "a.npy", X)
    np.save(folder / "a_labels.npy", Y)
    frame = pd.DataFrame({"label": Y, "a": X[:, 0], "b": X[:, 1]})
    frame.to_csv(folder / "a.csv", index=False)
    frame.to_csv(folder / "a.tsv", index=False, sep="\t")
    frame.to_json(folder / "a.jsonl", orient="records", lines=True)
    frame.to_parquet(folder / "a.parquet")
    for kind in (".pkl", ".pickle", ".plk"):
        (folder / f"a{kind}").write_bytes(pickle.dumps({"features": X, "labels": Y.tolist()}))
    for kind in (".pt", ".pth"):
        torch.save({"features": torch.from_numpy(X), "labels": Y.tolist()}, folder / f"a{kind}")
    return [folder / f"a{kind}" for kind in READERS]


class TestAnyFile:
    def test_all_formats_agree(self, tmp_path):
        assert {Features.load(path).digest for path in make_all(tmp_path)} == {features().digest}
        upper = (tmp_path / "a.npz").rename(tmp_path / "A.NPZ")
        assert same(Features.load(upper))

    def test_truncated_files(self, tmp_path):
        for path in make_all(tmp_path):
            data = path.read_bytes()
            for part in (0.05, 0.3, 0.6, 0.9, 0.99):
                path.write_bytes(data[: max(1, int(len(data) * part))])
                if path.suffix in (".csv", ".tsv", ".jsonl") and path.read_bytes().endswith(b"\n"):
                    continue  # a whole table of fewer rows
                for call in (Features.load, splits, Base.load):
                    with contextlib.suppress(InputError):
                        call(path)
                        assert call is not Features.load or path.suffix in (".csv", ".tsv", ".jsonl")

    def test_a_wrong_extension_is_noticed(self, tmp_path):
        for path in make_all(tmp_path):
            if path.suffix in (".csv", ".tsv", ".jsonl"):
                continue
            for name in ("b.h5", "b", "b.csv"):
                (tmp_path / name).write_bytes(path.read_bytes())
                assert path.suffix in refused("looks like", Features.load, tmp_path / name).split("looks like")[1]
        (tmp_path / "b.npy").write_bytes((tmp_path / "a.safetensors").read_bytes())
        refused("looks like .safetensors", Features.load, tmp_path / "b.npy")
        (tmp_path / "b.h5").write_bytes(b"\x89HDF")
        message = refused("'.h5'", Features.load, tmp_path / "b.h5")
        assert all(kind in message for kind in READERS)

    def test_paths(self, tmp_path):
        for call in (Features.load, splits, Base.load):
            refused("nothing is there", call, tmp_path / "none.npz")
            refused("a folder", call, tmp_path)
            refused("check the path", call, tmp_path / ("n" * 5000 + ".npz"))
            for kind in READERS:
                (tmp_path / f"a{kind}").write_bytes(b"")
                refused("empty", call, tmp_path / f"a{kind}")
        os.mkfifo(tmp_path / "pipe.npz")
        refused("check the path", Features.load, tmp_path / "pipe.npz")
        np.savez(tmp_path / "b.npz", X=X)
        refused("file of labels", Features.load, tmp_path / "b.npz", labels=tmp_path / "pipe.npz")
        (tmp_path / "folder.npz").mkdir()
        refused("a folder", Features.load, tmp_path / "folder.npz")

    def test_the_source_names_the_file_but_not_its_folder(self, tmp_path):
        for path in make_all(tmp_path):
            loaded = Features.load(path)
            assert loaded.source["file"] == path.name
            assert str(tmp_path) not in "".join(loaded.source.values())
        odd = tmp_path / os.fsdecode(b"caf\xe9.npz")
        np.savez(odd, X=X, y=Y)
        assert same(Features.load(Features.load(odd).save(tmp_path / "b.safetensors")))

    @given(
        st.sampled_from(sorted(READERS)),
        st.binary(min_size=1, max_size=80) | st.text(max_size=40).map(str.encode),
    )
    @settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_random_bytes(self, tmp_path, kind, data):
        path = tmp_path / f"random{kind}"
        path.write_bytes(data)
        for call in (Features.load, splits, Base.load):
            with contextlib.suppress(InputError):
                call(path)

    @given(st.data())
    @settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_damaged_files(self, tmp_path, data):
        if not (tmp_path / "a.npz").exists():
            make_all(tmp_path)
        source = tmp_path / f"a{data.draw(st.sampled_from(sorted(READERS)))}"
        whole = bytearray(source.read_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
        (tmp_path / f"damaged{source.suffix}").write_bytes(bytes(whole))
        for options in ({}, {"labels": Y}):
            with contextlib.suppress(InputError):
                Features.load(tmp_path / f"damaged{source.suffix}", **options)


def test_importing_is_light():
    heavy = {"pyarrow", "pandas", "sklearn", "scipy", "matplotlib"}
    code = f"import sys, likelyshot.data.features; assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_paths_are_kept_and_read_again(tmp_path):
    paths = [f"photos/{name}/{i} né.png" for i, name in enumerate(Y)]
    saved = features(paths=paths)
    loaded = Features.load(saved.save(tmp_path / "f.safetensors"))
    assert list(loaded.paths) == paths
    assert loaded.rectified().paths == loaded.paths
    assert loaded.digest == features().digest  # the numbers are the same
    np.savez(tmp_path / "f.npz", features=X, labels=Y, paths=np.array(paths))
    assert list(Features.load(tmp_path / "f.npz").paths) == paths
    assert Features.load(features().save(tmp_path / "g.safetensors")).paths is None


def test_there_is_a_path_for_every_row_or_none(tmp_path):
    with pytest.raises(InputError, match="6 rows and 1 paths"):
        features(paths=["a.png"])
    save_file(
        {"features": torch.from_numpy(X), "labels": torch.tensor(IDS), "paths": torch.zeros(3, dtype=torch.uint8)},
        tmp_path / "f.safetensors",
    )
    with pytest.raises(InputError, match=r"f.safetensors: .*6 rows and 3 paths"):
        Features.load(tmp_path / "f.safetensors")


@pytest.mark.parametrize("length", [640, 896, 1152, 1408])
def test_a_header_whose_length_looks_like_the_mark_of_a_pickle(tmp_path, length):
    path = tmp_path / "f.safetensors"
    tensors = {"features": torch.rand(4, 2), "labels": torch.arange(4) % 2}
    for padding in range(length):
        save_file(tensors, path, {"note": "x" * padding})
        if path.read_bytes()[:8] == length.to_bytes(8, "little"):
            break
    assert path.read_bytes()[0] == 0x80
    assert len(Features.load(path)) == 4


def test_an_error_of_a_library_without_a_file_names_it():
    wanted = pytest.raises(InputError, match=r"^a\.parquet: expected a whole file, .*Unexpected end of stream")
    with wanted, reading(Path("a.parquet")):
        raise OSError("Unexpected end of stream")  # as Arrow does
