"""The images, or cached vectors, of one split: what training, validation and the final features read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from likelyshot.data.datasets import ImageSet, cached, decoded, open_splits
from likelyshot.data.features import Features, FeaturesFile
from likelyshot.encoders.extract import encode
from likelyshot.encoders.networks import Encoder
from likelyshot.encoders.pixels import Preparation
from likelyshot.errors import InputError
from likelyshot.machine import Progress
from likelyshot.training.augment import augment
from likelyshot.training.recipes import Augmentation, Data, Recipe

SIZES, PLAIN, CPU = Preparation(), Augmentation(), torch.device("cpu")
BATCH = 256  # images that are encoded at once without gradients


@dataclass(frozen=True, eq=False)
class Pool:
    """The images, or cached vectors, of one split, in memory or mapped into it."""

    data: Tensor  # (n, 3, h, w) uint8, or (n, d)
    labels: Tensor  # (n,) int64
    classes: tuple[str, ...]
    source: Mapping[str, str]
    preparation: Preparation = SIZES
    augmentation: Augmentation = PLAIN
    device: torch.device = CPU

    def __len__(self) -> int:
        return len(self.data)

    def inputs(self, rows: Tensor, *, seed: int | None = None, first: int = 0) -> Tensor:
        """Return rows as an encoder takes them; with a seed, images are augmented.

        `first` is the place of the first row in the whole batch, if processes share it.
        """
        picked = self.data.index_select(0, rows).to(self.device)
        if picked.ndim == 2:
            return picked.float()
        how = self.preparation
        if seed is None:
            images = how.test_input(picked)
        else:
            scale = self.augmentation.crop_scale
            images = augment(
                picked,
                seed,
                size=how.size,
                crop_scale=(scale[0], scale[1]) if scale else None,
                padding=self.augmentation.padding,
                flip=self.augmentation.flip,
                jitter=self.augmentation.jitter,
                rows=range(first, first + len(picked)),
                mean=how.mean,
                std=how.std,
            )
        return images.contiguous(memory_format=torch.channels_last)

    def batches(self) -> Iterator[Tensor]:
        """Iterate over all rows in order, as an encoder takes them for testing."""
        for rows in torch.split(torch.arange(len(self)), BATCH):
            yield self.inputs(rows)


def missing_data(data: Data) -> str:
    """Say what to do if nothing is where a recipe looks for images or features; nothing if something is there."""
    key, place = ("features", data.features) if data.features else ("path", data.path)
    if os.path.exists(place):  # Path.exists raises for names that are too long  # noqa: PTH110
        return ""
    what, example = ("features", "FILE") if data.features else ("images", "FOLDER")
    got = f"expected the {what} of the recipe at {place[:200]!r}, but nothing is there"
    return f"{got}: say where they are with --set data.{key}={example}"


def open_data(data: Data, splits: tuple[str, ...]) -> dict[str, ImageSet | Features]:
    """List the images of each split, in one pass over the folder, or load its features."""
    if missing := missing_data(data):
        raise InputError(missing)
    if data.features:
        file = FeaturesFile(data.features)
        if lacking := [split for split in splits if split not in file.splits]:
            got = ", ".join(file.splits) or "one set without splits"
            raise InputError(
                f"expected the split {lacking[0]} in {file.path}, but got {got}: training needs train and val"
            )
        return {split: file.read(split) for split in splits}
    lists = open_splits(data.path, splits, splits=data.splits or None, skip_unreadable=data.skip_unreadable)
    return {split: lists[split] for split in splits}


def read_pool(
    part: ImageSet | Features, recipe: Recipe, device: torch.device = CPU, progress: Progress | None = None
) -> Pool:
    """Read the images of a split: into memory, or into a file in `data.cache`, which is then mapped."""
    if isinstance(part, Features):
        return Pool(part.vectors, part.labels, part.classes, part.source, device=device)
    data = recipe.data
    if data.cache:
        read = cached(part, data.side, data.cache, progress=progress)
    else:
        read = decoded(part, data.side, progress=progress)
    source = {"dataset": Path(data.path).stem, **({"split": part.split} if part.split else {})}
    if read.problems:
        source["left_out"] = f"{len(read.problems)} unreadable images"
    return Pool(read.pixels, read.labels, read.classes, source, data, recipe.augmentation, device)


def encode_pool(encoder: Encoder, pool: Pool) -> Features:
    """Encode all rows of a pool, as for testing."""
    return Features(encode(encoder, pool.batches()), pool.labels, pool.classes, dict(pool.source))
