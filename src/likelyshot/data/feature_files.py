"""Opening files of features, whichever of the many formats people keep them in."""

from __future__ import annotations

import csv
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from likelyshot.data.arrays import Opened, Part, open_npy, open_npz, open_pickle, open_safetensors, open_torch, read_npy
from likelyshot.data.tables import LABEL_COLUMNS, TABLES, read_table, whole_numbers
from likelyshot.errors import InputError, nearest

MARKS = {  # how the contents of files begin
    rb"\x93NUMPY": (".npy",),
    rb"PK\x03\x04": (".npz", ".pt", ".pth"),
    rb"PAR1": (".parquet",),
    rb"\x80[\x02-\x05]": (".pkl", ".pickle", ".plk", ".pt", ".pth"),
    rb".....\x00\x00\x00\{": (".safetensors",),
}
#: Formats whose vectors can stay in the file.
MAPPED = (".npy", ".safetensors")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Say of any failure in which file it was."""
    try:
        with np.errstate(over="ignore"):  # what becomes infinite is refused
            yield
    except InputError as error:
        raise InputError(f"{path.name}: {error}") from None
    except OSError as error:
        raise InputError(f"expected a file that can be read, but got {error}: check the path") from None
    except Exception as error:  # zipfile, zlib, struct, arrow, ...: a damaged file can raise nearly anything
        got = f"damaged data ({type(error).__name__}: {str(error)[:120]!r})"
        raise InputError(f"{path.name}: expected a whole file, but got {got}: write it again") from error


def open_features(path: Path, *, mapped: bool = False) -> Opened:
    """Leave a file to the reader of its extension, unless it begins like one of another kind.

    Args:
        path: The file.
        mapped: Whether vectors of .npy and .safetensors stay in the file, which must not change then.
    """
    if not path.is_file():
        got = "it is a folder" if path.is_dir() else "it is not a file" if path.exists() else "nothing is there"
        raise InputError(f"expected a file of features in {path.absolute().parent}, but {got}: check the path")
    with path.open("rb") as file:
        head = file.read(9)
    if not head:
        raise InputError("expected features, but got an empty file: write it again")
    looks = next((kinds for mark, kinds in MARKS.items() if re.match(mark, head, re.DOTALL)), ())
    kind = path.suffix.lower()
    if kind not in READERS or (looks and kind not in looks):
        hint = f"its content looks like {' or '.join(looks)}, so rename it" if looks else "convert it"
        raise InputError(f"expected one of {' '.join(READERS)}, but got {kind or 'no extension'!r}: {hint}")
    return READERS[kind](path, mapped=True) if mapped and kind in MAPPED else READERS[kind](path)


def choose_split(split: str | None, parts: Mapping[str, object]) -> str:
    """Settle which split is meant: the one named, the only one, or "test"."""
    names = [name for name in parts if name]
    if split is not None:
        if split not in names:
            hint = nearest(split, names) if names else "leave it out, the file is one set"
            raise InputError(f"expected the name of a split, but got {split!r}: {hint}")
        return split
    if "" in parts:
        return ""
    if len(names) > 1 and "test" not in names:
        raise InputError(f"expected a split called test, but got {', '.join(names)}: choose with split=")
    return names[0] if len(names) == 1 else "test"


def read_labels(labels: Any) -> Any:
    """Read the labels of a file, npy or text with one label per line; labels that are no path are given back."""
    if not isinstance(labels, (str, Path)):
        return labels
    path = Path(labels)
    with reading(path):
        if not path.is_file():
            raise InputError("expected a file of labels, but there is none: check the path")
        kind = path.suffix.lower()
        if kind == ".npy":
            return read_npy(path)
        lines = path.read_text(encoding="utf-8-sig").rstrip().split("\n")
        rows = list(csv.reader(lines)) if kind == ".csv" else [[line.strip()] for line in lines]
        if any(len(row) > 1 for row in rows):
            raise InputError("expected one label per line, but got several columns: keep that of the labels")
        cells = ["".join(row) for row in rows]
        if "" in cells:
            raise InputError(f"row {cells.index('') + 1}: expected a label, but got an empty line: drop the row")
        return whole_numbers(cells)


def _open_table(path: Path) -> Opened:
    """Find the columns of splits, labels and vectors of a table."""
    table = read_table(path)
    if table.problems:
        name, kind, detail = dataclasses.astuple(table.problems[0])
        raise InputError(
            f"{name}: expected a row that can be read, but it is not ({kind}, {detail}): correct or drop it"
        )
    if not table.rows:
        raise InputError("expected rows of features, but got none: write the file again")
    split_column = table.find(["split"])
    splits = [str(cell) for cell in split_column.filled()] if split_column else [""] * len(table.rows)

    def part(split: str) -> Part:
        rows = [row for row, name in enumerate(splits) if name == split]
        label_column, vectors = table.find(LABEL_COLUMNS), table.vectors()
        labels = None
        if label_column is not None:
            cells = whole_numbers(label_column.filled()) if table.is_text else label_column.filled()
            labels = [cells[row] for row in rows]
        if vectors is None:
            raise InputError(f"expected a header and columns of numbers, but got {table.header}: add them")
        return Part(vectors[rows], labels, expected=f"a column named {', '.join(LABEL_COLUMNS[:-1])} or y")

    return Opened({split: partial(part, split) for split in dict.fromkeys(splits)})


READERS: dict[str, Callable[..., Opened]] = {
    ".safetensors": open_safetensors,
    ".npz": open_npz,
    ".npy": open_npy,
    **dict.fromkeys(TABLES, _open_table),
    **dict.fromkeys((".pkl", ".pickle", ".plk"), open_pickle),
    **dict.fromkeys((".pt", ".pth"), open_torch),
}
