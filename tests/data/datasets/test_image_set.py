from __future__ import annotations

import json
import zipfile

import pytest
from PIL import Image

from likelyshot.data.datasets import open_images
from likelyshot.errors import InputError


def colour(name):
    return tuple(sum(map(ord, name)) * step % 256 for step in (1, 3, 7))


@pytest.fixture(params=["folder", "zip"])
def make(request, tmp_path):
    """Make a data set of small images, one colour a name, as a folder or as an archive."""

    def made(*names, texts=()):
        folder = tmp_path / "data"
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (5, 4), colour(name)).save(folder / name)
        for name in texts:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("no image")
        if request.param == "folder":
            return folder
        with zipfile.ZipFile(tmp_path / "data.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(folder.rglob("*"), reverse=True):
                archive.write(path, path.relative_to(folder))
        return tmp_path / "data.zip"

    return made


def table(path, *lines):
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_folders_are_classes(make):
    images = open_images(
        make("owl/b.png", "owl/a.png", "jay/deep/er/c.bmp", "jay/C.PNG", texts=["owl/notes.txt", "README"])
    )
    assert images.classes == ("jay", "owl")
    assert images.names == ("jay/C.PNG", "jay/deep/er/c.bmp", "owl/a.png", "owl/b.png")
    assert images.labels.tolist() == [0, 0, 1, 1]
    assert len(images) == 4
    for i, name in enumerate(images.names):
        image = images.read(i)
        assert (image.mode, image.size, image.getpixel((0, 0))) == ("RGB", (5, 4), colour(name))


def test_hidden_files_do_not_count(make):
    path = make("owl/a.png", "jay/a.png", ".cache/x.png", "owl/._a.png")
    assert open_images(path).names == ("jay/a.png", "owl/a.png")


def test_folders_around_everything_do_not_count(make):
    images = open_images(make("set/images/owl/a.png", "set/images/jay/a.png"))
    assert images.classes == ("jay", "owl")


def test_a_single_class_is_a_class(make):
    assert open_images(make("owl/a.png")).classes == ("owl",)


def test_train_val_and_test_folders(make):
    path = make("set/train/owl/a.png", "set/val/jay/a.png", "set/test/emu/a.png", "set/test/kea/a.png")
    test = open_images(path, split="test")
    assert (test.classes, test.split) == (("emu", "kea"), "test")
    assert test.names == ("set/test/emu/a.png", "set/test/kea/a.png")
    assert open_images(path).classes == ("emu", "jay", "kea", "owl")
    with pytest.raises(InputError, match="one of test, train, val, but got 'novel'"):
        open_images(path, split="novel")


def test_a_part_alone_is_a_part(make):
    assert open_images(make("train/owl/a.png", "train/jay/b.png"), split="train").classes == ("jay", "owl")


def test_a_class_in_two_parts_is_refused(make):
    path = make("train/owl/a.png", "test/owl/b.png", "test/jay/b.png")
    with pytest.raises(InputError, match="1 in both test and train"):
        open_images(path, split="train")


def test_images_outside_classes_are_refused(make):
    with pytest.raises(InputError, match=r"1 outside \('stray.png'\)"):
        open_images(make("owl/a.png", "stray.png"))


def test_a_split_that_nobody_defined(make):
    with pytest.raises(
        InputError, match=r"since the images have none, but got .*: leave it out, or list the classes of"
    ):
        open_images(make("owl/a.png", "jay/a.png"), split="train")


def test_classes_of_a_file(make, tmp_path):
    path = make("x/owl/a.png", "x/jay/a.png", "x/emu/a.png", "x/jay/b.png")
    mine = tmp_path / "mine.json"
    mine.write_text(json.dumps({"train": ["owl", "jay"], "test": ["kea", "auk", "moa", "roc"]}))
    train = open_images(path, split="train", splits=mine)
    assert train.classes == ("owl", "jay")  # the file's order
    assert train.names == ("x/owl/a.png", "x/jay/a.png", "x/jay/b.png")
    assert train.labels.tolist() == [0, 1, 1]
    with pytest.raises(InputError, match=r"4 of 4 classes have none \('kea', 'auk', 'moa', \.\.\.\)"):
        open_images(path, split="test", splits=mine)
    with pytest.raises(InputError, match="one of train, test, but got 'val'"):
        open_images(path, split="val", splits=mine)


def test_a_class_may_span_folders_and_the_innermost_counts(make, tmp_path):
    path = make("all/background/Greek/character01/a.png", "all/background/Latin/character01/a.png", "all/Greek/b.png")
    mine = tmp_path / "mine.json"
    mine.write_text(json.dumps({"train": ["background/Greek/character01"], "test": ["Latin/character01", "Greek"]}))
    images = open_images(path, splits=mine)
    members = dict(zip(images.names, [images.classes[label] for label in images.labels], strict=True))
    assert members == {
        "all/background/Greek/character01/a.png": "background/Greek/character01",
        "all/background/Latin/character01/a.png": "Latin/character01",
        "all/Greek/b.png": "Greek",
    }


def test_of_two_classes_that_end_alike_the_longer_counts(make, tmp_path):
    path = make("Greek/alpha/a.png", "Latin/alpha/a.png")
    for order in (["alpha", "Greek/alpha"], ["Greek/alpha", "alpha"]):
        (tmp_path / "mine.json").write_text(json.dumps({"train": order}))
        images = open_images(path, splits=tmp_path / "mine.json")
        members = dict(zip([images.classes[label] for label in images.labels], images.names, strict=True))
        assert members == {"Greek/alpha": "Greek/alpha/a.png", "alpha": "Latin/alpha/a.png"}


def test_a_packaged_split_misses_its_classes_by_name(make):
    with pytest.raises(InputError, match="64 of 64 classes have none \\('n01532829'"):
        open_images(make("owl/a.png"), split="train", splits="mini_imagenet")


def test_tables_find_files_by_the_end_of_their_paths(make, tmp_path):
    path = make("images/1.png", "images/2.png", "images/3.png", "images/unused.png", "more/owl/x.png", "more/jay/x.png")
    tables = tmp_path / "tables"
    # as FEAT has them for CUB: spaces in the header, and more values than columns
    table(tables / "train.csv", "filename, label, concept_label", "2.png,owl,7,14", "1.png,owl,3", "", "x.png,owl,1")
    table(tables / "test.csv", "\ufefflabel,filename", "emu,images/3.png", "jay,more/jay/x.png")
    train = open_images(path, split="train", splits=tables)
    assert train.names == ("images/1.png", "images/2.png", "more/owl/x.png")
    assert train.classes == ("owl",)
    test = open_images(path, split="test", splits=tables)
    assert (test.names, test.classes) == (("images/3.png", "more/jay/x.png"), ("emu", "jay"))
    assert len(open_images(path, splits=tables)) == 5
    with pytest.raises(InputError, match="one of train, test, but got 'val'"):
        open_images(path, split="val", splits=tables)


def test_only_the_images_of_the_part_that_is_asked_for_must_be_there(make, tmp_path):
    path = make("images/1.png")
    table(tmp_path / "tables" / "train.csv", "filename,label", "1.png,owl")
    table(tmp_path / "tables" / "test.csv", "filename,label", "2.png,jay")
    assert open_images(path, split="train", splits=tmp_path / "tables").classes == ("owl",)
    with pytest.raises(InputError, match="1 of 1 are missing"):
        open_images(path, splits=tmp_path / "tables")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["filename,label", "9.png,owl", "1.png,owl"], r"1 of 2 are missing.*'9.png'"),
        (["filename,label", "x.png,emu"], "occur more than once"),
        (["1.png,owl"], "the columns filename and label"),
        ([], "but got"),
        (["filename,label"], "only its header"),
        (["filename,label", "1.png"], "in line 2"),
        (["filename,label", "1.png,"], "in line 2"),
        (["filename,label", "1.png,owl", "1.png,jay"], "one label for '1.png', but line 3"),
        (["filename,label", "1.png,emu"], "1 in both train and test"),
    ],
)
def test_bad_tables_are_refused(make, tmp_path, lines, message):
    path = make("1.png", "a/x.png", "b/x.png")
    table(tmp_path / "tables" / "train.csv", *lines)
    if "both" in message:
        table(tmp_path / "tables" / "test.csv", *lines)
    with pytest.raises(InputError, match=message):
        open_images(path, split="train", splits=tmp_path / "tables")


def test_a_folder_without_tables(make, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"train\.csv, val\.csv or test\.csv"):
        open_images(make("owl/a.png"), splits=tmp_path / "empty")


def test_nothing_to_read(make, tmp_path):
    with pytest.raises(InputError, match="found none"):
        open_images(make(texts=["owl/notes.txt"]))
    with pytest.raises(InputError, match="is not there"):
        open_images(tmp_path / "nowhere")
    (tmp_path / "file.txt").write_text("x")
    with pytest.raises(InputError, match="is another file"):
        open_images(tmp_path / "file.txt")
