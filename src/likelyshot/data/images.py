"""Finding image files and reading them safely, whatever they hold."""

from __future__ import annotations

import errno
import importlib.util
import io
import os
import re
import stat
import warnings
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError, features

from likelyshot.data.items import Problem
from likelyshot.errors import InputError

MAX_PIXELS = 100_000_000  # a decoded image is then at most 400 MB
MAX_BYTES = 1 << 29
FORMATS = {
    "JPEG": (".jpg", ".jpeg", ".jpe", ".jfif", ".mpo"),
    "PNG": (".png", ".apng"),
    "GIF": (".gif",),
    "BMP": (".bmp", ".dib"),
    "TIFF": (".tif", ".tiff"),
    "WEBP": (".webp",),
    "AVIF": (".avif",),
    "JPEG2000": (".jp2", ".j2k"),
    "PPM": (".ppm", ".pgm", ".pbm", ".pnm"),
    "TGA": (".tga",),
    "ICO": (".ico",),
}
OPTIONAL = {"WEBP": "webp", "AVIF": "avif", "JPEG2000": "jpg_2000"}  # Pillow may be built without them
HEIC = (".heic", ".heif")  # as telephones write them
WITHOUT_HEIC = "HEIC image: pip install 'likelyshot[heic]' to read it"
if importlib.util.find_spec("pillow_heif"):
    importlib.import_module("pillow_heif").register_heif_opener()
    FORMATS["HEIF"] = HEIC
READABLE = tuple(name for name in FORMATS if name not in OPTIONAL or features.check(OPTIONAL[name]))
SUFFIXES = frozenset(suffix for name in READABLE for suffix in FORMATS[name])
BEGINNINGS = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"RIFF", b"II*\x00", b"MM\x00*")
UNSUPPORTED = "unsupported file"
QUIET = ("ignore", None, Warning, re.compile(r"PIL\."), 0)


class ImageError(InputError):
    """An image that cannot be used: `kind` in a few words, as summaries count it, and `detail`."""

    def __init__(self, kind: str, detail: str = "", name: str = "") -> None:
        self.kind, self.detail = kind, detail
        what = f"{kind}, {detail}" if detail else kind
        super().__init__(f"cannot read {name or 'the image'} ({what}): repair or remove it")


def find_images(folder: str | Path) -> tuple[list[Path], list[Problem]]:
    """Find the image files below a folder, sorted, and report what else is there; hidden files are passed over.

    Linked files count if they lie in the folder. Linked folders are never followed: either they lead out of the folder,
    or their images are found at their own place.
    """
    root = Path(folder)
    if not root.is_dir():
        raise InputError(f"expected a folder of images, but {root} is {'a file' if root.exists() else 'not there'}")
    inside = os.path.realpath(root)
    images: list[Path] = []
    problems: list[Problem] = []
    waiting = [root]
    while waiting:
        current = waiting.pop()
        try:
            with os.scandir(current) as entries:
                names = [entry.name for entry in entries if not entry.name.startswith(".")]
        except OSError as error:
            problems.append(Problem(str(current), "unreadable folder", error.strerror or ""))
            continue
        for path in (current / name for name in names):
            wrong = _wrong(path, inside)
            if wrong:
                problems.append(Problem(str(path), *wrong))
            elif path.is_dir():
                waiting.append(path)
            else:
                images.append(path)
    return sorted(images), sorted(problems, key=lambda problem: problem.name)


def _wrong(path: Path, inside: str) -> tuple[str, str] | None:
    """Say what keeps a path from being a folder to look into or an image to read."""
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            target = os.path.realpath(path, strict=True)
            mode = Path(target).stat().st_mode
            if stat.S_ISDIR(mode) and Path(os.path.realpath(path.parent)).is_relative_to(target):
                return "symlink loop", f"leads back to {target}"
            if not Path(target).is_relative_to(inside):
                return "link leaves the folder", f"leads to {target}"
            if stat.S_ISDIR(mode):
                return "linked folder", f"images are taken from {target} itself"
    except OSError as error:
        kinds = {errno.ELOOP: "symlink loop", errno.ENOENT: "broken link"}
        return kinds.get(error.errno or 0, "unreadable file"), error.strerror or ""
    if stat.S_ISDIR(mode):
        return None
    if not stat.S_ISREG(mode):
        return "not a regular file", ""
    if path.suffix.lower() not in SUFFIXES:
        return WITHOUT_HEIC if path.suffix.lower() in HEIC else UNSUPPORTED, path.suffix or "no suffix"
    return None


