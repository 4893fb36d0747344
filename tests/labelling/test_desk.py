"""The desk shows what helps most, says what to expect, and keeps the labels of things that are gone."""

from __future__ import annotations

import csv
import json
import os

import numpy as np
import pytest

from likelyshot import Features, Model, classify, fit, label, next_to_label
from likelyshot.errors import InputError
from likelyshot.labelling.exports import accept, export, import_label_studio, read_label_studio
from likelyshot.own_data.piles import read_labelled
from painted import COLOURS, ENCODER, LETTERS, paint, paint_pile


def truth(desk, number):
    return desk.things.items[number].path.name.split()[0]


def give(desk, numbers, click="give"):
    desk.set(f"{click} {desk.labels.version}", [(number, "label", truth(desk, number)) for number in numbers])


def numbers(screen, *kinds):
    return [card["number"] for s in screen["sections"] if not kinds or s["kind"] in kinds for card in s["cards"]]


def test_the_first_screen_is_varied_and_later_ones_help(desk_of, tmp_path):
    paint_pile(tmp_path / "pile", each=40)
    desk = desk_of(tmp_path / "pile", classes=list(COLOURS))
    first = desk.screen()
    shown = numbers(first)
    assert len(shown) == len(set(shown)) == 24
    assert shown != list(range(24))
    assert {truth(desk, number) for number in shown} == set(COLOURS)
    assert desk.expected() == ["Label items of two classes, and the pile will be classified."]
    give(desk, [n for n in shown if truth(desk, n) == "blue"][:2])
    assert [section["title"] for section in desk.screen()["sections"]] == ["What is unlike the items seen so far"]
    give(desk, shown[:12])
    second = desk.screen()
    assert "group" in {section["kind"] for section in second["sections"]}
    again = numbers(second)
    assert len(again) == len(set(again))
    assert not set(again) & set(shown)
    for section in second["sections"]:
        if section["kind"] == "group":
            assert all(card["guess"]["name"] == section["classes"][0] for card in section["cards"])
    assert desk.expected()[0].startswith("Expected accuracy on the whole pile now: ")
    assert desk.state()["history"]


def test_what_is_unsure_is_asked_for_first_and_not_twice(desk_of, tmp_path, monkeypatch):
    monkeypatch.setattr("likelyshot.labelling.selection.SURE", 2.0)
    paint_pile(tmp_path / "pile", each=40)
    desk = desk_of(tmp_path / "pile", classes=list(COLOURS))
    give(desk, range(0, 120, 10))
    sections = desk.screen()["sections"]
    assert sections[0]["kind"] in ("single", "pair", "strange")
    assert len(numbers({"sections": sections}, "single", "pair", "strange")) == 8
    shown = numbers({"sections": sections})
    assert len(shown) == len(set(shown))


def test_a_label_that_looks_wrong_is_shown_until_it_is_checked(desk_of, tmp_path):
    paint_pile(tmp_path / "pile", each=12)
    desk = desk_of(tmp_path / "pile", classes=list(COLOURS))
    keys = desk.things.numbers
    give(desk, [keys[f"{colour} {i}.png"] for colour in COLOURS for i in range(6)])
    wrong = keys["red 9.png"]
    desk.set("wrong", [(wrong, "label", "blue")])
    doubt = [section for section in desk.screen()["sections"] if section["kind"] == "doubt"]
    assert numbers({"sections": doubt}) == [wrong]
    assert doubt[0]["cards"][0]["doubt"] == {"label": "blue", "better": "red"}
    desk.check([wrong])
    assert not [section for section in desk.screen()["sections"] if section["kind"] == "doubt"]


def test_what_was_struck_off_is_not_suggested_again(desk_of, place):
    desk = desk_of(place / "pile", classes=list(COLOURS))
    keys = desk.things.numbers
    give(desk, [keys[f"{colour} {i}.png"] for colour in COLOURS for i in range(3)])
    desk.wait()
    number = keys["red 7.png"]
    assert desk.card(number)["guess"]["name"] == "red"
    desk.set("off", [(number, "not", "red")])
    desk.wait()
    assert desk.card(number)["guess"]["name"] != "red"
    assert "red 7.png" not in (place / "labels.csv").read_text()


def test_everything_can_be_labelled_and_nothing_is_left(desk_of, place):
    desk = desk_of(place / "pile", classes=list(COLOURS))
    for _ in range(10):
        if not (shown := numbers(desk.screen())):
            break
        give(desk, [number for number in shown if desk.card(number)["value"] is None])
    assert desk.state()["labelled"] == 30
    assert desk.screen()["sections"] == []
    assert desk.round.accuracy == 1.0


