from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from likelyshot.errors import InputError
from likelyshot.methods.logistic import STRENGTHS, logistic


def sample(seed, labels, queries=12, dim=20, ways=3):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.tensor(labels)
    centres = torch.randn(ways, dim, generator=generator, dtype=torch.float64)
    truth = torch.arange(queries) % ways

    def noisy(rows):
        return centres[rows] + 1.5 * torch.randn(len(rows), dim, generator=generator, dtype=torch.float64)

    return noisy(labels), labels, noisy(truth)


def scikit_learn(support, labels, query, c):
    unit = [x / x.norm(dim=-1, keepdim=True) for x in (support, query)]
    model = LogisticRegression(C=c, tol=1e-10, max_iter=10_000).fit(unit[0].numpy(), labels.numpy())
    return torch.from_numpy(model.predict_log_proba(unit[1].numpy()))


@pytest.mark.parametrize("c", [1.0, 100.0])
@pytest.mark.parametrize("labels", [[0, 1, 2], [0, 1, 2] * 4, [0, 0, 0, 1, 2, 2]], ids=["one", "four", "unequal"])
def test_a_given_strength_is_scikit_learns(labels, c):
    support, labels, query = sample(0, labels)
    scores = logistic(support, labels, query, n_ways=3, c=c).log_softmax(-1)
    torch.testing.assert_close(scores, scikit_learn(support, labels, query, c), rtol=1e-3, atol=1e-3)


def test_one_shot_takes_a_fixed_strength():
    support, labels, query = sample(1, [0, 1, 2])
    expected = logistic(support, labels, query, n_ways=3, c=100.0)
    torch.testing.assert_close(logistic(support, labels, query, n_ways=3), expected)


@pytest.mark.parametrize("seed", range(2))
def test_the_strength_with_the_least_held_out_loss_is_chosen(seed):
    support, labels, query = sample(seed, [0, 1, 2] * 5)
    unit = support / support.norm(dim=-1, keepdim=True)
    fold = np.zeros(15, dtype=int)
    for k in range(3):
        own = np.flatnonzero(labels.numpy() == k)
        mean = unit[own].mean(0)
        order = own[np.argsort(-(unit[own] @ mean / mean.norm()).numpy())]
        fold[order] = np.arange(len(own)) % 5
    losses = []
    for c in STRENGTHS:
        loss = 0.0
        for f in range(5):
            rest, out = torch.from_numpy(fold != f), torch.from_numpy(fold == f)
            logs = scikit_learn(support[rest], labels[rest], support[out], c)
            loss -= float(logs[torch.arange(int(out.sum())), labels[out]].sum())
        losses.append(loss)
    best = STRENGTHS[int(np.argmin(losses))]
    expected = logistic(support, labels, query, n_ways=3, c=best)
    torch.testing.assert_close(logistic(support, labels, query, n_ways=3), expected)


def test_tasks_choose_for_themselves():
    tasks = [sample(seed, [0, 1, 2] * 3) for seed in range(4)]
    support, query = (torch.stack([task[i] for task in tasks]) for i in (0, 2))
    together = logistic(support, tasks[0][1], query, n_ways=3)
    for scores, task in zip(together, tasks, strict=True):
        torch.testing.assert_close(scores, logistic(*task, n_ways=3), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("c", [-1.0, float("inf"), float("nan")])
def test_a_strength_that_makes_no_sense_is_refused(c):
    with pytest.raises(InputError, match="c must be 0 or a number"):
        logistic(*sample(0, [0, 1, 2]), n_ways=3, c=c)
