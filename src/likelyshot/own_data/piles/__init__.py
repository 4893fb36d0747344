"""Labelled examples and piles, from folders, tables and files of features."""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likelyshot.data.archives import ARCHIVES, list_archive
from likelyshot.data.features import READERS, find_features, named_rows, reading, stacked
from likelyshot.data.images import HEIC, SUFFIXES, UNSUPPORTED, WITHOUT_HEIC, find_images
from likelyshot.data.items import Item, Problem, left_out
from likelyshot.data.shards import STREAMED
from likelyshot.data.tables import FILE_COLUMN, LABEL_COLUMNS, ROW_COLUMN, TABLES, Column, Table, read_table
from likelyshot.errors import InputError
from likelyshot.own_data.folders import REJECTED
from likelyshot.own_data.piles.files import Columns, Pile, from_shards, from_table, read_features

MAX_TEXT = 1 << 20  # bytes of a text
#: Bytes of a Parquet file from which on its vectors are not all read into memory.
STREAM_BYTES = 1 << 27
NO_ROW = "no such row in the features file"

__all__ = ["Pile", "only_in_pile", "read_labelled", "read_pile"]


def read_labelled(
    path: str | Path | Sequence[str | Path],
    *,
    path_column: str | None = None,
    label_column: str | None = None,
    text_column: str | None = None,
    root: str | Path | None = None,
) -> Pile:
    """Read labelled examples: a folder with one sub-folder per class, a table, or a file of features; or several.

    A table (CSV, TSV, Parquet or JSONL) has a column of labels and one of paths, of texts or of embeddings, found by
    their names unless they are given; or it names rows of features files, in the columns features_file and
    features_row. Paths count from the folder of the table, or from `root`, and must not leave both. Labels are kept to
    the letter. Of several, all are of one kind, and a file or text that is in more than one has the label of the last.
    """
    columns = Columns(path_column, label_column, text_column)
    paths = [path] if isinstance(path, str | Path) else path
    if not paths:
        raise InputError("expected labelled examples, but got none: name a folder or a table")
    pile = _joined([_labelled_rows(_existing(one), columns, root) for one in paths], paths)
    counts = Counter(item.label for item in pile.items)
    if len(counts) < 2:
        only = f"only {next(iter(counts))!r}" if counts else "none"
        raise InputError(
            f"expected labelled examples of two classes or more in {' and '.join(map(str, paths))}, but found {only}"
            f"{left_out(pile.problems)}: give a folder with one sub-folder per class, or a table with labels and "
            "paths below its own folder"
        )
    return pile


def _labelled_rows(path: Path, columns: Columns, root: str | Path | None) -> Pile:
    """Read one folder or file of labelled examples, without rows that have no label."""
    pile = _read_labelled_folder(path) if path.is_dir() else _read_file(path, columns, root, labelled=True)
    rows = [row for row, item in enumerate(pile.items) if item.label]
    missing = [Problem(item.name, "no label") for item in pile.items if not item.label]
    return _only(replace(pile, problems=pile.problems + missing), rows) if missing else pile


def _joined(piles: Sequence[Pile], paths: Sequence[str | Path]) -> Pile:
    """Put labelled examples from several places together; a file has the label that comes last."""
    if len(piles) == 1:
        return piles[0]
    kinds = [pile.kind for pile in piles]
    if len(set(kinds)) > 1:
        other = next(place for place, kind in enumerate(kinds) if kind != kinds[0])
        got = f"{paths[0]} has {_plural(kinds[0])} and {paths[other]} {_plural(kinds[other])}"
        raise InputError(f"expected labelled examples of one kind, but {got}: use only one kind")
    vectors = [np.asarray(pile.vectors) for pile in piles if pile.vectors is not None]
    if len({rows.shape[1] for rows in vectors}) > 1:
        got = " and ".join(f"{rows.shape[1]:,}" for rows in vectors)
        raise InputError(f"expected vectors of one length, but got {got} numbers: use one encoder for all")
    problems = [problem for pile in piles for problem in pile.problems]
    items = [item for pile in piles for item in pile.items]
    keys = [_same(item, kinds[0]) for item in items]
    last = {key: row for row, key in enumerate(keys)}
    answered = any(pile.answered for pile in piles)
    whole = Pile(items, np.concatenate(vectors) if vectors else None, problems, kinds[0], answered=answered)
    return _only(whole, [row for row, key in enumerate(keys) if not key or last[key] == row])


def _same(item: Item, kind: str) -> str:
    """Give what tells an example from others: its text, or its file; nothing for a vector without one."""
    if kind == "text":
        return item.text or ""
    return "" if item.path is None else os.path.realpath(item.path)


def _only(pile: Pile, rows: Sequence[int]) -> Pile:
    vectors = None if pile.vectors is None else pile.vectors[rows]
    return replace(pile, items=[pile.items[row] for row in rows], vectors=vectors)


def _plural(kind: str) -> str:
    return {"image": "images", "text": "texts", "features": "vectors"}[kind]


