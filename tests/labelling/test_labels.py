"""Labels have a history without end, are on disk after every click, and survive whatever happens to the process."""

from __future__ import annotations

import csv
import errno
import itertools
import os

import pytest

from likelyshot.errors import InputError
from likelyshot.labelling import journal as journal_module
from likelyshot.labelling.journal import Change, Entry, Journal, Measured
from likelyshot.labelling.labels import Labels, Value, check_class, journal_path, none_path

ITEMS = [f"{number}.png" for number in range(20)]


@pytest.fixture
def open_labels(tmp_path):
    opened = []

    def open_one(name="labels.csv"):
        order = {key: number for number, key in enumerate(ITEMS)}
        found = Labels(tmp_path / name, "image", ["path"], lambda key: [f"pile/{key}"], lambda key: order.get(key, 99))
        opened.append(found)
        return found

    yield open_one
    for labels in opened:
        labels.close()


def table(labels, path=None):
    with (path or labels.output).open(newline="") as file:
        return [(row["path"], row["label"]) for row in csv.DictReader(file)]


clicks = (f"click {number}" for number in itertools.count())


def say(labels, item, kind="label", name="cat"):
    return labels.set(next(clicks), [Change(item, kind, name)])


def test_every_click_is_in_the_table_at_once(open_labels):
    labels = open_labels()
    assert labels.output.read_text() == "path,label\n"
    labels.add_class("a", "cat")
    labels.add_class("b", "dog, small")
    say(labels, "3.png")
    say(labels, "1.png", name="dog, small")
    assert table(labels) == [("pile/1.png", "dog, small"), ("pile/3.png", "cat")]
    say(labels, "3.png", "none", "")
    assert table(labels) == [("pile/1.png", "dog, small")]
    assert table(labels, none_path(labels.output)) == [("pile/3.png", "")]
    say(labels, "3.png", "skip", "")
    assert table(labels, none_path(labels.output)) == []
    say(labels, "1.png", "clear", "")
    assert table(labels) == []


def test_undo_and_redo_go_back_to_the_first_click_and_forth(open_labels):
    labels = open_labels()
    states = [(list(labels.classes), dict(labels.values))]

    def note():
        states.append((list(labels.classes), dict(labels.values)))

    labels.add_class("a", "cat")
    note()
    labels.set("b", [Change(item, "label", "cat") for item in ITEMS])
    note()
    labels.add_class("c", "dog")
    note()
    labels.set("d", [Change("1.png", "not", "cat"), Change("2.png", "label", "dog")])
    note()
    labels.set("e", [Change("1.png", "clear")])
    note()
    for number in range(4, -1, -1):
        assert labels.undo(f"undo {number}")
        assert (labels.classes, labels.values) == states[number]
    assert not labels.undo("too often")
    for number in range(1, 6):
        assert labels.redo(f"redo {number}")
        assert (labels.classes, labels.values) == states[number]
    assert not labels.redo("too often 2")
    labels.undo("again")
    say(labels, "5.png", "skip", "")
    assert not labels.can_redo


def test_a_class_that_is_renamed_keeps_its_labels_and_its_place(open_labels):
    labels = open_labels()
    for name in ("cat", "dog", "owl"):
        labels.add_class(f"add {name}", name)
    labels.set("a", [Change("1.png", "label", "cat"), Change("2.png", "not", "cat"), Change("3.png", "label", "dog")])
    before = (list(labels.classes), dict(labels.values))
    assert labels.rename_class("b", "cat", "  kitten ")
    assert labels.classes == ["kitten", "dog", "owl"]
    assert labels.values["1.png"] == Value("label", "kitten")
    assert labels.values["2.png"] == Value("not", "kitten")
    assert table(labels) == [("pile/1.png", "kitten"), ("pile/3.png", "dog")]
    assert labels.current_name("cat") == "kitten"
    assert not labels.rename_class("b", "cat", "kitten")  # sent again, since no answer came
    assert not labels.rename_class("c", "dog", "dog")
    with pytest.raises(InputError, match="there is no class 'cat'"):
        labels.rename_class("d", "cat", "lion")
    with pytest.raises(InputError, match="name of a class"):
        labels.rename_class("e", "dog", " ")
    after = (list(labels.classes), dict(labels.values))
    labels.undo("u")
    assert (labels.classes, labels.values) == before
    assert labels.current_name("cat") == "cat"
    labels.redo("r")
    assert (labels.classes, labels.values) == after
    labels.close()
    again = open_labels()
    assert (again.classes, again.values) == after
    again.add_class("f", "cat")  # another class, which has nothing to do with the first
    assert again.current_name("cat") == "kitten"


