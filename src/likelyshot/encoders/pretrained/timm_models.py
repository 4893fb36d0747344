"""Any image network of timm, without its classifier."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from likelyshot.encoders.pretrained import FunctionEmbedder, identity, need, probed
from likelyshot.errors import InputError
from likelyshot.machine import copied_to

WEIGHTS = "model.safetensors"  # of a folder; others are pickles


def open_timm(model: str, device: str = "cpu") -> FunctionEmbedder:
    """Load a network, with the preprocessing it was trained with.

    Args:
        model: timm's name for it, such as resnet50.a1_in1k, or a folder that timm saved it to.
        device: Where it runs.
    """
    timm = need("timm", "timm torchvision")
    data = need("timm.data", "timm torchvision")
    import torch

    folder = Path(model)
    if folder.is_dir() and not (folder / WEIGHTS).is_file():
        raise InputError(
            f"expected {WEIGHTS} in the folder {model!r}, but there is none: save the network there by timm"
        )
    try:
        network = timm.create_model(f"local-dir:{model}" if folder.is_dir() else model, pretrained=True, num_classes=0)
    except Exception as error:  # timm, its hub and its downloads each have errors of their own
        reason = str(error).strip().partition("\n")[0]
        known = "timm.list_models(pretrained=True) lists them"
        raise InputError(
            f"expected a network with weights, but timm cannot load {model!r} ({reason}): {known}"
        ) from None
    network = network.eval().to(device)
    config = data.resolve_model_data_config(network)
    transform = data.create_transform(**config, is_training=False)

    def run(batch: list[Any]) -> Any:
        with torch.inference_mode():
            return network(copied_to(device, torch.stack(batch)))

    digest = identity(["timm", model, json.dumps(config, default=str, sort_keys=True)], network.state_dict())
    return probed(f"timm:{model}", digest, "image", transform, run)
