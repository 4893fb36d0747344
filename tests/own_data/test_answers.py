"""Tables of answers: the columns by naive loops, and three formats that hold the same."""

from __future__ import annotations

import csv
import itertools
import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from likelyshot.errors import InputError
from likelyshot.own_data.answers import FORMULA, Answers, check_answers_path, json_lines, write_answers

COLUMNS = ["path", "predicted", "probability", "runner_up", "margin", "reject"]
NAMES = [
    "a.jpg",
    "b,c.jpg",
    'quo"te',
    "line\nbreak",
    "lone\rreturn",
    "=1+1",
    "+a",
    "-b",
    "@c",
    "\td",
    "\re",
    "🦉 é",
    "'=x",
    "",
]


def make(n: int = 20, k: int = 4, seed: int = 0, dtype: type = np.float32, names: list[str] | None = None) -> Answers:
    chance = np.random.default_rng(seed)
    names = names or [f"{i}.jpg" for i in range(n)]
    probabilities = chance.dirichlet([0.5] * k, len(names)).astype(dtype)
    classes = [f"class {i}" for i in range(k)]
    return Answers(names, classes, probabilities, chance.random(len(names)) < 0.3, chance.random(len(names)))


def read(path):
    if path.suffix == ".csv":
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        for row in rows:
            row.update(
                probability=float(row["probability"]), margin=float(row["margin"]), reject=row["reject"] == "true"
            )
        return rows
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return parquet.read_table(path).to_pylist()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_are_what_sorting_gives(dtype):
    answers = make(200, 5, dtype=dtype)
    for i, row in enumerate(answers.rows()):
        order = sorted(range(5), key=lambda j: -answers.probabilities[i, j])
        first, second = (float(answers.probabilities[i, j]) for j in order[:2])
        assert row.path == f"{i}.jpg"
        assert (row.predicted, row.runner_up) == (f"class {order[0]}", f"class {order[1]}")
        assert row.probability == pytest.approx(first, abs=1e-6)
        assert row.margin == pytest.approx(first - second, abs=2e-6)
        assert row.reject is bool(answers.reject[i])
    assert answers.predicted == [row.predicted for row in answers.rows()]
    assert answers.runner_up == [row.runner_up for row in answers.rows()]


def test_equals_go_to_the_first_class_and_the_runner_up_is_another():
    answers = Answers(["a"], ["x", "y", "z"], np.full((1, 3), 1 / 3), np.array([False]), np.zeros(1))
    row = next(answers.rows())
    assert (row.predicted, row.runner_up, row.margin) == ("x", "y", 0.0)
    certain = Answers(["a"], ["x", "y"], np.array([[1.0, 0.0]]), np.array([False]), np.zeros(1))
    assert next(certain.rows())[1:5] == ("x", 1.0, "y", 1.0)


def test_a_single_class_has_no_runner_up(tmp_path):
    answers = Answers(["a"], ["x"], np.ones((1, 1)), np.array([True]), np.zeros(1))
    for suffix in (".csv", ".parquet", ".jsonl"):
        (row,) = read(write_answers(tmp_path / f"t{suffix}", answers))
        assert row == dict(zip(COLUMNS, ["a", "x", 1.0, "", 1.0, True], strict=True))


def test_shares_are_mean_probabilities_of_what_is_not_rejected():
    answers = make(50, 3)
    kept = [row for row, out in zip(answers.probabilities, answers.reject, strict=True) if not out]
    expected = [sum(float(row[j]) for row in kept) / len(kept) for j in range(3)]
    np.testing.assert_allclose(answers.shares(), expected, rtol=1e-6)
    nothing = Answers(["a"], ["x", "y"], np.array([[0.5, 0.5]]), np.array([True]), np.zeros(1))
    assert nothing.shares().tolist() == [0.0, 0.0]


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl", ".CSV"])
def test_every_format_holds_the_rows_in_order_and_chunks_change_nothing(tmp_path, suffix):
    answers = make(57)
    whole = write_answers(tmp_path / f"whole{suffix}", answers)
    cuts = [0, 1, 1, 40, 57]
    pieces = (
        Answers(
            answers.names[a:b], answers.classes, answers.probabilities[a:b], answers.reject[a:b], answers.novelty[a:b]
        )
        for a, b in itertools.pairwise(cuts)
    )
    chunks = write_answers(tmp_path / f"chunks{suffix}", pieces)
    if suffix != ".CSV":
        expected = [row._asdict() for row in answers.rows()]
        assert read(whole) == read(chunks) == expected
        assert list(read(whole)[0]) == COLUMNS
    if suffix != ".parquet":
        assert whole.read_bytes() == chunks.read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {whole.name, chunks.name}


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_no_rows_make_an_empty_table(tmp_path, suffix):
    for name, answers in (("none", iter([])), ("empty", make(names=["a"]).__class__([], ["x"], *_nothing()))):
        path = write_answers(tmp_path / f"{name}{suffix}", answers)
        assert read(path) == []
    if suffix == ".csv":
        assert path.read_text() == ",".join(f'"{name}"' for name in COLUMNS) + "\n"
    if suffix == ".parquet":
        assert parquet.read_schema(path).names == COLUMNS


def _nothing():
    return np.empty((0, 1)), np.empty(0, bool), np.empty(0)


