"""Piles out of tables and files of vectors, which may be many, and larger than memory."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from likelyshot.data.arrays import float_tensor, number_classes
from likelyshot.data.features import choose_split, open_features, read_labels, read_paths
from likelyshot.data.files import locate
from likelyshot.data.items import Item, Lazy, Listed, Numbered, Problem, existing, left_out
from likelyshot.data.shards import Shard, Shards, open_shard, read_cells, same_columns
from likelyshot.data.tables import LABEL_COLUMNS, Column, Table, as_text, as_written
from likelyshot.errors import InputError

PATH_COLUMNS = ("path", "image", "file", "filename")
TEXT_COLUMNS = ("text", "sentence", "title")
NAME_COLUMNS = (*PATH_COLUMNS, "name", "id")
ANSWER_COLUMNS = ("predicted",)  # the labels of a table of answers, which can be corrected and used again


class Columns(NamedTuple):
    """The columns that the user named."""

    path: str | None
    label: str | None
    text: str | None


@dataclass(frozen=True, eq=False)
class Pile:
    """Items in order, their vectors if these are known already, and what was left out."""

    items: Sequence[Item]
    vectors: NDArray[Any] | Shards | None  # (n, d), perhaps in files; not looked through for NaN
    problems: list[Problem]
    kind: Literal["image", "text", "features"]
    root: Path | None = None  # the folder that was searched, if it was one
    answered: bool = False  # whether labels are answers of an earlier run


def from_table(table: Table, columns: Columns, folders: Sequence[Path], labelled: bool) -> Pile:
    """Make a pile of embeddings if the table has them, else of images, all within `folders`, else of texts."""
    count = len(table.rows)
    problems = list(table.problems)
    if not count:
        raise InputError(f"expected rows below a header, but found none{left_out(problems)}: add rows")
    known = {column.name for column in table.columns}
    answers = table.find(ANSWER_COLUMNS)  # None unless this is a table of answers, or of corrections
    if answers is not None:  # its columns are ours, not those of the user's tables
        columns = Columns(*(name if name in known else None for name in columns))
    named = columns.label if labelled or columns.label in known else None  # a pile needs no labels
    label_column = table.named(named) if named else table.find(LABEL_COLUMNS)
    if answers is not None:
        folders = [*folders, Path.cwd().resolve()]  # its paths are as the user typed them
        label_column = label_column or (answers if labelled else None)
    if labelled and label_column is None:
        usual = ", ".join(LABEL_COLUMNS)
        raise InputError(
            f"expected a column of labels ({usual}), but got {table.header}: name yours with --label-column "
            "(label_column= in Python)"
        )
    labels = [None] * count if label_column is None else [cell or None for cell in label_column.texts()]
    answered = answers is not None and label_column is answers
    if answered:
        rejected = table.find(["reject"])
        of_no_class = [False] * count if rejected is None else [cell.lower() == "true" for cell in rejected.texts()]
        labels = [None if no else label and as_written(label) for label, no in zip(labels, of_no_class, strict=True)]
    vectors = None if columns.path or columns.text else _vectors(table, columns)
    paths = table.named(columns.path) if columns.path else table.find(PATH_COLUMNS)
    texts = table.named(columns.text) if columns.text else table.find(TEXT_COLUMNS)
    name_column = table.find(NAME_COLUMNS)
    cells = [""] * count if name_column is None else name_column.texts()
    names = [cell or f"row {number}" for cell, number in zip(cells, table.rows, strict=True)]
    if vectors is not None:
        files = [None] * count if paths is None else [existing(name, folders) for name in paths.texts()]  # to be shown
        words = [None] * count if texts is None else texts.texts()
        items = [Item(*row) for row in zip(names, labels, files, words, strict=True)]
        return replace(vector_pile(vectors), items=items, problems=problems)
    if paths is not None and not columns.text and (answers is None or texts is None):
        return replace(_image_pile(paths, labels, problems, folders), answered=answered)
    if texts is None:
        expected = "a column of paths (path, image, file), of texts (text, sentence, title) or of embeddings"
        raise InputError(
            f"expected {expected}, but got {table.header}: name yours with --path-column or --text-column "
            "(path_column= or text_column= in Python)"
        )
    cells = texts.texts() if answers is None else list(map(as_written, texts.texts()))
    rows = list(zip(names, labels, cells, strict=True))
    empty = [Problem(name, "empty text") for name, _, text in rows if not text.strip()]
    items = [Item(name, label, text=text) for name, label, text in rows if text.strip()]
    return Pile(items, None, problems + empty, "text", answered=answered)


def _vectors(table: Table, columns: Columns) -> Any:
    """Give the embeddings of a table; None if it has paths or texts instead."""
    pattern = number_pattern([column.name for column in table.columns])
    return table.vectors(ignored=[columns.label] if columns.label else [], pattern=pattern)


def number_pattern(names: Sequence[str]) -> str:
    """Give what columns of numbers are called that belong to a vector: width and height of an image do not."""
    known = {name.strip().lower() for name in names}
    return r"(f|x|dim|feature|embedding)?_?\d+" if known & {*PATH_COLUMNS, *TEXT_COLUMNS} else ".*"


def _image_pile(paths: Column, labels: Sequence[str | None], problems: list[Problem], folders: Sequence[Path]) -> Pile:
    items: list[Item] = []
    for name, label, number in zip(paths.texts(), labels, paths.rows, strict=True):
        place = locate(name, folders)
        if isinstance(place, str) and as_written(name) != name:
            name = as_written(name)
            place = locate(name, folders)
        if isinstance(place, Path):
            items.append(Item(name, label, place))
        else:
            problems.append(Problem(name or f"row {number}", place, f"row {number}"))
    return Pile(items, None, problems, "image")


def read_features(path: Path, labelled: bool, folders: Sequence[Path] = ()) -> Pile:
    """Read vectors, and their labels if they are wanted; those of .npy and .safetensors stay in the file.

    Items have the paths that the file keeps, and are found again within `folders`.
    """
    parts = open_features(path, mapped=True).parts
    part = parts[choose_split(None, parts)]()
    shard = None if labelled or path.suffix.lower() not in (".npy", ".safetensors") else open_shard(path)
    if shard is not None:
        pile = Pile(Numbered(shard.rows), Shards([shard]), [], "features")
    else:
        pile = vector_pile(part.vectors)
    paths = read_paths(part.paths)
    if paths is not None:
        if len(paths) != len(pile.items):
            got = f"{len(pile.items)} rows and {len(paths)} paths"
            raise InputError(f"expected one path per row, but got {got}: write the file again")
        pile = replace(pile, items=Listed(paths, folders))
    if not labelled:
        return pile
    if part.labels is None:
        raise InputError(f"expected {part.expected}, but found no labels: add them")
    numbers, names = number_classes(read_labels(part.labels), part.classes)
    if len(numbers) != len(pile.items):
        got = f"{len(pile.items)} rows and {len(numbers)} labels"
        raise InputError(f"expected one label per row, but got {got}: give as many labels as rows")
    items = [replace(item, label=names[number]) for item, number in zip(pile.items, numbers, strict=True)]
    return replace(pile, items=items)


def vector_pile(values: Any) -> Pile:
    """Make a pile of vectors (n, d), in half, single or double precision."""
    if not (isinstance(values, np.ndarray) and values.dtype in (np.float16, np.float32, np.float64)):
        tensor = float_tensor(values).cpu()
        values = (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()  # unknown to numpy
    if values.ndim != 2 or 0 in values.shape:
        raise InputError(
            f"expected vectors of shape (n, d), with n and d above 0, but got {values.shape}: reshape them"
        )
    return Pile(Numbered(len(values)), values, [], "features")


def from_shards(paths: Sequence[Path], columns: Columns, folders: Sequence[Path]) -> Pile:
    """Make a pile of the embeddings in many files, which are not read now; those without any are among the problems.

    Args:
        paths: The files, in order: .npy, .safetensors or .parquet.
        columns: The columns of tables that the user named.
        folders: Where the files are that tables name.
    """
    tables = [path for path in paths if path.suffix.lower() == ".parquet"]
    pattern = number_pattern(_column_names(tables[0])) if tables else ".*"
    shards, problems = [], []
    for path in paths:
        shard = open_shard(path, pattern, [columns.label] if columns.label else [])
        if shard is None:
            problems.append(Problem(str(path), "no vectors", "expected an array (n, d), or a column of lists"))
        else:
            shards.append(shard)
    if not shards:
        return Pile([], None, problems, "features")
    shards = same_columns(shards)
    return Pile(ShardItems(shards, columns, folders), Shards(shards), problems, "features")


class ShardItems(Lazy[Item]):
    """The items of many files: rows of Parquet by what their columns say, others by their number.

    Args:
        shards: The files.
        columns: As in `from_shards`.
        folders: As in `from_shards`.
    """

    def __init__(self, shards: Sequence[Shard], columns: Columns, folders: Sequence[Path]) -> None:
        self._shards, self._folders = shards, folders
        self._starts = [0, *accumulate(shard.rows for shard in shards)]
        self._meanings = [_meanings(_column_names(shard.path), columns) if shard.columns else {} for shard in shards]
        self._paths: dict[int, Sequence[str]] = {}  # that features files keep

    def __len__(self) -> int:
        return self._starts[-1]

    def _make(self, rows: range) -> list[Item]:
        if rows.step == 1:
            return self._between(rows.start, rows.stop)
        return [item for row in rows for item in self._between(row, row + 1)]

    def names(self, part: slice) -> list[str] | None:
        """Give the names of some items, without looking for their files; None if they have texts."""
        rows = range(len(self))[part]
        if rows.step != 1 or any("text" in columns for columns in self._meanings):
            return None
        return [name for where in self._spans(rows.start, rows.stop) for name in self._cells(*where, ("name",))["name"]]

    def _between(self, start: int, stop: int) -> list[Item]:
        return [item for where in self._spans(start, stop) for item in self._of(*where)]

    def _spans(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Give the number of each file that has some of the rows, and which."""
        while start < stop:
            number = bisect.bisect_right(self._starts, start) - 1
            first = self._starts[number]
            last = min(stop, self._starts[number + 1])
            yield number, start - first, last - first
            start = last

    def _cells(self, number: int, first: int, last: int, meanings: Sequence[str]) -> dict[str, list[str]]:
        """Read what columns say of rows; every row has a name."""
        shard = self._shards[number]
        columns = {meaning: name for meaning, name in self._meanings[number].items() if meaning in meanings}
        cells: dict[str, list[str]] = {}
        if shard.path.suffix.lower() == ".safetensors":
            cells["name"] = cells["path"] = list(self._kept_paths(number)[first:last])
        if columns:
            table = read_cells(shard, list(dict.fromkeys(columns.values())), first, last)
            cells = {meaning: [as_text(cell) for cell in table[name].to_pylist()] for meaning, name in columns.items()}
        before = f"{shard.path.name} " if len(self._shards) > 1 else ""
        names = cells.get("name") or [""] * (last - first)
        cells["name"] = [name or f"{before}row {first + row + 1}" for row, name in enumerate(names)]
        return cells

    def _of(self, number: int, first: int, last: int) -> list[Item]:
        cells = self._cells(number, first, last, ("name", "label", "path", "text"))
        return [
            Item(
                name,
                (cells["label"][row] or None) if "label" in cells else None,
                existing(cells["path"][row], self._folders) if cells.get("path") else None,
                cells["text"][row] if "text" in cells else None,
            )
            for row, name in enumerate(cells["name"])
        ]

    def _kept_paths(self, number: int) -> Sequence[str]:
        """The paths of images in a features file; none if it keeps none."""
        if number not in self._paths:
            parts = open_features(self._shards[number].path, mapped=True).parts
            paths = read_paths(parts[choose_split(None, parts)]().paths)
            self._paths[number] = paths if paths is not None and len(paths) == self._shards[number].rows else []
        return self._paths[number]


def _meanings(names: Sequence[str], columns: Columns) -> dict[str, str]:
    """Say which columns of a table hold the names, labels, paths and texts of items."""
    known = {name.strip().lower(): name for name in reversed(names)}
    usual = {"name": NAME_COLUMNS, "label": LABEL_COLUMNS, "path": PATH_COLUMNS, "text": TEXT_COLUMNS}
    first = {key: next((known[name] for name in options if name in known), None) for key, options in usual.items()}
    if columns.label in names:
        first["label"] = columns.label
    return {key: name for key, name in first.items() if name is not None}


def _column_names(path: Path) -> list[str]:
    """Name the columns of a Parquet file."""
    from pyarrow import ArrowException, parquet

    try:
        return list(parquet.read_schema(path).names)
    except (ArrowException, OSError):  # reported when its vectors are looked for
        return []
