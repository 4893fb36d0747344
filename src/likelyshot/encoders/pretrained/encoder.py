"""What an encoder is: it prepares one item at a time and encodes a batch of prepared ones."""

from __future__ import annotations

import hashlib
import importlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from likelyshot.errors import InputError

Kind = Literal["image", "text"]
BATCH = 32
SLIMMEST = 16  # longer images lose their ends: scaled by the shorter side they would fill the memory


class Encoder(Protocol):
    """From images or texts to vectors."""

    @property
    def name(self) -> str:
        """The name under which `open_encoder` finds it."""

    @property
    def digest(self) -> str:
        """Identify the weights and the preprocessing: vectors are cached under it."""

    @property
    def kind(self) -> Kind:
        """Tell what it takes."""

    @property
    def dim(self) -> int:
        """The length of a vector."""

    @property
    def signed(self) -> bool:
        """Tell whether vectors can have negative entries: MLL needs them rectified then."""

    @property
    def batch_size(self) -> int:
        """How many items to encode at once."""

    def prepare(self, item: Any) -> Any:
        """Prepare an image (PIL, RGB) or a text; called from several threads at once."""

    def encode(self, batch: Sequence[Any]) -> NDArray[np.float32]:
        """Encode n prepared items: (n, dim)."""


@dataclass(frozen=True)
class FunctionEncoder:
    """An encoder of two functions: `transform` of one item, `function` of a list of transformed ones."""

    name: str
    digest: str
    kind: Kind
    dim: int
    signed: bool
    batch_size: int
    transform: Callable[[Any], Any]
    function: Callable[[list[Any]], Any]
    side: int | None = None  # the shorter side that an image is shrunk to: large JPEGs are decoded smaller

    def prepare(self, item: Any) -> Any:
        """Transform an image or a text."""
        return self.transform(_cropped(item) if isinstance(item, Image.Image) else item)

    def encode(self, batch: Sequence[Any]) -> NDArray[np.float32]:
        """Encode n prepared items: (n, dim)."""
        vectors = _vectors(self.function(list(batch)), len(batch), self.name)
        if vectors.shape[1] != self.dim:
            raise InputError(f"expected vectors of length {self.dim} from {self.name}, but got {vectors.shape[1]}")
        return vectors


def probed(
    name: str,
    digest: str,
    kind: Kind,
    transform: Callable[[Any], Any],
    function: Callable[[list[Any]], Any],
    *,
    side: int | None = None,
) -> FunctionEncoder:
    """Make an encoder; its length, and whether it can be negative, are seen on a few made items."""
    made: list[Any] = list(_made_images() if kind == "image" else MADE_TEXTS)
    vectors = _vectors(function([transform(item) for item in made]), len(made), name)
    return FunctionEncoder(
        name, digest, kind, vectors.shape[1], bool((vectors < 0).any()), BATCH, transform, function, side
    )


def callable_encoder(
    function: Callable[[list[Any]], Any], name: str, dim: int | None = None, kind: Kind = "image"
) -> FunctionEncoder:
    """Make an encoder of any function from a list of n images (PIL, RGB) or texts to vectors (n, d).

    Vectors are cached under `name`: give another one when the function changes.

    >>> def colour(images):
    ...     return [np.asarray(image).mean((0, 1)) for image in images]
    >>> encoder = callable_encoder(colour, "mean colour")
    >>> encoder.dim, encoder.signed
    (3, False)
    """
    encoder = probed(name, identity(["callable", kind, name]), kind, lambda item: item, function)
    if dim is not None and encoder.dim != dim:
        raise InputError(f"expected vectors of length {dim} from {name}, but got {encoder.dim}")
    return encoder


def identity(facts: Sequence[str], state: Mapping[str, Any] | None = None) -> str:
    """Hash what determines the vectors: facts as text, and the tensors of a network by name."""
    hashed = hashlib.sha256(repr(list(facts)).encode("utf-8", "surrogatepass"))
    for key, tensor in sorted((state or {}).items()):
        array = tensor.detach().cpu().float().contiguous().numpy()
        hashed.update(f"{key} {array.shape}".encode())
        hashed.update(array.data)
    return hashed.hexdigest()


def need(package: str, install: str) -> Any:
    """Import an optional package, or say how to install it; what packages remark while loading is not passed on."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(package)
    except ImportError as error:
        where = f"the package {package}, but it cannot be imported ({error})"
        raise InputError(f"expected {where}: pip install {install}") from None


def _vectors(values: Any, n: int, name: str) -> NDArray[np.float32]:
    if hasattr(values, "detach"):  # a tensor of torch, on any device
        values = values.detach().cpu().float()
    try:
        vectors = np.asarray(values, np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(f"expected vectors from {name}, but got {type(values).__name__} ({error})") from None
    if vectors.ndim != 2 or len(vectors) != n or not vectors.shape[1]:
        raise InputError(f"expected {n} vectors from {name}, shape ({n}, d), but got the shape {vectors.shape}")
    return vectors


def _cropped(image: Image.Image) -> Image.Image:
    width, height = image.size
    longest = SLIMMEST * min(width, height)
    if max(width, height) <= longest:
        return image
    left, top = max(width - longest, 0) // 2, max(height - longest, 0) // 2
    return image.crop((left, top, width - left, height - top))


MADE_TEXTS = ("A cat sat on the mat.", "Parliament votes on the budget today.", "x = 3 * y + 1")


@cache
def _made_images() -> tuple[Image.Image, ...]:
    noise = np.random.default_rng(0).integers(0, 256, (96, 128, 3), dtype=np.uint8)
    ramp = np.linspace(0, 255, 96 * 128 * 3).reshape(96, 128, 3).astype(np.uint8)
    board = np.kron(np.indices((6, 8)).sum(0)[..., None] % 2 * 255, np.ones((16, 16, 3))).astype(np.uint8)
    return tuple(Image.fromarray(pixels) for pixels in (noise, ramp, board))
