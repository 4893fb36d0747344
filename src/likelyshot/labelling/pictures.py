"""Thumbnails, made when they are asked for and kept in memory for a while."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from pathlib import Path

from likelyshot.data.images import ImageError, read_image

SIDES = {"small": 240, "large": 1400}  # pixels of the longer side
QUALITY = 80
KEPT = 64 * 2**20  # bytes of thumbnails in memory


class Pictures:
    """Thumbnails of files, upright. A file that changes gets a new one.

    >>> Pictures().get(Path("nothing.jpg"), "small")
    Traceback (most recent call last):
    likelyshot.data.images.ImageError: cannot read nothing.jpg (missing file): repair or remove it
    """

    def __init__(self) -> None:
        self._cache: OrderedDict[tuple[str, str, int, int], bytes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, path: Path, size: str) -> bytes:
        """Make the JPEG of a file, or raise ImageError.

        Args:
            path: The file.
            size: "small" or "large".
        """
        try:
            facts = path.stat()
        except FileNotFoundError:
            raise ImageError("missing file", name=path.name) from None
        except (OSError, ValueError) as error:
            raise ImageError("unreadable file", getattr(error, "strerror", None) or "", path.name) from None
        key = (str(path), size, facts.st_mtime_ns, facts.st_size)
        with self._lock:
            if key in self._cache:
                self._cache.move_to_end(key)
                return self._cache[key]
        side = SIDES[size]
        image = read_image(path, path.name, side=side // 2)
        image.thumbnail((side, side))
        packed = io.BytesIO()
        image.save(packed, "JPEG", quality=QUALITY)
        data = packed.getvalue()
        with self._lock:
            if key not in self._cache:
                self._cache[key] = data
                self._bytes += len(data)
            while self._bytes > KEPT:
                self._bytes -= len(self._cache.popitem(last=False)[1])
        return data