def test_classes_that_become_one_can_be_taken_apart_again(open_labels):
    labels = open_labels()
    for name in ("robin", "wren", "bird"):
        labels.add_class(f"add {name}", name)
    labels.set(
        "a", [Change("1.png", "label", "robin"), Change("2.png", "not", "robin"), Change("3.png", "label", "bird")]
    )
    before = (list(labels.classes), dict(labels.values))
    assert labels.rename_class("b", "robin", "bird")
    assert labels.classes == ["wren", "bird"]
    assert labels.values == {"1.png": Value("label", "bird"), "3.png": Value("label", "bird")}  # no robin may be a bird
    labels.close()
    again = open_labels()
    again.undo("u")
    assert (again.classes, again.values) == before
    assert table(again) == [("pile/1.png", "robin"), ("pile/3.png", "bird")]


def test_what_was_done_and_undone_is_there_after_a_restart(open_labels):
    labels = open_labels()
    labels.add_class("a", "cat")
    for item in ITEMS[:5]:
        say(labels, item)
    labels.undo("u1")
    labels.undo("u2")
    labels.measure(3, 0.5)
    before = (labels.classes, labels.values, labels.history)
    text = labels.output.read_text()
    labels.close()
    again = open_labels()
    assert (again.classes, again.values, again.history) == before
    assert again.history == [Measured(3, 0.5)]
    assert again.output.read_text() == text
    assert again.redo("r1")
    assert again.values[ITEMS[3]] == Value("label", "cat")


def test_a_click_that_comes_twice_counts_once_even_after_a_restart(open_labels):
    labels = open_labels()
    labels.add_class("a", "cat")
    assert labels.set("one", [Change("1.png", "label", "cat")])
    labels.undo("two")
    assert not labels.set("one", [Change("1.png", "label", "cat")])
    assert not labels.undo("two")
    labels.close()
    again = open_labels()
    assert not again.set("one", [Change("1.png", "label", "cat")])
    assert again.values == {}