def test_names_survive_and_no_cell_of_csv_is_a_formula(tmp_path):
    answers = make(names=NAMES)
    table = read(write_answers(tmp_path / "a.csv", answers))
    for name, row in zip(NAMES, table, strict=True):
        assert row["path"] == (f"'{name}" if name.startswith(FORMULA) else name)
    for suffix in (".jsonl", ".parquet"):
        assert [row["path"] for row in read(write_answers(tmp_path / f"a{suffix}", answers))] == NAMES
    text = (tmp_path / "a.csv").read_text("utf-8")
    row = next(answers.rows())
    line = f'"{row.path}","{row.predicted}",{row.probability},"{row.runner_up}",{row.margin},{str(row.reject).lower()}'
    assert text.splitlines()[1] == line


def test_class_names_are_defused_too(tmp_path):
    answers = Answers(["a"], ["=HYPERLINK(1,2)", "-x"], np.array([[0.6, 0.4]]), np.array([False]), np.zeros(1))
    (row,) = read(write_answers(tmp_path / "a.csv", answers))
    assert (row["predicted"], row["runner_up"]) == ("'=HYPERLINK(1,2)", "'-x")


@settings(max_examples=60, deadline=None)
@given(
    names=st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8), max_size=5)
)
def test_any_names_come_back_from_csv(tmp_path_factory, names):
    folder = tmp_path_factory.getbasetemp()
    back = [row["path"] for row in read(write_answers(folder / "any.csv", make(names=names or ["-"])))]
    assert back == [f"'{name}" if name[:1] and name[0] in "=+-@\t\r\n" else name for name in names or ["-"]]


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_names_that_are_not_unicode_are_written_as_escapes(tmp_path, suffix):
    answers = Answers(["caf\udce9"], ["\udcff"], np.ones((1, 1)), np.array([False]), np.zeros(1))
    (row,) = read(write_answers(tmp_path / f"a{suffix}", answers))
    assert (row["path"], row["predicted"]) == ("caf\\udce9", "\\udcff")


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_a_failure_half_way_leaves_what_was_there(tmp_path, suffix):
    path = write_answers(tmp_path / f"a{suffix}", make(3))
    before = path.read_bytes()

    def broken(error):
        yield make(5)
        raise error

    for error in (KeyboardInterrupt(), InputError("no"), RuntimeError("x")):
        with pytest.raises(type(error)):
            write_answers(path, broken(error))
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_written_tables_have_ordinary_permissions(tmp_path):
    (tmp_path / "plain").write_text("")
    path = write_answers(tmp_path / "a.csv", make(3))
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_memory_does_not_grow_with_the_table(tmp_path, suffix):
    chunk = make(500)

    def peak(count):
        tracemalloc.start()
        write_answers(tmp_path / f"a{suffix}", (chunk for _ in range(count)))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(1)
    assert peak(20) < 2 * peak(2)


@pytest.mark.parametrize("name", ["a.xlsx", "a", "a.csv.gz", ".csv/"])
def test_other_endings_are_refused_and_the_three_named(tmp_path, name):
    with pytest.raises(InputError, match=r"\.csv, \.parquet or \.jsonl"):
        check_answers_path(tmp_path / name)


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_any_name_of_a_file_can_be_written(tmp_path, ending):
    assert write_answers(tmp_path / f"caf\udce9.{ending}", make(1)).stat().st_size


def test_places_that_cannot_be_written_are_refused(tmp_path):
    (tmp_path / "a.csv").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        write_answers(tmp_path / "a.csv", make(1))
    with pytest.raises(InputError, match="create it first"):
        write_answers(tmp_path / "no" / "b.csv", make(1))
    with pytest.raises(InputError, match="cannot write"):
        write_answers("/proc/b.csv", make(1))


def test_what_does_not_fit_is_refused():
    good = {
        "names": ["a"],
        "classes": ["x", "y"],
        "probabilities": np.array([[0.5, 0.5]]),
        "reject": np.array([False]),
        "novelty": np.zeros(1),
    }
    Answers(**good)
    for wrong, said in (
        ({"names": ["a", "b"]}, "a row per name"),
        ({"classes": ["x"]}, "a row per name"),
        ({"classes": [], "probabilities": np.empty((1, 0))}, "a row per name"),
        ({"reject": np.array([False, True])}, "reject of shape"),
        ({"novelty": np.zeros((1, 1))}, "novelty of shape"),
        ({"probabilities": np.array([[np.nan, 0.5]])}, "from 0 to 1"),
        ({"probabilities": np.array([[-3.0, 0.5]])}, "apply softmax"),
    ):
        with pytest.raises(InputError, match=said):
            Answers(**{**good, **wrong})


def test_a_json_line_is_one_line():
    line = "".join(json_lines(make(names=["a\nb"])))
    assert line.count("\n") == 1
    assert list(json.loads(line)) == COLUMNS


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_texts_and_all_probabilities_have_columns(tmp_path, suffix):
    values = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
    answers = Answers(["1", "2"], ["cat", "=dog", "owl"], values, np.zeros(2, bool), np.zeros(2), ["purrs", "=hoots"])
    rows = read(write_answers(tmp_path / f"a{suffix}", [answers, answers], all_probabilities=True))
    mark = "'" if suffix == ".csv" else ""
    assert [row["text"] for row in rows] == ["purrs", f"{mark}=hoots"] * 2
    columns = [f"probability of {name}" for name in ("cat", "=dog", "owl")]
    assert [[float(row[column]) for column in columns] for row in rows] == values.tolist() * 2
    assert list(rows[0]) == [*COLUMNS, "text", *columns]


def test_answers_as_a_data_frame():
    frame = make(3).to_pandas(all_probabilities=True)
    assert len(frame) == 3
    assert list(frame.columns)[:6] == COLUMNS
    assert frame.filter(like="probability of").sum(axis=1).round(5).tolist() == [1, 1, 1]


def test_a_data_frame_needs_pandas(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match="pip install pandas"):
        make(3).to_pandas()
