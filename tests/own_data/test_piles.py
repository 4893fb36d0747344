"""Reading labelled sets and piles: what is in, what is left out and why, and what is refused."""

from __future__ import annotations

import json
import os
import resource
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from pyarrow import parquet
from safetensors.torch import save_file

from likelyshot.data.features import Features
from likelyshot.data.images import SUFFIXES, WITHOUT_HEIC, read_image
from likelyshot.data.shards import Shards
from likelyshot.errors import InputError
from likelyshot.own_data.answers import Answers, write_answers
from likelyshot.own_data.piles import Pile, only_in_pile, read_labelled, read_pile

STRANGE = ["with,comma.png", "new\nline.png", "🦉 é.png", "=1+1.png", '"quoted".png', " space .png"]


def paint(path: Path, colour: str = "red") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 3), colour).save(path, "PNG")
    return path


def kinds(pile: Pile) -> list[tuple[str, str]]:
    return [(Path(problem.name).name, problem.kind) for problem in pile.problems]


def labels(pile: Pile) -> list[str | None]:
    return [item.label for item in pile.items]


# Folders


def test_a_labelled_folder_has_a_class_per_sub_folder(tmp_path):
    for name in ("cat/a.png", "cat/deep/er/b.png", "dog/c.JPG", ".hidden/d.png"):
        paint(tmp_path / name)
    (tmp_path / "empty").mkdir()
    (tmp_path / "dog" / "notes.txt").write_text("x")
    paint(tmp_path / "top.png")
    pile = read_labelled(tmp_path)
    found = {(str(item.path.relative_to(tmp_path)), item.label) for item in pile.items}
    assert found == {("cat/a.png", "cat"), ("cat/deep/er/b.png", "cat"), ("dog/c.JPG", "dog")}
    assert all(item.name == str(item.path) for item in pile.items)
    assert sorted(kinds(pile)) == [
        ("empty", "empty class folder"),
        ("notes.txt", "unsupported file"),
        ("top.png", "not in a class folder"),
    ]
    assert (pile.kind, pile.vectors, pile.root) == ("image", None, tmp_path)


def test_a_class_folder_of_other_files_is_empty_too(tmp_path):
    for name in ("cat/a.png", "dog/b.png"):
        paint(tmp_path / name)
    (tmp_path / "owl").mkdir()
    (tmp_path / "owl" / "owl").write_text("an unsupported file of the same name")
    assert kinds(read_labelled(tmp_path)) == [("owl", "unsupported file"), ("owl", "empty class folder")]


def test_fewer_than_two_classes_are_refused_and_the_reason_told(tmp_path):
    with pytest.raises(InputError, match="found none"):
        read_labelled(tmp_path)
    paint(tmp_path / "cat" / "a.png")
    (tmp_path / "dog").mkdir()
    with pytest.raises(InputError, match=r"only 'cat' \(left out: 1 x empty class folder"):
        read_labelled(tmp_path)
    with pytest.raises(InputError, match=r"got 'a\.png': give a folder with one sub-folder per class"):
        read_labelled(tmp_path / "cat" / "a.png")


def test_a_pile_is_any_folder(tmp_path):
    for name in STRANGE:
        paint(tmp_path / "deep" / name)
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "loop").symlink_to(tmp_path)
    pile = read_pile(str(tmp_path))
    assert {item.path.name for item in pile.items} == set(STRANGE)
    assert labels(pile) == [None] * len(STRANGE)
    assert sorted(kinds(pile)) == [("a.txt", "unsupported file"), ("loop", "symlink loop")]
    assert pile.root == tmp_path


def test_links_and_loops_among_class_folders_are_reported_once(tmp_path):
    for name in ("set/cat/a.png", "set/dog/b.png", "other/c.png"):
        paint(tmp_path / name)
    (tmp_path / "set" / "owl").symlink_to(tmp_path / "other")
    (tmp_path / "set" / "self").symlink_to(tmp_path / "set" / "self")
    pile = read_labelled(tmp_path / "set")
    assert sorted(kinds(pile)) == [("owl", "link leaves the folder"), ("self", "symlink loop")]


