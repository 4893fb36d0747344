"""Features files: from images through any encoder, or from cached features through a trained head."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from likelyshot.data.datasets import ImageSet, open_images, refuse_unreadable
from likelyshot.data.features import READERS, Base, Features
from likelyshot.data.files import output_folder, write_tensors
from likelyshot.data.items import Item
from likelyshot.encoders.blocks import extract_blocks, parts_folder, read_blocks, remove_blocks
from likelyshot.encoders.checkpoints import load_encoder
from likelyshot.encoders.embed import embed
from likelyshot.encoders.networks import Encoder
from likelyshot.encoders.pixels import trained_preparation
from likelyshot.encoders.pretrained import DEFAULT, Embedder, identity, open_encoder
from likelyshot.errors import InputError
from likelyshot.machine import Progress, check_device, cluster
from likelyshot.workers import Part

#: The value of all entries of what would be a vector of zeros, which has no direction and no gradient.
FLOOR = 1e-6
BATCH = 256  # vectors that a head encodes at once


def extract(
    data: str | Path,
    output: str | Path,
    *,
    encoder: str = DEFAULT,
    split: str | None = None,
    splits: str | Path | None = None,
    skip_unreadable: bool = False,
    device: str = "cpu",
    cache: Path | Literal["user"] | None = "user",
    start: Callable[[int], Progress] = lambda total: lambda done: None,
) -> tuple[Features, bool]:
    """Write the features of images to a file, and return them and whether they were computed now.

    The file keeps the path of every image, from the folder's own name on, so that later answers can name it. A file
    that already has the features of these very images by this very encoder is left as it is. An image without any
    activation has the value 1e-6 everywhere, so that every method can take it.

    Args:
        data: A folder or a zip archive of class folders, or of images without any folder, which are one class then;
            for a head that was trained on features, a features file.
        output: The safetensors file to write.
        encoder: A name, as `open_encoder` takes it: "efficientnet_lite0", "timm:resnet50.a1_in1k", or a checkpoint of
            `likelyshot train`.
        split: "train", "val" or "test". Default: all classes.
        splits: Which classes belong to which split: the name of a packaged split ("cub"), a JSON file, or a folder of
            train.csv, val.csv and test.csv.
        skip_unreadable: Leave out images that cannot be read. Default: they are an error.
        device: "cpu", "cuda", ...
        cache: Folder where vectors are kept as they are made, so that a call that was stopped goes on where it was;
            "user": the user's cache; None: none.
        start: Called once with the number of images; returns a function that is called with the number of images done
            since the last call.
    """
    data, output = Path(data), Path(output)
    _check(output, device)
    if data.suffix.lower() in READERS and data.is_file():
        if cluster() is not None:
            raise InputError(f"expected images for --ray, but {data} has features: leave it out, a head is quick")
        return _extract_head(data, output, encoder, split, device, start)
    found = _open(data, encoder, split, splits, skip_unreadable, device)
    if cluster() is not None:
        _embed_blocks(found, output, cache, None, start)
        return merge_blocks(parts_folder(output), output), True
    images, embedder, _, source, top = found
    extraction = _hash(["with paths", embedder.digest, _content(images)])
    if _extraction(output) == extraction:
        return Features.load(output), False
    result = embed(
        [Item(image) for image in images.names],
        embedder,
        cache=cache,
        progress=start(len(images)),
        content=lambda item: images.source.read(item.name),
    )
    refuse_unreadable(result.problems, images.skip_unreadable, len(images))
    source |= {"extraction": extraction}
    labels = images.labels[torch.from_numpy(result.kept)]
    paths = [f"{top}{images.names[place]}" for place in result.kept.tolist()]
    vectors = torch.from_numpy(np.asarray(result.vectors[:]))
    return _saved(output, vectors, labels, images.classes, source, paths, len(result.problems)), True


def extract_part(
    data: str | Path,
    output: str | Path,
    part: Part,
    *,
    encoder: str = DEFAULT,
    split: str | None = None,
    splits: str | Path | None = None,
    skip_unreadable: bool = False,
    device: str = "cpu",
    cache: Path | Literal["user"] | None = "user",
    start: Callable[[int], Progress] = lambda total: lambda done: None,
) -> tuple[int, int]:
    """Embed a part of the images, into a folder beside the output; return how many blocks were done now, and before.

    `merge_blocks` puts the parts together.

    Args:
        data: A folder or a zip archive of images.
        output: The features file that all parts together will be; this part goes to FILE.safetensors.parts.
        part: Which part.
        encoder: As in `extract`.
        split: As in `extract`.
        splits: As in `extract`.
        skip_unreadable: As in `extract`.
        device: As in `extract`.
        cache: As in `extract`.
        start: As in `extract`.
    """
    data, output = Path(data), Path(output)
    _check(output, device)
    if data.suffix.lower() in READERS and data.is_file():
        raise InputError(f"expected images for --part, but {data} has features: leave it out, a head is quick")
    return _embed_blocks(_open(data, encoder, split, splits, skip_unreadable, device), output, cache, part, start)


class _Found(NamedTuple):
    images: ImageSet
    embedder: Embedder
    encoder: str
    source: dict[str, str]
    top: str  # before the names of images; never where the folder is on this machine


def _check(output: Path, device: str) -> None:
    if output.suffix != ".safetensors":
        raise InputError(f"expected a features file that ends in .safetensors, got {output}: rename it")
    output_folder(output.parent, make=False)
    check_device(device)
    if device != "cpu" and cluster() is not None:
        raise InputError(f"expected the device cpu on a Ray cluster, got {device}: leave out --device, or --ray")


def _open(
    data: Path, encoder: str, split: str | None, splits: str | Path | None, skip_unreadable: bool, device: str
) -> _Found:
    embedder = open_encoder(encoder, device)
    if embedder.kind != "image":
        raise InputError(f"expected an encoder of images, but {encoder} is one of {embedder.kind}s: choose another")
    images = open_images(data, split=split, splits=splits, skip_unreadable=skip_unreadable, flat=True)
    name = f"{Path(encoder).stem} {embedder.digest[:12]}" if encoder.endswith(".safetensors") else encoder
    source = {"dataset": data.stem, "encoder": name} | ({"split": split} if split else {})
    return _Found(images, embedder, encoder, source, f"{data.resolve().name}/" if data.is_dir() else "")


def _embed_blocks(
    found: _Found,
    output: Path,
    cache: Path | Literal["user"] | None,
    part: Part | None,
    start: Callable[[int], Progress],
) -> tuple[int, int]:
    images = found.images
    stamps = [images.source.stamps(images.names), images.names, images.labels.tolist(), images.classes]
    return extract_blocks(
        images,
        found.embedder,
        parts_folder(output),
        encoder=found.encoder,
        top=found.top,
        identity=_hash([found.embedder.digest, stamps, images.skip_unreadable]),
        source=found.source,
        cache=cache,
        part=part,
        progress=start(len(images)),
    )


def merge_blocks(folder: str | Path, output: str | Path) -> Features:
    """Put the parts of an extraction together to a features file, and remove them.

    Args:
        folder: The folder of the parts: FILE.safetensors.parts.
        output: The features file to write.
    """
    whole = read_blocks(Path(folder))
    about = whole.about
    refuse_unreadable(whole.problems, about.skip_unreadable, about.images)
    lost = len(whole.problems)
    source = about.source
    features = _saved(Path(output), whole.vectors, whole.labels, tuple(about.classes), source, whole.paths, lost)
    remove_blocks(Path(folder))
    return features


def _saved(
    output: Path,
    vectors: Tensor,
    labels: Tensor,
    classes: tuple[str, ...],
    source: dict[str, str],
    paths: list[str],
    lost: int,
) -> Features:
    source |= {"left_out": f"{lost} unreadable images"} if lost else {}
    features = Features(_lifted(vectors), labels, classes, source, paths)
    features.save(output_folder(output.parent) / output.name)
    return features


def _extract_head(
    data: Path, output: Path, checkpoint: str, split: str | None, device: str, start: Callable[[int], Progress]
) -> tuple[Features, bool]:
    """Send cached features through a head that was trained on such features."""
    if not checkpoint.endswith(".safetensors"):
        raise InputError(
            f"the encoder {checkpoint} takes images, got the features {data}: give --checkpoint with a head"
        )
    head, trained = load_encoder(checkpoint)
    if trained_preparation(trained, checkpoint) is not None:
        raise InputError(f"the encoder {checkpoint} takes images, got the features {data}: give the images")
    features = Features.load(data, split=split)
    if features.dim != head.params["in_dim"]:
        raise InputError(
            f"expected features of length {head.params['in_dim']}, as {checkpoint} was trained on, got {features.dim} "
            f"in {data}: extract features with the same encoder"
        )
    digest = identity([head.name], trained.part("encoder"))
    extraction = _hash([digest, features.digest])
    if _extraction(output) == extraction:
        return Features.load(output), False
    progress = start(len(features))
    vectors = encode(
        head.to(check_device(device)), (rows.to(device) for rows in torch.split(features.vectors, BATCH)), progress
    )
    source = {**features.source, "encoder": f"{head.name} {digest[:12]}", "extraction": extraction}
    features = Features(vectors, features.labels, features.classes, source, features.paths)
    features.save(output_folder(output.parent) / output.name)
    return features, True


def encode(encoder: Encoder, batches: Iterable[Tensor], progress: Progress | None = None) -> Tensor:
    """Encode batches of inputs for testing: (n, dim) float32 on the CPU; a vector of zeros is lifted to FLOOR."""
    was_training = encoder.training
    encoder.eval()
    parts = []
    with torch.inference_mode():
        for batch in batches:
            parts.append(encoder(batch.float()).float().cpu())
            if progress is not None:
                progress(len(batch))
    encoder.train(was_training)
    vectors = torch.cat(parts)
    if not vectors.isfinite().all():
        raise InputError("the encoder gives infinity or NaN: train it with a lower rate")
    return _lifted(vectors)


def _lifted(vectors: Tensor) -> Tensor:
    vectors[(vectors == 0).all(1)] = FLOOR
    return vectors


def _content(images: ImageSet) -> str:
    """Hash the bytes, names and labels of all images."""
    sha = hashlib.sha256(json.dumps([images.names, images.labels.tolist(), images.classes]).encode())
    for name in images.names:
        with suppress(InputError):  # what cannot be read is reported when it is decoded
            sha.update(hashlib.sha256(images.source.read(name)).digest())
    return sha.hexdigest()


def _hash(facts: object) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _extraction(path: Path) -> str | None:
    """Read from a features file what it was extracted from; None if there is none, or of another kind."""
    try:
        with safe_open(path, framework="pt") as file:
            extraction: str | None = (file.metadata() or {}).get("extraction")
            return extraction
    except (OSError, SafetensorError):
        return None


def save_splits(
    path: str | Path,
    parts: Mapping[str, Features],
    base: Base,
    source: Mapping[str, str],
    head: tuple[Mapping[str, Tensor], Mapping[str, Any]] | None = None,
) -> Path:
    """Write several splits and the statistics of the base classes to one file, as `likelyshot evaluate` reads it.

    `head` is what `likelyshot.heads.stored` gives of a head that was trained on these very vectors.
    """
    tensors = {"train.mean": base.mean}
    if base.within is not None:
        tensors["train.within"] = base.within
    for split, features in parts.items():
        tensors |= {f"{split}.features": features.vectors, f"{split}.labels": features.labels}
    classes = json.dumps({split: features.classes for split, features in parts.items()})
    notes = {**source, "classes": classes}
    if head is not None:
        tensors |= head[0]
        notes["head"] = json.dumps(head[1])
    return write_tensors(path, tensors, notes)
