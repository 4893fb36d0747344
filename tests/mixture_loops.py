"""The held-out choices of the likelihood mixture, one example and one class at a time."""

from __future__ import annotations

import math

import numpy as np


def unit(v):
    return v / np.linalg.norm(v)


def spread(table):
    return math.sqrt(np.mean((table - table.mean(1, keepdims=True)) ** 2))


def softmax(table):
    odds = np.exp(table - table.max(1, keepdims=True))
    return odds / odds.sum(1, keepdims=True)


def centred(table):
    return table - table.mean(1, keepdims=True)


def held_out(x, y, labels, ways, common, floor, directions, prior):
    """Both likelihoods of every labelled example, by the classes and the metric without it."""
    rows = [i for i in range(len(x)) if labels.count(labels[i]) > 1]
    e, d = np.zeros((len(rows), ways)), np.zeros((len(rows), ways))
    for row, i in enumerate(rows):
        own = [[j for j in range(len(x)) if labels[j] == k and j != i] for k in range(ways)]
        metric = np.eye(len(y[0]))
        for k in range(ways):
            for j in own[k]:
                deviation = y[j] - np.mean([y[m] for m in own[k]], 0)
                metric = metric + np.outer(deviation, deviation) / prior
        for k in range(ways):
            count = labels.count(k)  # with the example, as in other classes
            seen = count * np.mean([x[j] for j in own[k]], 0) if own[k] else 0
            rate = 1 / np.maximum((seen + common) / (count + 1), floor)
            away = y[i] - sum(y[j] for j in own[k]) / (len(own[k]) + 1)
            e[row, k], d[row, k] = np.log(rate).sum() - rate @ x[i], away @ np.linalg.inv(metric) @ away
    truth = [labels[i] for i in rows]
    g = centred(-directions / 2 * d / np.mean([d[row, k] for row, k in enumerate(truth)]))
    return rows, truth, g, centred(e)


def evidence(one, other, truth):
    """The log-evidence of every weight of the other, factors averaged over."""
    other = other * spread(one) / spread(other)
    result = []
    for weight in np.arange(9) / 8:
        each = []
        for factor in 2.0 ** np.arange(-3, 3):
            p = softmax(factor * ((1 - weight) * one + weight * other))
            each.append(sum(math.log(p[row, k]) for row, k in enumerate(truth)))
        result.append(np.logaddexp.reduce(each))
    return result


def regression(y, labels, ways, steps=20):
    """Weights of a logistic regression by accelerated steps, and the logits of every example without it."""
    y, known = np.array(y), np.eye(ways)[labels]
    present = [k for k in range(ways) if k in labels]
    v = np.array([len(y) / (len(present) * labels.count(k)) for k in labels])
    bound = np.linalg.inv(y.T @ (v[:, None] * y) / 2 + 0.1 * np.eye(y.shape[1]))

    def probabilities(logits):
        p = np.zeros_like(logits)
        p[:, present] = softmax(logits[:, present])
        return p

    before = w = np.zeros((ways, y.shape[1]))
    pace = 1
    for _ in range(steps):
        faster = (1 + math.sqrt(1 + 4 * pace**2)) / 2
        ahead = w + (pace - 1) / faster * (w - before)
        gradient = (v[:, None] * (probabilities(y @ ahead.T) - known)).T @ y + 0.1 * ahead
        before, w, pace = w, ahead - gradient @ bound, faster
    p, logits = probabilities(y @ w.T), y @ w.T
    without = np.zeros_like(logits)
    for k in range(ways):
        curvature = v * p[:, k] * (1 - p[:, k])
        inverse = np.linalg.inv(y.T @ (curvature[:, None] * y) + 0.1 * np.eye(y.shape[1]))
        for i in range(len(y)):
            reach = y[i] @ inverse @ y[i]
            step = reach * v[i] * (p[i, k] - known[i, k])
            without[i, k] = logits[i, k] + step / (1 - reach * curvature[i])
    return w, centred(without)


def choices(x, y, labels, ways, common, floor, directions):
    """What held-out examples choose: prior scatter, weights a and b, the regression; and how right they are."""
    scatters = (1 / 16, 1 / 4, 1, 4)
    if not any(labels.count(k) > 1 for k in labels):
        return 0.5, 0.5, 0, np.zeros((ways, len(y[0]))), 1
    table = []
    for prior in scatters:
        _, truth, g, e = held_out(x, y, labels, ways, common, floor, directions, prior)
        table.append(evidence(g, e, truth))
    posterior = np.exp(table - np.logaddexp.reduce(np.ravel(table)))
    a, prior = posterior.sum(0) @ np.arange(9) / 8, math.exp(posterior.sum(1) @ np.log(scatters))
    rows, truth, g, e = held_out(x, y, labels, ways, common, floor, directions, prior)
    scores = (1 - a) * g + a * e * spread(g) / spread(e)
    if len(x) <= ways:
        return prior, a, 0, np.zeros((ways, len(y[0]))), skill(scores, truth, labels)
    weights, logits = regression(y, labels, ways)
    logits = logits[rows]
    table = evidence(scores, logits, truth)
    b = np.exp(table - np.logaddexp.reduce(table)) @ np.arange(9) / 8
    scores = (1 - b) * scores + b * logits * spread(scores) / spread(logits)
    return prior, a, b, weights, skill(scores, truth, labels)


def skill(scores, truth, labels):
    """How much better than chance the held-out examples are named, with one more that is right."""
    accuracy = (1 + sum(row.argmax() == k for row, k in zip(scores, truth, strict=True))) / (1 + len(truth))
    chance = 1 / len(set(labels))
    return max((accuracy - chance) / (1 - chance), 0.05)