def test_a_single_image_is_a_pile_of_one(tmp_path):
    pile = read_pile(paint(tmp_path / "a.PNG"))
    assert [(item.name, item.path) for item in pile.items] == [(str(tmp_path / "a.PNG"), tmp_path / "a.PNG")]
    with pytest.raises(InputError, match="folder or one of"):
        read_labelled(tmp_path / "a.PNG")


def test_nothing_to_classify_is_refused(tmp_path):
    (tmp_path / "a.doc").write_text("x")
    with pytest.raises(InputError, match=r"found nothing \(left out: 1 x unsupported file, such as '.*a\.doc'"):
        read_pile(tmp_path)
    for missing in (tmp_path / "no", tmp_path / ("x" * 300), "nu\0ll"):
        with pytest.raises(InputError, match="nothing is at"):
            read_pile(missing)
    with pytest.raises(InputError, match="folder or one of"):
        read_pile(tmp_path / "a.doc")


def test_classes_that_look_the_same_are_kept_apart(tmp_path):
    names = ["café", "cafe\u0301", "Dog", "dog", " dog", "owl"]
    pd.DataFrame({"label": names, "f0": range(len(names))}).to_csv(tmp_path / "a.csv", index=False)
    pile = read_labelled(tmp_path / "a.csv")
    assert labels(pile) == names
    assert not pile.problems


# Tables of paths


@pytest.fixture
def pictures(tmp_path):
    folder = tmp_path / "data"
    for name in ("a.png", "sub/b.png", *STRANGE):
        paint(folder / name)
    paint(tmp_path / "outside.png")
    (folder / "way.png").symlink_to(tmp_path / "outside.png")
    (folder / "inner.png").symlink_to(folder / "a.png")
    return folder


def write_table(path: Path, rows: list[dict[str, object]]) -> Path:
    table = pd.DataFrame(rows)
    if path.suffix == ".parquet":
        table.to_parquet(path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        table.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",", encoding="utf-8-sig")
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".jsonl"])
def test_tables_of_paths(pictures, suffix):
    names = ["a.png", "sub/b.png", str(pictures / "a.png"), "sub/../a.png", "inner.png", *STRANGE]
    bad = {
        "gone.png": "missing file",
        "../outside.png": "outside the folder",
        "way.png": "outside the folder",
        str(pictures.parent / "outside.png"): "outside the folder",
        "/etc/passwd": "outside the folder",
        "sub": "missing file",
        "http://x.org/a.png": "missing file",
        "y" * 5000: "missing file",
    }
    rows = [{"Path": name, "label": f"{i % 2}", "width": 4} for i, name in enumerate([*names, *bad])]
    pile = read_labelled(write_table(pictures / f"t{suffix}", rows))
    assert [item.name for item in pile.items] == names
    assert labels(pile) == [f"{i % 2}" for i in range(len(names))]
    assert all(item.path.read_bytes() for item in pile.items)
    assert {problem.name: problem.kind for problem in pile.problems} == bad
    assert pile.problems[0].detail == f"row {len(names) + 1}"
    assert (pile.kind, pile.vectors, pile.root) == ("image", None, None)


def test_a_null_in_a_path_is_a_missing_file(pictures):
    write_table(pictures / "t.jsonl", [{"path": "a\0.png"}, {"path": "a.png"}, {"path": ""}, {"other": 1}])
    pile = read_pile(pictures / "t.jsonl")
    assert [item.name for item in pile.items] == ["a.png"]
    assert [problem.kind for problem in pile.problems] == ["missing file", "no path", "no path"]
    assert [problem.name for problem in pile.problems[1:]] == ["row 3", "row 4"]


def test_root_is_a_second_place_for_paths(pictures, tmp_path):
    table = write_table(tmp_path / "tables.csv", [{"path": "a.png"}, {"path": "sub/b.png"}, {"path": "../outside.png"}])
    (tmp_path / "lists").mkdir()
    table = table.rename(tmp_path / "lists" / "t.csv")
    assert len(read_pile(table, root=pictures).items) == 2
    with pytest.raises(InputError, match=r"2 x missing file, .* 1 x outside the folder"):
        read_pile(table)


