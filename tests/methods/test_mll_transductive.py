from __future__ import annotations

import numpy as np
import pytest
import torch

from likelyshot.methods.mll import mll
from likelyshot.methods.mll_transductive import mll_transductive


def sample(seed, ways=4, shots=2, queries=30, dim=16):
    generator = torch.Generator().manual_seed(seed)
    centres = torch.rand(ways, dim, generator=generator, dtype=torch.float64) ** 2
    labels = torch.arange(ways).repeat_interleave(shots)
    truth = torch.randint(ways, (queries,), generator=generator)

    def noisy(rows):
        return centres[rows] * torch.rand(len(rows), dim, generator=generator, dtype=torch.float64) * 2

    return noisy(labels), labels, noisy(truth)


def oracle(support, labels, query, ways, lambda_max=40.0, iterations=10, eta=0.5):
    """Algorithm 2, line by line, with loops and the (query, class, feature) arrays of its lines 4 and 7."""
    unit = lambda x: x / np.linalg.norm(x, axis=1, keepdims=True)  # noqa: E731
    support, labels, query = unit(support.numpy()), labels.numpy(), unit(query.numpy())
    prototypes = np.stack([support[labels == k].mean(0) for k in range(ways)])

    def score():
        rates = np.minimum(1 / np.maximum(prototypes, 1e-300), lambda_max)
        return rates, (np.log(rates)[None] - rates[None] * query[:, None]).sum(-1)

    rates, alpha = score()
    for _ in range(iterations):
        assigned = alpha.argmax(1)
        phi = 1 - np.exp(-rates[None] * query[:, None])
        for k in range(ways):
            mine = np.flatnonzero(assigned == k)
            if len(mine):
                g = sum(phi[q, k] * query[q] for q in mine) / len(mine)
                prototypes[k] = (1 - eta) * prototypes[k] + eta * g
        rates, alpha = score()
    return torch.tensor(alpha)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("iterations", "eta"), [(1, 0.5), (10, 0.5), (3, 1.0), (4, 0.0), (10, 0.3)])
def test_equals_the_algorithm(seed, iterations, eta):
    support, labels, query = sample(seed)
    scores = mll_transductive(support, labels, query, n_ways=4, iterations=iterations, eta=eta)
    torch.testing.assert_close(scores, oracle(support, labels, query, 4, iterations=iterations, eta=eta))


def test_no_iterations_are_the_inductive_method_exactly():
    for dtype in (torch.float32, torch.float64):
        support, labels, query = sample(0)
        inputs = (support.to(dtype), labels, query.to(dtype))
        assert torch.equal(mll_transductive(*inputs, n_ways=4, iterations=0), mll(*inputs, n_ways=4))


def test_the_way_of_other_devices_gives_the_same(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    support, query = (torch.rand(3, n, 9, generator=generator, dtype=torch.float64) for n in (4, 20))
    inputs = support, torch.arange(4), query
    expected = mll_transductive(*inputs, n_ways=4)
    monkeypatch.setattr(torch.Tensor, "is_cpu", False)
    torch.testing.assert_close(mll_transductive(*inputs, n_ways=4), expected, rtol=1e-10, atol=1e-10)


def test_a_class_without_queries_keeps_its_prototype():
    support, labels, query = sample(1)
    only = query[mll(support, labels, query, n_ways=4).argmax(-1) == 0]
    before = mll(support, labels, only, n_ways=4)
    after = mll_transductive(support, labels, only, n_ways=4, iterations=1)
    assert len(only) > 1
    torch.testing.assert_close(after[:, 1:], before[:, 1:])
    assert not torch.allclose(after[:, 0], before[:, 0])