def read_pile(
    path: str | Path,
    *,
    path_column: str | None = None,
    text_column: str | None = None,
    label_column: str | None = None,
    root: str | Path | None = None,
) -> Pile:
    """Read what is to be classified: a folder, nested as it may be, an image, a table, or a file of features.

    A folder without images may hold texts, files that end in .txt; tar and zip archives of images; or files of vectors,
    .parquet, .npy or .safetensors. A pattern like "shards/*.parquet" names such files too. Vectors stay in their files.

    Tables are read as `read_labelled` reads them, but need no labels.
    """
    columns = Columns(path_column, label_column, text_column)
    if files := _matching(path):
        pile = _read_files(files, columns, root)
        path = Path(path)
    elif (path := _existing(path)).is_dir():
        pile = _read_folder(path)
        if not len(pile.items):
            files = [Path(problem.name) for problem in pile.problems if problem.kind == UNSUPPORTED]
            files = [file for file in files if file.suffix.lower() in (*ARCHIVES, *STREAMED)]
            if files:
                read, lost = _read_files(files, columns, root), {str(file) for file in files}
                others = [problem for problem in pile.problems if problem.name not in lost]
                pile = replace(read, problems=[*others, *read.problems], root=path)
    elif path.suffix.lower() in SUFFIXES:
        pile = Pile([Item(str(path), path=path)], None, [], "image")
    else:
        pile = _read_file(path, columns, root, labelled=False)
    if not len(pile.items):
        got = f"nothing{left_out(pile.problems)}"
        raise InputError(f"expected something to classify in {path}, but found {got}: check the path")
    return pile


def _matching(path: str | Path) -> list[Path]:
    """Give the files that a pattern like "shards/*.npy" names, sorted; none if it is the path of something."""
    if not re.search(r"[*?\[]", str(path)) or os.path.lexists(path):
        return []
    matches = sorted(Path(name) for name in glob.glob(str(path), recursive=True))  # noqa: PTH207
    files = [file for file in matches if file.is_file()]
    if not files:
        raise InputError(f"expected files that match {str(path)[:200]!r}, but there are none: check the pattern")
    return files


def _read_files(files: Sequence[Path], columns: Columns, root: str | Path | None) -> Pile:
    """Read many files of one kind: images, archives of images, or vectors."""
    kinds = {"an image": SUFFIXES, "an archive of images": ARCHIVES, "vectors": STREAMED}
    of = [next((kind for kind, known in kinds.items() if file.suffix.lower() in known), "") for file in files]
    if "" in of or len(set(of)) > 1:
        odd = of.index("") if "" in of else next(place for place, kind in enumerate(of) if kind != of[0])
        got = f"{files[odd].name!r} beside {files[0].name!r}" if odd else f"{files[odd].name!r}"
        raise InputError(
            f"expected files of one kind, images, archives (.tar, .zip) or vectors ({', '.join(STREAMED)}), but got "
            f"{got}: classify each kind separately"
        )
    if of[0] == "an image":
        return Pile([Item(str(file), path=file) for file in files], None, [], "image")
    if of[0] == "vectors":
        places = {Path(os.path.realpath(place)) for place in (*(file.parent for file in files), root) if place}
        return from_shards(files, columns, sorted(places))
    listed = [list_archive(file) for file in files]
    members = [member for names, _ in listed for member in names]
    return Pile(members, None, [problem for _, wrong in listed for problem in wrong], "image")


def only_in_pile(labelled: Pile, pile: Pile) -> list[Problem]:
    """Report the classes that a pile's own labels name but of which there are no labelled examples."""
    known = {item.label for item in labelled.items}
    counts = Counter(item.label for item in pile.items if item.label and item.label not in known)
    return [Problem(str(label), "class only in the pile", f"{count} items") for label, count in counts.items()]


def _existing(path: str | Path) -> Path:
    path = Path(path)
    if not os.path.exists(path):  # Path.exists raises for names that are too long  # noqa: PTH110
        raise InputError(
            f"expected a folder or a file, but nothing is at {str(path)[:200]!r}: check the path"
            ", and put quotes around it if it has spaces"
        )
    return path


def _read_folder(folder: Path) -> Pile:
    """Read the images below a folder, or, if there are none, the texts."""
    images, problems = find_images(folder)
    written = [problem for problem in problems if problem.detail.lower() == ".txt" and problem.kind == UNSUPPORTED]
    if images or not written:
        return Pile([Item(str(image), path=image) for image in images], None, problems, "image", folder)
    read = [_read_text(Path(problem.name)) for problem in written]
    others = [problem for problem in problems if problem not in written]
    others += [one for one in read if isinstance(one, Problem)]
    return Pile([one for one in read if isinstance(one, Item)], None, others, "text", folder)