def test_our_own_tables_can_be_read_again(pictures):
    names = ["a.png", *STRANGE, "-gone.png"]
    answers = Answers(names, ["x", "y"], np.full((8, 2), 0.5), np.zeros(8, bool), np.zeros(8))
    for suffix in (".csv", ".parquet", ".jsonl"):
        pile = read_pile(write_answers(pictures / f"predictions{suffix}", answers))
        assert [item.name for item in pile.items] == names[:-1]
        assert kinds(pile) == [("-gone.png", "missing file")]


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_answers_can_be_used_as_labelled_examples(pictures, suffix, monkeypatch):
    """Paths count from where the user is, wherever the table was written."""
    monkeypatch.chdir(pictures)
    (pictures / "results").mkdir()
    values = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    answers = Answers(["a.png", "sub/b.png", "a.png"], ["=x", "y"], values, np.array([0, 0, 1], bool), np.zeros(3))
    table = write_answers(pictures / "results" / f"predictions{suffix}", answers, all_probabilities=True)
    pile = read_labelled(table)
    assert [(item.name, item.label) for item in pile.items] == [("a.png", "=x"), ("sub/b.png", "y")]
    assert kinds(pile) == [("a.png", "no label")]
    assert [item.label for item in read_pile(table).items] == [None] * 3


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_answers_about_texts_can_be_used_as_labelled_examples(tmp_path, suffix):
    texts = ["it purrs", "=it barks"]
    answers = Answers(["row 1", "row 2"], ["cat", "dog"], np.eye(2), np.zeros(2, bool), np.zeros(2), texts)
    pile = read_labelled(write_answers(tmp_path / f"predictions{suffix}", answers))
    assert [(item.label, item.text) for item in pile.items] == [("cat", texts[0]), ("dog", texts[1])]


def test_rejected_files_are_no_class(pictures, tmp_path):
    for name in ("cat", "dog", "_rejected"):
        (tmp_path / "sorted" / name).mkdir(parents=True)
        (tmp_path / "sorted" / name / "1.png").write_bytes((pictures / "a.png").read_bytes())
    pile = read_labelled(tmp_path / "sorted")
    assert labels(pile) == ["cat", "dog"]
    assert kinds(pile) == [("_rejected", "files that were rejected before are of no class")]


def test_folders_of_texts(tmp_path):
    contents = {"cat/1.txt": b"it purrs", "cat/2.TXT": b"\xef\xbb\xbfwhiskers", "dog/1.txt": "Hündin".encode()}
    contents |= {"dog/bad.txt": b"\xff\xfe\xff", "dog/empty.txt": b" \n", "dog/notes.doc": b"x"}
    for name, content in contents.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    pile = read_labelled(tmp_path)
    assert pile.kind == "text"
    assert [(item.label, item.text) for item in pile.items] == [
        ("cat", "it purrs"),
        ("cat", "whiskers"),
        ("dog", "Hündin"),
    ]
    wrong = [("bad.txt", "not UTF-8"), ("empty.txt", "empty text"), ("notes.doc", "unsupported file")]
    assert sorted(kinds(pile)) == wrong
    assert len(read_pile(tmp_path).items) == 3
    Image.new("RGB", (4, 4)).save(tmp_path / "dog" / "picture.png")
    assert [item.name for item in read_pile(tmp_path).items] == [str(tmp_path / "dog" / "picture.png")]


def test_photographs_of_telephones_are_read_or_the_remedy_is_said(pictures):
    photograph = pictures / "sub" / "photograph.HEIC"
    if ".heic" in SUFFIXES:
        Image.new("RGB", (64, 64), "red").save(photograph, "HEIF")
        assert read_image(photograph).getpixel((30, 30))[0] > 200
        return
    photograph.write_bytes(b"\0\0\0\x18ftypheic")
    assert ("photograph.HEIC", WITHOUT_HEIC) in kinds(read_pile(pictures))
    with pytest.raises(InputError, match="HEIC image: pip install 'likelyshot"):
        read_pile(photograph)


