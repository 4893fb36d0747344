"""Piles of painted images, and encoders that see their colours: small and quick."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from likelyshot.encoders.pretrained import callable_encoder

COLOURS = {"blue": (40, 60, 200), "green": (50, 190, 70), "red": (210, 50, 40)}


def tones(images):
    """Histograms of eight tones per channel."""
    arrays = [np.asarray(image) // 32 for image in images]
    return [[(array[..., c] == tone).mean() for c in range(3) for tone in range(8)] for array in arrays]


def letters(texts):
    return [[1 + text.lower().count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts]


ENCODER = callable_encoder(tones, "tones")
LETTERS = callable_encoder(letters, "letters", kind="text")


def paint(path: Path, colour: str, seed: int, size: tuple[int, int] = (12, 16)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).normal(0, 40, (*size, 3))
    Image.fromarray((np.array(COLOURS[colour]) + noise).clip(0, 255).astype(np.uint8)).save(path)
    return path


def paint_pile(folder: Path, each: int = 10) -> Path:
    for k, colour in enumerate(COLOURS):
        for i in range(each):
            paint(folder / f"{colour} {i}.png", colour, 100 * k + i)
    return folder
