"""Embedding block by block, by several processes or machines: finished blocks are files and are not done again."""

from __future__ import annotations

import functools
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from likelyshot.data.datasets.sources import Source
from likelyshot.data.files import (
    Count,
    explaining,
    output_folder,
    read_container,
    read_document,
    write_container,
    write_document,
)
from likelyshot.data.items import Item, Problem
from likelyshot.data.shards import Shards, open_shard
from likelyshot.encoders.embed import Embedded, RowStore, embed
from likelyshot.encoders.pretrained import Embedder, open_encoder
from likelyshot.errors import InputError
from likelyshot.machine import Progress, cluster, map_blocks
from likelyshot.workers import Part

FORM = "likelyshot.block/4"
MANIFEST = "_likelyshot.json"
#: Items of a block, about.
BLOCK = 512
AGAIN = "remove the folder, and run all parts again"
TEXTS = {"what": "a block of vectors of likelyshot", "remedy": "remove it, and run the part again"}

#: Called with the places of a block and with those that have a vector, from the first: tensors to keep with these.
More = Callable[[slice, NDArray[np.int64]], dict[str, Tensor]]


class Manifest(msgspec.Struct):
    """What all blocks share."""

    identity: str
    blocks: Count
    parts: Count
    items: Count
    dim: Count
    facts: dict[str, Any]
    format: Literal["likelyshot.blocks/2"] = "likelyshot.blocks/2"


class _Facts(msgspec.Struct):
    """What a block says: whose it is, which one, and what was left out."""

    identity: str
    number: int
    problems: list[tuple[str, str, str]]


class Whole(NamedTuple):
    """All blocks."""

    vectors: Shards | NDArray[np.float32]  # (n, d), in the files of the blocks
    tensors: dict[str, Tensor]  # what else is kept: kept (n,), contents (items, 32), and what `more` gave
    problems: list[Problem]
    about: Manifest

    def embedded(self) -> Embedded:
        """Return what `embed` returns."""
        positions, contents = self.tensors["kept"].numpy(), self.tensors["contents"].numpy()
        return Embedded(self.vectors, positions, self.problems, contents, 0)


def parts_folder(output: Path) -> Path:
    """Give the folder of the blocks of a features file."""
    return output.with_name(f"{output.name}.parts")