def _read_text(path: Path) -> Item | Problem:
    """Read one text, or say what is wrong with it."""
    try:
        if path.stat().st_size > MAX_TEXT:
            return Problem(str(path), "too large", f"at most {MAX_TEXT:,} bytes")
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        return Problem(str(path), "not UTF-8", "save it as UTF-8")
    except OSError as error:
        return Problem(str(path), "unreadable file", error.strerror or "")
    return Item(str(path), path=path, text=text) if text.strip() else Problem(str(path), "empty text")


def _read_labelled_folder(folder: Path) -> Pile:
    pile = _read_folder(folder)
    items, problems = [], list(pile.problems)
    rejected = 0
    for item in pile.items:
        assert item.path is not None
        parts = item.path.relative_to(folder).parts
        if len(parts) == 1:
            problems.append(Problem(item.name, "not in a class folder"))
        elif parts[0] == REJECTED:
            rejected += 1
        else:
            items.append(replace(item, label=parts[0]))
    if rejected:
        kinds = "files that were rejected before are of no class"
        problems.append(Problem(str(folder / REJECTED), kinds, f"{rejected:,} files"))
    known = {str(folder / str(item.label)) for item in items} | {problem.name for problem in problems}
    with suppress(OSError), os.scandir(folder) as entries:  # an unreadable folder is among the problems already
        folders = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        empty = [name for name in sorted(folders) if str(folder / name) not in known and not name.startswith(".")]
        problems += [Problem(str(folder / name), "empty class folder") for name in empty]
    return replace(pile, items=items, problems=problems, answered=rejected > 0)


def _read_file(path: Path, columns: Columns, root: str | Path | None, labelled: bool, follow: bool = True) -> Pile:
    kind = path.suffix.lower()
    if kind in HEIC:
        raise InputError(f"expected an image that can be read, but {path.name!r} is a {WITHOUT_HEIC}")
    if kind not in (*READERS, *ARCHIVES):
        known = " ".join(sorted(READERS))
        remedy = "give a folder with one sub-folder per class" if labelled and kind in SUFFIXES else "convert it"
        raise InputError(f"expected a folder or one of {known}, but got {path.name!r}: {remedy}")
    if kind in ARCHIVES:
        if labelled:
            raise InputError(f"expected a folder or a table of labelled examples, but got {path.name!r}: unpack it")
        return _read_files([path], columns, root)
    if (
        kind == ".parquet"
        and not labelled
        and path.stat().st_size > STREAM_BYTES
        and not (columns.path or columns.text)
    ):
        streamed = _read_files([path], columns, root)
        if len(streamed.items):
            return streamed
    with reading(path):
        if not path.stat().st_size:
            raise InputError("expected rows, but got an empty file: give one with a header and rows")
        folders = [Path(os.path.realpath(place)) for place in (path.parent, root) if place is not None]
        if kind not in TABLES:
            return read_features(path, labelled, [*folders, Path.cwd().resolve()])
        table = read_table(path)
        if (places := table.find([FILE_COLUMN])) and (numbers := table.find([ROW_COLUMN])):
            if not follow:
                raise InputError("expected vectors, but this table only names rows of another file: give that file")
            return _rows_of_others(table, places, numbers, columns.label, folders)
        return from_table(table, columns, folders, labelled)


def _rows_of_others(
    table: Table, places: Column, numbers: Column, label_column: str | None, folders: Sequence[Path]
) -> Pile:
    """Read a table that names rows of features files, as `likelyshot label` writes for a pile of embeddings."""
    column = table.named(label_column) if label_column else table.find(LABEL_COLUMNS)
    labels = [""] * len(table.rows) if column is None else column.texts()
    items: dict[int, Item] = {}
    vectors: dict[int, NDArray[Any]] = {}
    problems = list(table.problems)
    for name, cells in named_rows(places, numbers).items():
        pile = _read_file(find_features(name, folders), Columns(None, None, None), None, labelled=False, follow=False)
        if pile.vectors is None:
            raise InputError(
                f"expected vectors in {name[:200]!r}, but got {pile.kind}s: correct the column {FILE_COLUMN}"
            )
        inside = [(place, row) for place, row in cells if 0 <= row < len(pile.items)]
        rows = pile.vectors[[row for _, row in inside]]
        items.update({place: replace(pile.items[row], label=labels[place] or None) for place, row in inside})
        vectors.update({place: rows[at] for at, (place, _) in enumerate(inside)})
        problems += pile.problems
    problems += [Problem(f"row {n}", NO_ROW) for place, n in enumerate(table.rows) if place not in items]
    places_kept = sorted(items)
    rows = stacked([vectors[place] for place in places_kept])
    return Pile([items[place] for place in places_kept], rows, problems, "features")


def names_and_texts(items: Sequence[Item], part: slice) -> tuple[list[str], list[str]]:
    """Give the names of some items, and their texts if they have no files."""
    names = getattr(items, "names", lambda part: None)(part)
    if names is not None:  # quick: the files of items need not be looked for
        return names, []
    some = items[part]
    return [item.name for item in some], [
        item.text or "" for item in some if item.path is None and item.text is not None
    ]
