"""Straightforward versions to measure against: one task at a time, arrays as the formulas are written."""

from __future__ import annotations

import math
import random
from collections import defaultdict

import numpy as np
import torch
from scipy.stats import multivariate_normal

from likelyshot.methods.calibration import Calibration


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def mll_transductive(support, labels, query, ways, lambda_max=40.0, iterations=10, eta=0.5):
    """One task in NumPy, with the (query, class, feature) arrays in which the method has been published."""
    support, query = unit(support), unit(query)
    prototypes = np.stack([support[labels == k].mean(0) for k in range(ways)])
    for step in range(iterations + 1):
        rates = np.minimum(1 / np.maximum(prototypes, 1e-12), lambda_max)
        scores = (np.log(rates)[None] - rates[None] * query[:, None]).sum(-1)  # from (q, k, d)
        if step == iterations:
            return scores
        assigned = scores.argmax(1)
        weighted = (1 - np.exp(-rates[None] * query[:, None])) * query[:, None]  # (q, k, d)
        for k in range(ways):
            if (assigned == k).any():
                prototypes[k] = (1 - eta) * prototypes[k] + eta * weighted[assigned == k, k].mean(0)


def mll_broadcast(support, labels, query, n_ways, lambda_max=40.0):
    """A batch of tasks in torch, summing a (task, query, class, feature) array."""
    support, query = (torch.nn.functional.normalize(x, dim=-1) for x in (support, query))
    prototypes = torch.stack([support[:, labels == k].mean(1) for k in range(n_ways)], 1)
    rates = (1 / prototypes.clamp_min(1e-12)).clamp_max(lambda_max)
    return (rates.log().unsqueeze(1) - rates.unsqueeze(1) * query.unsqueeze(2)).sum(-1)


def youden(columns: np.ndarray, calibration: Calibration) -> np.ndarray:
    """P_tp - P_fp by SciPy's multivariate normal CDF."""

    def cdf(gaussian):
        used = list(gaussian.independent)
        mean, covariance = np.array(gaussian.mean)[used], np.array(gaussian.covariance)[np.ix_(used, used)]
        return multivariate_normal(mean, covariance).cdf(columns[..., used])

    return cdf(calibration.intra) + cdf(calibration.cross) - 1


def sample_tasks(labels, n_tasks, ways, shots, total, alpha, seed):
    """A Python loop over tasks: Dirichlet counts by largest remainder, disjoint support and query, shuffled."""
    rng = random.Random(seed)
    rows = defaultdict(list)
    for row, label in enumerate(labels):
        rows[label].append(row)
    tasks = []
    for _ in range(n_tasks):
        classes = rng.sample(sorted(rows), ways)
        while True:
            gammas = [rng.gammavariate(alpha, 1) for _ in range(ways)]
            shares = [total * gamma / sum(gammas) for gamma in gammas]
            counts = [math.floor(share) for share in shares]
            order = sorted(range(ways), key=lambda k: counts[k] - shares[k])
            for k in order[: total - sum(counts)]:
                counts[k] += 1
            if all(count <= len(rows[label]) - shots for label, count in zip(classes, counts, strict=True)):
                break
        support, query = [], []
        for way, (label, count) in enumerate(zip(classes, counts, strict=True)):
            picks = rng.sample(rows[label], shots + count)
            support += picks[:shots]
            query += [(row, way) for row in picks[shots:]]
        rng.shuffle(query)
        tasks.append((support, query, classes))
    return tasks