def embed_blocks(
    items: Sequence[Item],
    embedder: Embedder,
    folder: Path,
    *,
    encoder: str,
    identity: str,
    facts: dict[str, Any] | None = None,
    more: More = lambda span, positions: {},
    images: Source | None = None,
    cache: Any = None,
    part: Part | None = None,
    progress: Progress | None = None,
) -> tuple[int, int]:
    """Embed blocks of items and write each to a file; return how many were done now, and how many before.

    Args:
        items: Images or texts.
        embedder: What embeds them here.
        folder: Where the blocks are put.
        encoder: The name by which workers of a cluster open the same encoder.
        identity: Digest of what the vectors follow from. A folder with blocks of another one is refused.
        facts: What else the manifest says.
        more: What else to keep of a block.
        images: Where to read the images, if the items have names only.
        cache: As in `embed`; workers of a cluster have none.
        part: Which blocks. Default: all.
        progress: Called with the number of items that are done.
    """
    size = _block_size(embedder)
    count = -(-len(items) // size)
    parts = 1 if part is None else part.count
    _claim(output_folder(folder), Manifest(identity, count, parts, len(items), embedder.dim, facts or {}))
    numbers = range(count) if part is None else part.of(count)
    missing = [number for number in numbers if not _file(folder, number, count).is_file()]
    spans = [slice(number * size, min(len(items), (number + 1) * size)) for number in missing]
    done = progress or (lambda steps: None)
    earlier = set(numbers) - set(missing)
    done(sum(min(size, len(items) - number * size) for number in earlier))
    groups = (list(items[span]) for span in spans)
    embedded: Iterator[Embedded]
    if cluster() is not None and _opens(encoder, embedder):
        embedded = map_blocks(_embed_on_worker, (encoder, embedder.digest, images), groups)
    else:
        embedded = (_embed(embedder, images, some, cache) for some in groups)
    for number, span, block in zip(missing, spans, embedded, strict=True):
        tensors = {
            "vectors": torch.tensor(np.asarray(block.vectors[:])),  # arrays from a cluster cannot be written to
            "kept": torch.tensor(block.positions + span.start),
            "contents": torch.tensor(block.contents),
            **more(span, block.positions),
        }
        problems = [(problem.name, problem.kind, problem.detail) for problem in block.problems]
        about = msgspec.to_builtins(_Facts(identity, number, problems))
        write_container(_file(folder, number, count), tensors, about, form=FORM)
        done(span.stop - span.start)
    return len(missing), len(earlier)


def embed_on_cluster(items: Sequence[Item], encoder: Embedder, progress: Progress | None = None) -> Embedded:
    """Do what `embed` does on the cluster that `likelyshot.workers.on_ray` has joined, if it can open the encoder.

    Args:
        items: Images or texts; workers read the files themselves.
        encoder: One that workers can open by its name, or else everything is embedded here.
        progress: Called with the number of items done since the last call.
    """
    if not _opens(encoder.name, encoder):
        return embed(items, encoder, cache=None, progress=progress)
    size = _block_size(encoder)
    rows = RowStore(len(items), encoder.dim, Path(tempfile.gettempdir()))
    positions, contents = [np.empty(0, np.int64)], [np.empty((0, 32), np.uint8)]
    problems: list[Problem] = []
    done = encoded = 0
    groups = (list(items[start : start + size]) for start in range(0, len(items), size))
    shared = (encoder.name, encoder.digest, None)
    for number, block in enumerate(map_blocks(_embed_on_worker, shared, groups)):
        rows.write(done, np.asarray(block.vectors[:]))
        positions.append(block.positions + number * size)
        problems += block.problems
        contents.append(block.contents)
        done += len(block.positions)
        encoded += block.encoded
        if progress is not None:
            progress(min(size, len(items) - number * size))
    return Embedded(rows.first(done), np.concatenate(positions), problems, np.concatenate(contents), encoded)


def _block_size(encoder: Embedder) -> int:
    return encoder.batch_size * max(1, BLOCK // encoder.batch_size)


def items_of(part: Part, total: int, encoder: Embedder) -> int:
    """Count the items of a part of `total` ones."""
    size = _block_size(encoder)
    blocks = part.of(-(-total // size))
    return min(total, blocks.stop * size) - min(total, blocks.start * size)


def _opens(name: str, encoder: Embedder) -> bool:
    """Whether a worker that opens an encoder by its name has the same one; not if it is a function of the user's."""
    try:
        return open_encoder(name).digest == encoder.digest
    except InputError:
        return False


def _embed(embedder: Embedder, images: Source | None, items: Sequence[Item], cache: Any) -> Embedded:
    content = None if images is None else lambda item: images.read(item.name)
    return embed(items, embedder, cache=cache, content=content, of_many=True)


def _embed_on_worker(shared: tuple[str, str, Source | None], items: Sequence[Item]) -> Embedded:
    encoder, digest, images = shared
    if images is not None and not images.path.exists():
        import socket

        raise InputError(
            f"expected the images at {images.path}, but {socket.gethostname()} has nothing there: put them on a disk "
            "that all machines see under the same path"
        )
    opened = _open(encoder)
    if opened.digest != digest:
        raise InputError(
            f"expected the same encoder {encoder} on every machine, but one differs: install the same version"
        )
    return _embed(opened, images, items, None)


@functools.lru_cache(maxsize=1)
def _open(encoder: str) -> Embedder:
    return open_encoder(encoder)


def read_blocks(folder: Path, command: str = "run the command", more: Sequence[str] = ()) -> Whole:
    """Check all blocks and read them, but for the vectors; one that is missing raises InputError.

    Args:
        folder: Where they are.
        command: What to run again for those that are missing.
        more: Names of what `more` of `embed_blocks` gave.
    """
    about = read_document(folder / MANIFEST, Manifest, what="a folder of vectors of likelyshot", remedy=AGAIN)
    files = [_file(folder, number, about.blocks) for number in range(about.blocks)]
    missing = [number for number, file in enumerate(files) if not file.is_file()]
    if missing:
        whose = [n for n in range(1, about.parts + 1) if set(Part(n, about.parts).of(about.blocks)) & set(missing)]
        raise InputError(
            f"expected all blocks in {folder}, but {len(missing)} of {about.blocks} are missing, so "
            f"{'part' if len(whose) == 1 else 'parts'} {', '.join(map(str, whose))} of {about.parts} "
            f"{'is' if len(whose) == 1 else 'are'} not finished: {command} with --part {whose[0]}/{about.parts} again"
        )
    collected: dict[str, list[Tensor]] = {}
    problems = []
    for number, file in enumerate(files):
        tensors, facts = read_container(file, _Facts, form=FORM, **TEXTS)
        if (facts.identity, facts.number) != (about.identity, number):
            raise InputError(
                f"expected vectors that were written to {folder}, but {file.name} is of another run: {TEXTS['remedy']}"
            )
        if absent := {"vectors", "kept", "contents", *more} - set(tensors):
            raise InputError(f"expected {TEXTS['what']} in {file}, but it has no {min(absent)}: {TEXTS['remedy']}")
        for name, value in tensors.items():
            if name != "vectors":
                collected.setdefault(name, []).append(value)
        problems += [Problem(*problem) for problem in facts.problems]
    with explaining(folder / MANIFEST, TEXTS["what"], AGAIN):  # tensors of other shapes cannot be put together
        whole = {name: torch.cat(values) for name, values in collected.items()}
    shards = [shard for file in files if (shard := open_shard(file)) is not None]  # a block may have no vector
    vectors = Shards(shards, local=True) if shards else np.empty((0, about.dim), np.float32)
    return Whole(vectors, whole, problems, about)


def remove_blocks(folder: Path) -> None:
    """Remove the blocks of an extraction that is finished."""
    if (folder / MANIFEST).is_file():
        shutil.rmtree(folder, ignore_errors=True)


def _claim(folder: Path, manifest: Manifest) -> None:
    path = folder / MANIFEST
    if path.is_file():
        before = read_document(path, Manifest, what="a folder of vectors of likelyshot", remedy=AGAIN)
        if (before.identity, before.blocks) != (manifest.identity, manifest.blocks):
            raise InputError(
                f"expected vectors of the same items and encoder in {folder}, but it has others: remove the folder"
            )
    write_document(path, json.loads(msgspec.json.encode(manifest)))


def _file(folder: Path, number: int, count: int) -> Path:
    return folder / f"block-{number + 1:05d}-of-{count:05d}.safetensors"
