"""Features files: from images through any encoder, or from cached features through a trained head."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from likelyshot.data.datasets import ImageSet, open_images, refuse_unreadable
from likelyshot.data.datasets.sources import Source
from likelyshot.data.features import READERS, Base, Features, write_features
from likelyshot.data.files import Streamed, convert, output_file, output_folder, write_tensors
from likelyshot.data.items import Item, Lazy, PackedNames
from likelyshot.data.shards import Shards
from likelyshot.encoders.blocks import embed_blocks, parts_folder, read_blocks, remove_blocks
from likelyshot.encoders.checkpoints import load_encoder
from likelyshot.encoders.embed import embed
from likelyshot.encoders.networks import Encoder
from likelyshot.encoders.pixels import trained_preparation
from likelyshot.encoders.pretrained import DEFAULT, Embedder, identity, open_encoder, split_precision
from likelyshot.errors import InputError
from likelyshot.machine import Progress, check_device, cluster, map_blocks
from likelyshot.workers import Part

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: The value of all entries of what would be a vector of zeros, which has no direction and no gradient.
FLOOR = 1e-6
BATCH = 256  # vectors that a head encodes at once
ROWS = 4_096  # vectors that are written at once


@dataclass(frozen=True)
class Extracted:
    """A features file that `extract` wrote, or left as it was.

    Args:
        path: The file.
        count: How many images it has.
        dim: The length of a vector.
        source: Where the vectors came from.
        computed: Whether they were computed now.
    """

    path: Path
    count: int
    dim: int
    source: Mapping[str, str]
    computed: bool

    @property
    def features(self) -> Features:
        """Read the file, all of it."""
        return Features.load(self.path)


def extract(data: str | Path, output: str | Path, **settings: Unpack[ExtractSettings]) -> Extracted:
    """Write the features of images to a file.

    The file keeps the path of every image, from the folder's own name on, so that later answers can name it. A file
    that already has the features of these very images by this very encoder is left as it is. An image without any
    activation has the value 1e-6 everywhere, so that every method can take it. Vectors are written to disk as they are
    made: a million images need little memory.

    Args:
        data: A folder or a zip archive of class folders, or of images without any folder, which are one class then;
            for a head that was trained on features, a features file.
        output: The safetensors file to write.
        **settings: As `ExtractSettings` lists them.
    """
    data, output = Path(data), Path(output)
    options = _checked(data, output, settings)
    if data.suffix.lower() in READERS and data.is_file():
        if cluster() is not None:
            raise InputError(
                f"expected images for --ray, but {data} has features: leave it out, since a head needs little time"
            )
        return _extract_head(data, output, options)
    inputs = _open(data, options)
    if (before := _extraction(output)) is not None and before == _key(inputs.listing, _contents(inputs.images)):
        found = _as_it_is(output)
        if "left_out" not in found.source or options["skip_unreadable"]:
            return found
    if cluster() is not None:
        _embed_blocks(inputs, output, options, None)
        return merge_blocks(parts_folder(output), output)
    images, embedder, _, source, top, listing = inputs
    result = embed(
        _Names(images.names),
        embedder,
        cache=options["cache"],
        progress=options["start"](len(images)),
        content=lambda item: images.source.read(item.name),
    )
    refuse_unreadable(result.problems, images.skip_unreadable, len(images))
    source |= {"extraction": _key(listing, result.contents)}
    labels = images.labels[torch.from_numpy(result.positions)]
    paths = (f"{top}{images.names[place]}" for place in result.positions.tolist())
    return _saved(output, result.vectors, labels, images.classes, source, paths, len(result.problems))


def extract_part(
    data: str | Path, output: str | Path, part: Part, **settings: Unpack[ExtractSettings]
) -> tuple[int, int]:
    """Embed a part of the images, into a folder beside the output; return how many blocks were done now, and before.

    `merge_blocks` puts the parts together.

    Args:
        data: A folder or a zip archive of images.
        output: The features file that all parts together will be; this part goes to FILE.safetensors.parts.
        part: Which part.
        **settings: As `ExtractSettings` lists them.
    """
    data, output = Path(data), Path(output)
    options = _checked(data, output, settings)
    if data.suffix.lower() in READERS and data.is_file():
        raise InputError(
            f"expected images for --part, but {data} has features: leave it out, since a head needs little time"
        )
    return _embed_blocks(_open(data, options), output, options, part)


class ExtractSettings(TypedDict, total=False):
    """The keyword arguments of `extract` and of `extract_part`.

    Args:
        encoder: What `open_encoder` takes: "efficientnet_lite0", the default, "timm:resnet50.a1_in1k", or a checkpoint
            of `likelyshot train`; or an encoder.
        split: "train", "val" or "test". Default: all classes.
        splits: Which classes belong to which split: the name of a packaged split ("cub"), a JSON file, or a folder of
            train.csv, val.csv and test.csv.
        skip_unreadable: Leave out images that cannot be read. Default: they are an error.
        device: "cpu", the default, "cuda", ...
        cache: Folder where vectors are kept as they are made, so that a call that was stopped goes on where it was;
            "user", the default: the user's cache; None: none.
        start: Called once with the number of images; returns a function that is called with the number of images done
            since the last call.
    """

    encoder: str | Embedder
    split: str | None
    splits: str | Path | None
    skip_unreadable: bool
    device: str
    cache: Path | Literal["user"] | None
    start: Callable[[int], Progress]


DEFAULTS: ExtractSettings = {
    "encoder": DEFAULT,
    "split": None,
    "splits": None,
    "skip_unreadable": False,
    "device": "cpu",
    "cache": "user",
    "start": lambda total: lambda done: None,
}


class _Names(Lazy[Item]):
    """Images by their names."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def __len__(self) -> int:
        return len(self._names)

    def _make(self, rows: range) -> list[Item]:
        return [Item(self._names[row]) for row in rows]


