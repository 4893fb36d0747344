"""From folders, tables and files to answers, by encoders made for the purpose."""

from __future__ import annotations

import csv
import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from likelyshot.confidence.expectation import Expectation
from likelyshot.data.items import Item, Problem
from likelyshot.encoders.pretrained import callable_encoder
from likelyshot.errors import InputError
from likelyshot.methods import METHODS
from likelyshot.own_data.gathering import gather, summary
from likelyshot.own_data.model import Model
from likelyshot.own_data.piles import Pile
from likelyshot.own_data.pipeline import classify, fit, predict
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
def found(folders):
    return classify(folders / "labelled", folders / "pile", encoder=ENCODER, cache=None)


def test_a_folder_of_images(found, folders):
    answers = found.answers
    assert len(answers) == len(found.items) == 31
    truth = [next(colour for colour in COLOURS if colour in name.rsplit("/", 1)[-1]) for name in answers.names]
    assert answers.predicted == truth
    np.testing.assert_allclose(answers.probabilities.sum(1), 1)
    assert found.method == "mll_transductive"
    assert isinstance(found.expectation, Expectation)
    assert found.expectation.examples == 12
    kinds = sorted(problem.kind for problem in found.problems)
    assert kinds == ["empty class folder", "empty file", "truncated image", "unsupported file"]
    assert [pair[1].rsplit("/", 1)[-1] for pair in found.duplicates] == ["=again, red\n.png"]


def test_the_answers_are_those_of_the_vectors(found, folders):
    paths = {item.name: item.path for item in found.items}
    vectors = torch.tensor(colours([Image.open(path) for path in paths.values()]))
    model = found.model
    scores = METHODS["mll_transductive"](model.support, model.labels, vectors, n_ways=3)
    assert found.answers.best.tolist() == scores.argmax(1).tolist()
    wanted = (scores.double() / found.judge.temperature).softmax(1)
    np.testing.assert_allclose(found.answers.probabilities, wanted, rtol=1e-3, atol=1e-6)


def test_everything_is_said_and_the_expectation_before_the_pile(folders):
    events = []

    def stage(what, total):
        events.append(what)
        return lambda steps: None

    found = classify(
        folders / "labelled", folders / "pile", encoder=ENCODER, cache=None, stage=stage, say=events.append
    )
    said = [event for event in events if event in found.words]
    assert said == found.words
    assert said[0] == "12 labelled examples of 3 classes, 4 a class, embedded by tones."
    assert "12 labelled examples that can be held out" in said[1]
    assert events.index(said[1]) < events.index("embedding the pile")
    assert any("31 items, classified as a whole by mll_transductive (transductive)" in words for words in said)
    assert any("also among the labelled examples" in words for words in said)


def test_a_small_pile_is_inductive_and_that_is_said(folders):
    found = classify(folders / "labelled", folders / "labelled" / "red", encoder=ENCODER, cache=None)
    assert found.method == "mll"
    assert any("4 items, classified one by one by mll (inductive)" in words for words in found.words)
    assert found.answers.predicted == ["red"] * 4
    one = classify(folders / "labelled", folders / "labelled" / "red" / "1.png", encoder=ENCODER, cache=None)
    assert any(words.startswith("1 item, ") for words in one.words)


def test_a_method_that_was_asked_for_is_used(folders):
    found = classify(folders / "labelled", folders / "pile", encoder=ENCODER, cache=None, method="cosine")
    assert found.method == "cosine"
    assert any("by cosine, which is inductive" in words for words in found.words)


