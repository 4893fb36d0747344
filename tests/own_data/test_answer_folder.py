"""Answers in a folder, in parts and after a kill, against one table."""

from __future__ import annotations

import shutil

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from likelyshot.errors import InputError
from likelyshot.own_data import answer_folder, rows
from likelyshot.own_data.answer_folder import merge_answers
from likelyshot.own_data.answers import Tally
from likelyshot.own_data.pipeline import classify
from likelyshot.workers import Part


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Labelled examples, a pile of 500 rows in two Parquet files, blocks of 30 rows and files of 60."""
    monkeypatch.setattr(rows, "CACHE_BYTES", 4 * 8 * 30)
    monkeypatch.setattr(answer_folder, "FILE_ROWS", 60)
    draw = np.random.default_rng(0)
    labels = np.arange(512) % 3
    vectors = (draw.standard_exponential((512, 8)) * (0.2 + np.eye(3, 8)[labels])).astype(np.float16)
    vectors[70] = 0  # of no use
    np.savez(tmp_path / "few.npz", features=vectors[:12], labels=labels[:12])
    (tmp_path / "pile").mkdir()
    for number, part in enumerate(np.array_split(np.arange(12, 512), 2)):
        names = [f"img/{row}.jpg" for row in part]
        cells = pa.FixedSizeListArray.from_arrays(pa.array(vectors[part].reshape(-1)), 8)
        parquet.write_table(pa.table({"path": names, "embedding": cells}), tmp_path / "pile" / f"{number}.parquet")
    return tmp_path


@pytest.mark.parametrize("method", [None, "mll_transductive", "mll", "pt_map"])
def test_parts_are_one_run_to_the_bit(place, method):
    def found(pattern="pile"):
        return classify(place / "few.npz", place / pattern, method=method)

    whole, tally = Tally(("0", "1", "2")), Tally(("0", "1", "2"))
    found().save(place / "one.csv", tally=whole)
    for number in (2, 1, 3):
        found("pile/*.parquet").save(place / "parts", part=Part(number, 3), tally=tally)
    assert merge_answers(place / "parts", place / "all.csv") == 499
    assert (place / "all.csv").read_bytes() == (place / "one.csv").read_bytes()
    assert tally.accepted == whole.accepted
    assert b'"img/71.jpg"' in (place / "one.csv").read_bytes()
    assert b'"img/70.jpg"' not in (place / "one.csv").read_bytes()


def test_what_is_finished_is_not_done_again(place, monkeypatch):
    result = classify(place / "few.npz", place / "pile")
    result.save(place / "answers")
    wanted = {file.name: file.read_bytes() for file in (place / "answers").iterdir()}
    assert len(wanted) == 10
    gone = sorted(wanted)[4]  # the first is the manifest
    (place / "answers" / gone).unlink()
    with pytest.raises(InputError, match=rf"9 files.*1 is missing, such as {gone}"):
        merge_answers(place / "answers", place / "all.csv")
    asked = []
    chunks = type(result).chunks
    monkeypatch.setattr(type(result), "chunks", lambda self, numbers: asked.extend(numbers) or chunks(self, numbers))
    tally = Tally(result.model.classes)
    classify(place / "few.npz", place / "pile").save(place / "answers", tally=tally)
    assert asked == [6, 7]
    assert tally.answers == 499
    assert {file.name: file.read_bytes() for file in (place / "answers").iterdir()} == wanted


def test_a_failure_leaves_whole_files_only(place, monkeypatch):
    result = classify(place / "few.npz", place / "pile")
    chunks = type(result).chunks

    def failing(self, numbers):
        for number, answers in zip(numbers, chunks(self, numbers), strict=True):
            if number == 5:
                raise KeyboardInterrupt
            yield answers

    monkeypatch.setattr(type(result), "chunks", failing)
    with pytest.raises(KeyboardInterrupt):
        result.save(place / "answers")
    tables = [file for file in (place / "answers").iterdir() if file.suffix == ".parquet"]
    assert [len(parquet.read_table(file)) for file in sorted(tables)] == [60, 60]


def test_a_missing_part_is_named(place):
    classify(place / "few.npz", place / "pile").save(place / "answers", part=Part(1, 3))
    with pytest.raises(InputError, match=r"parts 2, 3 of 3 are not finished: run --part 2/3 again"):
        merge_answers(place / "answers", place / "all.csv")


def test_folders_of_others_are_refused(place):
    classify(place / "few.npz", place / "pile").save(place / "answers")
    with pytest.raises(InputError, match="has others: choose another folder"):
        classify(place / "few.npz", place / "pile", method="mll").save(place / "answers")
    with pytest.raises(InputError, match="has other Parquet files"):
        classify(place / "few.npz", place / "pile").save(place / "pile")
    with pytest.raises(InputError, match=r"a part of the answers, but got .*a\.csv"):
        classify(place / "few.npz", place / "pile").save(place / "a.csv", part=Part(1, 2))
    with pytest.raises(InputError, match="a folder of answers of likelyshot"):
        merge_answers(place, place / "all.csv")


def test_files_of_another_run_are_refused(place):
    result = classify(place / "few.npz", place / "pile")
    result.save(place / "answers")
    classify(place / "few.npz", place / "pile", method="mll").save(place / "others")
    first, second = sorted((place / "answers").glob("*.parquet"))[:2]
    for other in (place / "others" / first.name, second):  # of another model, or another file of this run
        shutil.copy(other, first)
        with pytest.raises(InputError, match=rf"written to .*answers, but {first.name} is of another run: remove it"):
            merge_answers(place / "answers", place / "all.csv")
        with pytest.raises(InputError, match=f"{first.name} is of another run"):
            result.save(place / "answers", tally=Tally(result.model.classes))
    assert not (place / "all.csv").exists()


def test_a_merged_table_is_what_one_command_writes(place):
    result = classify(place / "few.npz", place / "pile")
    result.save(place / "answers")
    merge_answers(place / "answers", place / "merged.parquet")
    result.save(place / "one.parquet")
    assert parquet.read_schema(place / "merged.parquet").metadata is None
    assert parquet.read_table(place / "merged.parquet").equals(parquet.read_table(place / "one.parquet"))