class _Inputs(NamedTuple):
    images: ImageSet
    embedder: Embedder
    encoder: str
    source: dict[str, str]
    top: str  # before the names of images; never where the folder is on this machine
    listing: str  # digest of the encoder and of all names, labels and classes


def _checked(data: Path, output: Path, settings: ExtractSettings) -> ExtractSettings:
    if output.suffix != ".safetensors":
        raise InputError(f"expected a features file that ends in .safetensors, got {output}: rename it")
    if unknown := next((key for key in settings if key not in DEFAULTS), None):
        raise TypeError(f"extract() got an unexpected keyword argument {unknown!r}")
    options: ExtractSettings = {**DEFAULTS, **settings}
    output_file(output)
    check_device(options["device"])
    return options


def _open(data: Path, options: ExtractSettings) -> _Inputs:
    encoder, split = options["encoder"], options["split"]
    embedder = open_encoder(encoder, options["device"]) if isinstance(encoder, str) else encoder
    encoder = embedder.name
    if embedder.kind != "image":
        raise InputError(f"expected an encoder of images, but {encoder} is one of {embedder.kind}s: choose another")
    skip, splits = options["skip_unreadable"], options["splits"]
    images = open_images(data, split=split, splits=splits, skip_unreadable=skip, flat=True)
    file = split_precision(encoder)[0]
    name = f"{Path(file).stem} {embedder.digest[:12]}" if file.endswith(".safetensors") else encoder
    source = {"dataset": data.stem, "encoder": name} | ({"split": split} if split else {})
    listing = _hash(["with paths", embedder.digest, images.names, images.labels.tolist(), images.classes])
    return _Inputs(images, embedder, encoder, source, f"{data.resolve().name}/" if data.is_dir() else "", listing)


def _embed_blocks(inputs: _Inputs, output: Path, options: ExtractSettings, part: Part | None) -> tuple[int, int]:
    images = inputs.images
    skip = images.skip_unreadable

    def more(span: slice, positions: NDArray[np.int64]) -> dict[str, Tensor]:
        names = images.names[span]
        paths = PackedNames.of(f"{inputs.top}{names[place]}" for place in positions.tolist())
        return {"labels": images.labels[span][torch.tensor(positions)], "paths": torch.from_numpy(paths.packed.copy())}

    return embed_blocks(
        _Names(images.names),
        inputs.embedder,
        parts_folder(output),
        encoder=inputs.encoder,
        identity=_hash([inputs.listing, images.source.stamps(images.names), skip]),
        facts=msgspec.to_builtins(_Facts(list(images.classes), inputs.source, skip, inputs.listing)),
        more=more,
        images=images.source,
        cache=options["cache"],
        part=part,
        progress=options["start"](len(images)),
    )


class _Facts(msgspec.Struct):
    """What the folder of the blocks says of an extraction."""

    classes: list[str]
    source: dict[str, str]
    skip_unreadable: bool
    listing: str


def merge_blocks(folder: str | Path, output: str | Path) -> Extracted:
    """Put the parts of an extraction together to a features file, and remove them.

    Args:
        folder: The folder of the parts: FILE.safetensors.parts.
        output: The features file to write.
    """
    blocks = read_blocks(Path(folder), "run extract", ("labels", "paths"))
    facts = convert(_Facts, blocks.about.facts, str(folder))
    refuse_unreadable(blocks.problems, facts.skip_unreadable, blocks.about.items)
    paths, labels = PackedNames(blocks.tensors["paths"].numpy()), blocks.tensors["labels"]
    source = {**facts.source, "extraction": _key(facts.listing, blocks.tensors["contents"].numpy())}
    unreadable = len(blocks.problems)
    saved = _saved(Path(output), blocks.vectors, labels, tuple(facts.classes), source, paths, unreadable)
    remove_blocks(Path(folder))
    return saved


