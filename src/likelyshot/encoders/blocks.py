"""Extraction block by block, by several processes or machines: finished blocks are files and are not done again."""

from __future__ import annotations

import functools
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from likelyshot.data.datasets import ImageSet
from likelyshot.data.datasets.sources import Source
from likelyshot.data.files import (
    Count,
    output_folder,
    read_container,
    read_document,
    write_container,
    write_document,
)
from likelyshot.data.items import Item, PackedNames, Problem
from likelyshot.encoders.embed import Embedded, Rows, embed
from likelyshot.encoders.pretrained import Embedder, open_encoder
from likelyshot.errors import InputError
from likelyshot.machine import Progress, cluster, map_blocks
from likelyshot.workers import Part

FORM = "likelyshot.block/1"
MANIFEST = "_likelyshot.json"
#: Images of a block, about.
BLOCK = 512
TEXTS = {"what": "a block of vectors of likelyshot", "remedy": "remove it, and run the part again"}


class Manifest(msgspec.Struct):
    """What all blocks of an extraction share."""

    identity: str
    blocks: Count
    parts: Count
    images: Count
    classes: list[str]
    source: dict[str, str]
    skip_unreadable: bool
    format: Literal["likelyshot.extract/1"] = "likelyshot.extract/1"


class _Facts(msgspec.Struct):
    problems: list[tuple[str, str, str]]


class Whole(NamedTuple):
    """All blocks of an extraction."""

    vectors: Tensor  # (n, d) float32
    labels: Tensor  # (n,)
    paths: list[str]
    problems: list[Problem]
    about: Manifest


def parts_folder(output: Path) -> Path:
    """Give the folder of the blocks of a features file."""
    return output.with_name(f"{output.name}.parts")


