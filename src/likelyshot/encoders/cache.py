"""Vectors on disk by the digest of what they were made of: one SQLite file per encoder.

SQLite keeps writers apart and survives crashes. A cache must never be the reason that a run fails: what cannot be read
is computed again, a damaged file is replaced, and a folder that cannot be written to gives a warning.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from platformdirs import user_cache_path

Vector = NDArray[np.float32]

TABLE = "CREATE TABLE IF NOT EXISTS vectors (digest BLOB PRIMARY KEY, checksum INTEGER, vector BLOB)"
READ = "SELECT checksum, vector FROM vectors WHERE digest = ?"
WRITE = "INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)"
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

    def get(self, digest: str) -> Vector | None:
        """Return the vector of a content, (dim,), or None if it is missing or damaged."""
        key = bytes.fromhex(digest)
        with self._lock:
            if self._connection is None:
                return None
            try:
                found = self._connection.execute(READ, (key,)).fetchone()
            except BROKEN as error:
                self._failed(error)
                return None
        if found is None or not isinstance(found[1], bytes) or found[0] != zlib.crc32(key + found[1]):
            return None
        vector = np.frombuffer(found[1], "<f4").astype(np.float32)
        return vector if vector.shape == (self.dim,) else None

    def put(self, rows: Sequence[tuple[str, Vector]]) -> None:
        """Keep vectors by their digests; they are written together once a second, and by `close`."""
        with self._lock:
            if self._connection is None or not self._writable:
                return
            for digest, vector in rows:
                key, blob = bytes.fromhex(digest), vector.astype("<f4").tobytes()
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