def test_table_page_and_folders(found, tmp_path):
    with found.save(tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["path", "predicted", "probability", "runner_up", "margin", "reject"]
    assert [row["predicted"] for row in rows] == found.answers.predicted
    page = found.gallery(tmp_path / "gallery.html", command="likelyshot classify").read_text()
    assert "labelled examples of 3 classes" in page
    assert "Left out: 1 x truncated image" in page
    count, failed = found.sort(tmp_path / "sorted")
    assert (count, failed) == (31, [])
    files = sorted(path.parent.name for path in (tmp_path / "sorted").rglob("*.png"))
    wanted = [
        "_rejected" if reject else name
        for name, reject in zip(found.answers.predicted, found.answers.reject, strict=True)
    ]
    assert files == sorted(wanted)
    with pytest.raises(InputError, match="outside the pile"):
        found.sort(found.root / "sorted")


def test_signed_embeddings_are_rectified_and_that_is_said(folders):
    encoder = callable_encoder(signed, "signed tones")
    found = classify(folders / "labelled", folders / "pile", encoder=encoder, cache=None)
    assert found.model.rectified
    assert any("[relu(x), relu(-x)]" in words for words in found.words)
    assert len(set(found.answers.predicted)) == 3
    plain = classify(folders / "labelled", folders / "pile", encoder=encoder, cache=None, method="cosine")
    assert not plain.model.rectified


def test_texts_in_tables(tmp_path):
    lines = {"animal": ["a cat and a rat", "cats chat at that", "fat bats"], "sum": ["one two", "two four", "four one"]}
    with (tmp_path / "labelled.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *((text, k) for k in lines for text in lines[k])])
    (tmp_path / "pile.csv").write_text("text\na rat sat\nfour two\n   \n")
    encoder = callable_encoder(letters, "letters", kind="text")
    found = classify(tmp_path / "labelled.csv", tmp_path / "pile.csv", encoder=encoder, cache=None)
    assert found.answers.predicted == ["animal", "sum"]
    assert [problem.kind for problem in found.problems] == ["empty text"]


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
        found = classify(folder / "few.npz", folder / "pile.npy")
        assert np.mean([a == b for a, b in zip(found.answers.predicted, truth, strict=True)]) > 0.8
        assert isinstance(found.rows.vectors, np.memmap)
        assert found.answers.names[:2] == ["row 1", "row 2"]
        lines = found.save(folder / "out.jsonl").read_text().splitlines()
        assert json.loads(lines[0])["path"] == "row 1"

    def test_bad_rows_are_left_out_and_named(self, files):
        folder, truth = files
        rows = np.load(folder / "pile.npy")
        whole = classify(folder / "few.npz", folder / "pile.npy").answers
        rows = np.insert(rows, [3, 10], [[np.nan], [0.0]], axis=0)
        np.save(folder / "pile.npy", rows)
        found = classify(folder / "few.npz", folder / "pile.npy")
        assert [(problem.name, problem.kind) for problem in found.problems] == [
            ("row 4", "not finite"),
            ("row 12", "all zeros"),
        ]
        assert "row 4" not in found.answers.names
        assert len(found.answers) == len(truth)
        np.testing.assert_allclose(found.answers.probabilities, whole.probabilities, rtol=1e-4, atol=1e-6)

    def test_pieces_are_the_whole(self, files, monkeypatch):
        folder, _ = files
        whole = classify(folder / "few.npz", folder / "pile.npy").answers
        monkeypatch.setattr("likelyshot.own_data.streaming.CPU_CHUNK_BYTES", 4 * 12 * 7)  # 7 rows a piece
        found = classify(folder / "few.npz", folder / "pile.npy")
        assert len(list(found.chunks())) == 15
        assert found.answers.names == whole.names
        np.testing.assert_allclose(found.answers.probabilities, whole.probabilities, rtol=1e-3, atol=1e-6)

    def test_a_signed_pile_of_examples_that_are_not(self, files):
        folder, _ = files
        rows = np.load(folder / "pile.npy")
        rows[5, 0] = -0.01
        np.save(folder / "pile.npy", rows)
        found = classify(folder / "few.npz", folder / "pile.npy")
        assert found.model.rectified
        assert sum("relu" in words for words in found.words) == 1
        assert len(found.answers) == len(rows)

    def test_vectors_among_the_examples_are_found(self, files):
        folder, _ = files
        rows, few = np.load(folder / "pile.npy"), np.load(folder / "few.npz")["features"]
        rows[7], rows[50], rows[60] = few[3], few[19], few[3] * [1] + np.eye(12)[np.argmin(few[3])] * 1e-3
        rows[2] = np.nan
        np.save(folder / "pile.npy", rows)
        found = classify(folder / "few.npz", folder / "pile.npy")
        assert found.duplicates == [("row 4", "row 8"), ("row 20", "row 51")]
        assert any("2 of the pile are also among the labelled examples" in words for words in found.words)

    def test_vectors_of_another_length_are_refused(self, files):
        folder, _ = files
        np.save(folder / "pile.npy", np.ones((30, 5)))
        with pytest.raises(InputError, match="those of the pile have 5 numbers, but the labelled examples 12"):
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
    assert any("the strangest 1 % of the pile are rejected instead" in words for words in strict.words)
    small = classify(folders / "labelled", folders / "labelled" / "red", encoder=ENCODER, cache=None, reject=0.01)
    assert any(words.endswith("nothing is rejected.") for words in small.words)
    assert not small.answers.reject.any()
    plenty = classify(folders / "labelled", folders / "pile", encoder=ENCODER, cache=None, reject=0.2)
    assert any("stranger than all but 20 % of the labelled examples" in words for words in plenty.words)
    none = classify(folders / "labelled", folders / "pile", encoder=ENCODER, cache=None, reject=0.0)
    assert "Nothing is rejected." in none.words
    assert not none.answers.reject.any()


class TestModelInFile:
    @pytest.fixture
    def model(self, folders, tmp_path):
        fitted = fit(folders / "labelled", encoder=ENCODER, cache=None)
        return Model.load(fitted.model.save(tmp_path / "model.safetensors"))

    def test_it_answers_as_classify_does(self, model, folders, found):
        again = predict(model, folders / "pile", encoder=ENCODER, cache=None)
        assert again.answers.names == found.answers.names
        assert np.array_equal(again.answers.probabilities, found.answers.probabilities)
        assert np.array_equal(again.answers.reject, found.answers.reject)
        assert again.expectation is None

    def test_another_encoder_is_refused(self, model, folders):
        with pytest.raises(InputError, match="expected the encoder that the model was fitted with, tones"):
            predict(model, folders / "pile", encoder=callable_encoder(signed, "signed tones"), cache=None)

    def test_a_model_of_vectors_knows_no_encoder(self, features, folders):
        vectors = features.vectors[[0, 1, 40, 41]]
        with pytest.raises(InputError, match="does not know: give features, or name the encoder"):
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


def test_vectors_are_kept_in_the_cache(folders, tmp_path):
    once, twice = (fit(folders / "labelled", encoder=ENCODER, cache=tmp_path) for _ in range(2))
    assert once.rows.encoded == 12
    assert twice.rows.encoded == 0
    assert torch.equal(once.model.support, twice.model.support)


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