def _saved(
    output: Path,
    vectors: NDArray[np.float32] | Shards,
    labels: Tensor,
    classes: tuple[str, ...],
    source: dict[str, str],
    paths: Iterable[str],
    unreadable: int,
) -> Extracted:
    """Write a features file, a few thousand vectors at a time."""
    source |= {"left_out": f"{unreadable} unreadable image{'s' if unreadable > 1 else ''}"} if unreadable else {}
    Features(torch.tensor(vectors[:1]), labels[:1], classes, source)  # checks the names and that there is a vector
    pieces = (_lifted(torch.tensor(vectors[at : at + ROWS])).numpy() for at in range(0, len(vectors), ROWS))
    count, dim = vectors.shape
    file = output_folder(output.parent) / output.name
    write_features(file, Streamed("float32", (count, dim), pieces), labels, classes, source, paths)
    return Extracted(output, count, dim, source, True)


def _as_it_is(output: Path) -> Extracted:
    """Say what a features file has, without reading its vectors."""
    with safe_open(output, framework="pt") as file:
        count, dim = file.get_slice("features").get_shape()
        notes = dict(file.metadata())
    return Extracted(output, count, dim, {key: note for key, note in notes.items() if key != "classes"}, False)


def _extract_head(data: Path, output: Path, options: ExtractSettings) -> Extracted:
    """Send cached features through a head that was trained on such features."""
    checkpoint = options["encoder"] if isinstance(options["encoder"], str) else options["encoder"].name
    if not checkpoint.endswith(".safetensors"):
        raise InputError(
            f"the encoder {checkpoint} takes images, got the features {data}: give --checkpoint with a head"
        )
    head, trained = load_encoder(checkpoint)
    if trained_preparation(trained, checkpoint) is not None:
        raise InputError(f"the encoder {checkpoint} takes images, got the features {data}: give the images")
    features = Features.load(data, split=options["split"])
    if features.dim != head.params["in_dim"]:
        raise InputError(
            f"expected features of length {head.params['in_dim']}, as {checkpoint} was trained on, got {features.dim} "
            f"in {data}: extract features with the same encoder"
        )
    digest = identity([head.name], trained.part("encoder"))
    extraction = _hash([digest, features.digest])
    if _extraction(output) == extraction:
        return _as_it_is(output)
    progress, device = options["start"](len(features)), options["device"]
    vectors = encode(head.to(device), (rows.to(device) for rows in torch.split(features.vectors, BATCH)), progress)
    source = {**features.source, "encoder": f"{head.name} {digest[:12]}", "extraction": extraction}
    features = Features(vectors, features.labels, features.classes, source, features.paths)
    features.save(output_folder(output.parent) / output.name)
    return Extracted(output, len(features), features.dim, source, True)


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


def _contents(images: ImageSet) -> NDArray[np.uint8]:
    """Hash the bytes of all images, as `embed` does: (n, 32)."""
    names = (images.names[start : start + ROWS] for start in range(0, len(images), ROWS))
    return np.concatenate(list(map_blocks(_digests, images.source, names)))


def _digests(source: Source, names: Sequence[str]) -> NDArray[np.uint8]:
    digests = np.zeros((len(names), 32), np.uint8)
    for row, name in enumerate(names):
        with suppress(InputError):  # what cannot be read is reported when it is decoded
            digests[row] = np.frombuffer(hashlib.sha256(source.read(name)).digest(), np.uint8)
    return digests


def _key(listing: str, contents: NDArray[np.uint8]) -> str:
    """Name what a features file was extracted from."""
    return _hash([listing, hashlib.sha256(np.ascontiguousarray(contents).data).hexdigest()])


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
    base: Base | None,
    source: Mapping[str, str],
    head: tuple[Mapping[str, Tensor], Mapping[str, Any]] | None = None,
) -> Path:
    """Write several splits and the statistics of the base classes to one file, as `likelyshot evaluate` reads it.

    `head` is what `likelyshot.heads.stored` gives of a head that was trained on these very vectors.
    """
    tensors = {} if base is None else {"train.mean": base.mean}
    if base is not None and base.within is not None:
        tensors["train.within"] = base.within
    for split, features in parts.items():
        tensors |= {f"{split}.features": features.vectors, f"{split}.labels": features.labels}
    classes = json.dumps({split: features.classes for split, features in parts.items()})
    notes = {**source, "classes": classes}
    if head is not None:
        tensors |= head[0]
        notes["head"] = json.dumps(head[1])
    return write_tensors(path, tensors, notes)
