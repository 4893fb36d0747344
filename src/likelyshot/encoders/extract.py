"""From images, or cached features, through an encoder to Features."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as safetensors_bytes
from torch import Tensor

from likelyshot.data.datasets import ImageSet, cached, decoded, open_images, refuse_unreadable
from likelyshot.data.features import Base, Features
from likelyshot.data.files import write_whole
from likelyshot.data.items import Item
from likelyshot.encoders.checkpoints import load_encoder
from likelyshot.encoders.embed import embed
from likelyshot.encoders.networks import check_side
from likelyshot.encoders.networks.blocks import Encoder
from likelyshot.encoders.pixels import MEAN, STD, augment, centred
from likelyshot.encoders.pretrained import open_encoder
from likelyshot.errors import InputError
from likelyshot.machine import Progress
from likelyshot.training.recipes import Augmentation, Data, recipe_from

#: What a vector of zeros is made of instead: it has no direction otherwise, and no gradient.
FLOOR = 1e-6


PLAIN, CPU = Augmentation(), torch.device("cpu")


@dataclass(frozen=True, eq=False)
class Pool:
    """The images, or cached vectors, of one split, in memory or mapped into it."""

    data: Tensor  # (n, 3, h, w) uint8, or (n, d)
    labels: Tensor  # (n,) int64
    classes: tuple[str, ...]
    source: Mapping[str, str]
    size: int = 0  # pixels that the encoder sees
    augmentation: Augmentation = PLAIN
    device: torch.device = CPU
    mean: tuple[float, ...] = MEAN  # what pixels from 0 to 1 are normalised by
    std: tuple[float, ...] = STD

    def __len__(self) -> int:
        return len(self.data)

    def inputs(self, rows: Tensor, *, seed: int | None = None, first: int = 0) -> Tensor:
        """Give rows as an encoder takes them; images are augmented if there is a seed.

        `first` is where in the whole batch the first row stands, if processes share it.
        """
        picked = self.data.index_select(0, rows).to(self.device)
        if picked.ndim == 2:
            return picked.float()
        if seed is None:
            images = centred(picked, size=self.size, mean=self.mean, std=self.std)
        else:
            how = self.augmentation
            scale = (how.crop_scale[0], how.crop_scale[1]) if how.crop_scale else None
            images = augment(
                picked,
                seed,
                size=self.size,
                crop_scale=scale,
                padding=how.padding,
                flip=how.flip,
                jitter=how.jitter,
                rows=range(first, first + len(picked)),
                mean=self.mean,
                std=self.std,
            )
        return images.contiguous(memory_format=torch.channels_last)


def open_pool(
    data: Data,
    split: str | None,
    *,
    augmentation: Augmentation = PLAIN,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> Pool:
    """Read one split, or all images if there is none: into memory, or into the file in `data.cache` and map that."""
    device = torch.device(device)
    if data.features:
        features = Features.load(data.features, split=split)
        return Pool(features.vectors, features.labels, features.classes, features.source, device=device)
    images = open_data(data, split)
    side = data.stored or data.size
    read = (
        cached(images, side, data.cache, progress=progress) if data.cache else decoded(images, side, progress=progress)
    )
    source = {"dataset": Path(data.path).stem, **({"split": split} if split else {})}
    if read.problems:
        source["left_out"] = f"{len(read.problems)} unreadable images"
    return Pool(
        read.pixels, read.labels, read.classes, source, data.size, augmentation, device, mean=data.mean, std=data.std
    )


def open_data(data: Data, split: str | None) -> ImageSet:
    """List the images of a split."""
    return open_images(data.path, split=split, splits=data.splits or None, skip_unreadable=data.skip_unreadable)


def encode(encoder: Encoder, pool: Pool, *, batch_size: int = 256, progress: Progress | None = None) -> Features:
    """Give the features of a pool, (n, dim) float32; a vector of zeros is lifted to FLOOR."""
    was_training = encoder.training
    encoder.eval()
    parts = []
    with torch.inference_mode():
        for first in range(0, len(pool), batch_size):
            rows = torch.arange(first, min(first + batch_size, len(pool)))
            parts.append(encoder(pool.inputs(rows)).float().cpu())
            if progress is not None:
                progress(len(rows))
    encoder.train(was_training)
    vectors = torch.cat(parts)
    if not vectors.isfinite().all():
        raise InputError("expected finite features, but the encoder gives infinity or NaN: train with a lower rate")
    vectors[(vectors == 0).all(1)] = FLOOR
    return Features(vectors, pool.labels, pool.classes, dict(pool.source))


def extract(
    data: Data,
    split: str | None,
    checkpoint: str | Path,
    output: str | Path,
    *,
    device: str = "cpu",
    start: Callable[[int], Progress] = lambda total: lambda done: None,
) -> tuple[Features, bool]:
    """Write the features that a trained encoder gives; where `output` holds those very ones, nothing is computed.

    The sizes of the images and their normalisation are those of the encoder's training. `start` is told how much there
    is to do. Gives the features and whether they were computed now.
    """
    encoder, kept = load_encoder(checkpoint)
    trained = recipe_from(kept.facts["recipe"])
    if not data.features:
        seen = trained.data
        check_side(encoder.name, seen.size)
        data = msgspec.structs.replace(data, size=seen.size, stored=seen.stored, mean=seen.mean, std=seen.std)
    weights = hashlib.sha256(b"".join(value.numpy().tobytes() for value in kept.part("encoder").values())).hexdigest()
    content = _content(data, split)
    seen_as = [data.size, data.stored, data.mean, data.std]
    identity = hashlib.sha256(json.dumps([weights, content, *seen_as]).encode()).hexdigest()
    if _identity(Path(output)) == identity:
        return Features.load(output), False
    pool = open_pool(data, split, device=device)
    if (pool.data.ndim == 2) != bool(trained.data.features):
        wanted = "a features file" if trained.data.features else "images"
        raise InputError(f"expected {wanted}, which the encoder was trained on, but got {data.path or data.features}")
    encoder = encoder.to(device)
    if pool.data.ndim == 4:
        encoder = encoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload,unused-ignore]
    features = encode(encoder, pool, progress=start(len(pool)))
    source = {**features.source, "encoder": f"{encoder.name} {weights[:12]}", "extraction": identity}
    features = Features(features.vectors, features.labels, features.classes, source)
    features.save(output)
    return features, True


def extract_pretrained(
    data: Data,
    split: str | None,
    name: str,
    output: str | Path,
    *,
    device: str = "cpu",
    cache: Path | Literal["user"] | None = "user",
    start: Callable[[int], Progress] = lambda total: lambda done: None,
) -> tuple[Features, bool]:
    """Write the features that a pre-trained encoder gives, as `extract` does.

    Vectors go to `cache` as they are made (see `likelyshot.encoders.embed`), so that a call that was stopped goes on
    where it was.
    """
    if data.features:
        raise InputError(f"expected images for a pre-trained encoder, but got {data.features}: give --checkpoint")
    encoder = open_encoder(name, device)
    if encoder.kind != "image":
        raise InputError(f"expected an encoder of images, but {name} is one of {encoder.kind}s: choose another")
    identity = hashlib.sha256(json.dumps([encoder.digest, _content(data, split)]).encode()).hexdigest()
    if _identity(Path(output)) == identity:
        return Features.load(output), False
    images = open_data(data, split)
    found = embed(
        [Item(image) for image in images.names],
        encoder,
        cache=cache,
        progress=start(len(images)),
        content=lambda item: images.source.read(item.name),
    )
    refuse_unreadable(found.problems, images)
    source = {"dataset": Path(data.path).stem, "encoder": name, "extraction": identity}
    source |= {"split": split} if split else {}
    if found.problems:
        source["left_out"] = f"{len(found.problems)} unreadable images"
    labels = images.labels[torch.from_numpy(found.kept)]
    features = Features(torch.from_numpy(found.vectors), labels, images.classes, source)
    features.save(output)
    return features, True


def _content(data: Data, split: str | None) -> str:
    """Hash the bytes, names and labels of all images, or of all vectors."""
    if data.features:
        return Features.load(data.features, split=split).digest
    images = open_data(data, split)
    sha = hashlib.sha256(json.dumps([images.names, images.labels.tolist(), images.classes]).encode())
    for name in images.names:
        with suppress(InputError):  # what cannot be read is reported when it is decoded
            sha.update(hashlib.sha256(images.source.read(name)).digest())
    return sha.hexdigest()


def _identity(path: Path) -> str | None:
    """Read of a features file what it was extracted from; nothing if there is none, or of another kind."""
    try:
        with safe_open(path, framework="pt") as file:
            found: str | None = (file.metadata() or {}).get("extraction")
            return found
    except (OSError, SafetensorError):
        return None


def save_splits(path: str | Path, parts: Mapping[str, Features], base: Base, source: Mapping[str, str]) -> Path:
    """Write several splits and the statistics of the base classes to one file, as `likelyshot evaluate` reads it."""
    tensors = {"train.mean": base.mean.contiguous()}
    if base.within is not None:
        tensors["train.within"] = base.within.contiguous()
    for split, features in parts.items():
        tensors |= {f"{split}.features": features.vectors.contiguous(), f"{split}.labels": features.labels.contiguous()}
    classes = json.dumps({split: features.classes for split, features in parts.items()})
    return write_whole(path, safetensors_bytes(tensors, {**source, "classes": classes}))
