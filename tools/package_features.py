"""Make the packaged features: the validation and test classes of a features file, and the mean of its base classes.

python tools/package_features.py cub_efficientnet_lite0.safetensors
"""

from __future__ import annotations

import json
import sys

import torch
from safetensors import safe_open
from safetensors.torch import save

from likelyshot.files import write_whole
from likelyshot.packaged import PACKAGED


def main(source: str) -> None:
    """Copy the splits, and replace the base classes by their mean."""
    with safe_open(source, framework="pt") as file:
        metadata = file.metadata()
        names = [f"{split}.{part}" for split in ("val", "test") for part in ("features", "labels")]
        tensors = {name: file.get_tensor(name) for name in names}
        tensors["train.mean"] = file.get_tensor("train.features").double().mean(0).float()
    classes = json.loads(metadata["classes"])
    metadata["classes"] = json.dumps({split: classes[split] for split in ("val", "test")})
    assert all(tensors[f"{split}.features"].dtype == torch.float16 for split in ("val", "test"))
    write_whole(PACKAGED, save(tensors, metadata))


if __name__ == "__main__":
    main(sys.argv[1])