def test_rows_without_labels_are_left_out(pictures):
    rows = [{"file": "a.png", "class": "1"}, {"file": "sub/b.png", "class": ""}, {"file": "a.png", "class": "2"}]
    pile = read_labelled(write_table(pictures / "t.csv", rows))
    assert labels(pile) == ["1", "2"]
    assert kinds(pile) == [("b.png", "no label")]


def test_columns_can_be_named(pictures):
    rows = [
        {"a": "a.png", "b": "x", "path": "gone", "label": "u"},
        {"a": "sub/b.png", "b": "y", "path": "gone", "label": "u"},
    ]
    table = write_table(pictures / "t.csv", rows)
    pile = read_labelled(table, path_column="a", label_column="b")
    assert [(item.name, item.label) for item in pile.items] == [("a.png", "x"), ("sub/b.png", "y")]
    assert [item.text for item in read_pile(table, text_column="b").items] == ["x", "y"]
    with pytest.raises(InputError, match=r"t\.csv: expected a column 'pth', .* did you mean 'path'"):
        read_pile(table, path_column="pth")


def test_uneven_rows_are_left_out_and_the_others_keep_their_numbers(tmp_path):
    (tmp_path / "t.csv").write_text('text,label\none,x\n"a, b",y\nto,o,many\n\nfew\nlast,x\n')
    pile = read_labelled(tmp_path / "t.csv")
    assert [(item.name, item.text) for item in pile.items] == [("row 1", "one"), ("row 2", "a, b"), ("row 5", "last")]
    assert [(problem.name, problem.kind) for problem in pile.problems] == [
        ("row 3", "uneven row"),
        ("row 4", "uneven row"),
    ]


def test_spreadsheets_may_write_semicolons(tmp_path):
    (tmp_path / "t.csv").write_text('\ufefflabel;text\ncat;"it purrs; always"\ndog;1,5 barks\n', encoding="utf-8")
    pile = read_labelled(tmp_path / "t.csv")
    assert [(item.label, item.text) for item in pile.items] == [("cat", "it purrs; always"), ("dog", "1,5 barks")]


def test_lines_that_are_no_json_are_left_out(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"text": "a"}\nnope\n[1]\n\n{"text": "b", "more": [1]}\n' + "[" * 100_000 + "\n")
    pile = read_pile(tmp_path / "t.jsonl")
    assert [(item.name, item.text) for item in pile.items] == [("row 1", "a"), ("row 4", "b")]
    assert [problem.name for problem in pile.problems] == ["row 2", "row 3", "row 5"]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_tables_that_cannot_be_used_are_refused(tmp_path, suffix):
    path = tmp_path / f"t{suffix}"
    path.write_bytes(b"")
    with pytest.raises(InputError, match="empty file"):
        read_pile(path)
    path.write_bytes(b"\xff\xfe\x00garbage\x00\n\xff\n" * 9)
    with pytest.raises(InputError):
        read_pile(path)
    write_table(path, [{"colour": "red"}])
    with pytest.raises(InputError, match=r"column of paths .* but got colour"):
        read_pile(path)
    with pytest.raises(InputError, match=r"column of labels .* but got colour"):
        read_labelled(path)


def test_a_header_alone_is_no_pile(tmp_path):
    (tmp_path / "t.csv").write_text("path,label\n")
    with pytest.raises(InputError, match="rows below a header"):
        read_pile(tmp_path / "t.csv")


# Texts


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".jsonl"])
def test_tables_of_texts(tmp_path, suffix):
    texts = ["hello, world", "two\nlines", "  ", "مرحبا 🦉", "=1+1", "", "3"]
    rows = [{"sentence": text, "label": i % 2, "score": i} for i, text in enumerate(texts)]
    pile = read_labelled(write_table(tmp_path / f"t{suffix}", rows))
    assert [(item.name, item.text, item.label) for item in pile.items] == [
        (f"row {i + 1}", text, str(i % 2)) for i, text in enumerate(texts) if text.strip()
    ]
    assert [(problem.name, problem.kind) for problem in pile.problems] == [
        ("row 3", "empty text"),
        ("row 6", "empty text"),
    ]
    assert pile.kind == "text"