def test_labels_of_files_that_are_gone_are_kept(desk_of, place):
    desk = desk_of(place / "pile", classes=list(COLOURS))
    give(desk, [0, 1])
    desk.stop()
    (place / "pile" / "blue 0.png").unlink()
    paint(place / "pile" / "a new one.png", "red", 5)
    again = desk_of(place / "pile")
    assert (place / "labels.csv").read_text() == "path,label\npile/blue 1.png,blue\npile/blue 0.png,blue\n"
    assert "1 item that was labelled is no longer in the pile. The labels are kept." in again.problems()
    assert again.labels.values.keys() == {"blue 0.png", "blue 1.png"}


def test_the_table_is_what_classify_and_fit_read(desk_of, place):
    paint(place / "pile" / "=evil,\n.png", "red", 5)
    desk = desk_of(place / "pile", classes=list(COLOURS))
    give(desk, [n for n in range(31) if desk.things.keys[n].startswith(("blue", "green"))])
    desk.set("odd", [(desk.things.numbers["=evil,\n.png"], "label", "red")])
    read = read_labelled(place / "labels.csv")
    assert {(item.path.name, item.label) for item in read.items} == {
        (desk.things.items[desk.things.numbers[key]].path.name, value.name) for key, value in desk.labels.values.items()
    }
    assert read.problems == []
    assert set(fit(place / "labels.csv", encoder=ENCODER, cache=None).model.classes) == set(COLOURS)
    inside = desk_of(place / "pile", output=place / "pile" / "labels.csv", classes=["red"])
    inside.set("odd", [(inside.things.numbers["=evil,\n.png"], "label", "red")])
    assert "\"'=evil" in (place / "pile" / "labels.csv").read_text()


def test_without_an_output_the_table_lies_where_it_can_be_read(desk_of, place, monkeypatch):
    (place / "elsewhere").mkdir()
    monkeypatch.chdir(place / "elsewhere")
    assert desk_of(place / "pile", output=None).labels.output == place / "labels.csv"
    other = desk_of(place / "pile", output=place / "elsewhere" / "labels.csv")
    assert "start again with an -o in a folder above" in other.problems()[-1]
    monkeypatch.chdir(place)
    assert str(desk_of(place / "pile", output="mine.csv").labels.output) == "mine.csv"


def test_support_is_learned_from_and_what_is_in_the_pile_too_is_labelled(desk_of, place):
    for colour in COLOURS:
        for i in range(3):
            paint(place / "few" / colour / f"{i}.png", colour, 900 + i)
    (place / "few" / "blue" / "same.png").write_bytes((place / "pile" / "blue 4.png").read_bytes())
    desk = desk_of(place / "pile", support=place / "few")
    assert desk.labels.classes == sorted(COLOURS)
    assert {key: value.name for key, value in desk.labels.values.items()} == {"blue 4.png": "blue"}
    assert len(desk.support[1]) == 9
    desk.wait()
    right = [desk.card(n)["guess"]["name"] == truth(desk, n) for n in range(30) if desk.card(n)["guess"]]
    assert len(right) == 29
    assert sum(right) >= 27


def test_unreadable_files_are_left_out_and_named(desk_of, place):
    (place / "pile" / "broken.jpg").write_bytes(b"\xff\xd8\xff nonsense")
    (place / "pile" / "notes.txt").write_text("x")
    desk = desk_of(place / "pile")
    assert len(desk.things) == 30
    assert any("damaged image" in note for note in desk.problems())
    assert any("unsupported file" in note for note in desk.problems())