def test_a_line_that_was_cut_off_was_never_answered(open_labels):
    labels = open_labels()
    labels.add_class("a", "cat")
    say(labels, "1.png")
    labels.close()
    path = journal_path(labels.output)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"id":"half","do":"set","time":1.0,"changes":[["2.png","lab')
    again = open_labels()
    assert again.values == {"1.png": Value("label", "cat")}
    say(again, "3.png")
    again.close()
    assert path.read_bytes().startswith(whole)
    assert set(open_labels().values) == {"1.png", "3.png"}


@pytest.mark.parametrize("bad", [b"nonsense\n", b'{"id": 5}\n', b'{"id":"x","do":"fly","time":1}\n', b"\xff\n"])
def test_a_damaged_line_is_refused_and_nothing_is_touched(open_labels, bad):
    labels = open_labels()
    labels.add_class("a", "cat")
    labels.close()
    path = journal_path(labels.output)
    path.write_bytes(path.read_bytes() + bad + b'{"id":"z","do":"undo","time":1}\n')
    before = path.read_bytes()
    with pytest.raises(InputError, match="line 3"):
        open_labels()
    assert path.read_bytes() == before


def test_journals_of_other_kinds_and_versions_are_refused(tmp_path):
    Journal(tmp_path / "j", "image").close()
    with pytest.raises(InputError, match=r"of kind text, but .* is of image"):
        Journal(tmp_path / "j", "text")
    (tmp_path / "new").write_text('{"form":"likelyshot.labels/2","kind":"image"}\n')
    with pytest.raises(InputError, match="update likelyshot"):
        Journal(tmp_path / "new", "image")
    (tmp_path / "other").write_text("path,label\n")
    with pytest.raises(InputError, match=r"expected a journal .* is something else or damaged \(line 1: .*start again"):
        Journal(tmp_path / "other", "image")


def test_two_pages_cannot_write_one_table(open_labels):
    open_labels()
    with pytest.raises(InputError, match="in use by another labelling page"):
        open_labels()


@pytest.mark.parametrize("written", [0, 20])
def test_a_full_disk_loses_nothing_and_says_so(open_labels, monkeypatch, written):
    labels = open_labels()
    labels.add_class("a", "cat")
    say(labels, "1.png")
    before = journal_path(labels.output).read_bytes()
    real = os.write

    def full(file, data):
        if written:
            real(file, bytes(data[:written]))
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(journal_module.os, "write", full)
        with pytest.raises(InputError, match=r"not saved .No space left on device.: free some space, and click again"):
            labels.set("retry", [Change("2.png", "label", "cat")])
    assert set(labels.values) == {"1.png"}
    assert journal_path(labels.output).read_bytes() == before
    assert labels.set("retry", [Change("2.png", "label", "cat")])
    labels.close()
    assert set(open_labels().values) == {"1.png", "2.png"}


def test_a_table_that_cannot_be_written_costs_no_click(open_labels, monkeypatch):
    labels = open_labels()
    labels.add_class("a", "cat")

    def fail(path, data):
        raise InputError(f"cannot write {path} (No space left on device): choose another place")

    with monkeypatch.context() as patch:
        patch.setattr("likelyshot.labelling.labels.write_whole", fail)
        assert say(labels, "1.png")
    assert "saved in labels.csv.journal, but labels.csv is not up to date" in labels.problem
    assert table(labels) == []
    say(labels, "2.png")
    assert labels.problem == ""
    assert [path for path, _ in table(labels)] == ["pile/1.png", "pile/2.png"]


def test_a_table_that_was_changed_by_hand_is_kept(open_labels):
    labels = open_labels()
    labels.add_class("a", "cat")
    labels.close()
    labels.output.write_text("path,label\nmine,mine\n")
    later = journal_path(labels.output).stat().st_mtime + 60
    os.utime(labels.output, (later, later))
    again = open_labels()
    assert again.edited.name == "labels.edited-1.csv"
    assert "mine" in again.edited.read_text()
    assert again.output.read_text() == "path,label\n"


def test_a_table_that_was_only_opened_again_is_not_taken_for_a_changed_one(open_labels):
    labels = open_labels()
    labels.add_class("a", "cat")
    labels.close()
    earlier = labels.output.stat().st_mtime - 60
    os.utime(journal_path(labels.output), (earlier, earlier))  # the last click was a minute ago
    os.utime(labels.output, (earlier, earlier))
    for _ in range(2):
        again = open_labels()
        again.close()
        assert again.edited is None


def test_classes_have_names_that_can_be_read(open_labels):
    labels = open_labels()
    assert check_class("  cat ") == "cat"
    for name in ("", "   ", "x" * 201, "a\nb", "a\x00"):
        with pytest.raises(InputError):
            labels.add_class("a", name)
    with pytest.raises(InputError, match="there is no class 'cow'"):
        say(labels, "1.png", name="cow")
    assert labels.version == 0


def test_an_entry_without_meaning_changes_nothing(tmp_path, open_labels):
    journal = Journal(tmp_path / "labels.csv.journal", "image")
    journal.append(Entry("1", "undo", 0.0))
    journal.append(Entry("2", "redo", 0.0))
    journal.close()
    labels = open_labels()
    assert (labels.classes, labels.values, labels.can_undo) == ([], {}, False)
