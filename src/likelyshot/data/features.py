"""Features: vectors with labels, class names and provenance."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from numpy.typing import ArrayLike
from safetensors.torch import save as safetensors_bytes
from torch import Tensor

from likelyshot.data.feature_files import (
    FLOATS,
    choose_split,
    float_tensor,
    in_order,
    open_features,
    plain_values,
    read_labels,
    reading,
    unicode,
)
from likelyshot.data.files import write_whole
from likelyshot.errors import InputError
from likelyshot.functional.covariance import within_class_covariance
from likelyshot.functional.normalise import rectify


@dataclass(frozen=True, eq=False)
class Features:
    """The vectors of n images with their labels, the names of the classes, and where they came from.

    >>> features = Features.from_arrays([[0.0, 1.0], [2.0, 3.0]], ["dog", "cat"])
    >>> features.classes, features.labels.tolist(), features.dim
    (('cat', 'dog'), [1, 0], 2)
    """

    vectors: Tensor  # (n, d), half, single or double precision, all finite
    labels: Tensor  # (n,) int64
    classes: tuple[str, ...]  # label i has the i-th name
    source: Mapping[str, str]  # encoder, dataset, split, file (without its folder), ...

    def __post_init__(self) -> None:
        shape = tuple(self.vectors.shape)
        if len(shape) != 2 or 0 in shape:
            raise InputError(f"expected vectors of shape (n, d), none zero, but got {shape}: reshape them")
        if self.vectors.dtype not in FLOATS or self.labels.dtype != torch.int64:
            got = f"{self.vectors.dtype} and {self.labels.dtype}"
            raise InputError(f"expected float vectors and int64 labels, but got {got}: use from_arrays")
        if self.labels.shape != shape[:1]:
            got = f"{shape[0]} rows and {' x '.join(map(str, self.labels.shape))} labels"
            raise InputError(f"expected one label per row, but got {got}: is one of them a header?")
        texts = [*self.classes, *self.source.keys(), *self.source.values()]
        if not all(isinstance(text, str) and unicode(text) == text for text in texts):
            raise InputError("expected text for class names and source, but got something else: use str()")
        if "classes" in self.source:
            raise InputError("expected facts of the source, but got 'classes': give the names as classes=")
        low, high = int(self.labels.min()), int(self.labels.max())
        if low < 0 or high >= len(self.classes):
            known = f"a label for each of {len(self.classes)} classes, from 0"
            raise InputError(f"expected {known}, but got {low} to {high}: name all classes, or none")
        bad = (~torch.isfinite(self.vectors)).any(1).nonzero().flatten().tolist()
        if bad:
            where = f"row {bad[0]} (class {self.classes[int(self.labels[bad[0]])]!r})"
            got = f"NaN or infinity in {where}, {len(bad)} of {len(self)} rows in all"
            raise InputError(f"expected finite numbers, but got {got}: drop these rows")

    @classmethod
    def from_arrays(
        cls,
        vectors: ArrayLike | Tensor,
        labels: ArrayLike | Tensor,
        *,
        classes: Iterable[str] | None = None,
        source: Mapping[str, str] | None = None,
    ) -> Features:
        """Take arrays, tensors or lists; labels of any kind become 0, 1, ... in sorted order.

        With `classes`, integer labels are positions in it and other labels are names in it. Vectors of
        integers or of Python's numbers become float32.
        """
        tensor, values = float_tensor(vectors), plain_values(labels)
        if classes is not None:
            names = [str(name) for name in plain_values(classes)]
            known = {name: i for i, name in enumerate(names)}
            if not all(isinstance(value, int) for value in values):
                if len(known) < len(names):
                    raise InputError("expected distinct classes, but got a name twice: use integer labels")
                if strange := [str(value) for value in values if str(value) not in known]:
                    raise InputError(f"expected a class name, but got {strange[0]!r}: add it to classes")
                values = [known[str(value)] for value in values]
        else:
            if not all(isinstance(value, (int, float)) for value in values):
                values = [str(value) for value in values]
            order = in_order(set(values))
            names, place = [str(value) for value in order], {value: i for i, value in enumerate(order)}
            values = [place[value] for value in values]
        try:
            ids = torch.tensor(values, dtype=torch.int64, device=tensor.device)
        except (RuntimeError, OverflowError, ValueError):
            raise InputError("expected labels of 64 bits, but got larger: number classes from 0") from None
        return cls(tensor, ids, tuple(names), dict(source or {}))

    @classmethod
    def load(
        cls, path: str | Path, *, split: str | None = None, labels: str | Path | ArrayLike | None = None
    ) -> Features:
        """Read safetensors, npz, npy, csv, tsv, parquet, pkl (plain data only) or pt.

        Without `split` it reads the only split, or "test" among several; `source["split"]` says which.
        `labels` (an array, or a file: npy, or text with one label per line) stand in for those of the file.
        """
        path = Path(path)
        with reading(path):
            parts = open_features(path).parts
            name = choose_split(split, parts)
            part = parts[name]()
            given: Any = part.labels if labels is None else labels
            if given is None:
                raise InputError(f"expected {part.expected}, but found no labels: add them, or give labels=")
            given = read_labels(Path(given)) if isinstance(given, (str, Path)) else given
            source = {**part.source, **({"split": name} if name else {}), "file": unicode(path.name)}
            return cls.from_arrays(part.vectors, given, classes=part.classes, source=source)

    def save(self, path: str | Path) -> Path:
        """Write a safetensors file, whole or not at all."""
        tensors = {"features": self.vectors.contiguous(), "labels": self.labels.contiguous()}
        metadata = {**self.source, "classes": json.dumps(self.classes)}
        return write_whole(path, safetensors_bytes(tensors, metadata))

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
        return Features(rectify(self.vectors), self.labels, self.classes, source)


def splits(path: str | Path) -> tuple[str, ...]:
    """Name the splits of a file, none if it is a single set."""
    with reading(Path(path)):
        return tuple(name for name in open_features(Path(path)).parts if name)


@dataclass(frozen=True, eq=False)
class Base:
    """What methods take from the base classes."""

    mean: Tensor  # (d,) float32
    spread: Tensor | Features | None = None  # the covariance within classes (d, d), or what it follows from

    def __post_init__(self) -> None:
        for name, tensor, axes in (("mean", self.mean, 1), ("covariance", self.spread, 2)):
            if isinstance(tensor, Tensor):
                fits = tensor.shape == axes * self.mean.shape[:1]
                if not fits or not tensor.isfinite().all():
                    got = "infinity or NaN" if fits else str(tuple(tensor.shape))
                    raise InputError(f"expected a finite {name} with {axes} axes, but got {got}: mend the base split")

    @cached_property
    def within(self) -> Tensor | None:
        """The covariance within the classes, (d, d) float32; None if it is not known."""
        if isinstance(self.spread, Features):
            return within_class_covariance(self.spread.vectors, self.spread.labels).float()
        return self.spread

    @classmethod
    def of(cls, features: Features) -> Base:
        """Compute the statistics from features."""
        return cls(features.vectors.mean(0, dtype=torch.float64).float(), features)

    @classmethod
    def load(cls, path: str | Path, *, rectify: bool = False) -> Base | None:
        """Find those of split "train" or "base", stored or computed; None without such a split.

        With `rectify`, those of rectified features, which stored ones are not.
        """
        path = Path(path)
        with reading(path):
            file = open_features(path)
            for split in ("train", "base"):
                stored = {role: read for (where, role), read in file.stored.items() if where == split and not rectify}
                if "mean" in stored:
                    within = float_tensor(stored["within"]()).float() if "within" in stored else None
                    return cls(float_tensor(stored["mean"]()).float(), within)
            held = next((split for split in ("train", "base") if split in file.parts), None)
        if held is None:
            return None
        features = Features.load(path, split=held)
        return cls.of(features.rectified() if rectify else features)
