"""Sorting files: everything arrives once, under safe names, and nothing that was there changes."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from likelyshot.data.items import Item
from likelyshot.errors import InputError
from likelyshot.own_data import folders
from likelyshot.own_data.folders import folder_names, sort_into


def make(folder: Path, files: dict[str, str]) -> list[Item]:
    items = []
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        items.append(Item(name, path=path))
    return items


def tree(folder: Path) -> dict[str, str]:
    found = sorted(path for path in folder.rglob("*") if not path.is_dir())
    return {str(path.relative_to(folder)): path.read_text() for path in found}


@pytest.mark.parametrize("link", [False, True])
def test_files_go_to_their_classes_and_stay_where_they_are(tmp_path, link):
    items = make(tmp_path / "pile", {"a.jpg": "1", "x/b.jpg": "2", "c.jpg": "3"})
    before = tree(tmp_path / "pile")
    out = tmp_path / "out"
    count, problems = sort_into(
        out, items, ["cat", "dog", "cat"], [False, False, True], link=link, root=tmp_path / "pile"
    )
    assert (count, problems) == (3, [])
    assert tree(out) == {"cat/a.jpg": "1", "dog/b.jpg": "2", "_rejected/c.jpg": "3"}
    assert all(path.is_symlink() == link for path in out.rglob("*.jpg"))
    assert tree(tmp_path / "pile") == before


@pytest.mark.parametrize("link", [False, True])
def test_same_names_get_numbers_and_a_second_run_adds_nothing(tmp_path, link):
    files = {f"{i}/a.jpg": content for i, content in enumerate(["x", "y", "x", "z"])} | {"a-2.jpg": "w", "A.jpg": "v"}
    items = make(tmp_path / "pile", files)
    for _ in range(2):
        assert sort_into(tmp_path / "out", items, ["cat"] * 6, [False] * 6, link=link) == (6, [])
        assert sorted(tree(tmp_path / "out").values()) == sorted(files.values())
    assert {"cat/a.jpg", "cat/a-2.jpg", "cat/a-3.jpg", "cat/a-4.jpg"} < set(tree(tmp_path / "out"))
    names = [name.casefold() for name in tree(tmp_path / "out")]
    assert len(set(names)) == 6


def test_a_later_run_finds_content_whatever_came_before(tmp_path):
    items = make(tmp_path / "pile", {"x/a.jpg": "new", "y/a.jpg": "old"})
    sort_into(tmp_path / "out", items[1:], ["cat"], [False], link=False)
    sort_into(tmp_path / "out", items, ["cat"] * 2, [False] * 2, link=False)
    assert tree(tmp_path / "out") == {"cat/a.jpg": "old", "cat/a-2.jpg": "new"}


@pytest.mark.parametrize("link", [False, True])
def test_a_place_taken_in_this_run_is_not_mistaken_for_an_earlier_one(tmp_path, link):
    items = make(tmp_path / "pile", {"a-2.jpg": "x", "1/a.jpg": "y", "2/a.jpg": "x"})
    for _ in range(2):
        assert sort_into(tmp_path / "out", items, ["cat"] * 3, [False] * 3, link=link) == (3, [])
        assert tree(tmp_path / "out") == {"cat/a-2.jpg": "x", "cat/a.jpg": "y", "cat/a-3.jpg": "x"}


def test_a_link_to_another_file_is_left_alone(tmp_path):
    items = make(tmp_path / "pile", {"x/a.jpg": "same", "y/a.jpg": "same"})
    sort_into(tmp_path / "out", items[:1], ["cat"], [False], link=True)
    sort_into(tmp_path / "out", items[1:], ["cat"], [False], link=True)
    links = {path.name: path.readlink() for path in (tmp_path / "out" / "cat").iterdir()}
    assert links == {"a.jpg": items[0].path, "a-2.jpg": items[1].path}


@pytest.mark.parametrize("link", [False, True])
def test_nothing_is_overwritten(tmp_path, link):
    (item,) = make(tmp_path / "pile", {"a.jpg": "mine"})
    (tmp_path / "out" / "cat").mkdir(parents=True)
    (tmp_path / "out" / "cat" / "a.jpg").write_text("yours")
    (tmp_path / "out" / "cat" / "a-2.jpg").symlink_to("nowhere")
    (tmp_path / "out" / "cat" / "a-3.jpg").mkdir()
    assert sort_into(tmp_path / "out", [item], ["cat"], [False], link=link) == (1, [])
    assert (tmp_path / "out" / "cat" / "a.jpg").read_text() == "yours"
    assert (tmp_path / "out" / "cat" / "a-4.jpg").read_text() == "mine"
    assert not (tmp_path / "out" / "cat" / "nowhere").exists()


def test_what_appears_in_the_meantime_is_not_overwritten(tmp_path, monkeypatch):
    (item,) = make(tmp_path / "pile", {"a.jpg": "mine"})
    (tmp_path / "out" / "cat").mkdir(parents=True)
    (tmp_path / "out" / "cat" / "a.jpg").write_text("yours")
    monkeypatch.setattr(folders.os.path, "lexists", lambda path: False)
    for link in (False, True):
        sort_into(tmp_path / "out", [item], ["cat"], [False], link=link)
    assert (tmp_path / "out" / "cat" / "a.jpg").read_text() == "yours"


def test_without_hard_links_copies_are_renamed(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    items = make(tmp_path / "pile", {"x/a.jpg": "1", "y/a.jpg": "2"})
    assert sort_into(tmp_path / "out", items, ["cat"] * 2, [False] * 2, link=False) == (2, [])
    assert tree(tmp_path / "out") == {"cat/a.jpg": "1", "cat/a-2.jpg": "2"}


def test_what_fails_is_reported_and_the_rest_arrives(tmp_path):
    items = make(tmp_path / "pile", {"gone.jpg": "1", "b.jpg": "2", "c.jpg": "3"})
    items[0].path.unlink()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "dog").write_text("a file where a folder should be")
    count, problems = sort_into(tmp_path / "out", items, ["cat", "cat", "dog"], [False] * 3, link=False)
    assert count == 1
    assert [(problem.name, problem.kind) for problem in problems] == [
        ("gone.jpg", "could not be copied"),
        ("c.jpg", "could not be copied"),
    ]
    assert tree(tmp_path / "out") == {"cat/b.jpg": "2", "dog": "a file where a folder should be"}


def test_an_interrupted_copy_leaves_no_half(tmp_path, monkeypatch):
    items = make(tmp_path / "pile", {"a.jpg": "1"})

    def interrupt(source, target):
        Path(target).write_text("ha")
        raise KeyboardInterrupt

    monkeypatch.setattr(folders.shutil, "copy2", interrupt)
    with pytest.raises(KeyboardInterrupt):
        sort_into(tmp_path / "out", items, ["cat"], [False], link=False)
    assert tree(tmp_path / "out") == {}


@pytest.mark.parametrize("where", ["pile", "pile/sorted", "pile/a/../b", "way"])
def test_folders_inside_the_pile_are_refused(tmp_path, where):
    items = make(tmp_path / "pile", {"a.jpg": "1"})
    (tmp_path / "way").symlink_to(tmp_path / "pile")
    with pytest.raises(InputError, match="outside the pile"):
        sort_into(tmp_path / where, items, ["cat"], [False], link=False, root=tmp_path / "pile")
    assert tree(tmp_path / "pile") == {"a.jpg": "1"}


def test_a_class_folder_that_is_the_pile_is_refused(tmp_path):
    items = make(tmp_path / "pile", {"a.jpg": "1"})
    with pytest.raises(InputError, match="outside the pile"):
        sort_into(tmp_path, items, ["pile"], [False], link=False, root=tmp_path / "pile")


def test_systems_without_links_say_so(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(1, "Operation not permitted")

    items = make(tmp_path / "pile", {"a.jpg": "1"})
    monkeypatch.setattr(Path, "symlink_to", refuse)
    with pytest.raises(InputError, match="copy instead"):
        sort_into(tmp_path / "out", items, ["cat"], [False], link=True)
    assert list((tmp_path / "out").iterdir()) == []


def test_texts_cannot_be_sorted(tmp_path):
    with pytest.raises(InputError, match="expected files"):
        sort_into(tmp_path / "out", [Item("row 1", text="x")], ["cat"], [False], link=False)


def test_hostile_classes_stay_inside_the_folder(tmp_path):
    classes = [
        "../../up",
        "/etc",
        "..",
        ".",
        "",
        " ",
        "CON",
        "a\nb",
        "x" * 300,
        "_rejected",
        "é",
        "e\u0301",
        "Cat",
        "cat",
    ]
    items = make(tmp_path / "pile", {f"{i}.jpg": str(i) for i in range(len(classes))})
    count, problems = sort_into(tmp_path / "out", items, classes, [False] * len(classes), link=False)
    assert (count, problems) == (len(classes), [])
    assert len(tree(tmp_path / "out")) == len(classes)
    assert len(list((tmp_path / "out").iterdir())) == len(classes)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "pile"]


@given(
    st.lists(st.text(max_size=12) | st.sampled_from(["a/b", "a_b", "a:b", "A", "a", "_rejected", "nul.txt", "🦉" * 60]))
)
def test_folder_names_are_safe_and_distinct(classes):
    names = folder_names(classes)
    assert set(names) == set(classes)
    folded = {unicodedata.normalize("NFC", name).casefold() for name in names.values()} | {"_rejected"}
    assert len(folded) == len(names) + 1
    for name in names.values():
        assert 0 < len(name.encode()) <= 255
        assert not set(name) & set('<>:"/\\|?*\0\n\r')
        assert name not in (".", "..")
        assert not name.startswith(".")
        assert not name.endswith((".", " "))
        assert name.split(".")[0].lower() not in {"con", "nul", "aux", "prn", "com1", "lpt1"}
        assert os.path.basename(name) == name  # noqa: PTH119
    assert folder_names(list(reversed(classes))) == names


def test_harmless_names_are_kept():
    assert folder_names(["cat", "Großer Uhu 🦉", "a_b", "a/b"])["a_b"] == "a_b"
    assert folder_names(["Großer Uhu 🦉"]) == {"Großer Uhu 🦉": "Großer Uhu 🦉"}
