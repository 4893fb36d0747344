from __future__ import annotations

import numpy as np
import pytest
import torch

from likelyshot.functional.held_out_weights import Labelled, weigh
from mixture_loops import choices, unit


def examples(seed, labels, ways, dim=20):
    rng = np.random.default_rng(seed)
    x = np.array([unit(v) for v in rng.random((ways, dim))[labels] ** 3 * rng.uniform(0.5, 1.5, (len(labels), dim))])
    y = np.array([unit(v) for v in np.sqrt(x) - np.sqrt(x).mean(0)])
    known = np.eye(ways)[labels].T
    common = np.mean([x[np.array(labels) == k].mean(0) for k in set(labels)], 0)
    labelled = Labelled(
        *map(torch.tensor, (x, known, known @ x + common, known.sum(1, keepdims=True) + 1)),
        torch.tensor([[0.01]], dtype=torch.float64),
        torch.tensor([[30.0]], dtype=torch.float64),
    )
    return labelled, torch.tensor(y @ y.T), choices(x, list(y), labels, ways, common, 0.01, 30)


@pytest.mark.parametrize("labels", [[0, 1, 2] * 3, [0, 0, 0, 1, 2, 2, 2, 2], [0, 0, 2, 2, 2], [0, 1, 2]])
def test_choices_are_those_of_loops(labels):
    labelled, gram, (prior, a, b, regression, skill) = examples(0, labels, 3)
    weights = weigh(labelled, gram, None, None, None)
    assert float(weights.scatter) == pytest.approx(prior)
    assert float(weights.exponential) == pytest.approx(a)
    assert float(weights.regression) == pytest.approx(b)
    assert float(weights.skill) == pytest.approx(skill)
    if b:
        assert not np.allclose(regression, 0)
        torch.testing.assert_close(weights.held_out.sum(-2), torch.zeros(len(labels), dtype=torch.float64))


def test_given_values_are_kept():
    labelled, gram, _ = examples(1, [0, 1, 2] * 3, 3)
    weights = weigh(labelled, gram, 0.3, 0.2, 0.1)
    assert [float(value) for value in weights[:3]] == pytest.approx([0.3, 0.2, 0.1])


def test_every_task_of_a_batch_chooses_for_itself():
    labels = [0, 1, 2] * 3
    each = [examples(seed, labels, 3) for seed in (2, 3)]
    batch = Labelled(*(torch.stack(values) for values in zip(*(labelled for labelled, *_ in each), strict=True)))
    together = weigh(batch, torch.stack([gram for _, gram, _ in each]), None, None, None)
    for task, (labelled, gram, _) in enumerate(each):
        for value, own in zip(together, weigh(labelled, gram, None, None, None), strict=True):
            torch.testing.assert_close(value[task], own)


def test_the_order_of_examples_changes_nothing():
    labelled, gram, _ = examples(4, [0, 0, 1, 1, 1, 2, 2], 3)
    order = torch.tensor([3, 0, 6, 2, 5, 1, 4])
    turned = labelled._replace(x=labelled.x[order], known=labelled.known[:, order])
    for value, other in zip(
        weigh(labelled, gram, None, None, None)[:3],
        weigh(turned, gram[order][:, order], None, None, None),
        strict=False,
    ):
        torch.testing.assert_close(value, other)


@pytest.mark.parametrize("case", ["zero", "the same", "huge"])
def test_examples_that_tell_nothing_leave_finite_weights(case):
    labelled, gram, _ = examples(5, [0, 1, 2] * 3, 3)
    if case == "zero":
        gram = torch.zeros_like(gram)
    elif case == "the same":
        gram = torch.ones_like(gram)
    else:
        labelled = labelled._replace(sums=labelled.sums * 1e30)
    for value in weigh(labelled, gram, None, None, None):
        assert value.isfinite().all()


@pytest.mark.parametrize("labels", [[0, 1, 2] * 3, [0, 0, 0, 1, 2, 2, 2, 2]])
def test_vectors_say_what_their_inner_products_say(labels):
    labelled, _, _ = examples(6, labels, 3, dim=6)
    y = labelled.x - labelled.x.mean(0)
    by_vectors = weigh(labelled, y, None, None, None, vectors=True)
    for value, other in zip(by_vectors, weigh(labelled, y @ y.mT, None, None, None), strict=True):
        torch.testing.assert_close(value, other)