def test_texts_take_their_names_from_the_table(tmp_path):
    pile = read_pile(write_table(tmp_path / "t.csv", [{"id": "x7", "text": "a"}, {"id": "", "text": "b"}]))
    assert [item.name for item in pile.items] == ["x7", "row 2"]


# Labels


@pytest.mark.parametrize(
    ("suffix", "given", "expected"),
    [
        (".parquet", [1, 2], ["1", "2"]),
        (".parquet", [1.0, 2.0, None], ["1", "2"]),
        (".parquet", [1.5, 2.0], ["1.5", "2"]),
        (".parquet", ["1.0", "007"], ["1.0", "007"]),
        (".parquet", [True, False], ["True", "False"]),
        (".parquet", [b"x", b"y"], ["x", "y"]),
        (".csv", ["1", "007", "nan", "NA", "1.0", "-0"], ["1", "007", "nan", "NA", "1.0", "-0"]),
        (".jsonl", [1, "one", None, 2.0], ["1", "one", "2"]),
        (".jsonl", [1, 2], ["1", "2"]),
    ],
)
def test_labels_are_text_always(tmp_path, suffix, given, expected):
    rows = [{"label": label, "text": "t"} for label in given]
    assert labels(read_labelled(write_table(tmp_path / f"t{suffix}", rows))) == expected


@settings(max_examples=40, deadline=None)
@given(
    names=st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1), min_size=1)
)
def test_labels_of_csv_are_kept_to_the_letter(tmp_path_factory, names):
    path = tmp_path_factory.getbasetemp() / "labels.csv"
    pd.DataFrame({"text": "t", "label": names}).to_csv(path, index=False, quoting=1)
    assert labels(read_pile(path)) == names


def test_classes_that_only_the_pile_has_are_reported(tmp_path):
    first = write_table(tmp_path / "a.csv", [{"label": "x", "f0": 1, "f1": 2}, {"label": "y", "f0": 2, "f1": 3}])
    second = write_table(tmp_path / "b.csv", [{"label": c, "f0": 1, "f1": 2} for c in ["x", "new", "new", ""]])
    labelled, pile = read_labelled(first), read_pile(second)
    assert len(pile.items) == 4
    (problem,) = only_in_pile(labelled, pile)
    assert (problem.name, problem.kind, problem.detail) == ("new", "class only in the pile", "2 items")


# Embeddings


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".jsonl"])
@pytest.mark.parametrize("as_list", [False, True])
def test_tables_of_embeddings(tmp_path, suffix, as_list):
    vectors = np.random.default_rng(0).random((6, 3)).astype(np.float32)
    rows = []
    for i, vector in enumerate(vectors.tolist()):
        numbers = {"embedding": vector} if as_list else {f"f{j}": value for j, value in enumerate(vector)}
        rows.append({"path": f"gone{i}.png", **numbers, "label": "xy"[i % 2] if i != 3 else ""})
    path = write_table(tmp_path / f"t{suffix}", rows)
    pile = read_pile(path)
    np.testing.assert_allclose(pile.vectors, vectors, rtol=1e-6)
    assert [item.name for item in pile.items] == [f"gone{i}.png" for i in range(6)]
    labelled = read_labelled(path)
    np.testing.assert_allclose(labelled.vectors, vectors[[0, 1, 2, 4, 5]], rtol=1e-6)
    assert labels(labelled) == ["x", "y", "x", "x", "y"]
    assert kinds(labelled) == [("gone3.png", "no label")]
    assert pile.kind == labelled.kind == "features"


def test_all_columns_of_numbers_are_an_embedding_unless_there_are_paths(tmp_path):
    rows = [{"name": "a", "height": 1.5, "width": 2, "y": 0, "colour": "red"}]
    pile = read_pile(write_table(tmp_path / "t.csv", rows))
    assert (pile.vectors.tolist(), pile.items[0].name, pile.items[0].label) == ([[1.5, 2.0]], "a", "0")
    paint(tmp_path / "a.png")
    pile = read_pile(write_table(tmp_path / "u.csv", [{"path": "a.png", "height": 1.5, "width": 2}]))
    assert (pile.kind, pile.vectors) == ("image", None)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("suffix", [".npy", ".safetensors"])
