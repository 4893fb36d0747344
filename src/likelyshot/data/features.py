"""Features: vectors with labels, class names and provenance, and the files that they are read from."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from likelyshot.data.arrays import (
    OneSplit,
    Opened,
    check_labelled,
    check_texts,
    float_tensor,
    labelled_tensors,
    open_npy,
    open_npz,
    open_pickle,
    open_safetensors,
    open_torch,
    plain_values,
    read_npy,
    unicode,
)
from likelyshot.data.files import Streamed, locate, write_tensors
from likelyshot.data.images import SUFFIXES
from likelyshot.data.items import PackedNames
from likelyshot.data.tables import (
    FILE_COLUMN,
    LABEL_COLUMNS,
    ROW_COLUMN,
    TABLES,
    Column,
    Table,
    as_written,
    csv_rows,
    read_table,
    whole_numbers,
)
from likelyshot.errors import InputError, nearest
from likelyshot.functional.covariance import within_class_covariance
from likelyshot.functional.scores import rectify

MARKS = {  # how the contents of files begin; safetensors with the length of its header, which may look like a pickle's
    rb".....\x00\x00\x00\{": (".safetensors",),
    rb"\x93NUMPY": (".npy",),
    rb"PK\x03\x04": (".npz", ".pt", ".pth"),
    rb"PAR1": (".parquet",),
    rb"\x80[\x02-\x05]": (".pkl", ".pickle", ".plk", ".pt", ".pth"),
}
#: Formats whose vectors can stay in the file.
MAPPED = (".npy", ".safetensors")


@dataclass(frozen=True, eq=False)
class Features:
    """The vectors of n images with their labels, the names of the classes, and where they came from.

    Args:
        vectors: Half, single or double precision, all finite, (n, d).
        labels: Numbers of classes, int64, (n,).
        classes: Names of the classes; label i has the i-th name.
        source: What is known of their origin: encoder, dataset, split, file (without its folder), ...
        paths: The file of every image, below the folder that they came from; None if it is not known.

    >>> features = Features.from_arrays([[0.0, 1.0], [2.0, 3.0]], ["dog", "cat"])
    >>> features.classes, features.labels.tolist(), features.dim
    (('cat', 'dog'), [1, 0], 2)
    """

    vectors: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    source: Mapping[str, str]
    paths: Sequence[str] | None = None

    def __post_init__(self) -> None:
        check_labelled(self.vectors, self.labels, self.classes)
        if self.paths is not None and len(self.paths) != len(self):
            got = f"{len(self)} rows and {len(self.paths)} paths"
            raise InputError(f"expected one path per row, but got {got}: give as many, or none")
        check_texts([*self.source.keys(), *self.source.values()], "source")
        if "classes" in self.source:
            raise InputError("expected a source without the key 'classes', but it has one: pass the names as classes=")

    @classmethod
    def from_arrays(
        cls,
        vectors: ArrayLike | Tensor,
        labels: ArrayLike | Tensor,
        *,
        classes: Iterable[str] | None = None,
        source: Mapping[str, str] | None = None,
        paths: Sequence[str] | None = None,
    ) -> Features:
        """Make features of arrays, tensors or lists.

        Args:
            vectors: Numbers, (n, d). Integers and Python's numbers become float32.
            labels: One label per vector: integers, text, or anything else that can be told apart by its text.
            classes: Names of the classes. Integer labels are positions in it, and other labels are names in it.
                Default: the different labels, in sorted order.
            source: What is known of their origin.
            paths: The file of every image.
        """
        return cls(*labelled_tensors(vectors, labels, classes), dict(source or {}), paths)

    @classmethod
    def load(
        cls, path: str | Path, *, split: str | None = None, labels: str | Path | ArrayLike | None = None
    ) -> Features:
        """Read features from a file.

        Args:
            path: A file in safetensors, npz, npy, csv, tsv, parquet, jsonl, pkl (plain data only) or pt.
            split: Name of a split in the file. Default: the only one, or "test" among several; `source["split"]` says
                which.
            labels: Labels to use instead of those in the file: an array, or a file (npy, or text with one label per
                line).
        """
        return FeaturesFile(path).read(split, labels)

    def save(self, path: str | Path) -> Path:
        """Write a safetensors file, whole or not at all.

        Args:
            path: The safetensors file.
        """
        return write_features(path, self.vectors, self.labels, self.classes, self.source, self.paths)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of vectors, labels and class names, 64 hexadecimal digits."""
        facts = [str(self.vectors.dtype), list(self.vectors.shape), self.classes]
        hashed = hashlib.sha256(json.dumps(facts).encode())
        for tensor in (self.vectors, self.labels):
            hashed.update(tensor.cpu().contiguous().view(torch.uint8).numpy().data)
        return hashed.hexdigest()

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def dim(self) -> int:
        """The length of a vector."""
        return self.vectors.shape[1]

    @property
    def counts(self) -> Tensor:
        """How many images each class has, (classes,)."""
        return torch.bincount(self.labels, minlength=len(self.classes))

    def rectified(self) -> Features:
        """Split signed features into [relu(x), relu(-x)]: nowhere negative, twice as long, lossless."""
        source = {**self.source, "rectified": "[relu(x), relu(-x)]"}
        return Features(rectify(self.vectors), self.labels, self.classes, source, self.paths)


