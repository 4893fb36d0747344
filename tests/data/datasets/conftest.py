"""A folder of images of three classes."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for i in range(150):
        path = tmp_path / "data" / "abc"[i % 3] / f"{i:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (9 + i % 4, 12, 3), np.uint8)).save(path)
    return tmp_path / "data"