def test_vectors_keep_their_precision(tmp_path, dtype, suffix):
    vectors = np.random.default_rng(0).random((7, 3)).astype(dtype)
    path = tmp_path / f"v{suffix}"
    if suffix == ".npy":
        np.save(path, vectors)
    else:
        save_file({"a": torch.ones(3, dtype=torch.uint8), "features": torch.from_numpy(vectors)}, path)
    pile = read_pile(path)
    assert pile.vectors.dtype == dtype
    np.testing.assert_array_equal(pile.vectors, vectors)
    assert (pile.kind, len(pile.items), pile.items[6].name) == ("features", 7, "row 7")


@pytest.mark.parametrize("suffix", [".npy", ".safetensors"])
def test_large_files_are_mapped_not_read(tmp_path, suffix):
    path, shape = tmp_path / f"v{suffix}", (2**20, 512)  # 2 GB, which take no room on the disk
    if suffix == ".npy":
        np.lib.format.open_memmap(path, "w+", np.float32, shape)
    else:
        entry = {"dtype": "F32", "shape": shape, "data_offsets": [0, 2**31]}
        header = json.dumps({"features": entry}).encode()
        path.write_bytes(len(header).to_bytes(8, "little") + header)
        os.truncate(path, 8 + len(header) + 2**31)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pile = read_pile(path)
    assert pile.vectors.shape == shape
    assert pile.vectors[-1].sum() == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int32])
def test_what_numpy_cannot_map_is_read(tmp_path, dtype):
    save_file({"features": torch.tensor([[1, 2], [3, 4]], dtype=dtype)}, tmp_path / "v.safetensors")
    pile = read_pile(tmp_path / "v.safetensors")
    assert pile.vectors.dtype == np.float32
    assert pile.vectors[:].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    np.save(tmp_path / "v.npy", np.array([[1, 2]]))
    assert read_pile(tmp_path / "v.npy").vectors[:].tolist() == [[1.0, 2.0]]


def test_files_of_features_with_labels(tmp_path):
    vectors = np.random.default_rng(0).random((4, 3)).astype(np.float32)
    tensors = {"test.features": torch.from_numpy(vectors), "test.labels": torch.tensor([1, 0, 1, 0])}
    other = {"train.features": torch.zeros(2, 5), "train.labels": torch.tensor([0, 1])}
    save_file({**tensors, **other}, tmp_path / "v.safetensors", {"classes": json.dumps(["cat", "dog"])})
    pile = read_labelled(tmp_path / "v.safetensors")
    assert labels(pile) == ["dog", "cat", "dog", "cat"]
    np.testing.assert_array_equal(pile.vectors, vectors)
    np.savez(tmp_path / "v.npz", X=vectors, y=np.array([3.0, 1.0, 3.0, 1.0]))
    assert labels(read_labelled(tmp_path / "v.npz")) == ["3", "1", "3", "1"]
    np.testing.assert_array_equal(read_pile(tmp_path / "v.npz").vectors, vectors)
    np.save(tmp_path / "w.npy", vectors)
    (tmp_path / "w.labels.txt").write_text("a\nb\na\nb\n")
    assert labels(read_labelled(tmp_path / "w.npy")) == ["a", "b", "a", "b"]
    assert labels(read_pile(tmp_path / "w.npy")) == [None] * 4


def test_files_of_features_name_their_images_and_find_them_again(pictures, tmp_path, monkeypatch):
    names = ["data/a.png", "data/sub/b.png", "no/where.png", "../outside.png"]
    (tmp_path / "new").mkdir()
    file = tmp_path / "new" / "f.safetensors"
    Features.from_arrays([[1.0, 2.0]] * 4, ["a", "b"] * 2, paths=names).save(file)
    pile = read_pile(file)
    assert [item.name for item in pile.items] == names
    assert [item.path for item in pile.items[:4]] == [None] * 4  # the pictures are elsewhere
    found = [pictures / "a.png", pictures / "sub" / "b.png", None, None]
    labelled = read_labelled(file, root=tmp_path)
    assert [(item.path, item.label) for item in labelled.items][:3] == list(zip(found, "aba", strict=False))
    monkeypatch.chdir(tmp_path)
    assert [item.path for item in read_pile(file).items] == [*found[:3], tmp_path / "new" / "../outside.png"]


