"""Class splits: which classes of a data set are for training, for validation and for testing.

Packaged: mini_imagenet, tiered_imagenet, cub, cifar_fs, fc100, omniglot, as published.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from likelyshot.data.files import read_document
from likelyshot.errors import InputError, few, nearest

PARTS = ("train", "val", "test")
Classes = Annotated[list[Annotated[str, msgspec.Meta(min_length=1)]], msgspec.Meta(min_length=1)]
Split = Annotated[dict[Literal["train", "val", "test"], Classes], msgspec.Meta(min_length=1)]


def packaged_splits() -> tuple[str, ...]:
    """Name the splits that are packaged.

    >>> packaged_splits()
    ('cifar_fs', 'cub', 'fc100', 'mini_imagenet', 'omniglot', 'tiered_imagenet')
    """
    return tuple(sorted(file.stem for file in Path(__file__).parent.glob("*.json")))


def load_split(name: str | Path) -> dict[str, list[str]]:
    """Read the classes of each part of a split.

    Args:
        name: The name of a packaged split, or a JSON file {"train": [class, ...], "val": [...], "test": [...]}.

    >>> {part: len(classes) for part, classes in load_split("cub").items()}
    {'train': 100, 'val': 50, 'test': 50}
    """
    if str(name) in packaged_splits():
        path = Path(__file__).parent / f"{name}.json"
    elif Path(name).suffix == ".json" or Path(name).is_file():
        path = Path(name)
    else:
        raise InputError(f"unknown split {str(name)!r}: {nearest(str(name), packaged_splits())}; or give a JSON file")
    shape = '{"train": [class, ...], "val": [...], "test": [...]}'
    split: dict[str, list[str]] = read_document(path, Split, what=f"a split {shape}", remedy="correct the file")  # type: ignore[arg-type]
    for part, classes in split.items():
        if twice := sorted(one for one in set(classes) if classes.count(one) > 1):
            raise InputError(f"expected each class once in {part} of the split {name}, but got {few(twice)} twice")
    disjoint(split)
    return {part: split[part] for part in PARTS if part in split}


def disjoint(parts: Mapping[str, Iterable[str]]) -> None:
    """Raise InputError if parts share a class: a class that was trained on says nothing as a test.

    >>> disjoint({"train": ["cat", "dog"], "test": ["owl"]})
    """
    sets = {part: set(classes) for part, classes in parts.items()}
    for one, other in combinations(sets, 2):
        if common := sorted(sets[one] & sets[other]):
            got = f"{len(common)} in both {one} and {other} ({few(common)})"
            raise InputError(f"expected disjoint classes, but got {got}: give each class to one part")
