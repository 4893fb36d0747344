"""An encoder that `likelyshot train` left in a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from likelyshot.encoders.pretrained.encoder import BATCH, FunctionEncoder, identity
from likelyshot.errors import InputError
from likelyshot.machine import check_device


def open_checkpoint(path: str | Path, device: str = "cpu", name: str | None = None) -> FunctionEncoder:
    """Load an encoder of images from its checkpoint; they are prepared as validation images were in training.

    It is called by its path, unless it has a `name`.
    """
    import torch
    from PIL import Image, ImageOps

    from likelyshot.encoders.checkpoints import load_encoder
    from likelyshot.encoders.networks import check_side
    from likelyshot.encoders.pixels import MEAN, STD, centred
    from likelyshot.training.recipes import recipe_from

    encoder, kept = load_encoder(path)
    data = recipe_from(kept.facts["recipe"]).data
    if data.features:
        raise InputError(f"expected an encoder of images, but {path} is a head over features: classify features by it")
    check_side(encoder.name, data.size)
    encoder = encoder.to(check_device(device)).to(memory_format=torch.channels_last)  # type: ignore[call-overload,unused-ignore]
    stored = data.stored or data.size

    def transform(image: Any) -> Any:
        square = ImageOps.fit(image, (stored, stored), Image.Resampling.BILINEAR)
        return torch.from_numpy(np.asarray(square).transpose(2, 0, 1).copy())

    def run(batch: list[Any]) -> Any:
        images = centred(torch.stack(batch).to(device), size=data.size, mean=data.mean, std=data.std)
        with torch.inference_mode():
            return encoder(images.contiguous(memory_format=torch.channels_last))

    facts = ["checkpoint", encoder.name, f"{stored}", f"{data.size}"]
    if (data.mean, data.std) != (MEAN, STD):  # models made before there was a choice know the digest without
        facts.append(f"{data.mean} {data.std}")
    digest = identity(facts, kept.part("encoder"))
    return FunctionEncoder(
        name or str(Path(path)), digest, "image", encoder.dim, False, BATCH, transform, run, side=stored
    )