def write_features(
    path: str | Path,
    vectors: Tensor | Streamed,
    labels: Tensor,
    classes: Sequence[str],
    source: Mapping[str, str],
    paths: Iterable[str] | None = None,
) -> Path:
    """Write what `Features.save` writes, whose vectors need not be in memory.

    Args:
        path: The safetensors file.
        vectors: All finite, (n, d).
        labels: As in `Features`.
        classes: As in `Features`.
        source: As in `Features`.
        paths: As in `Features`.
    """
    tensors = {"features": vectors, "labels": labels}
    if paths is not None:
        tensors["paths"] = torch.from_numpy(PackedNames.of(paths).packed.copy())
    return write_tensors(path, tensors, {**source, "classes": json.dumps(list(classes))})


def splits(path: str | Path) -> tuple[str, ...]:
    """Name the splits of a file, none if it is a single set."""
    return FeaturesFile(path).splits


class FeaturesFile:
    """A file of features, opened once for all that is read from it.

    Args:
        path: A file as in `Features.load`.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        with reading(self.path):
            self._opened = open_features(self.path)
        self.splits = tuple(name for name in self._opened.parts if name)  # none if it is a single set

    def read(self, split: str | None = None, labels: str | Path | ArrayLike | None = None) -> Features:
        """Read the features of a split; the arguments are as in `Features.load`."""
        with reading(self.path):
            name = choose_split(split, self._opened.parts)
            part = self._opened.parts[name]()
            raw_labels: Any = part.labels if labels is None else labels
            if raw_labels is None:
                raise InputError(
                    f"expected {part.expected}, but found no labels: add them, or name a file (--labels FILE)"
                )
            source = {**part.source, **({"split": name} if name else {}), "file": unicode(self.path.name)}
            paths = read_paths(part.paths)
            return Features.from_arrays(
                part.vectors, read_labels(raw_labels), classes=part.classes, source=source, paths=paths
            )

    def base(self, *, rectify: bool = False) -> Base | None:
        """Read or compute the statistics of base classes; see `Base.load`."""
        for split in ("train", "base"):
            stored = {role: read for (where, role), read in self._opened.stored.items() if where == split}
            if "mean" in stored and not rectify:
                with reading(self.path):
                    within = float_tensor(stored["within"]()).float() if "within" in stored else None
                    return Base(float_tensor(stored["mean"]()).float(), within)
        split = next((split for split in ("train", "base") if split in self.splits), "")
        if not split:
            return None
        features = self.read(split)
        return Base.of(features.rectified() if rectify else features)


@dataclass(frozen=True, eq=False)
class Base:
    """What methods take from the base classes.

    Args:
        mean: Mean of the vectors, float32, (d,).
        spread: Covariance within the classes, (d, d), or the features to compute it from. None if it is not known.
    """

    mean: Tensor
    spread: Tensor | Features | None = None

    def __post_init__(self) -> None:
        for name, tensor, axes in (("mean", self.mean, 1), ("covariance", self.spread, 2)):
            if isinstance(tensor, Tensor):
                fits = tensor.shape == axes * self.mean.shape[:1]
                if not fits or not tensor.isfinite().all():
                    got = "infinity or NaN" if fits else str(tuple(tensor.shape))
                    raise InputError(
                        f"expected a finite {name} with {axes} axes, but got {got}: compute the base statistics again"
                    )

    @cached_property
    def within(self) -> Tensor | None:
        """The covariance within the classes, (d, d) float32; None if it is not known."""
        if isinstance(self.spread, Features):
            return within_class_covariance(self.spread.vectors, self.spread.labels).float()
        return self.spread

    @classmethod
    def of(cls, features: Features) -> Base:
        """Compute the statistics from features.

        Args:
            features: Features of the base classes.
        """
        return cls(features.vectors.mean(0, dtype=torch.float64).float(), features)

    @classmethod
    def load(cls, path: str | Path, *, rectify: bool = False) -> Base | None:
        """Read the statistics of the split "train" or "base", or compute them; None without such a split.

        Args:
            path: A file of features.
            rectify: Whether to compute those of rectified features, even if there are stored ones, which are not.
        """
        return FeaturesFile(path).base(rectify=rectify)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Name the file in every error."""
    try:
        with np.errstate(over="ignore"):  # what becomes infinite is refused
            yield
    except InputError as error:
        raise InputError(f"{path.name or path}: {error}") from None
    except UnicodeDecodeError as error:
        got = f"byte {error.start + 1} is not UTF-8"
        raise InputError(f"{path.name}: expected text in UTF-8, but {got}: save the file as UTF-8") from None
    except Exception as error:  # zipfile, zlib, struct, arrow, ...: a damaged file can raise nearly anything
        if isinstance(error, OSError) and error.errno is not None:
            raise InputError(f"expected a file that can be read, but got {error}: check the path") from None
        got = f"damaged data ({type(error).__name__}: {str(error)[:120]!r})"
        raise InputError(f"{path.name}: expected a whole file, but got {got}: write it again") from error


