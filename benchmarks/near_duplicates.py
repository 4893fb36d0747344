"""How alike vectors of the same photograph are after small changes, and how alike those of different photographs.

python -m benchmarks.near_duplicates cub.zip
"""

from __future__ import annotations

import io
import random
import sys
import zipfile

import numpy as np
from PIL import Image, ImageEnhance

from likelyshot.encoders.pretrained import open_encoder
from likelyshot.own_data.rows import ALIKE


def cropped(image: Image.Image) -> Image.Image:
    x, y = image.width // 40, image.height // 40
    return image.crop((x, y, image.width - x, image.height - y))


def compressed(image: Image.Image) -> Image.Image:
    packed = io.BytesIO()
    image.save(packed, "JPEG", quality=50)
    return Image.open(packed).convert("RGB")


CHANGES = {
    "cropped by 5 %": cropped,
    "brighter by 10 %": lambda image: ImageEnhance.Brightness(image).enhance(1.1),
    "mirrored": lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
    "JPEG of quality 50": compressed,
    "half the size": lambda image: image.resize((image.width // 2, image.height // 2)),
}


def main(archive: str, classes: int = 12, each: int = 20) -> None:
    encoder = open_encoder("efficientnet_lite0", "cpu")

    def directions(images: list[Image.Image]) -> np.ndarray:
        parts = [
            encoder.encode([encoder.prepare(image) for image in images[i : i + 8]]) for i in range(0, len(images), 8)
        ]
        vectors = np.concatenate(parts)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    with zipfile.ZipFile(archive) as packed:
        names = sorted(name for name in packed.namelist() if name.endswith(".jpg"))
        chosen = random.Random(0).sample(sorted({name.split("/")[0] for name in names}), classes)
        paths = [path for one in chosen for path in [name for name in names if name.startswith(one)][:each]]
        images = [Image.open(io.BytesIO(packed.read(path))).convert("RGB") for path in paths]
    vectors = directions(images)
    cosines = (vectors @ vectors.T)[np.triu_indices(len(vectors), 1)]
    alike = ALIKE["efficientnet_lite0"]
    print(f"{len(cosines):,} pairs of different photographs: the largest cosine is {cosines.max():.3f}")
    some = list(range(0, len(images), 4))
    for name, change in CHANGES.items():
        same = (directions([change(images[i]) for i in some]) * vectors[some]).sum(1)
        low, middle = np.quantile(same, [0.05, 0.5])
        print(f"{name}: {(same > alike).mean():.0%} of {len(some)} above {alike} (5 % {low:.3f}, median {middle:.3f})")


if __name__ == "__main__":
    main(sys.argv[1])
