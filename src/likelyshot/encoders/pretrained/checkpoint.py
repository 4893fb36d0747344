"""An encoder that `likelyshot train` left in a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from likelyshot.encoders.pretrained.embedder import FunctionEmbedder, identity
from likelyshot.errors import InputError


def open_checkpoint(path: str | Path, device: str = "cpu", name: str | None = None) -> FunctionEmbedder:
    """Load an encoder of images from its checkpoint; they are prepared as validation images were in training.

    Its name is the path, unless `name` is given.
    """
    import torch
    from PIL import Image, ImageOps

    from likelyshot.encoders.checkpoints import load_encoder
    from likelyshot.encoders.networks import check_input
    from likelyshot.encoders.pixels import MEAN, STD, trained_preparation

    encoder, checkpoint = load_encoder(path)
    how = trained_preparation(checkpoint, str(path))
    if how is None:
        raise InputError(f"{path} is a head over features, not an encoder of images: use likelyshot extract with it")
    check_input(encoder.name, how.size)
    encoder = encoder.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload,unused-ignore]

    def transform(image: Any) -> Any:
        square = ImageOps.fit(image, (how.side, how.side), Image.Resampling.BILINEAR)
        return torch.from_numpy(np.asarray(square).transpose(2, 0, 1).copy())

    def run(batch: list[Any]) -> Any:
        images = how.test_input(torch.stack(batch).to(device))
        with torch.inference_mode():
            return encoder(images.contiguous(memory_format=torch.channels_last))

    facts = ["checkpoint", encoder.name, f"{how.side}", f"{how.size}"]
    if (how.mean, how.std) != (MEAN, STD):  # models made before there was a choice know the digest without
        facts.append(f"{how.mean} {how.std}")
    return FunctionEmbedder(
        name=name or str(Path(path)),
        digest=identity(facts, checkpoint.part("encoder")),
        kind="image",
        dim=encoder.dim,
        transform=transform,
        function=run,
        side=how.side,
    )