def open_features(path: Path, *, mapped: bool = False) -> Opened:
    """Open a file by its extension; refuse it if its content looks like another kind.

    Args:
        path: The file.
        mapped: Whether vectors of .npy and .safetensors stay in the file, which must not change then.
    """
    if not path.is_file():
        remedy = "check the path"
        if path.is_dir():
            remedy = f"if it has images, {shlex.join(['likelyshot', 'extract', str(path)])} -o F.safetensors makes one"
        raise InputError(f"expected a features file in {path.absolute().parent}, but {no_file(path)}: {remedy}")
    with path.open("rb") as file:
        head = file.read(9)
    if not head:
        raise InputError("expected features, but got an empty file: write it again")
    looks = next((kinds for mark, kinds in MARKS.items() if re.match(mark, head, re.DOTALL)), ())
    kind = path.suffix.lower()
    if kind not in READERS or (looks and kind not in looks):
        hint = f"its content looks like {' or '.join(looks)}, so rename it" if looks else "convert it"
        hint = "likelyshot extract FOLDER -o F.safetensors makes one of images" if kind in SUFFIXES else hint
        raise InputError(f"expected one of {' '.join(READERS)}, but got {kind or 'no extension'!r}: {hint}")
    return READERS[kind](path, mapped=True) if mapped and kind in MAPPED else READERS[kind](path)


def no_file(path: Path) -> str:
    """Say what is at a path where a file should be."""
    return "it is a folder" if path.is_dir() else "it is not a file" if path.exists() else "nothing is there"


def choose_split(split: str | None, parts: Mapping[str, object]) -> str:
    """Choose a split: the one named, the only one, or "test"."""
    names = [name for name in parts if name]
    if split is not None:
        if split not in names:
            hint = nearest(split, names) if names else "leave it out, the file is one set"
            raise InputError(f"expected the name of a split, but got {split!r}: {hint}")
        return split
    if "" in parts:
        return ""
    if len(names) > 1 and "test" not in names:
        got = f"expected a split called test, but got {', '.join(names)}"
        raise InputError(f"{got}: name one of them, by --split {names[0]} or, in Python, split={names[0]!r}")
    return names[0] if len(names) == 1 else "test"


def read_labels(labels: Any) -> Any:
    """Read the labels of a file, npy or text with one label per line; return labels that are not a path as they are."""
    if not isinstance(labels, (str, Path)):
        return labels
    path = Path(labels)
    with reading(path):
        if not path.is_file():
            raise InputError(f"expected a file of labels, but {no_file(path)}: check the path")
        kind = path.suffix.lower()
        if kind == ".npy":
            return read_npy(path)
        if kind == ".csv":
            rows = list(csv_rows(path)) or [[]]
        else:
            rows = [[line.strip()] for line in path.read_text(encoding="utf-8-sig").split("\n")]
        while len(rows) > 1 and not "".join(rows[-1]).strip():
            rows.pop()
        if any(len(row) > 1 for row in rows):
            raise InputError("expected one label per line, but got several columns: keep only the labels")
        cells = ["".join(row) for row in rows]
        if "" in cells:
            raise InputError(f"row {cells.index('') + 1}: expected a label, but got an empty line: drop the row")
        return whole_numbers(cells)


def read_paths(stored: Any) -> Sequence[str] | None:
    """Read the paths of a features file: bytes of `PackedNames`, or text; None if there are none."""
    if stored is None:
        return None
    values = stored.numpy() if isinstance(stored, Tensor) else np.asarray(stored)
    if values.ndim == 1 and values.dtype == np.uint8:
        return PackedNames(values)
    return [str(value) for value in plain_values(values)]


