"""What training reads: images of a folder or mapped from a file, and how they become input."""

from __future__ import annotations

import pytest
import torch

from likelyshot import Features
from likelyshot.encoders.pixels import Preparation
from likelyshot.errors import InputError
from likelyshot.training.pool import Pool, open_data, read_pool


def pool(recipe):
    return read_pool(open_data(recipe.data, ("train",))["train"], recipe)


def test_pixels_from_a_file_are_those_in_memory(images_table, changed, tmp_path):
    memory, mapped = (pool(changed(images_table, **{"data.cache": cache})) for cache in ("", str(tmp_path / "c")))
    assert len(list((tmp_path / "c").glob("*.npy"))) == 1
    assert memory.data.shape == (32, 3, 18, 18)
    assert torch.equal(memory.data, mapped.data)
    rows = torch.tensor([4, 1])
    assert torch.equal(memory.inputs(rows, seed=3), mapped.inputs(rows, seed=3))


def test_pixels_are_normalised_as_the_recipe_says(images_table, changed):
    how = {"mean": (0.1, 0.2, 0.3), "std": (0.5, 0.25, 2.0)}
    table = {**images_table, "data": {**images_table["data"], "size": 18, **{key: list(how[key]) for key in how}}}
    images = pool(changed(table))
    mean, std = (torch.tensor(how[key]).view(3, 1, 1) for key in ("mean", "std"))
    torch.testing.assert_close(images.inputs(torch.arange(32)), (images.data / 255 - mean) / std)
    assert sum(len(batch) for batch in images.batches()) == 32
    black = Pool(torch.zeros(1, 3, 16, 16, dtype=torch.uint8), torch.zeros(1), ("a",), {}, Preparation(size=16, **how))
    torch.testing.assert_close(black.inputs(torch.tensor([0]), seed=1)[0, :, 0, 0], torch.tensor([-0.2, -0.8, -0.15]))


def test_features_without_splits_are_refused(images_table, changed, tmp_path):
    path = Features.from_arrays(torch.rand(4, 3), [0, 0, 1, 1]).save(tmp_path / "f.safetensors")
    table = {**images_table, "data": {"features": str(path)}, "encoder": {"name": "identity"}}
    with pytest.raises(InputError, match=r"expected the split train in .*, but got one set without splits: training"):
        open_data(changed(table).data, ("train", "val"))
