from __future__ import annotations

import pytest
import torch

from likelyshot.errors import InputError
from likelyshot.methods.alpha_tim import alpha_tim
from likelyshot.methods.euclidean import euclidean
from likelyshot.methods.tim import tim

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


def oracle(support, labels, query, ways, alpha, tau=15.0, steps=25, learning_rate=1e-3):
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
        entropy = lambda x: (1 - (x**alpha).sum(-1)) / (alpha - 1)  # noqa: E731
        loss = torch.nn.functional.cross_entropy(logits(support), labels) - entropy(p.mean(0)) + entropy(p).mean()
        loss.backward()
        optimiser.step()
    return logits(query).detach()


@pytest.mark.parametrize(("seed", "alpha"), [(0, 2.0), (1, 7.0), (2, 0.5), (3, 1.3)])
@pytest.mark.parametrize(("shots", "queries"), TASKS)
def test_equals_the_loss_by_autograd(seed, shots, queries, alpha):
    support, labels, query = sample(seed, shots, queries)
    scores = alpha_tim(support, labels, query, n_ways=len(shots), alpha=alpha, steps=25, learning_rate=1e-3)
    expected = oracle(support, labels, query, len(shots), alpha=alpha)
    torch.testing.assert_close(scores, expected, rtol=1e-9, atol=1e-9)


def test_equals_the_loss_by_autograd_with_the_paper_parameters():
    support, labels, query = sample(2)
    expected = oracle(support, labels, query, 4, alpha=2.0, steps=1000, learning_rate=1e-4)
    torch.testing.assert_close(alpha_tim(support, labels, query, n_ways=4), expected, rtol=1e-8, atol=1e-8)


def test_alpha_of_one_is_tim_exactly_and_its_limit():
    inputs = sample(3)
    plain = tim(*inputs, n_ways=4)
    assert torch.equal(alpha_tim(*inputs, n_ways=4, alpha=1.0), plain)
    assert not torch.allclose(alpha_tim(*inputs, n_ways=4, alpha=1.1), plain, atol=1e-4)
    torch.testing.assert_close(alpha_tim(*inputs, n_ways=4, alpha=1 + 1e-9), plain, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("shots", "alpha"), [((1,) * 4, 2.0), ((4,) * 4, 2.0), ((5,) * 4, 7.0), ((9, 1, 5, 5), 7.0)])
def test_alpha_follows_the_shots(shots, alpha):
    inputs = sample(4, shots)
    chosen = alpha_tim(*inputs, n_ways=4, steps=50)
    assert torch.equal(chosen, alpha_tim(*inputs, n_ways=4, alpha=alpha, steps=50))
    assert not torch.equal(chosen, alpha_tim(*inputs, n_ways=4, alpha=9 - alpha, steps=50))


@pytest.mark.parametrize("alpha", [2.0, 7.0])
def test_the_information_of_the_queries_grows(alpha):
    inputs = sample(2)
    found = []
    for steps in (0, 100, 1000):
        p = alpha_tim(*inputs, n_ways=4, alpha=alpha, steps=steps).softmax(-1)
        found.append((((p**alpha).sum(-1).mean() - (p.mean(0) ** alpha).sum()) / (alpha - 1)).item())
    assert found[0] < found[1] < found[2]


def test_no_step_is_the_nearest_prototype():
    support, labels, query = sample(4)
    scores = alpha_tim(support, labels, query, n_ways=4, steps=0, tau=2.0)
    torch.testing.assert_close(scores, euclidean(support, labels, query, n_ways=4))


def test_features_may_be_left_unnormalised():
    support, labels, query = sample(3)
    unit = [x / x.norm(dim=-1, keepdim=True) for x in (support, query)]
    torch.testing.assert_close(
        alpha_tim(unit[0], labels, unit[1], n_ways=4, normalise=False), alpha_tim(support, labels, query, n_ways=4)
    )
    with pytest.raises(InputError, match="normalise"):
        alpha_tim(support * 1e200, labels, query, n_ways=4, normalise=False)


@pytest.mark.parametrize(
    "bad",
    [
        {"tau": 0.0},
        {"tau": -1.0},
        {"steps": -1},
        {"learning_rate": 0.0},
        {"learning_rate": float("nan")},
        {"alpha": 0.0},
        {"alpha": -2.0},
        {"alpha": float("inf")},
    ],
)
def test_nonsense_parameters_are_refused(bad):
    with pytest.raises(InputError, match=f"{next(iter(bad))} must"):
        alpha_tim(*sample(0), n_ways=4, **bad)