def read_bytes(path: Path) -> bytes:
    """Read a file that is to be an image; raise ImageError if it is empty, too large or unreadable."""
    try:
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode):  # a pipe would wait forever
            raise ImageError("not a regular file", name=str(path))
        if facts.st_size > MAX_BYTES:
            raise ImageError("too large", f"{facts.st_size:,} bytes, at most {MAX_BYTES:,}", str(path))
        data = path.read_bytes()
    except FileNotFoundError:
        raise ImageError("missing file", name=str(path)) from None
    except (OSError, ValueError) as error:  # ValueError: a null in the name
        if isinstance(error, ImageError):
            raise
        raise ImageError("unreadable file", getattr(error, "strerror", None) or str(error), str(path)) from None
    if not data:
        raise ImageError("empty file", name=str(path))
    return data


def read_image(source: Path | bytes | BinaryIO, name: str = "", *, side: int | None = None) -> Image.Image:
    """Read the first frame of an image, upright, in RGB; what is transparent lies over white.

    With `side`, a large JPEG is decoded at a half, a quarter or an eighth of its size, as long as its shorter side
    stays at least twice `side`: much faster, for those who shrink it anyway. Pillow's warnings about odd files are
    switched off, for the process, since switching them off for a moment is not safe among threads.

    >>> grey = io.BytesIO()
    >>> Image.new("L", (3, 2), 7).save(grey, "PNG")
    >>> image = read_image(grey.getvalue())
    >>> image.mode, image.size, image.getpixel((0, 0))
    ('RGB', (3, 2), (7, 7, 7))
    """
    if QUIET not in warnings.filters:
        warnings.filterwarnings("ignore", module=r"PIL\.")
    data = read_bytes(source) if isinstance(source, Path) else source if isinstance(source, bytes) else source.read()
    name = name or (str(source) if isinstance(source, Path) else "")
    if not data:
        raise ImageError("empty file", name=name)
    try:
        with Image.open(io.BytesIO(data), formats=READABLE) as image:
            _draft(image, side)
            if image.width * image.height > MAX_PIXELS:
                size = f"{image.width} x {image.height} pixels, at most {MAX_PIXELS // 10**6} megapixels"
                raise ImageError("too large", size, name)
            image.load()
            return _rgb(_upright(image))
    except ImageError:
        raise
    except Image.DecompressionBombError:
        raise ImageError("too large", f"at most {MAX_PIXELS // 10**6} megapixels", name) from None
    except UnidentifiedImageError:
        if data.startswith(BEGINNINGS):
            raise ImageError("damaged image", "its header makes no sense", name) from None
        if name.lower().endswith(HEIC) and ".heic" not in SUFFIXES:
            raise ImageError(WITHOUT_HEIC, name=name) from None
        raise ImageError("not an image", "its format cannot be read", name) from None
    except Exception as error:  # decoders of damaged files raise nearly everything
        kind = "truncated image" if "truncated" in str(error).lower() else "damaged image"
        raise ImageError(kind, str(error), name) from None


def _draft(image: Image.Image, side: int | None) -> None:
    """Have a JPEG decoded smaller: so far as `side` allows, or as it must be to be read at all."""
    width, height = image.size
    if image.format not in ("JPEG", "MPO"):
        return
    if width * height > MAX_PIXELS and not image.info.get("progressive"):  # those keep all coefficients in memory
        image.draft(None, (width // 2, height // 2))
    elif side is not None:
        scale = min(width, height) // (2 * side)
        if scale >= 2:
            image.draft(None, (width // scale, height // scale))


def _upright(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # EXIF data that make no sense: the pixels are sound
        return image


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F"):
        return Image.fromarray(_bytes(np.asarray(image, np.float64))).convert("RGB")
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")
    return image.convert("RGB")


def _bytes(values: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Bring numbers of an unknown range to 0..255: as they are if they fit, else from the least to the greatest."""
    finite: NDArray[np.float64] = np.where(np.isfinite(values), values, 0.0)
    low, high = float(finite.min()), float(finite.max())
    if low < 0 or high > 255 or 0 < high <= 1:
        finite = (finite - low) * (255 / ((high - low) or 1.0))
    return np.rint(finite).astype(np.uint8)


def small_jpeg(path: Path, name: str, side: int, quality: int = 75) -> tuple[bytes, int, int]:
    """Make a small JPEG of an image: its bytes, width and height. The longer side has at most `side` pixels."""
    image = read_image(path, name, side=side // 2)
    image.thumbnail((side, side))
    packed = io.BytesIO()
    image.save(packed, "JPEG", quality=quality, optimize=True)
    return packed.getvalue(), image.width, image.height
