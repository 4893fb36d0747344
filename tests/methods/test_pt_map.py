from __future__ import annotations

import numpy as np
import pytest
import torch

from likelyshot.methods.pt_map import pt_map
from made_tasks import skewed


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def scale(kernel, sizes):
    """Sinkhorn's scalings of (q, k) in turn, until nothing moves."""
    for _ in range(20_000):
        kernel = kernel / kernel.sum(1, keepdims=True)
        if np.abs(kernel.sum(0) - sizes).max() < 1e-12:
            break
        kernel = kernel * (sizes / kernel.sum(0))
    return kernel / kernel.sum(1, keepdims=True)


def oracle(support, labels, query, ways, shares, power=0.5, lam=10.0, eta=0.2, iterations=20):
    """The paper's Algorithm in the space of the QR, with loops; shares None for the mixture."""
    labels = labels.numpy()
    both = np.concatenate([support.numpy(), query.numpy()])
    both = np.linalg.qr(((both + 1e-6) ** power).T)[1].T
    support, query = unit(both)[: len(labels)], unit(both)[len(labels) :]
    support, query = unit(support - support.mean(0)), unit(query - query.mean(0))
    mu = np.stack([support[labels == k].sum(0) / max(1, (labels == k).sum()) for k in range(ways)])
    pi = np.full(ways, 1 / ways)
    for step in range(iterations + 1):
        cost = np.array([[((f - m) ** 2).sum() for m in mu] for f in query])
        if shares is None:
            p = pi * np.exp(-lam * cost)
            p = p / p.sum(1, keepdims=True)
            pi = (p.sum(0) + 1) / (len(query) + ways)
        else:
            p = scale(np.exp(-lam * cost), len(query) * shares)
        if step == iterations:
            return torch.tensor(np.log(p))
        for k in range(ways):
            total = p[:, k].sum() + (labels == k).sum()
            mean = (sum(w * f for w, f in zip(p[:, k], query, strict=True)) + support[labels == k].sum(0)) / total
            mu[k] += eta * (mean - mu[k])
    raise AssertionError


TASKS = {
    "1-shot": {"shots": 1},
    "5-shot": {"shots": 5},
    "unequal shots": {"shots": [1, 3, 2, 6]},
    "a class without queries": {"absent": 2},
    "a class without support": {"shots": [2, 0, 2, 2]},
}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("marginals", ["uniform", "estimated", "given"])
def test_equals_the_algorithm(task, marginals):
    given = np.array([0.4, 0.3, 0.2, 0.1])
    drawn = [skewed(seed, **TASKS[task]) for seed in range(2)]
    labels = drawn[0][1]
    scores = pt_map(
        torch.stack([x[0] for x in drawn]),
        labels,
        torch.stack([x[2] for x in drawn]),
        n_ways=4,
        marginals=torch.tensor(3 * given) if marginals == "given" else marginals,
        tolerance=1e-11,
    )
    shares = {"uniform": np.full(4, 0.25), "estimated": None, "given": given}[marginals]
    for i in range(2):
        torch.testing.assert_close(scores[i], oracle(*drawn[i], 4, shares), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(
    "other",
    [{"power": 1.0}, {"power": 0.2}, {"lam": 3.0}, {"eta": 0.0}, {"eta": 1.0}, {"iterations": 0}, {"iterations": 3}],
)
def test_the_parameters_do_what_they_say(other):
    task, few = skewed(5), {"iterations": 5}
    scores = pt_map(*task, n_ways=4, tolerance=1e-11, **few | other)
    torch.testing.assert_close(scores, oracle(*task, 4, np.full(4, 0.25), **few | other), rtol=1e-7, atol=1e-7)
    assert not torch.allclose(scores, pt_map(*task, n_ways=4, tolerance=1e-11, **few), atol=1e-4)


def test_marginals_may_differ_between_tasks():
    support, labels, query = skewed(0)
    shares = torch.tensor([[1.0, 1.0, 1.0, 1.0], [6.0, 1.0, 1.0, 4.0]])
    scores = pt_map(support, labels, query, n_ways=4, marginals=shares, tolerance=1e-10)
    for i in range(2):
        torch.testing.assert_close(scores[i].exp().mean(0), shares[i].double() / shares[i].sum(), rtol=0, atol=1e-9)
        alone = pt_map(support, labels, query, n_ways=4, marginals=shares[i], tolerance=1e-10)
        torch.testing.assert_close(scores[i], alone, rtol=1e-9, atol=1e-9)


def test_uniform_marginals_split_a_single_class_and_estimated_ones_do_not():
    """All queries of one class: the original must give every class a quarter, the mixture need not."""
    support, labels, _ = skewed(1, shots=3)
    query = support[:1] * torch.linspace(0.9, 1.1, 20, dtype=torch.float64)[:, None]
    query = query + 0.1 * torch.rand(query.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    query = torch.cat([query, support[3:4] + 0.05])
    uniform = pt_map(support, labels, query, n_ways=4).exp().mean(0)
    torch.testing.assert_close(uniform, torch.full((4,), 0.25, dtype=torch.float64), rtol=0, atol=1e-6)
    estimated = pt_map(support, labels, query, n_ways=4, marginals="estimated").exp().mean(0)
    assert estimated.max() > 0.4


def test_single_precision_gives_nearly_the_same():
    support, labels, query = skewed(6)
    single = pt_map(support.float(), labels, query.float(), n_ways=4)
    torch.testing.assert_close(single.double(), pt_map(support, labels, query, n_ways=4), rtol=1e-3, atol=1e-3)
