"""What several processes do together, as far as one CPU can tell."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch
from torch import nn

from likelyshot import InputError
from likelyshot.encoders import networks as encoders
from likelyshot.encoders.checkpoints import restore_module
from likelyshot.training.machines import check_synchronised, synchronised
from likelyshot.training.pool import Pool
from likelyshot.training.run import _start_encoder

pytestmark = pytest.mark.skipif(find_spec("lightning_fabric") is None, reason="needs the extra train")

SLIM = {
    "conv4": {"widths": [4, 4, 8, 8]},
    "resnet12": {"widths": [4, 4, 8, 8]},
    "resnet18": {"widths": [4, 4, 8, 8]},
    "wrn": {"depth": 10, "widen": 1},
    "densenet121": {"layers": [1, 1, 2, 1], "growth": 4, "stem": 8},
}


def norms(module, kind):
    return sum(isinstance(part, kind) for part in module.modules())


@pytest.mark.parametrize("name", SLIM)
def test_a_synchronised_encoder_has_the_same_weights_by_the_same_names(name):
    plain, converted = (encoders.build(name, SLIM[name], seed=1) for _ in range(2))
    count = norms(plain, nn.BatchNorm2d)
    converted = synchronised(converted, world=2)
    assert (norms(converted, nn.SyncBatchNorm), norms(converted, nn.BatchNorm2d)) == (count, 0)
    assert count > 0
    assert list(converted.state_dict()) == list(plain.state_dict())
    assert all(torch.equal(value, plain.state_dict()[key]) for key, value in converted.state_dict().items())
    assert encoders.describe(converted) == encoders.describe(plain)
    restore_module(plain, converted.state_dict(), "a checkpoint")
    images = torch.rand(2, 3, 32, 32)
    for each in (plain.eval(), converted.eval()):
        each.requires_grad_(False)
    assert torch.equal(converted(images), plain(images))  # one process can validate alone


def test_one_process_has_nothing_to_synchronise():
    encoder = synchronised(encoders.build("conv4", SLIM["conv4"]), world=1)
    assert norms(encoder, nn.SyncBatchNorm) == 0


@pytest.mark.parametrize(("wanted", "count"), [(True, 4), (False, 0)])
def test_the_recipe_decides(images_table, changed, wanted, count):
    pool = Pool(torch.zeros(1, 3, 16, 16, dtype=torch.uint8), torch.zeros(1), ("a",), {})
    table = {**images_table, "encoder": {"name": "conv4", "params": SLIM["conv4"]}}
    encoder = _start_encoder(changed(table, **{"run.sync_batchnorm": wanted}), pool, 2, fresh=True)
    assert norms(encoder, nn.SyncBatchNorm) == count


def test_where_it_can_be_asked_for():
    check_synchronised(True, 4, torch.device("cuda"))
    check_synchronised(True, 1, torch.device("cpu"))
    check_synchronised(False, 4, torch.device("cpu"))
    for device in ("cpu", "mps"):
        with pytest.raises(
            InputError, match=f"expected CUDA devices for run.sync_batchnorm with 4 processes, got {device}"
        ):
            check_synchronised(True, 4, torch.device(device))
