"""Piles out of tables: which column means what, and which files their paths may name."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from likelyshot.data import feature_files
from likelyshot.data.items import Item, Problem
from likelyshot.errors import InputError
from likelyshot.own_data.piles.features import vector_pile
from likelyshot.own_data.piles.pile import Pile, left_out
from likelyshot.own_data.piles.tables import Table, plain

PATH_COLUMNS = ("path", "image", "file", "filename")
TEXT_COLUMNS = ("text", "sentence", "title")
NAME_COLUMNS = (*PATH_COLUMNS, "name", "id")


class Columns(NamedTuple):
    """The columns that the user named."""

    path: str | None
    label: str | None
    text: str | None


def from_table(table: Table, columns: Columns, folders: Sequence[Path], labelled: bool) -> Pile:
    """Make a pile of embeddings if the table has them, else of images, all within `folders`, else of texts."""
    count = len(table.numbers)
    if not count:
        raise InputError(f"expected rows below a header, but found none{left_out(table.problems)}: write it again")
    label_column = table.given(columns.label) if columns.label else table.first(feature_files.LABEL_COLUMNS)
    if labelled and label_column is None:
        held = ", ".join(table.rows.column_names)[:200]
        usual = ", ".join(feature_files.LABEL_COLUMNS)
        raise InputError(f"expected a column of labels ({usual}), but got {held}: name it by label_column")
    labels = [None] * count if label_column is None else [plain(cell) or None for cell in label_column.to_pylist()]
    vectors = None if columns.path or columns.text else _vectors(table, columns)
    paths = table.given(columns.path) if columns.path else table.first(PATH_COLUMNS)
    texts = table.given(columns.text) if columns.text else table.first(TEXT_COLUMNS)
    named = table.first(NAME_COLUMNS)
    cells = [None] * count if named is None else named.to_pylist()
    names = [plain(cell) or f"row {number}" for cell, number in zip(cells, table.numbers, strict=True)]
    if vectors is not None:
        items = [Item(name, label) for name, label in zip(names, labels, strict=True)]
        return replace(vector_pile(vectors), items=items, problems=table.problems)
    if paths is not None and not columns.text:
        return _image_pile(paths, labels, table, folders)
    if texts is None:
        held = ", ".join(table.rows.column_names)[:200]
        expected = "a column of paths (path, image, file), of texts (text, sentence, title) or of embeddings"
        raise InputError(f"expected {expected}, but got {held}: rename or name it")
    said = [plain(cell) for cell in texts.to_pylist()]
    rows = list(zip(names, labels, said, strict=True))
    empty = [Problem(name, "empty text") for name, _, text in rows if not text.strip()]
    items = [Item(name, label, text=text) for name, label, text in rows if text.strip()]
    return Pile(items, None, table.problems + empty, "text")


def _vectors(table: Table, columns: Columns) -> Any:
    """The embeddings of a table: one column of lists, or columns of numbers; None if it has paths or texts instead."""
    lists = table.first(feature_files.VECTOR_COLUMNS)
    if lists is not None:
        return feature_files.vector_lists(lists)
    ignored = {*feature_files.LABEL_COLUMNS, *feature_files.OTHER_COLUMNS, *feature_files.INDEX_COLUMNS, "name"}
    others = [name for name in table.rows.column_names if name.strip().lower() not in ignored and name != columns.label]
    if table.first((*PATH_COLUMNS, *TEXT_COLUMNS)) is not None:  # width and height of an image are no embedding
        others = [name for name in others if re.fullmatch(r"(f|x|dim|feature|embedding)?_?\d+", name.strip().lower())]
    found = [(name, feature_files.number_column(name, table.given(name))) for name in others]
    numbers = [values for _, values in found if values is not None]
    return np.column_stack(numbers) if numbers else None


def _image_pile(paths: Any, labels: Sequence[str | None], table: Table, folders: Sequence[Path]) -> Pile:
    items: list[Item] = []
    problems = list(table.problems)
    for cell, label, number in zip(paths.to_pylist(), labels, table.numbers, strict=True):
        name = plain(cell)
        found = _locate(name, folders)
        if isinstance(found, str) and re.match(r"'[=+\-@\t\r\n]", name):  # as tables of answers write such names
            name = name[1:]
            found = _locate(name, folders)
        if isinstance(found, Path):
            items.append(Item(name, label, found))
        else:
            problems.append(Problem(name or f"row {number}", found, f"row {number}"))
    return Pile(items, None, problems, "image")


def _locate(name: str, folders: Sequence[Path]) -> Path | str:
    """The file of that name within the folders, or a few words why there is none."""
    if not name:
        return "no path"
    outside = False
    for folder in folders:
        path = folder / name
        try:
            real = Path(os.path.realpath(path))
        except ValueError:  # a null in the name
            return "missing file"
        if not any(real.is_relative_to(allowed) for allowed in folders):
            outside = True
        elif os.path.isfile(real):  # Path.is_file raises for names that are too long  # noqa: PTH113
            return path
    return "outside the folder" if outside else "missing file"
