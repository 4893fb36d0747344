"""The features and encoders that come with the package: the only place that says which they are."""

from __future__ import annotations

from pathlib import Path

#: CUB-200-2011, official validation and test classes, by a network per metric (made by tools/package_features.py).
NETWORKS = {
    metric: Path(__file__).parent / f"cub_head_{metric}.safetensors" for metric in ("euclidean", "cosine", "mll")
}
#: Where one network is asked for.
PACKAGED = NETWORKS["mll"]
#: Trained encoders by name (made by tools/package_encoder.py).
CHECKPOINTS = {"conv4_cifar_fs": Path(__file__).parent / "conv4_cifar_fs.safetensors"}
#: The network of the default encoder, EfficientNet-Lite0, for ONNX Runtime (made by tools/package_lite0.py).
LITE0 = Path(__file__).parent / "efficientnet_lite0.onnx"
