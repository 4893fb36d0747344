"""Make the packaged encoder: the Conv4 that the recipe cifar_fs_conv4_mll gives, without its training's paths.

python tools/package_encoder.py runs/cifar_fs_conv4_mll/best.safetensors
"""

from __future__ import annotations

import sys

from likelyshot.data.packaged import CHECKPOINTS
from likelyshot.encoders.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from likelyshot.training.recipes import load_recipe


def main(source: str) -> None:
    """Copy the encoder's weights; its recipe gets the paths of the packaged one."""
    checkpoint = load_checkpoint(source)
    recipe, plain = dict(checkpoint.facts["recipe"]), load_recipe("cifar_fs_conv4_mll").to_dict()
    for table, key in (("data", "path"), ("encoder", "weights"), ("run", "output")):
        recipe[table] = {**recipe[table], key: plain[table][key]}
    tensors = {name: value for name, value in checkpoint.tensors.items() if name.startswith("encoder.")}
    path = save_checkpoint(CHECKPOINTS["conv4_cifar_fs"], Checkpoint(tensors, {**checkpoint.facts, "recipe": recipe}))
    print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main(sys.argv[1])
