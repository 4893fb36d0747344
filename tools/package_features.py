"""Make the packaged features: float16 features of the validation and test classes by the three CUB heads.

for metric in euclidean cosine mll; do
    likelyshot train cub_head_$metric --set data.features=cub_efficientnet_lite0.safetensors
done
python tools/package_features.py runs
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from likelyshot.data.features import Base, Features
from likelyshot.data.packaged import NETWORKS
from likelyshot.encoders.extract import save_splits


def main(folder: Path) -> None:
    """Copy what the three runs left, with the statistics of their base classes."""
    for metric, path in NETWORKS.items():
        made = folder / f"cub_head_{metric}" / "features.safetensors"
        base = Base.load(made)
        assert base is not None
        parts = {}
        for split in ("val", "test"):
            features = Features.load(made, split=split)
            parts[split] = Features(features.vectors.to(torch.float16), features.labels, features.classes, {})
        source = {"dataset": "CUB-200-2011", "encoder": f"EfficientNet-Lite0 with a ReLU head trained by {metric}"}
        save_splits(path, parts, base, source)
        print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