def _open_table(path: Path) -> Opened:
    """Find the columns of splits, labels and vectors of a table."""
    table = read_table(path)
    if table.problems:
        name, kind, detail = dataclasses.astuple(table.problems[0])
        raise InputError(f"expected rows that can be read, but {name} cannot ({kind}, {detail}): correct or drop it")
    if not table.rows:
        raise InputError("expected rows of features, but got none: write the file again")
    elsewhere = _named_vectors(path, table)
    split_column = table.find(["split"])
    splits = [str(cell) for cell in split_column.filled()] if split_column else [""] * len(table.rows)

    def part(split: str) -> OneSplit:
        rows = [row for row, name in enumerate(splits) if name == split and (elsewhere is None or row in elsewhere)]
        label_column = table.find(LABEL_COLUMNS)
        labels = None
        if label_column is not None:
            cells = whole_numbers(label_column.filled()) if table.is_text else label_column.filled()
            labels = [cells[row] for row in rows]
        if elsewhere is not None:
            return OneSplit(stacked([elsewhere[row] for row in rows]), labels)
        vectors = table.vectors()
        if vectors is None and table.find(("path", "text")) is not None:
            raise InputError(
                f"expected vectors, but got {table.header}: likelyshot label PILE -o {path.name} --export features "
                f"writes {path.stem}_features.safetensors, which has them"
            )
        if vectors is None:
            raise InputError(f"expected a header and columns of numbers, but got {table.header}: add them")
        return OneSplit(vectors[rows], labels, expected=f"a column named {', '.join(LABEL_COLUMNS[:-1])} or y")

    return Opened({split: partial(part, split) for split in dict.fromkeys(splits)})


def _named_vectors(path: Path, table: Table) -> dict[int, NDArray[Any]] | None:
    """Read the rows of other files that a table of the labelling page names, by their place in the table.

    None if the table has no such columns. Rows that name no file belong to items that are no longer in the pile.
    """
    places, numbers = table.find([FILE_COLUMN]), table.find([ROW_COLUMN])
    if places is None or numbers is None:
        return None
    vectors: dict[int, NDArray[Any]] = {}
    for name, cells in named_rows(places, numbers).items():
        file = find_features(name, [Path(os.path.realpath(path.parent))])
        with reading(file):
            if file.suffix.lower() in TABLES and read_table(file).find([FILE_COLUMN]) is not None:
                raise InputError("expected vectors, but this table only names rows of another file: give that file")
            parts = open_features(file, mapped=True).parts
            rows = float_tensor(parts[choose_split(None, parts)]().vectors).cpu()
        wrong = next((table.rows[place] for place, row in cells if not 0 <= row < len(rows)), None)
        if wrong is not None:
            raise InputError(f"row {wrong}: expected one of the {len(rows):,} rows of {name}, but got another: drop it")
        chosen = rows[[row for _, row in cells]].float().numpy()
        vectors.update({place: chosen[at] for at, (place, _) in enumerate(cells)})
    return vectors


def named_rows(places: Column, numbers: Column) -> dict[str, list[tuple[int, int]]]:
    """Sort the rows of a table by the files that they name, if any: the place in the table, and the row in the file.

    Args:
        places: The column of files.
        numbers: The column of rows in them, from 1. They are given from 0, and as -1 if they are no numbers.
    """
    rows_by_file: dict[str, list[tuple[int, int]]] = {}
    for place, (name, cell) in enumerate(zip(places.texts(), numbers.texts(), strict=True)):
        row = int(cell) - 1 if re.fullmatch(r"[0-9]{1,18}", cell) else -1
        if name:
            rows_by_file.setdefault(name, []).append((place, row))
    return rows_by_file


def find_features(name: str, folders: Sequence[Path]) -> Path:
    """Find a features file that a table names, below the folder of the table; InputError if there is none.

    Args:
        name: As the table has it.
        folders: Where it may lie.
    """
    place = locate(name, folders)
    place = locate(as_written(name), folders) if isinstance(place, str) else place
    if isinstance(place, str):
        raise InputError(f"cannot read the vectors of {name[:200]!r} ({place}): move the table to a folder above it")
    return place


def stacked(vectors: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Make an array (n, d) of vectors, which must be of one length."""
    if not vectors:
        raise InputError("expected rows of features files, but got none: label some items first")
    if len({len(vector) for vector in vectors}) > 1:
        raise InputError("expected vectors of one length in all files that the table names: keep those of one encoder")
    return np.stack(vectors)


READERS: dict[str, Callable[..., Opened]] = {
    ".safetensors": open_safetensors,
    ".npz": open_npz,
    ".npy": open_npy,
    **dict.fromkeys(TABLES, _open_table),
    **dict.fromkeys((".pkl", ".pickle", ".plk"), open_pickle),
    **dict.fromkeys((".pt", ".pth"), open_torch),
}