def test_bad_files_of_features_are_refused(tmp_path):
    np.save(tmp_path / "flat.npy", np.zeros(3))
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    (tmp_path / "cut.npy").write_bytes((tmp_path / "flat.npy").read_bytes()[:-9])
    save_file({"features": torch.zeros(4, 3)}, tmp_path / "cut.safetensors")
    (tmp_path / "cut.safetensors").write_bytes((tmp_path / "cut.safetensors").read_bytes()[:-9])
    (tmp_path / "lie.safetensors").write_bytes(b"\xff" * 8 + b"{}")
    for name in ("flat.npy", "objects.npy", "cut.npy", "cut.safetensors", "lie.safetensors"):
        with pytest.raises(InputError, match=name):
            read_pile(tmp_path / name)
    np.savez(tmp_path / "none.npz", X=np.zeros((2, 3)))
    with pytest.raises(InputError, match="no labels"):
        read_labelled(tmp_path / "none.npz")
    np.savez(tmp_path / "few.npz", X=np.zeros((2, 3)), y=[0, 1, 1])
    with pytest.raises(InputError, match="2 rows and 3 labels"):
        read_labelled(tmp_path / "few.npz")
    np.savez(tmp_path / "many.npz", X=np.zeros((2, 3)), y=[0, 2], classes=["a", "b"])
    with pytest.raises(InputError, match="for each of 2 classes"):
        read_labelled(tmp_path / "many.npz")


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    paint(tmp_path / "a.png")
    pile = read_pile(write_table(tmp_path / "t.csv", [{"path": "pipe.png"}, {"path": "a.png"}]))
    assert kinds(pile) == [("pipe.png", "missing file")]


def test_many_files_are_one_pile(tmp_path):
    rows = np.random.default_rng(0).random((9, 4)).astype(np.float16)
    (tmp_path / "deep").mkdir()
    np.save(tmp_path / "a.npy", rows[:4])
    np.save(tmp_path / "deep" / "b.npy", rows[4:])
    np.save(tmp_path / "deep" / "labels.npy", np.arange(9))
    for where in (tmp_path, tmp_path / "**" / "*.npy"):
        pile = read_pile(where)
        assert (pile.kind, pile.vectors.dtype, len(pile.items)) == ("features", np.float16, 9)
        np.testing.assert_array_equal(pile.vectors[:], rows)
        assert [pile.items[0].name, pile.items[-1].name] == ["a.npy row 1", "b.npy row 5"]
        assert [(Path(problem.name).name, problem.kind) for problem in pile.problems] == [("labels.npy", "no vectors")]


def test_tables_of_vectors_name_their_rows(tmp_path):
    for number in range(2):
        cells = {"image": [f"{number}.png", ""], "label": ["cat", None], "vector": [[1.0, 2.0], [3.0, 4.0]]}
        parquet.write_table(pyarrow.table(cells), tmp_path / f"{number}.parquet")
    (tmp_path / "1.png").touch()
    pile = read_pile(str(tmp_path / "[01].parquet"))
    assert [item.name for item in pile.items] == ["0.png", "0.parquet row 2", "1.png", "1.parquet row 2"]
    assert [item.label for item in pile.items] == ["cat", None, "cat", None]
    assert [item.path for item in pile.items] == [None, None, tmp_path / "1.png", None]
    assert pile.items[1:3] == list(pile.items)[1:3] == [pile.items[1], pile.items[2]]


