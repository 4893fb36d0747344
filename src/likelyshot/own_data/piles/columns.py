"""Piles out of tables: which column means what, and which files their paths may name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from likelyshot.data.files import locate
from likelyshot.data.items import Item, Problem
from likelyshot.data.tables import LABEL_COLUMNS, Column, Table, as_written
from likelyshot.errors import InputError
from likelyshot.own_data.piles.features import column_names, shard_pile, vector_pile
from likelyshot.own_data.piles.pile import Pile, left_out

PATH_COLUMNS = ("path", "image", "file", "filename")
TEXT_COLUMNS = ("text", "sentence", "title")
NAME_COLUMNS = (*PATH_COLUMNS, "name", "id")


ANSWER_COLUMNS = ("predicted",)  # the labels of a table of answers, which can be corrected and used again


class Columns(NamedTuple):
    """The columns that the user named."""

    path: str | None
    label: str | None
    text: str | None


def from_table(table: Table, columns: Columns, folders: Sequence[Path], labelled: bool) -> Pile:
    """Make a pile of embeddings if the table has them, else of images, all within `folders`, else of texts."""
    count = len(table.rows)
    problems = list(table.problems)
    if not count:
        raise InputError(f"expected rows below a header, but found none{left_out(problems)}: write it again")
    known = {column.name for column in table.columns}
    named = columns.label if labelled or columns.label in known else None  # a pile needs no labels
    label_column = table.named(named) if named else table.find(LABEL_COLUMNS)
    answers = table.find(ANSWER_COLUMNS)  # None unless this is a table of answers
    if answers is not None:
        folders = [*folders, Path.cwd().resolve()]  # its paths are as the user typed them
        label_column = label_column or (answers if labelled else None)
    if labelled and label_column is None:
        usual = ", ".join(LABEL_COLUMNS)
        raise InputError(
            f"expected a column of labels ({usual}), but got {table.header}: name it with label_column (--label-column)"
        )
    labels = [None] * count if label_column is None else [cell or None for cell in label_column.texts()]
    if answers is not None and label_column is answers:
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
        found = [None] * count if paths is None else [locate(name, folders) for name in paths.texts()]
        files = [place if isinstance(place, Path) else None for place in found]  # what can be shown of a vector
        words = [None] * count if texts is None else texts.texts()
        items = [Item(*row) for row in zip(names, labels, files, words, strict=True)]
        return replace(vector_pile(vectors), items=items, problems=problems)
    if paths is not None and not columns.text and (answers is None or texts is None):
        return _image_pile(paths, labels, problems, folders)
    if texts is None:
        expected = "a column of paths (path, image, file), of texts (text, sentence, title) or of embeddings"
        raise InputError(
            f"expected {expected}, but got {table.header}: name it with path_column or text_column (--path-column, "
            "--text-column)"
        )
    cells = texts.texts() if answers is None else list(map(as_written, texts.texts()))
    rows = list(zip(names, labels, cells, strict=True))
    empty = [Problem(name, "empty text") for name, _, text in rows if not text.strip()]
    items = [Item(name, label, text=text) for name, label, text in rows if text.strip()]
    return Pile(items, None, problems + empty, "text")


def _vectors(table: Table, columns: Columns) -> Any:
    """Give the embeddings of a table; None if it has paths or texts instead."""
    pattern = number_pattern([column.name for column in table.columns])
    return table.vectors(ignored=[columns.label] if columns.label else [], pattern=pattern)


def number_pattern(names: Sequence[str]) -> str:
    """Give what columns of numbers are called that belong to a vector: width and height of an image do not."""
    known = {name.strip().lower() for name in names}
    return r"(f|x|dim|feature|embedding)?_?\d+" if known & {*PATH_COLUMNS, *TEXT_COLUMNS} else ".*"


def from_shards(paths: Sequence[Path], columns: Columns, folders: Sequence[Path]) -> Pile:
    """Make a pile of the embeddings in many files, which are not read now."""

    def meanings(names: Sequence[str]) -> dict[str, str]:
        known = {name.strip().lower(): name for name in reversed(names)}
        usual = {"name": NAME_COLUMNS, "label": LABEL_COLUMNS, "path": PATH_COLUMNS, "text": TEXT_COLUMNS}
        found = {key: next((known[name] for name in options if name in known), None) for key, options in usual.items()}
        named = {"label": columns.label if columns.label in names else None}
        return {key: name for key in usual if (name := named.get(key) or found[key]) is not None}

    def found(name: str) -> Path | None:
        place = locate(name, folders)
        return place if isinstance(place, Path) else None

    tables = [path for path in paths if path.suffix.lower() == ".parquet"]
    return shard_pile(
        paths,
        pattern=number_pattern(column_names(tables[0])) if tables else ".*",
        ignored=[columns.label] if columns.label else [],
        meanings=meanings,
        locate=found,
    )


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
