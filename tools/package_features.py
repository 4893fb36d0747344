"""Make the packaged features: the validation and test classes of a features file, and statistics of its base classes.

python tools/package_features.py cub_efficientnet_lite0.safetensors
"""

from __future__ import annotations

import json
import sys

import torch
from safetensors import safe_open
from safetensors.torch import save

from likelyshot.features import Base, Features
from likelyshot.files import write_whole
from likelyshot.packaged import PACKAGED


def main(source: str) -> None:
    """Copy the splits, and replace the base classes by their mean and their covariance within classes."""
    with safe_open(source, framework="pt") as file:
        metadata = file.metadata()
        names = [f"{split}.{part}" for split in ("val", "test") for part in ("features", "labels")]
        tensors = {name: file.get_tensor(name) for name in names}
    base = Base.of(Features.load(source, split="train"))
    assert base.within is not None
    tensors |= {"train.mean": base.mean, "train.within": base.within}
    classes = json.loads(metadata["classes"])
    metadata["classes"] = json.dumps({split: classes[split] for split in ("val", "test")})
    assert all(tensors[f"{split}.features"].dtype == torch.float16 for split in ("val", "test"))
    write_whole(PACKAGED, save(tensors, metadata))


if __name__ == "__main__":
    main(sys.argv[1])