def extract_blocks(
    images: ImageSet,
    embedder: Embedder,
    folder: Path,
    *,
    encoder: str,
    top: str,
    identity: str,
    source: dict[str, str],
    cache: Any,
    part: Part | None = None,
    progress: Progress = lambda steps: None,
) -> tuple[int, int]:
    """Embed blocks of images and write each to a file; return how many were done now, and how many before.

    Args:
        images: The images.
        embedder: What embeds them here.
        folder: Where the blocks are put.
        encoder: The name by which workers of a cluster open the same encoder.
        top: What stands before the names of the images in the features file.
        identity: Digest of what the vectors follow from. A folder with blocks of another one is refused.
        source: The notes of the features file.
        cache: As in `embed`; workers of a cluster have none.
        part: Which blocks. Default: all.
        progress: Called with the number of images that are done.
    """
    size = embedder.batch_size * max(1, BLOCK // embedder.batch_size)
    count = -(-len(images) // size)
    about = Manifest(
        identity,
        count,
        1 if part is None else part.count,
        len(images),
        list(images.classes),
        source,
        images.skip_unreadable,
    )
    _claim(output_folder(folder), about)
    mine = range(count) if part is None else part.of(count)
    missing = [number for number in mine if not _file(folder, number, count).is_file()]
    spans = [slice(number * size, min(len(images), (number + 1) * size)) for number in missing]
    progress(sum(min(size, len(images) - number * size) for number in mine if number not in set(missing)))
    names = (list(images.names[span]) for span in spans)
    done: Iterator[_Block]
    if cluster() is None:
        done = (_embedded(embedder, images.source, some, cache) for some in names)
    else:
        done = map_blocks(_embed_on_worker, (encoder, embedder.digest, images.source), names)
    for number, span, block in zip(missing, spans, done, strict=True):
        kept = torch.tensor(block.kept)
        paths = [f"{top}{images.names[span][place]}" for place in block.kept.tolist()]
        tensors = {
            "vectors": torch.tensor(block.vectors),  # arrays from a cluster cannot be written to
            "labels": images.labels[span][kept],
            "paths": torch.from_numpy(PackedNames.of(paths).packed.copy()),
        }
        facts = {"problems": [(problem.name, problem.kind, problem.detail) for problem in block.problems]}
        write_container(_file(folder, number, count), tensors, facts, form=FORM)
        progress(span.stop - span.start)
    return len(missing), len(mine) - len(missing)


def embed_on_cluster(items: Sequence[Item], encoder: Embedder, progress: Progress | None = None) -> Embedded:
    """Do what `embed` does on the cluster that `likelyshot.workers.on_ray` has joined, if it can open the encoder.

    Args:
        items: Images or texts; workers read the files themselves.
        encoder: One that workers can open by its name, or else everything is embedded here.
        progress: Called with the number of items done since the last call.
    """
    try:
        same = open_encoder(encoder.name).digest == encoder.digest
    except InputError:  # a function of the user's own
        same = False
    if not same:
        return embed(items, encoder, cache=None, progress=progress)
    size = encoder.batch_size * max(1, BLOCK // encoder.batch_size)
    rows = Rows(len(items), encoder.dim, Path(tempfile.gettempdir()))
    kept: list[NDArray[np.int64]] = []
    problems: list[Problem] = []
    digests: list[str] = []
    encoded = 0
    groups = (list(items[start : start + size]) for start in range(0, len(items), size))
    for number, found in enumerate(map_blocks(_embed_items, (encoder.name, encoder.digest), groups)):
        rows.write(len(digests), np.asarray(found.vectors[:]))
        kept.append(found.kept + number * size)
        problems += found.problems
        digests += found.digests
        encoded += found.encoded
        if progress is not None:
            progress(min(size, len(items) - number * size))
    places = np.concatenate(kept) if kept else np.empty(0, np.int64)
    return Embedded(rows.first(len(digests)), places, problems, digests, encoded)


def _embed_items(shared: tuple[str, str], items: Sequence[Item]) -> Embedded:
    return embed(items, _same(*shared), cache=None)


class _Block(NamedTuple):
    vectors: np.ndarray[Any, np.dtype[np.float32]]
    kept: np.ndarray[Any, np.dtype[np.int64]]
    problems: list[Problem]


def _embedded(embedder: Embedder, source: Source, names: Sequence[str], cache: Any) -> _Block:
    found = embed([Item(name) for name in names], embedder, cache=cache, content=lambda item: source.read(item.name))
    return _Block(np.asarray(found.vectors[:]), found.kept, found.problems)


def _embed_on_worker(shared: tuple[str, str, Source], names: Sequence[str]) -> _Block:
    encoder, digest, source = shared
    if not source.path.exists():
        import socket

        raise InputError(
            f"expected the images at {source.path}, but {socket.gethostname()} has nothing there: put them on a disk "
            "that all machines see under the same path"
        )
    return _embedded(_same(encoder, digest), source, names, None)


def _same(encoder: str, digest: str) -> Embedder:
    opened = _open(encoder)
    if opened.digest != digest:
        raise InputError(f"expected the same encoder {encoder} on every machine, but one differs: install the same")
    return opened


@functools.lru_cache(maxsize=1)
def _open(encoder: str) -> Embedder:
    return open_encoder(encoder)


def read_blocks(folder: Path) -> Whole:
    """Read all blocks of an extraction; one that is missing raises InputError.

    Args:
        folder: Where they are.
    """
    what = "a folder of vectors of likelyshot extract --part"
    about = read_document(folder / MANIFEST, Manifest, what=what, remedy="write one")
    files = [_file(folder, number, about.blocks) for number in range(about.blocks)]
    missing = [number for number, file in enumerate(files) if not file.is_file()]
    if missing:
        whose = [n for n in range(1, about.parts + 1) if set(Part(n, about.parts).of(about.blocks)) & set(missing)]
        raise InputError(
            f"expected {about.blocks} blocks in {folder}, but {len(missing)} are missing, so "
            f"{'part' if len(whose) == 1 else 'parts'} {', '.join(map(str, whose))} of {about.parts} "
            f"{'is' if len(whose) == 1 else 'are'} not finished: run extract with --part {whose[0]}/{about.parts} again"
        )
    vectors, labels, paths, problems = [], [], [], []
    for file in files:
        tensors, facts = read_container(file, _Facts, form=FORM, **TEXTS)
        vectors.append(tensors["vectors"])
        labels.append(tensors["labels"])
        paths += PackedNames(tensors["paths"].numpy())[:]
        problems += [Problem(*problem) for problem in facts.problems]
    return Whole(torch.cat(vectors), torch.cat(labels), paths, problems, about)


def remove_blocks(folder: Path) -> None:
    """Remove the blocks of an extraction that is finished."""
    if (folder / MANIFEST).is_file():
        shutil.rmtree(folder, ignore_errors=True)


def _claim(folder: Path, mine: Manifest) -> None:
    path = folder / MANIFEST
    if path.is_file():
        found = read_document(path, Manifest, what="a folder of vectors of likelyshot", remedy="remove the folder")
        if (found.identity, found.blocks) != (mine.identity, mine.blocks):
            raise InputError(
                f"expected vectors of the same images and encoder in {folder}, but it has others: remove the folder"
            )
    write_document(path, json.loads(msgspec.json.encode(mine)))


def _file(folder: Path, number: int, count: int) -> Path:
    return folder / f"block-{number + 1:05d}-of-{count:05d}.safetensors"
