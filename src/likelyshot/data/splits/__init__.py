"""Class splits: which classes of a data set are for training, for validation and for testing.

Packaged: mini_imagenet, tiered_imagenet, cub, cifar_fs, fc100, omniglot, as published.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib import resources
from itertools import combinations
from pathlib import Path

from likelyshot.errors import InputError, nearest

PARTS = ("train", "val", "test")


def packaged_splits() -> tuple[str, ...]:
    """Name the splits that are packaged.

    >>> packaged_splits()
    ('cifar_fs', 'cub', 'fc100', 'mini_imagenet', 'omniglot', 'tiered_imagenet')
    """
    files = (Path(entry.name) for entry in resources.files(__package__).iterdir())
    return tuple(sorted(file.stem for file in files if file.suffix == ".json"))


def load_split(name: str | Path) -> dict[str, list[str]]:
    """Read the classes of each part of a packaged split, or of a JSON file {"train": [...], "val": ..., "test": ...}.

    >>> {part: len(classes) for part, classes in load_split("cub").items()}
    {'train': 100, 'val': 50, 'test': 50}
    """
    if str(name) in packaged_splits():
        text = resources.files(__package__).joinpath(f"{name}.json").read_text(encoding="utf-8")
    elif Path(name).suffix == ".json" or Path(name).is_file():
        try:
            text = Path(name).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise InputError(f"cannot read the split {name} ({reason}): name a JSON file") from None
    else:
        raise InputError(f"unknown split {str(name)!r}: {nearest(str(name), packaged_splits())}; or name a JSON file")
    return _checked(name, text)


def disjoint(parts: Mapping[str, Iterable[str]]) -> None:
    """Refuse parts that share a class: a class that was trained on says nothing as a test.

    >>> disjoint({"train": ["cat", "dog"], "test": ["owl"]})
    """
    sets = {part: set(classes) for part, classes in parts.items()}
    for one, other in combinations(sets, 2):
        if common := sorted(sets[one] & sets[other]):
            got = f"{len(common)} in both {one} and {other} ({some(common)})"
            raise InputError(f"expected disjoint classes, but got {got}: give each class to one part")


def some(names: Iterable[str], most: int = 3) -> str:
    """Quote the first few names, and say that there are more.

    >>> some(["a", "b", "c", "d"], 2)
    "'a', 'b', ..."
    """
    quoted = [repr(name) for name in names]
    return ", ".join(quoted[:most] + ["..."] * (len(quoted) > most))


def _checked(name: str | Path, text: str) -> dict[str, list[str]]:
    try:
        document = json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        raise InputError(f"expected JSON in the split {name}, but got something else: mend it") from None
    shape = '{"train": [class, ...], "val": [...], "test": [...]}'
    if not isinstance(document, dict) or not document or not set(document) <= set(PARTS):
        got = some(document) if isinstance(document, dict) else type(document).__name__
        raise InputError(f"expected {shape} in the split {name}, but got {got or 'nothing'}: mend it")
    for part, classes in document.items():
        if not isinstance(classes, list) or not classes or not all(isinstance(one, str) and one for one in classes):
            raise InputError(f"expected a list of class names for {part} in the split {name}: mend it")
        if len(set(classes)) < len(classes):
            twice = sorted(one for one in set(classes) if classes.count(one) > 1)
            raise InputError(f"expected each class once in {part} of the split {name}, but got {some(twice)} twice")
    disjoint(document)
    return {part: document[part] for part in PARTS if part in document}