def test_a_large_table_of_vectors_is_not_read(tmp_path, monkeypatch):
    table = pyarrow.table({"name": ["a", "b"], "vector": [[1.0, 2.0], [3.0, 4.0]]})
    parquet.write_table(table, tmp_path / "a.parquet")
    whole = read_pile(tmp_path / "a.parquet")
    monkeypatch.setattr("likelyshot.own_data.piles.STREAM_BYTES", 10)
    pile = read_pile(tmp_path / "a.parquet")
    assert isinstance(pile.vectors, Shards)
    assert list(pile.items) == list(whole.items)
    np.testing.assert_array_equal(pile.vectors[:], whole.vectors)


def test_archives_are_piles_of_images(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("cat/1.png"))
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("2.jpg", b"")
    names = [f"{tmp_path}/a.tar/cat/1.png", f"{tmp_path}/b.zip/2.jpg"]
    for where, expected in ((tmp_path, names), (tmp_path / "?.*", names), (tmp_path / "b.zip", names[1:])):
        pile = read_pile(where)
        assert (pile.kind, pile.vectors, [item.name for item in pile.items]) == ("image", None, expected)


def test_patterns_that_fit_nothing_or_too_much_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"files that match .*none\*', but there are none"):
        read_pile(tmp_path / "none*")
    np.save(tmp_path / "a.npy", np.ones((1, 2)))
    (tmp_path / "b.png").touch()
    with pytest.raises(
        InputError, match=r"files of one kind.*but got 'b.png' beside 'a.npy': classify each kind separately"
    ):
        read_pile(tmp_path / "*")
    zipfile.ZipFile(tmp_path / "b.zip", "w").close()
    with pytest.raises(InputError, match=r"labelled examples, but got 'b.zip': unpack it"):
        read_labelled(tmp_path / "b.zip")


def test_labelled_examples_come_from_several_places(tmp_path, monkeypatch):
    for name in ("few/cat/1.png", "few/dog/2.png", "pile/3.png", "pile/4.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "downloads").mkdir()
    corrections = tmp_path / "downloads" / "corrections.csv"  # as the gallery saves it, wherever the browser puts it
    corrections.write_text("path,label,predicted\npile/3.png,owl,cat\nfew/dog/2.png,cat,dog\n")
    pile = read_labelled(["few", corrections])
    assert [(item.name, item.label) for item in pile.items] == [
        ("few/cat/1.png", "cat"),
        ("pile/3.png", "owl"),
        ("few/dog/2.png", "cat"),  # the later label
    ]
    (tmp_path / "mine.csv").write_text("file,kind\nfew/cat/1.png,cat\npile/3.png,dog\n")
    pile = read_labelled(["mine.csv", corrections], path_column="file", label_column="kind")
    assert [item.label for item in pile.items] == ["cat", "owl", "cat"]
    (tmp_path / "texts.csv").write_text("text,label\na,cat\nb,dog\n")
    (tmp_path / "more.csv").write_text("text,label,predicted\nb,cat,dog\n'=c,owl,cat\n")
    pile = read_labelled(["texts.csv", "more.csv"])
    assert [(item.text, item.label) for item in pile.items] == [("a", "cat"), ("b", "cat"), ("=c", "owl")]
    with pytest.raises(InputError, match=r"few has images and texts.csv texts: use only one kind"):
        read_labelled(["few", "texts.csv"])
    with pytest.raises(InputError, match="got none"):
        read_labelled([])
    corrections.write_text("path,label,predicted\npile/3.png,owl,cat\n")
    with pytest.raises(InputError, match=r"two classes or more in .*corrections.csv, but found only 'owl'"):
        read_labelled(corrections)


def test_labelled_vectors_of_several_files(tmp_path):
    for name, dim in (("a", 3), ("b", 3), ("c", 4)):
        np.savez(tmp_path / f"{name}.npz", features=np.ones((2, dim)), labels=np.array([f"{name}0", f"{name}1"]))
    pile = read_labelled([tmp_path / "a.npz", tmp_path / "b.npz"])
    assert [item.label for item in pile.items] == ["a0", "a1", "b0", "b1"]
    assert pile.vectors.shape == (4, 3)
    with pytest.raises(InputError, match="got 3 and 4 numbers"):
        read_labelled([tmp_path / "a.npz", tmp_path / "c.npz"])