def test_rows_that_move_keep_their_labels_and_rows_that_change_lose_them(desk_of, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("text\napple pie\nzoo keeper\nbanana split\n")
    desk = desk_of(table, encoder=LETTERS, classes=["fruit"])
    desk.set("a", [(0, "label", "fruit"), (2, "label", "fruit")])
    assert (tmp_path / "labels.csv").read_text() == "name,text,label\nrow 1,apple pie,fruit\nrow 3,banana split,fruit\n"
    desk.stop()
    table.write_text("text\napple pie\nzoo keeper\nelephants\n")
    again = desk_of(table, encoder=LETTERS)
    assert [again.card(n)["value"] is not None for n in range(3)] == [True, False, False]


def test_embeddings_are_shown_by_their_paths_or_texts(desk_of, place):
    lines = ["path,f0,f1", "pile/blue 0.png,1,2", "pile/red 0.png,2,1", "gone.png,3,1", "../secret.png,1,1"]
    (place / "vectors.csv").write_text("\n".join(lines) + "\n")
    desk = desk_of(place / "vectors.csv", classes=["x"])
    assert [desk.card(n)["picture"] for n in range(4)] == [True, True, False, False]
    assert desk.things.file(0) == (place / "pile" / "blue 0.png").resolve()
    desk.set("x", [(0, "label", "x")])
    lines = (place / "labels.csv").read_text().splitlines()
    assert lines == [
        "name,features_file,features_row,path,label",
        "pile/blue 0.png,vectors.csv,1,pile/blue 0.png,x",
    ]
    (place / "texts.csv").write_text("text,f0,f1\nhello,1,2\nworld,2,1\n")
    texts = desk_of(place / "texts.csv", output=place / "t.csv")
    assert [texts.card(n)["text"] for n in range(2)] == ["hello", "world"]


@pytest.mark.parametrize("kind", [".npy", ".csv"])
def test_the_table_of_embeddings_is_what_classify_fit_and_evaluate_read(desk_of, tmp_path, kind):
    chance = np.random.default_rng(0)
    vectors = chance.random((30, 4), dtype=np.float32) + 0.1
    vectors[:15, 0] += 5
    vectors[15:, 1] += 5
    vectors[3] = 0  # left out: rows and items are no longer the same
    (tmp_path / "below").mkdir()
    pile = tmp_path / "below" / f"pile{kind}"
    if kind == ".npy":
        np.save(pile, vectors)
    else:
        lines = [",".join(map(str, row)) for row in vectors.tolist()]
        pile.write_text("\n".join(["f0,f1,f2,f3", *lines]) + "\n")
    desk = desk_of(pile, classes=["high", "low"], output=tmp_path / "labels.csv")
    desk.set("a", [(2, "label", "high"), (3, "label", "high"), (28, "label", "low"), (20, "label", "low")])
    assert (tmp_path / "labels.csv").read_text().splitlines()[2] == f"row 5,below/pile{kind},5,high"
    read = read_labelled(tmp_path / "labels.csv")
    assert [item.label for item in read.items] == ["high", "high", "low", "low"]
    assert np.allclose(read.vectors, vectors[[2, 4, 21, 29]])
    result = classify(tmp_path / "labels.csv", pile)
    assert result.answers.predicted == ["high"] * 14 + ["low"] * 15
    assert fit(tmp_path / "labels.csv").model.classes == ("high", "low")
    features = Features.load(tmp_path / "labels.csv")  # as evaluate reads it
    assert np.allclose(features.vectors.numpy(), vectors[[2, 4, 21, 29]])
    assert [features.classes[label] for label in features.labels] == ["high", "high", "low", "low"]


@pytest.mark.parametrize("pile", ["shards", "shards/*.npy"])
def test_a_folder_of_shards_is_a_pile_and_its_table_names_file_and_row(desk_of, tmp_path, pile):
    vectors = np.random.default_rng(0).random((30, 4), dtype=np.float32) + 0.1
    vectors[:15, 0] += 5
    (tmp_path / "shards").mkdir()
    for number in range(3):
        np.save(tmp_path / "shards" / f"{number}.npy", vectors[10 * number : 10 * number + 10])
    desk = desk_of(tmp_path / pile, classes=["high", "low"], output=tmp_path / "labels.csv")
    desk.set("a", [(2, "label", "high"), (12, "label", "high"), (29, "label", "low"), (15, "label", "low")])
    rows = (tmp_path / "labels.csv").read_text().splitlines()
    assert rows[1:3] == ["0.npy row 3,shards/0.npy,3,high", "1.npy row 3,shards/1.npy,3,high"]
    assert np.allclose(read_labelled(tmp_path / "labels.csv").vectors, vectors[[2, 12, 15, 29]])
    assert np.allclose(Features.load(tmp_path / "labels.csv").vectors.numpy(), vectors[[2, 12, 15, 29]])
    assert not any("start again" in note for note in desk.problems())


def test_a_table_of_embeddings_reads_nothing_outside_its_folder_nor_itself(tmp_path):
    np.save(tmp_path / "secret.npy", np.ones((2, 2), np.float32))
    (tmp_path / "in").mkdir()
    table = tmp_path / "in" / "labels.csv"
    for file, words in (
        ("../secret.npy", "outside the folder"),
        ("gone.npy", "missing file"),
        ("labels.csv", "names rows of another file"),
    ):
        table.write_text(f"name,features_file,features_row,label\na,{file},1,x\nb,{file},2,y\n")
        for read in (read_labelled, Features.load):
            with pytest.raises(InputError, match=words):
                read(table)
    np.save(tmp_path / "in" / "v.npy", np.ones((2, 2), np.float32))
    table.write_text("name,features_file,features_row,label\na,v.npy,1,x\nb,v.npy,2,y\nc,v.npy,3,y\nd,v.npy,,y\n")
    read = read_labelled(table)
    assert [item.label for item in read.items] == ["x", "y"]
    assert [problem.kind for problem in read.problems] == ["no such row in the features file"] * 2
    with pytest.raises(InputError, match="row 3: expected one of the 2 rows"):
        Features.load(table)
    table.write_text("path,label\na.png,x\nb.png,y\n")
    with pytest.raises(InputError, match="--export features writes labels_features"):
        Features.load(table)


def test_a_renamed_class_takes_the_labelled_examples_with_it(desk_of, place):
    for colour in COLOURS:
        for i in range(3):
            paint(place / "few" / colour / f"{i}.png", colour, 900 + i)
    desk = desk_of(place / "pile", support=place / "few")
    desk.wait()
    desk.rename_class("a", "red", "crimson")
    assert {desk.card(n)["guess"]["name"] for n in range(30) if desk.card(n)["guess"]} <= {"blue", "green", "crimson"}
    desk.wait()
    assert set(desk.known().labels) == {"blue", "green", "crimson"}
    assert desk.card(desk.things.numbers["red 7.png"])["guess"]["name"] == "crimson"
    desk.stop()
    again = desk_of(place / "pile", support=place / "few", classes=["red"])
    assert again.labels.classes == ["blue", "green", "crimson"]  # not red again
    assert set(again.known().labels) == {"blue", "green", "crimson"}


def test_exports(desk_of, place):
    desk = desk_of(place / "pile", classes=[*COLOURS, "a/b"])
    with pytest.raises(InputError, match="nothing to export yet"):
        export(desk, "folders")
    with pytest.raises(InputError, match="no predictions yet"):
        accept(desk, 0.95)
    give(desk, range(0, 30, 5))
    desk.set("odd", [(1, "label", "a/b"), (2, "none", "")])
    assert export(desk, "imagefolder").startswith("Copied 7 files into labels_imagefolder; metadata.csv has 7 rows")
    with (place / "labels_imagefolder" / "metadata.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert all((place / "labels_imagefolder" / row["file_name"]).is_file() for row in rows)
    assert sorted(row["label"] for row in rows) == ["a/b", "blue", "blue", "green", "green", "red", "red"]
    desk.set("changed", [(1, "label", "blue")])
    assert "into labels_imagefolder-2" in export(desk, "imagefolder")  # nothing stays under a label that changed
    assert "Linked 7 files into labels_links." in export(desk, "links")
    assert len(list((place / "labels_folders").rglob("*.png"))) == 0
    assert "Copied 7 files" in export(desk, "folders")
    export(desk, "features")
    read = read_labelled(place / "labels_features.safetensors")
    assert sorted(str(item.label) for item in read.items) == ["blue"] * 3 + ["green"] * 2 + ["red"] * 2
    assert Features.load(place / "labels_features.safetensors").classes == ("blue", "green", "red")  # for evaluate
    with pytest.raises(InputError, match="expected one of folders"):
        export(desk, "xml")


def test_accepted_predictions_are_apart_from_labels(desk_of, place):
    desk = desk_of(place / "pile", classes=list(COLOURS))
    give(desk, range(0, 30, 3))
    before = (place / "labels.csv").read_text()
    assert "apart from your labels" in accept(desk, 0.6)
    assert (place / "labels.csv").read_text() == before
    with (place / "labels.predicted.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    human = {line.split(",")[0] for line in before.splitlines()[1:]}
    assert rows
    assert not human & {row["path"] for row in rows}
    assert all(float(row["probability"]) >= 0.6 for row in rows)
    with pytest.raises(InputError, match="from 0 to 1"):
        accept(desk, 95)


def test_label_studio_there_and_back(desk_of, place):
    desk = desk_of(place / "pile", classes=list(COLOURS))
    give(desk, range(0, 30, 3))
    desk.set("none", [(1, "none", "")])
    export(desk, "label-studio")
    tasks = json.loads((place / "labels_label_studio.json").read_text())
    assert len(tasks) == 30
    assert sum("annotations" in task for task in tasks) == 11
    assert sum("predictions" in task for task in tasks) == 19
    assert not any("annotations" in task and "predictions" in task for task in tasks)
    assert tasks[0]["annotations"][0]["result"][0]["value"] == {"choices": [truth(desk, 0)]}
    other = desk_of(place / "pile", output=place / "other.csv")
    tasks = read_label_studio(place / "labels_label_studio.json")
    assert import_label_studio(other, tasks).startswith("Imported 11 labels")
    assert other.labels.values == desk.labels.values


def test_label_studio_of_others_is_matched_by_file_names(desk_of, place):
    desk = desk_of(place / "pile")

    def task(image, *choices, **more):
        result = [{"type": "choices", "from_name": "c", "to_name": "i", "value": {"choices": list(choices)}}]
        return {"id": 5, "data": {"image": image, "size": 3}, "annotations": [{"id": 1, "result": result, **more}]}

    tasks = [
        task("/data/upload/3/0a1b2c3d-blue 1.png", "blue"),
        task("/data/local-files/?d=pile/red%202.png", "red"),
        task("https://example.com/x/green 3.png?sig=1", "green"),
        task("s3://bucket/none such.png", "green"),
        task("blue 5.png", "blue", was_cancelled=True),
        task("blue 6.png", "blue", "red"),
        {"data": {"image": "blue 7.png"}},
    ]
    (place / "export.json").write_text(json.dumps(tasks))
    told = import_label_studio(desk, read_label_studio(place / "export.json"))
    assert told.startswith("Imported 3 labels")
    assert "1 tasks belong to no item" in told
    found = {key: value.name for key, value in desk.labels.values.items()}
    assert found == {"blue 1.png": "blue", "red 2.png": "red", "green 3.png": "green"}
    desk.undo("u")
    assert not desk.labels.values
    for bad in (b"nonsense", b"{}", b'[{"data": 5}]', b"\xff"):
        (place / "bad.json").write_bytes(bad)
        with pytest.raises(InputError, match="expected tasks of Label Studio"):
            read_label_studio(place / "bad.json")
    os.mkfifo(place / "pipe.json")
    with pytest.raises(InputError, match="is not a file"):
        read_label_studio(place / "pipe.json")


def test_from_python(place):
    page = label(place / "pile", classes=["x"], encoder=ENCODER, cache=None, output=place / "labels.csv", browser=False)
    try:
        assert page.address.startswith("http://127.0.0.1:")
        page.desk.set("one", [(0, "label", "x")])
        assert list(page.labels.values()) == ["x"]
        assert "Copied 1 files" in page.export("folders")
        assert page.output == place / "labels.csv"
    finally:
        page.stop()
    again = label(place / "pile", encoder=ENCODER, cache=None, output=place / "labels.csv", page=False)
    assert again.address == ""
    assert len(again.labels) == 1
    again.stop()


def test_next_to_label_chooses_what_lies_between(tmp_path):
    chance = np.random.default_rng(0)
    centres = np.array([[9.0, 1, 1], [1, 9, 1]])
    sure = np.concatenate([centre + chance.random((30, 3)) for centre in centres])
    between = centres.mean(0) + chance.random((6, 3))
    model = Model.fit(centres, ["a", "b"], method="cosine")
    found = next_to_label(model, np.concatenate([sure, between]), 4)
    assert len({suggestion.row for suggestion in found}) == 4
    assert sum(suggestion.row >= 60 for suggestion in found) >= 3  # of the six that lie between
    paint_pile(tmp_path / "pile")
    for colour in COLOURS:
        paint(tmp_path / "few" / colour / "1.png", colour, 77)
    fitted = fit(tmp_path / "few", encoder=ENCODER, cache=None)
    names = [suggestion.name for suggestion in next_to_label(fitted, tmp_path / "pile", 5, cache=None)]
    assert len(set(names)) == 5
    for bad in (0, -1, True, 2.5):
        with pytest.raises(InputError, match="1 or more"):
            next_to_label(model, sure, bad)


def test_labels_are_not_begun_if_other_inputs_are_wrong(place):
    (place / "few.csv").write_text("x0,x1,label\n1,2,a\n2,1,b\n")
    (place / "studio.json").write_text("{}")
    os.mkfifo(place / "pipe.csv.journal")
    settings = {"encoder": ENCODER, "cache": None, "page": False, "output": place / "labels.csv"}
    for given, message in (
        ({"support": place / "few.csv"}, "expected vectors of one encoder"),
        ({"label_studio": place / "studio.json"}, "the content is a table, not a list"),
        ({"output": place / "pipe.csv"}, "pipe.csv.journal is a device or a pipe"),
    ):
        with pytest.raises(InputError, match=message):
            label(place / "pile", **{**settings, **given})
        assert not list(place.glob("labels.csv*"))
