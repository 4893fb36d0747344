"""The features that come with the package: the only place that says which they are."""

from __future__ import annotations

from pathlib import Path

#: CUB-200-2011, official validation and test classes, EfficientNet-Lite0 (made by tools/package_features.py).
PACKAGED = Path(__file__).parent / "data" / "cub_efficientnet_lite0.safetensors"
