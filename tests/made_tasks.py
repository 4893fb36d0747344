"""Small made-up tasks for the tests of methods, and an oracle that several of them share."""

from __future__ import annotations

import torch

#: Support samples per class, queries per class.
RAGGED = [
    ((1, 1, 1, 1), (4, 4, 4, 4)),
    ((5, 5, 5, 5, 5), (9, 1, 0, 3, 6)),
    ((1, 4, 2), (7, 0, 2)),
    ((2, 0, 3, 1), (3, 3, 3, 3)),
    ((2, 2), (1, 0)),
]


def ragged(seed, shots=(2, 2, 2, 2), queries=(6, 1, 3, 5), dim=12):
    """Draw a task with so many support samples and queries of each class."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.rand(len(shots), dim, generator=generator, dtype=torch.float64) ** 2

    def noisy(counts):
        rows = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
        return centres[rows] * torch.rand(len(rows), dim, generator=generator, dtype=torch.float64) * 2, rows

    (support, labels), (query, _) = noisy(shots), noisy(queries)
    return support, labels, query


def skewed(seed, ways=4, shots=2, queries=24, dim=60, absent=None):
    """Draw a task; `shots` may be a list, one number per class; the first classes have most of the queries."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.rand(ways, dim, generator=generator, dtype=torch.float64) ** 2
    shots = torch.tensor([shots] * ways if isinstance(shots, int) else shots)
    labels = torch.arange(ways).repeat_interleave(shots)
    truth = (torch.rand(queries, generator=generator) ** 2 * ways).long()
    truth = torch.where(truth == absent, 0, truth) if absent is not None else truth

    def noisy(rows):
        return 0.7 * centres[rows] + torch.rand(len(rows), dim, generator=generator, dtype=torch.float64)

    return noisy(labels), labels, noisy(truth)


def signed(seed, labels, queries=(9, 1, 6, 4), dim=8, noise=0.5):
    """Draw a task of signed features with these support labels, and so many queries of each class."""
    generator = torch.Generator().manual_seed(seed)
    labels, truth = torch.as_tensor(labels), torch.arange(len(queries)).repeat_interleave(torch.tensor(queries))
    centres = torch.rand(len(queries), dim, generator=generator, dtype=torch.float64)

    def noisy(rows):
        return centres[rows] + noise * torch.randn(len(rows), dim, generator=generator, dtype=torch.float64)

    return noisy(labels), labels, noisy(truth)


def descended(support, labels, query, ways, query_loss, tau=15.0, steps=25, learning_rate=1e-3):
    """Logits after steps on one task: the cross entropy and a loss of p as it is written, autograd, Adam of torch."""
    support = support / support.norm(dim=1, keepdim=True)
    query = query / query.norm(dim=1, keepdim=True)
    w = torch.zeros(ways, support.shape[1], dtype=torch.float64)
    for k in range(ways):
        if (labels == k).any():
            w[k] = support[labels == k].mean(0)
    w.requires_grad_()

    def logits(z):
        return -tau / 2 * ((z[:, None] - w[None]) ** 2).sum(-1)

    optimiser = torch.optim.Adam([w], lr=learning_rate)
    for _ in range(steps):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(logits(support), labels) + query_loss(logits(query).softmax(1))
        loss.backward()
        optimiser.step()
    return logits(query).detach()
