"""From folders, tables and files to answers, by encoders made for the purpose."""

from __future__ import annotations

import csv
import inspect
import json
import shutil
import sqlite3

import numpy as np
import pytest
import torch
from PIL import Image

from likelyshot.confidence.held_out import Expectation
from likelyshot.data.items import Item, Problem
from likelyshot.data.shards import Shards
from likelyshot.encoders.pretrained import callable_encoder
from likelyshot.errors import InputError
from likelyshot.methods import METHODS
from likelyshot.own_data.model import Model
from likelyshot.own_data.piles import Pile
from likelyshot.own_data.pipeline import FitSettings, classify, fit, predict
from likelyshot.own_data.rows import gather, summary
from likelyshot.own_data.stream import answer_stream, stream_method

COLOURS = {"blue": (40, 60, 200), "green": (50, 190, 70), "red": (210, 50, 40)}


def colours(images):
    """Histograms of eight tones per channel: non-negative, as those of a network that ends in a ReLU."""
    arrays = [np.asarray(image) // 32 for image in images]
    return [[(array[..., c] == tone).mean() for c in range(3) for tone in range(8)] for array in arrays]


def signed(images):
    return np.array(colours(images)) - 0.1


def letters(texts):
    return [[1 + text.lower().count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts]


ENCODER = callable_encoder(colours, "tones")


def paint(path, colour, seed):
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).normal(0, 25, (12, 16, 3))
    Image.fromarray((np.array(COLOURS[colour]) + noise).clip(0, 255).astype(np.uint8)).save(path)
    return path


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Four labelled images of each of three colours, and a pile of 30 and some trouble."""
    root = tmp_path_factory.mktemp("images")
    for k, colour in enumerate(COLOURS):
        for i in range(4):
            paint(root / "labelled" / colour / f"{i}.png", colour, 100 * k + i)
        for i in range(10):
            paint(root / "pile" / "deep" / "er" / f"{colour} {i}.png", colour, 1_000 + 100 * k + i)
    (root / "labelled" / "none").mkdir()
    (root / "pile" / "empty.jpg").write_bytes(b"")
    (root / "pile" / "notes.txt").write_text("no image")
    whole = (root / "pile" / "deep" / "er" / "red 1.png").read_bytes()
    (root / "pile" / "cut.png").write_bytes(whole[: len(whole) // 2])
    shutil.copy(root / "labelled" / "red" / "0.png", root / "pile" / "=again, red\n.png")
    return root


@pytest.fixture
def result(folders):
    return classify(folders / "labelled", folders / "pile", encoder=ENCODER, cache=None)


def test_a_folder_of_images(result, folders):
    answers = result.answers
    assert len(answers) == len(result.items) == 31
    truth = [next(colour for colour in COLOURS if colour in name.rsplit("/", 1)[-1]) for name in answers.names]
    assert answers.predicted == truth
    np.testing.assert_allclose(answers.probabilities.sum(1), 1)
    assert result.method == "likelihood_mixture"
    assert isinstance(result.expectation, Expectation)
    assert result.expectation.examples == 12
    kinds = sorted(problem.kind for problem in result.problems)
    assert kinds == ["empty class folder", "empty file", "truncated image", "unsupported file"]
    assert [pair[1].rsplit("/", 1)[-1] for pair in result.duplicates] == ["=again, red\n.png"]


def test_the_answers_are_those_of_the_vectors(result, folders):
    paths = {item.name: item.path for item in result.items}
    vectors = torch.tensor(colours([Image.open(path) for path in paths.values()]))
    model = result.model
    scores = METHODS["likelihood_mixture"](model.support, model.labels, vectors, n_ways=3)
    assert result.answers.best.tolist() == scores.argmax(1).tolist()
    wanted = (scores.double() / result.judge.temperature).softmax(1)
    np.testing.assert_allclose(result.answers.probabilities, wanted, rtol=1e-3, atol=1e-6)


def test_everything_is_said_and_the_expectation_before_the_pile(folders):
    events = []

    def stage(what, total):
        events.append(what)
        return lambda steps: None

    result = classify(
        folders / "labelled", folders / "pile", encoder=ENCODER, cache=None, stage=stage, say=events.append
    )
    words = [event for event in events if event in result.words]
    assert words == result.words
    assert words[0] == "12 labelled examples of 3 classes (4 per class), embedded by tones."
    assert words[1].startswith("Expected accuracy of likelihood: 100 %")
    assert events.index(words[1]) < events.index("embedding the pile")
    assert words[2] == "31 items, classified together by likelihood_mixture (transductive), since there are 20 or more."
    assert words[3].startswith("Expected accuracy of likelihood_mixture on this pile: 100 %")
    assert words[-1].startswith("Found 1 item of the pile also among the labelled examples, such as ")


def test_a_class_that_is_misspelt_is_said_before_anything_is_embedded(folders, tmp_path):
    shutil.copytree(folders / "labelled", tmp_path / "labelled")
    (tmp_path / "labelled" / "rde").mkdir()
    (tmp_path / "labelled" / "red" / "3.png").rename(tmp_path / "labelled" / "rde" / "3.png")
    events = []
    fitted = fit(
        tmp_path / "labelled",
        encoder=ENCODER,
        cache=None,
        stage=lambda what, total: events.append(what),
        say=events.append,
    )
    assert fitted.words[0] == events[0]
    assert events[0].startswith("Class 'rde' has 1 labelled example and looks like 'red', which has 3: ")


def test_a_small_pile_is_inductive_and_that_is_said(folders):
    result = classify(folders / "labelled", folders / "labelled" / "red", encoder=ENCODER, cache=None)
    assert result.method == "likelihood"
    assert "4 items, classified one by one by likelihood (inductive), since there are fewer than 20." in result.words
    assert result.answers.predicted == ["red"] * 4
    one = classify(folders / "labelled", folders / "labelled" / "red" / "1.png", encoder=ENCODER, cache=None)
    assert "1 item, classified one by one by likelihood (inductive)." in one.words


def test_a_method_that_was_asked_for_is_used(folders):
    result = classify(folders / "labelled", folders / "pile", encoder=ENCODER, cache=None, method="cosine")
    assert result.method == "cosine"
    assert "31 items, classified one by one by cosine (inductive)." in result.words


def test_a_device_that_is_not_there_is_refused_even_where_vectors_need_none(tmp_path):
    vectors = np.random.default_rng(0).random((6, 4))
    np.savez(tmp_path / "few.npz", features=vectors, labels=np.array(list("aaabbb")))
    np.save(tmp_path / "pile.npy", vectors)
    with pytest.raises(InputError, match="device 'hpu' is not available"):
        fit(tmp_path / "few.npz", device="hpu")
    with pytest.raises(InputError, match="device 'hpu' is not available"):
        predict(fit(tmp_path / "few.npz"), tmp_path / "pile.npy", device="hpu")


def test_table_page_and_folders(result, tmp_path):
    with result.save(tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["path", "predicted", "probability", "runner_up", "margin", "reject"]
    assert [row["predicted"] for row in rows] == result.answers.predicted
    page = result.gallery(tmp_path / "gallery.html", command="likelyshot classify").read_text()
    assert "labelled examples of 3 classes" in page
    assert "Left out: 1 x truncated image" in page
    count, failed = result.sort(tmp_path / "sorted")
    assert (count, failed) == (31, [])
    files = sorted(path.parent.name for path in (tmp_path / "sorted").rglob("*.png"))
    wanted = [
        "_rejected" if reject else name
        for name, reject in zip(result.answers.predicted, result.answers.reject, strict=True)
    ]
    assert files == sorted(wanted)
    with pytest.raises(InputError, match="outside the pile"):
        result.sort(result.root / "sorted")


def test_signed_embeddings_are_rectified_and_that_is_said(folders):
    encoder = callable_encoder(signed, "signed tones")
    result = classify(folders / "labelled", folders / "pile", encoder=encoder, cache=None)
    assert result.model.rectified
    assert any("[relu(x), relu(-x)]" in words for words in result.words)
    assert len(set(result.answers.predicted)) == 3
    plain = classify(folders / "labelled", folders / "pile", encoder=encoder, cache=None, method="cosine")
    assert not plain.model.rectified


def test_texts_in_tables(tmp_path):
    lines = {"animal": ["a cat and a rat", "cats chat at that", "fat bats"], "sum": ["one two", "two four", "four one"]}
    with (tmp_path / "labelled.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *((text, k) for k in lines for text in lines[k])])
    (tmp_path / "pile.csv").write_text("text\na rat sat\nfour two\n   \n")
    encoder = callable_encoder(letters, "letters", kind="text")
    result = classify(tmp_path / "labelled.csv", tmp_path / "pile.csv", encoder=encoder, cache=None)
    assert result.answers.predicted == ["animal", "sum"]
    assert [problem.kind for problem in result.problems] == ["empty text"]


class TestVectors:
    """Piles of features: no encoder is there or needed."""

    @pytest.fixture
    def files(self, features, tmp_path):
        few = torch.cat([torch.arange(40 * k, 40 * k + 5) for k in range(4)])
        rest = torch.cat([torch.arange(40 * k + 5, 40 * k + 30) for k in range(4)])
        labels = [f"class {int(label)}" for label in features.labels[few]]
        np.savez(tmp_path / "few.npz", features=features.vectors[few].numpy(), labels=np.array(labels))
        np.save(tmp_path / "pile.npy", features.vectors[rest].numpy())
        return tmp_path, [f"class {int(label)}" for label in features.labels[rest]]

    def test_a_pile_from_a_file(self, files):
        folder, truth = files
        result = classify(folder / "few.npz", folder / "pile.npy")
        assert np.mean([a == b for a, b in zip(result.answers.predicted, truth, strict=True)]) > 0.8
        assert isinstance(result.rows.vectors, Shards)  # not read into memory
        assert result.answers.names[:2] == ["row 1", "row 2"]
        lines = result.save(folder / "out.jsonl").read_text().splitlines()
        assert json.loads(lines[0])["path"] == "row 1"

    def test_the_expected_accuracy_of_a_method_that_needs_the_pile_is_measured_with_it(self, files):
        folder, truth = files
        rows, kinds = np.load(folder / "pile.npy"), np.array(truth)
        counts = {"class 0": 25, "class 1": 8, "class 2": 4, "class 3": 2}
        imbalanced = np.concatenate([np.flatnonzero(kinds == kind)[:count] for kind, count in counts.items()])
        np.save(folder / "pile.npy", rows[imbalanced])
        result = classify(folder / "few.npz", folder / "pile.npy", method="pt_map")
        real = np.mean(np.array(result.answers.predicted) == kinds[imbalanced])
        low, high = result.expectation.interval
        assert low <= real <= high < 1
        assert result.expectation.method == "pt_map"
        said = [words for words in result.words if words.startswith("Expected accuracy")]
        assert [words.split(":")[0] for words in said] == [
            "Expected accuracy of euclidean",
            "Expected accuracy of pt_map on this pile",
        ]
        loaded = Model.load(fit(folder / "few.npz", method="pt_map").model.save(folder / "m.safetensors"))
        assert predict(loaded, folder / "pile.npy").expectation.accuracy == result.expectation.accuracy

    def test_bad_rows_are_left_out_and_named(self, files):
        folder, truth = files
        rows = np.load(folder / "pile.npy")
        whole = classify(folder / "few.npz", folder / "pile.npy").answers
        rows = np.insert(rows, [3, 10], [[np.nan], [0.0]], axis=0)
        np.save(folder / "pile.npy", rows)
        result = classify(folder / "few.npz", folder / "pile.npy")
        assert [(problem.name, problem.kind) for problem in result.problems] == [
            ("row 4", "not finite"),
            ("row 12", "all zeros"),
        ]
        assert "row 4" not in result.answers.names
        assert len(result.answers) == len(truth)
        np.testing.assert_allclose(result.answers.probabilities, whole.probabilities, rtol=1e-4, atol=1e-6)

    def test_pieces_are_the_whole(self, files, monkeypatch):
        folder, _ = files
        whole = classify(folder / "few.npz", folder / "pile.npy").answers
        monkeypatch.setattr("likelyshot.own_data.rows.CACHE_BYTES", 4 * 12 * 7)  # 7 rows a piece
        result = classify(folder / "few.npz", folder / "pile.npy")
        assert len(list(result.chunks())) == 15
        assert result.answers.names == whole.names
        np.testing.assert_allclose(result.answers.probabilities, whole.probabilities, rtol=1e-3, atol=1e-6)

    def test_a_signed_pile_of_examples_that_are_not(self, files):
        folder, _ = files
        rows = np.load(folder / "pile.npy")
        rows[5, 0] = -0.01
        np.save(folder / "pile.npy", rows)
        result = classify(folder / "few.npz", folder / "pile.npy")
        assert result.model.rectified
        assert sum("relu" in words for words in result.words) == 1
        assert len(result.answers) == len(rows)

    def test_vectors_among_the_examples_are_found(self, files):
        folder, _ = files
        rows, few = np.load(folder / "pile.npy"), np.load(folder / "few.npz")["features"]
        rows[7], rows[50], rows[60] = few[3], few[19], few[3] * [1] + np.eye(12)[np.argmin(few[3])] * 1e-3
        rows[2] = np.nan
        np.save(folder / "pile.npy", rows)
        result = classify(folder / "few.npz", folder / "pile.npy")
        assert result.duplicates == [("row 4", "row 8"), ("row 20", "row 51")]
        assert any("2 items of the pile also among the labelled examples" in words for words in result.words)

    def test_vectors_of_another_length_are_refused(self, files):
        folder, _ = files
        np.save(folder / "pile.npy", np.ones((30, 5)))
        with pytest.raises(InputError, match="those of the pile have 5 numbers, and the labelled examples 12"):
            classify(folder / "few.npz", folder / "pile.npy")

    def test_nothing_usable_is_an_error_that_says_why(self, files):
        folder, _ = files
        np.save(folder / "pile.npy", np.full((30, 12), np.nan))
        with pytest.raises(InputError, match=r"nothing in the pile can be used \(30 x not finite"):
            classify(folder / "few.npz", folder / "pile.npy")

    def test_examples_of_which_one_class_remains(self, tmp_path):
        vectors = np.ones((4, 3))
        vectors[2:] = np.nan
        np.savez(tmp_path / "few.npz", features=vectors, labels=np.array(["a", "a", "b", "b"]))
        with pytest.raises(InputError, match=r"two classes or more, got 1 \(2 x not finite"):
            fit(tmp_path / "few.npz")

    def test_a_class_that_is_lost_is_named(self, tmp_path):
        vectors = np.random.default_rng(0).random((6, 3))
        vectors[4:] = np.nan
        np.savez(tmp_path / "few.npz", features=vectors, labels=np.array(["a", "a", "b", "b", "c", "c"]))
        fitted = fit(tmp_path / "few.npz")
        assert fitted.model.classes == ("a", "b")
        assert Problem("c", "class without a usable example") in fitted.problems


def test_what_is_wrong_with_the_pile_comes_out_before_work_is_done(folders):
    def never(images):
        raise AssertionError

    encoder = callable_encoder(colours, "never asked")
    object.__setattr__(encoder, "function", never)
    with pytest.raises(InputError, match="nothing is at"):
        classify(folders / "labelled", folders / "nowhere", encoder=encoder, cache=None)


def test_too_few_examples_to_reject_and_that_is_said(folders):
    strict = classify(folders / "labelled", folders / "pile", encoder=ENCODER, cache=None, reject=0.01)
    assert any("the 1 % of the pile that are least typical are rejected instead" in words for words in strict.words)
    small = classify(folders / "labelled", folders / "labelled" / "red", encoder=ENCODER, cache=None, reject=0.01)
    assert any(words.endswith("nothing is rejected.") for words in small.words)
    assert not small.answers.reject.any()
    plenty = classify(folders / "labelled", folders / "pile", encoder=ENCODER, cache=None, reject=0.2)
    assert any("less typical than 80 % of the labelled examples" in words for words in plenty.words)
    none = classify(folders / "labelled", folders / "pile", encoder=ENCODER, cache=None, reject=0.0)
    assert "Nothing is rejected." in none.words
    assert not none.answers.reject.any()


class TestModelInFile:
    @pytest.fixture
    def model(self, folders, tmp_path):
        fitted = fit(folders / "labelled", encoder=ENCODER, cache=None)
        return Model.load(fitted.model.save(tmp_path / "model.safetensors"))

    def test_it_answers_as_classify_does(self, model, folders, result):
        again = predict(model, folders / "pile", encoder=ENCODER, cache=None)
        assert again.answers.names == result.answers.names
        assert np.array_equal(again.answers.probabilities, result.answers.probabilities)
        assert np.array_equal(again.answers.reject, result.answers.reject)
        assert again.expectation.accuracy == result.expectation.accuracy

    def test_another_encoder_is_refused(self, model, folders):
        with pytest.raises(InputError, match="expected the encoder that the model was fitted with, tones"):
            predict(model, folders / "pile", encoder=callable_encoder(signed, "signed tones"), cache=None)

    def test_a_model_of_vectors_knows_no_encoder(self, features, folders):
        vectors = features.vectors[[0, 1, 40, 41]]
        with pytest.raises(InputError, match="does not name their encoder: give features, or name the encoder"):
            predict(Model.fit(vectors, ["a", "a", "b", "b"]), folders / "pile")

    def test_a_stream_is_answered_line_by_line(self, model, folders):
        asked = []

        def lines():
            for path in (
                folders / "pile" / "deep" / "er" / "red 3.png",
                "",
                folders / "missing.png",
                folders / "pile" / "cut.png",
                folders / "pile" / "=again, red\n.png",  # a line break ends a line
                folders / "pile" / "deep" / "er" / "blue 2.png",
            ):
                asked.append(path)
                yield f"{path}\n"

        answers = answer_stream(model, ENCODER, lines(), cache=None)
        first = json.loads(next(answers))
        assert len(asked) == 1  # before the second line was read
        assert first["predicted"] == "red"
        assert list(first) == ["path", "predicted", "probability", "runner_up", "margin", "reject"]
        rest = [json.loads(line) for line in answers]
        assert rest[0]["error"] == "missing file"
        assert rest[1]["error"].startswith("truncated image")
        assert rest[-1]["predicted"] == "blue"

    def test_a_stream_gives_what_a_small_pile_gives(self, model, folders):
        folder = folders / "labelled" / "green"
        whole = predict(model, folder, encoder=ENCODER, cache=None).answers
        lines = list(answer_stream(model, ENCODER, [f"{name}\n" for name in whole.names], cache=None))
        for line, row in zip(lines, whole.rows(), strict=True):
            assert json.loads(line)["probability"] == pytest.approx(row.probability, abs=2e-6)

    def test_a_stream_has_no_pile(self, folders):
        asked = fit(folders / "labelled", encoder=ENCODER, cache=None, method="mll_transductive", params={"eta": 0.4})
        assert stream_method(asked.model) == "mll"
        path = folders / "pile" / "deep" / "er" / "red 3.png"
        assert json.loads(next(answer_stream(asked.model, ENCODER, [str(path)], cache=None)))["predicted"] == "red"
        paddle = fit(folders / "labelled", encoder=ENCODER, cache=None, method="paddle")
        with pytest.raises(InputError, match="paddle needs a whole pile"):
            stream_method(paddle.model)

    def test_texts_can_be_streamed(self, tmp_path):
        (tmp_path / "few.csv").write_text("text,label\na cat,x\na rat,x\none two,y\ntwo four,y\n")
        encoder = callable_encoder(letters, "letters", kind="text")
        model = fit(tmp_path / "few.csv", encoder=encoder, cache=None).model
        lines = answer_stream(model, encoder, ["that cat\n", "four one\r\n"], cache=None)
        assert [json.loads(line)["predicted"] for line in lines] == ["x", "y"]


def counting():
    """An encoder, and the numbers of images that it was called with."""
    calls = []

    def count(images):
        calls.append(len(images))
        return colours(images)

    encoder = callable_encoder(count, "counted tones")
    calls.clear()  # what was tried out
    return encoder, calls


def test_vectors_are_kept_in_the_cache(folders, tmp_path):
    encoder, calls = counting()
    once, twice = (fit(folders / "labelled", encoder=encoder, cache=tmp_path) for _ in range(2))
    assert calls == [12]
    assert torch.equal(once.model.support, twice.model.support)


def test_a_stream_opens_the_cache_once(folders, tmp_path, monkeypatch):
    encoder, calls = counting()
    model = fit(folders / "labelled", encoder=encoder, cache=None).model
    opened, connect = [], sqlite3.connect
    monkeypatch.setattr("sqlite3.connect", lambda *args, **kwargs: opened.append(args) or connect(*args, **kwargs))
    lines = [f"{path}\n" for path in sorted((folders / "pile" / "deep" / "er").iterdir())[:5]]
    calls.clear()
    first = list(answer_stream(model, encoder, lines, cache=tmp_path))
    assert len(opened) == 1
    assert calls == [1] * 5
    assert list(answer_stream(model, encoder, lines, cache=tmp_path)) == first
    assert calls == [1] * 5  # the second stream embedded nothing


def test_the_settings_of_classify_are_those_of_fit():
    keywords = [each for each in inspect.signature(fit).parameters.values() if each.kind is each.KEYWORD_ONLY]
    assert [each.name for each in keywords] == list(FitSettings.__annotations__)
    for each in keywords:
        assert f"        {each.name}: " in fit.__doc__
        assert each.name in classify.__doc__


class TestColumns:
    """Tables whose columns have other names than the usual ones."""

    @pytest.fixture
    def tables(self, tmp_path):
        (tmp_path / "few.csv").write_text("remark,species\na cat,x\na rat,x\none two,y\ntwo four,y\n")
        (tmp_path / "pile.csv").write_text("remark\nthat cat\nfour one\n")
        return tmp_path

    def test_they_can_be_named(self, tables):
        encoder = callable_encoder(letters, "letters", kind="text")
        settings = {"label_column": "species", "text_column": "remark", "encoder": encoder, "cache": None}
        result = classify(tables / "few.csv", tables / "pile.csv", **settings)  # the pile needs no labels
        assert result.answers.predicted == ["x", "y"]
        model = fit(tables / "few.csv", **settings).model
        again = predict(model, tables / "pile.csv", text_column="remark", encoder=encoder, cache=None)
        assert again.answers.predicted == ["x", "y"]
        with pytest.raises(InputError, match="label_column"):
            fit(tables / "few.csv", encoder=encoder, cache=None)

    def test_a_named_column_of_numbers_is_no_feature(self, tmp_path):
        rows = np.random.default_rng(0).random((8, 3)) + np.repeat(np.eye(3)[:2] * 3, 4, 0)
        for name, part in (("few", rows[::2]), ("pile", rows[1::2])):
            lines = [",".join(map(str, [*row, i // 2])) for i, row in enumerate(part)]
            (tmp_path / f"{name}.csv").write_text("\n".join(["f0,f1,f2,kind", *lines]))
        result = classify(tmp_path / "few.csv", tmp_path / "pile.csv", label_column="kind")
        assert result.answers.predicted == ["0", "0", "1", "1"]


def test_gathering_without_an_encoder_is_refused():
    with pytest.raises(InputError, match="expected an encoder for items"):
        gather(Pile([Item("a", text="a")], None, [], "text"), None)


def test_a_summary_counts_and_names_a_few():
    problems = [Problem(f"{i}.png", "truncated image") for i in range(5)] + [Problem("x" * 300 + "\n", "empty file")]
    lines = summary(problems)
    assert lines[0] == "5 x truncated image: '0.png', '1.png', '2.png', ..."
    assert len(lines[1]) < 120
    assert "\n" not in lines[1]
    assert summary([]) == []
