from __future__ import annotations

import pytest
import torch

from likelyshot.errors import InputError
from likelyshot.methods.entropy_min import entropy_min
from likelyshot.methods.euclidean import euclidean

#: Support samples per class, queries per class.
TASKS = [
    ((1, 1, 1, 1), (4, 4, 4, 4)),
    ((5, 5, 5, 5, 5), (9, 1, 0, 3, 6)),
    ((1, 4, 2), (7, 0, 2)),
    ((2, 0, 3, 1), (3, 3, 3, 3)),
    ((2, 2), (1, 0)),
]


def sample(seed, shots=(2, 2, 2, 2), queries=(6, 1, 3, 5), dim=12):
    generator = torch.Generator().manual_seed(seed)
    centres = torch.rand(len(shots), dim, generator=generator, dtype=torch.float64) ** 2

    def noisy(counts):
        rows = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
        return centres[rows] * torch.rand(len(rows), dim, generator=generator, dtype=torch.float64) * 2, rows

    (support, labels), (query, _) = noisy(shots), noisy(queries)
    return support, labels, query


def oracle(support, labels, query, ways, tau=15.0, steps=25, learning_rate=1e-3):
    """One task, the loss as it is written, autograd, and the optimiser of torch."""
    support = support / support.norm(dim=1, keepdim=True)
    query = query / query.norm(dim=1, keepdim=True)
    w = torch.zeros(ways, support.shape[1], dtype=torch.float64)
    for k in range(ways):
        if (labels == k).any():
            w[k] = support[labels == k].mean(0)
    w.requires_grad_()
    logits = lambda z: -tau / 2 * ((z[:, None] - w[None]) ** 2).sum(-1)  # noqa: E731
    optimiser = torch.optim.Adam([w], lr=learning_rate)
    for _ in range(steps):
        optimiser.zero_grad()
        p = logits(query).softmax(1)
        loss = torch.nn.functional.cross_entropy(logits(support), labels) - (p * p.log()).sum(1).mean()
        loss.backward()
        optimiser.step()
    return logits(query).detach()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("shots", "queries"), TASKS)
def test_equals_the_loss_by_autograd(seed, shots, queries):
    support, labels, query = sample(seed, shots, queries)
    scores = entropy_min(support, labels, query, n_ways=len(shots), steps=25, learning_rate=1e-3)
    expected = oracle(support, labels, query, len(shots))
    torch.testing.assert_close(scores, expected, rtol=1e-9, atol=1e-9)


def test_queries_become_more_certain():
    inputs = sample(2)
    entropies = []
    for steps in (0, 25, 200):
        p = entropy_min(*inputs, n_ways=4, steps=steps).softmax(-1)
        entropies.append(-(p * p.log()).sum(-1).mean())
    assert entropies[0] > entropies[1] > entropies[2]


def test_defaults_are_25_steps_of_5e_5():
    inputs = sample(3)
    expected = oracle(*inputs, 4, steps=25, learning_rate=5e-5)
    torch.testing.assert_close(entropy_min(*inputs, n_ways=4), expected, rtol=1e-9, atol=1e-9)


def test_no_step_is_the_nearest_prototype():
    support, labels, query = sample(4)
    scores = entropy_min(support, labels, query, n_ways=4, steps=0, tau=2.0)
    torch.testing.assert_close(scores, euclidean(support, labels, query, n_ways=4))


def test_features_may_be_left_unnormalised():
    support, labels, query = sample(3)
    unit = [x / x.norm(dim=-1, keepdim=True) for x in (support, query)]
    torch.testing.assert_close(
        entropy_min(unit[0], labels, unit[1], n_ways=4, normalise=False), entropy_min(support, labels, query, n_ways=4)
    )
    with pytest.raises(InputError, match="normalise"):
        entropy_min(support * 1e200, labels, query, n_ways=4, normalise=False)


@pytest.mark.parametrize(
    "bad", [{"tau": 0.0}, {"tau": -1.0}, {"steps": -1}, {"learning_rate": 0.0}, {"learning_rate": float("nan")}]
)
def test_nonsense_parameters_are_refused(bad):
    with pytest.raises(InputError, match=f"{next(iter(bad))} must"):
        entropy_min(*sample(0), n_ways=4, **bad)
