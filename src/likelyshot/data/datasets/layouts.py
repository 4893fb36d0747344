"""Which image belongs to which class and which part, by folders, by a list of classes, or by tables."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from likelyshot.data.splits import PARTS, disjoint
from likelyshot.data.tables import csv_rows
from likelyshot.errors import InputError, few

#: The images of every class of every part; a data set without parts has the part "".
Arranged = dict[str, dict[str, list[str]]]


def by_folders(names: Sequence[str]) -> Arranged:
    """Take the first folder as the class, or the one after train, val and test; folders around them all do not count.

    >>> by_folders(["birds/owl/1.png", "birds/jay/1.png"])
    {'': {'owl': ['birds/owl/1.png'], 'jay': ['birds/jay/1.png']}}
    >>> by_folders(["train/owl/1.png", "test/jay/1.png"])
    {'train': {'owl': ['train/owl/1.png']}, 'test': {'jay': ['test/jay/1.png']}}
    """
    folders = [name.split("/")[:-1] for name in names]
    start, split = 0, False
    while all(len(path) >= start + 2 for path in folders) and not split:
        tops = {path[start] for path in folders}
        split = tops <= set(PARTS)
        if not split and len(tops) > 1:
            break
        start += 1
    if outside := [name for name, path in zip(names, folders, strict=True) if len(path) <= start]:
        got = f"{len(outside)} outside ({few(outside)})"
        raise InputError(f"expected images in class folders, but got {got}: put each in the folder of its class")
    arranged: Arranged = defaultdict(lambda: defaultdict(list))
    for name, path in zip(names, folders, strict=True):
        arranged[path[start - 1] if split else ""][path[start]].append(name)
    if split:
        disjoint(arranged)
    return {part: dict(classes) for part, classes in arranged.items()}


def by_classes(names: Sequence[str], split: Mapping[str, Sequence[str]]) -> Arranged:
    """Find the listed classes among the folders of each image, the innermost first; other images are left out.

    A class may span folders, as Omniglot's do: `background/Greek/character01`.

    >>> by_classes(["set/owl/1.png", "set/jay/1.png"], {"train": ["owl"], "test": ["emu"]})
    {'train': {'owl': ['set/owl/1.png']}, 'test': {'emu': []}}
    """
    arranged: Arranged = {part: {name: [] for name in classes} for part, classes in split.items()}
    members = {name: images for classes in arranged.values() for name, images in classes.items()}
    lengths = sorted({name.count("/") + 1 for name in members}, reverse=True)

    @cache
    def class_of(folder: str) -> str | None:
        path = folder.split("/")
        runs = ("/".join(path[end - n : end]) for end in range(len(path), 0, -1) for n in lengths if n <= end)
        return next((run for run in runs if run in members), None)

    for name in names:
        folder_class = class_of(name.rpartition("/")[0])
        if folder_class is not None:
            members[folder_class].append(name)
    return arranged


def by_tables(names: Sequence[str], folder: Path, split: str | None) -> Arranged:
    """Follow the tables train.csv, val.csv and test.csv with the columns `filename` and `label`.

    A file is found by its path, or by the end of its path if that is unique, or unique in the folder of its class.
    Only the images of this split are looked up.
    """
    tables = {part: _rows(folder / f"{part}.csv") for part in PARTS if (folder / f"{part}.csv").is_file()}
    if not tables:
        raise InputError(f"expected train.csv, val.csv or test.csv in {folder}, but found none: name their folder")
    disjoint({part: rows.values() for part, rows in tables.items()})
    ends = defaultdict(list)
    for name in names:
        ends[name.rpartition("/")[2]].append(name)
    arranged: Arranged = {}
    for part, rows in tables.items():
        arranged[part] = {label: [] for label in sorted(set(rows.values()))}
        missing = []
        for file, label in rows.items() if split in (None, part) else ():
            image = _find(file, label, ends[file.rpartition("/")[2]])
            if image is None:
                missing.append(file)
            else:
                arranged[part][label].append(image)
        if missing:
            got = f"{len(missing)} of {len(rows)} are missing, or occur more than once ({few(missing)})"
            raise InputError(f"expected the images of {folder / part}.csv, but {got}: complete the images")
    return arranged


def _find(file: str, label: str, candidates: Iterable[str]) -> str | None:
    fits = [name for name in candidates if name == file or name.endswith(f"/{file}")]
    if len(fits) > 1:
        fits = [name for name in fits if name == file] or [name for name in fits if label in name.split("/")[:-1]]
    return fits[0] if len(fits) == 1 else None


def _rows(path: Path) -> dict[str, str]:
    """Read file -> label; further columns do not count, and neither do spaces around a value.

    Published tables have rows of unequal lengths, which `read_table` would leave out.
    """
    try:
        rows = [[value.strip() for value in row] for row in csv_rows(path)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read the table {path} ({error}): correct it") from None
    header = rows[0] if rows else []
    if not {"filename", "label"} <= set(header):
        got = few(header) or "nothing"
        raise InputError(
            f"expected the columns filename and label in {path}, but got {got}: name them in its first line"
        )
    image, label = header.index("filename"), header.index("label")
    labels: dict[str, str] = {}
    for line, row in enumerate(rows[1:], 2):
        if not row:
            continue
        if len(row) <= max(image, label) or not row[image] or not row[label]:
            raise InputError(f"expected a filename and a label in line {line} of {path}, but got {row}: complete it")
        if labels.setdefault(row[image].replace("\\", "/"), row[label]) != row[label]:
            raise InputError(f"expected one label for {row[image]!r}, but line {line} of {path} has another: keep one")
    if not labels:
        raise InputError(f"expected images in {path}, but got only its header: add them")
    return labels
