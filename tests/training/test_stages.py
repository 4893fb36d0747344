"""The losses of both stages, against loops written from the definitions."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from likelyshot import InputError
from likelyshot.encoders import networks as encoders
from likelyshot.encoders.pixels import Preparation
from likelyshot.methods import METHODS
from likelyshot.training.pool import Pool, open_data, read_pool
from likelyshot.training.recipes import Augmentation
from likelyshot.training.stages import Share, derived, finetuning, pretraining, training_method


@pytest.fixture
def parts(head_table, changed):
    """A recipe, its encoder and its training data."""

    def make(**changes):
        recipe = changed(head_table, **changes)
        pool = read_pool(open_data(recipe.data, ("train",))["train"], recipe)
        return recipe, encoders.build("relu_head", {"in_dim": 12, "dim": 8, "rectify": True}, seed=1), pool

    return make


def test_pretraining_sees_every_image_once_an_epoch_in_a_new_order(parts):
    stage = pretraining(*parts(**{"pretrain.batch_size": 10}))
    first, second = stage.plan(0), stage.plan(1)
    assert stage.steps == 6
    assert sorted(first.flatten().tolist()) == sorted(second.flatten().tolist()) == list(range(60))
    assert not torch.equal(first, second)
    assert torch.equal(first, stage.plan(0))
    # an incomplete batch is dropped, and which images that are differs from epoch to epoch
    stage = pretraining(*parts(**{"pretrain.batch_size": 25}))
    assert stage.plan(0).shape == (2, 25)


def test_the_loss_of_pretraining_is_smoothed_cross_entropy(parts):
    recipe, encoder, pool = parts(**{"pretrain.label_smoothing": 0.2})
    stage = pretraining(recipe, encoder, pool)
    rows = stage.plan(0)
    outcome = stage.outcome(stage.module, rows, 1, 0, Share())
    expected, hits = 0.0, 0
    for row in rows[1].tolist():
        logits = stage.module.classifier(encoder(pool.data[row : row + 1]))[0]
        log_p = (logits - logits.logsumexp(0)).tolist()
        label = int(pool.labels[row])
        expected -= (0.8 * log_p[label] + 0.2 * sum(log_p) / 6) / 12
        hits += max(range(6), key=lambda c: log_p[c]) == label
    assert outcome.loss.item() == pytest.approx(expected, rel=1e-5)
    assert (int(outcome.hits), outcome.items, outcome.images) == (hits, 12, 12)


def test_the_loss_of_finetuning_is_algorithm_1(parts):
    recipe, encoder, pool = parts(**{"finetune.shots": 2})
    stage = finetuning(recipe, encoder, pool)
    tasks = stage.plan(3)
    outcome = stage.outcome(stage.module, tasks, 1, 0, Share())
    losses = []
    for task in (2, 3):  # two episodes a step
        unit = nn.functional.normalize(encoder(pool.data) + 1e-6, dim=1)
        support = tasks.support[task].view(3, 2)
        means = [unit[support[way].long()].mean(0) for way in range(3)]
        rates = [(1 / mean).clamp_max(100.0) for mean in means]
        for query, way in zip(tasks.query[task].tolist(), tasks.query_labels[task].tolist(), strict=True):
            assert int(pool.labels[query]) == int(tasks.classes[task, way])
            alpha = [(rate.log().sum() - rate @ unit[query]).item() / 2.0 for rate in rates]
            top = max(alpha)
            losses.append(top + math.log(sum(math.exp(a - top) for a in alpha)) - alpha[way])
    assert outcome.loss.item() == pytest.approx(sum(losses) / len(losses), rel=1e-4)
    assert (outcome.items, outcome.images) == (2 * 12, 2 * 18)


@pytest.mark.parametrize(("stage_of", "key"), [(pretraining, "batch_size"), (finetuning, "episodes_per_step")])
def test_processes_must_have_equal_shares(parts, stage_of, key):
    assert stage_of(*parts(), world=2).steps
    with pytest.raises(InputError, match=f"{key} to be a multiple of the 5 processes, got"):
        stage_of(*parts(), world=5)


@pytest.mark.parametrize("params", [{"lambda_max": "x"}, {"lambda_max": [1.0]}, {"normalise": 3}])
def test_parameters_of_another_kind_are_refused(params):
    with pytest.raises(InputError, match="of mll must be"):
        training_method("mll", params)


@pytest.mark.parametrize("stage_of", [pretraining, finetuning])
def test_shares_of_a_step_average_to_the_whole(parts, stage_of):
    stage = stage_of(*parts())
    plan = stage.plan(0)
    whole = stage.outcome(stage.module, plan, 0, 0, Share())
    shares = [stage.outcome(stage.module, plan, 0, 0, Share(rank, 2)) for rank in range(2)]
    assert sum(share.loss.item() for share in shares) / 2 == pytest.approx(whole.loss.item(), rel=1e-6)
    assert sum(int(share.hits) for share in shares) == int(whole.hits)


@pytest.mark.parametrize("metric", ["mll", "euclidean", "cosine", "protonet", "matching"])
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-8, 1.0])
def test_gradients_are_finite_from_the_first_step(parts, metric, scale):
    """Features that are zero, or nearly so, are what lambda_max is for."""
    recipe, encoder, pool = parts(**{"finetune.metric": metric})
    with torch.no_grad():
        encoder.linear.weight *= scale
        encoder.linear.weight[:, :20] = 0
    stage = finetuning(recipe, encoder, pool)
    outcome = stage.outcome(stage.module, stage.plan(0), 0, 0, Share())
    outcome.loss.backward()
    assert math.isfinite(outcome.loss.item())
    for name, param in stage.module.named_parameters():
        assert param.grad is not None, name
        assert param.grad.isfinite().all(), name


def test_a_metric_must_have_gradients_and_need_nothing_else():
    assert training_method("mll", {}).keywords == {"lambda_max": 100.0}
    assert training_method("mll", {"lambda_max": 7.0}).keywords == {"lambda_max": 7.0}
    assert training_method("cosine", {}) is METHODS["cosine"]
    with pytest.raises(InputError, match="simpleshot needs base_mean from other data"):
        training_method("simpleshot", {})
    with pytest.raises(InputError, match=r"mll has no parameter 'lambda': did you mean 'lambda_max'"):
        training_method("mll", {"lambda": 3})
    with pytest.raises(InputError, match="lr_ici has no gradients"):
        training_method("lr_ici", {})


def test_cells_of_maps_are_trained_on_vectors_of_the_encoders_length(parts):
    pytest.importorskip("ot")
    grid = {"finetune.metric": "deepemd", "finetune.temperature": 1.0, "finetune.learn_temperature": False}
    stage = finetuning(*parts(**grid, **{"finetune.params": {"grid": 2}}))
    assert stage.outcome(stage.module, stage.plan(0), 0, 0, Share()).loss.requires_grad
    with pytest.raises(InputError, match="expected vectors of grid x grid = 9 cells, got 8 numbers"):
        finetuning(*parts(**grid, **{"finetune.params": {"grid": 3}}))


def test_a_temperature_is_fixed_or_learned(parts):
    fixed = finetuning(*parts(**{"finetune.learn_temperature": False}))
    learned = finetuning(*parts())
    assert not [name for name, _ in fixed.module.named_parameters() if "temperature" in name]
    assert [name for name, _ in learned.module.named_parameters() if "temperature" in name]
    for stage in (fixed, learned):
        assert stage.module.log_temperature.exp().item() == pytest.approx(2.0)
        assert "log_temperature" in stage.module.state_dict()


def test_scores_are_not_computed_in_half_precision(parts):
    recipe, encoder, pool = parts()
    stage = finetuning(recipe, encoder, pool)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores, _ = stage.module(pool.inputs(torch.arange(30)), 2)
    assert scores.dtype == torch.float32


def test_processes_augment_a_shared_batch_as_one_would():
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (6, 3, 12, 12), dtype=torch.uint8, generator=generator)
    how = Augmentation(crop_scale=(0.3, 1.0), jitter=0.4)
    pool = Pool(pixels, torch.zeros(6, dtype=torch.int64), ("a",), {}, Preparation(size=8), how)
    rows = torch.tensor([5, 0, 3, 3, 1, 2])
    whole = pool.inputs(rows, seed=9)
    shares = [
        pool.inputs(rows[part.start : part.stop], seed=9, first=part.start) for part in map(range, (0, 2), (2, 6))
    ]
    torch.testing.assert_close(torch.cat(shares), whole)
    assert not torch.equal(whole[2], whole[3])  # one image twice, seen differently
    assert whole.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(pool.inputs(rows)[2], pool.inputs(rows)[3])


def test_seeds_differ_from_place_to_place():
    seeds = {
        derived(seed, stage, epoch, step)
        for seed in range(3)
        for stage in range(3)
        for epoch in range(5)
        for step in range(20)
    }
    assert len(seeds) == 3 * 3 * 5 * 20
    assert all(0 <= seed < 2**63 for seed in seeds)
