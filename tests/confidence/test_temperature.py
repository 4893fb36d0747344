"""Held-out scores against naive loops; temperatures from supports of every shape."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from likelyshot import Balanced, Features, InputError, sample_tasks
from likelyshot.confidence import held_out as confidence
from likelyshot.confidence.held_out import (
    INDUCTIVE_FACTOR,
    PILE,
    TRANSDUCTIVE_FACTOR,
    HeldOut,
    held_out,
    independent_directions,
    pile_temperature,
    support_gap,
    support_temperature,
    validation_temperature,
)
from likelyshot.functional.scores import calibration_error, fit_temperature, probabilities
from likelyshot.methods import METHODS
from likelyshot.methods.binding import is_transductive, needs_of
from likelyshot.methods.calibration import fit_calibration
from likelyshot.methods.combined import score_columns

MLL, TRANSDUCTIVE = METHODS["mll"], METHODS["mll_transductive"]


def draw(seed: int = 0, shots: tuple[int, ...] = (4, 4, 4), queries: int = 30, dim: int = 12, spread: float = 1.0):
    """Exponential features: support, labels, query, truth."""
    rng = np.random.default_rng(seed)
    means = rng.exponential(size=(len(shots), dim)) ** spread + 0.05
    labels, truth = np.repeat(np.arange(len(shots)), shots), rng.integers(len(shots), size=queries)
    support, query = rng.exponential(means[labels]), rng.exponential(means[truth])
    return torch.tensor(support), torch.tensor(labels), torch.tensor(query), torch.tensor(truth)


def naive_gap(scores, labels):
    leads = []
    for row, label in zip(scores.tolist(), labels.tolist(), strict=True):
        others = [score for way, score in enumerate(row) if way != label]
        leads.append(row[label] - sum(others) / len(others))
    return sum(leads) / len(leads)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 7), min_size=2, max_size=5), st.integers(0, 99))
def test_every_example_is_held_out_equally_often_and_no_class_is_emptied(shots, seed):
    support, labels, _, _ = draw(seed, tuple(shots))
    seen = []

    def method(few, few_labels, query, *, n_ways):
        assert few_labels.bincount(minlength=n_ways).min() >= 1
        left = {tuple(row) for row in few.tolist()}
        seen.append(sum(tuple(row) not in left for row in query.tolist()))
        return query[:, :n_ways] * 0 + torch.arange(n_ways)

    held = held_out(method, support, labels, len(shots), seed=seed)
    times = held.rows.bincount(minlength=len(labels))
    several = labels.bincount()[labels] > 1
    assert (times[~several] == 0).all()
    assert times[several].unique().numel() <= 1
    assert torch.equal(held.labels, labels[held.rows])
    assert held.weights.sum() == pytest.approx(int(several.sum()))


@pytest.mark.parametrize("name", ["mll", "cosine", "euclidean", "matching"])
def test_inductive_scores_are_those_of_the_rest_in_units_of_its_gap(name):
    support, labels, query, _ = draw(shots=(3, 3))
    method = METHODS[name]
    held = held_out(method, support, labels, 2, query=query)
    assert len(held.rows) == 18  # ten runs allow three repetitions of three folds
    assert not held.with_pile
    for first in range(0, 18, 2):  # runs hold out one of each class
        out = held.rows[first : first + 2]
        keep = [i for i in range(6) if i not in out.tolist()]
        few = support[keep], labels[keep]
        gap = naive_gap(method(*few, support[keep], n_ways=2), labels[keep])
        expected = method(*few, support[out], n_ways=2) / gap
        assert torch.allclose(held.scores[first : first + 2], expected, rtol=1e-9)
    assert held.gap == pytest.approx(naive_gap(method(support, labels, support, n_ways=2), labels))


def test_for_transductive_methods_they_join_the_pile():
    support, labels, query, _ = draw(shots=(2, 2))
    held = held_out(TRANSDUCTIVE, support, labels, 2, query=query)
    out = held.rows[:2]
    keep = [i for i in range(4) if i not in out.tolist()]
    scores = TRANSDUCTIVE(support[keep], labels[keep], torch.cat([support[out], query]), n_ways=2)[:2]
    assert torch.allclose(held.scores[:2] * support_gap(TRANSDUCTIVE, support[keep], labels[keep], 2), scores)
    alone = held_out(TRANSDUCTIVE, support, labels, 2)
    assert not torch.allclose(held.scores, alone.scores)
    assert held.with_pile
    assert not alone.with_pile


def test_a_large_pile_is_sampled():
    support, labels, _, _ = draw(shots=(2, 2))
    query = draw(1, queries=3 * PILE)[2]
    sizes = []

    def method(few, few_labels, query, *, n_ways):
        sizes.append(len(query))
        return MLL(few, few_labels, query, n_ways=n_ways)

    one = held_out(method, support, labels, 2, query=query, seed=3)
    assert max(sizes) == PILE + 2
    assert torch.equal(one.scores, held_out(method, support, labels, 2, query=query, seed=3).scores)


def test_without_a_second_example_the_default_holds():
    support, labels, query, _ = draw(shots=(1, 1, 1))
    for name, factor in (("mll", INDUCTIVE_FACTOR), ("mll_transductive", TRANSDUCTIVE_FACTOR), ("tim", 0.17)):
        held = held_out(METHODS[name], support, labels, 3, query=query)
        assert len(held.rows) == 0
        assert held.method == name
        gap = naive_gap(METHODS[name](support, labels, support, n_ways=3), labels)
        assert held.temperature() == pytest.approx(factor * gap)


@given(st.integers(2, 40), st.integers(0, 2**31))
def test_directions_are_counted_whatever_the_axes(directions, seed):
    generator = torch.Generator().manual_seed(seed)
    axes = torch.linalg.qr(torch.randn(60, directions, generator=generator, dtype=torch.float64))[0]
    samples = torch.randn(400, directions, generator=generator, dtype=torch.float64) @ axes.T
    values = torch.linalg.svdvals(samples).square()
    assert independent_directions(samples) == pytest.approx(float(values.sum() ** 2 / values.square().sum()))
    assert 1 / independent_directions(samples) - 1 / 400 == pytest.approx(1 / directions, rel=0.2)
    assert independent_directions(samples[:20]) == pytest.approx(independent_directions(samples[:20].T))


def test_the_temperature_of_a_pile_is_twice_what_distances_are_off():
    """Samples of one class in P directions: the standard deviation of (D / 2) d / w, by counting."""
    generator = torch.Generator().manual_seed(0)
    for directions in (10, 50):
        noise = torch.randn(4000, directions, generator=generator, dtype=torch.float64)
        roots = 5 + noise @ torch.linalg.qr(torch.randn(200, directions, generator=generator).double())[0].T
        found = pile_temperature(roots.square(), torch.arange(4000) % 2, 2, assumed=20.0, default=2.5)
        distances = noise.square().sum(-1)
        assert found == pytest.approx(2 * float((10 * distances / distances.mean()).std()), rel=0.1)


def test_with_one_example_the_mixture_is_less_sure_where_the_pile_varies_in_few_directions():
    generator = torch.Generator().manual_seed(1)
    found = []
    for directions in (200, 4):
        axes = torch.rand(directions, 200, generator=generator) ** 8
        vectors = torch.empty(303, directions).exponential_(generator=generator) @ axes
        inputs = vectors[:3], torch.arange(3), 3
        found.append(support_temperature(METHODS["likelihood_mixture"], *inputs, query=vectors[3:]))
        assert support_temperature(METHODS["likelihood_mixture"], *inputs) == pytest.approx(2.5)  # no pile: the default
    assert found[0] < 5 < found[1]


def test_one_example_in_one_class_and_thirty_in_another():
    support, labels, query, _ = draw(shots=(1, 30, 2))
    held = held_out(MLL, support, labels, 3)
    assert set(held.labels.tolist()) == {1, 2}
    assert held.scores.isfinite().all()
    share = torch.zeros(3, dtype=torch.float64).index_add_(0, held.labels, held.class_weights)
    assert share[1] == pytest.approx(share[2])  # a class counts as much as another
    assert share.sum() == pytest.approx(2 * 2 / (1 / 30 + 1 / 2))  # (sum w)^2 / sum w^2 of 30 + 2 examples
    for method in (MLL, TRANSDUCTIVE):
        assert 0 < support_temperature(method, support, labels, 3, query=query) < float("inf")


def test_the_temperature_is_that_of_the_held_out_examples_where_they_are_many(monkeypatch):
    scores = torch.randn(4000, 3, generator=torch.Generator().manual_seed(0)).double()
    labels = torch.distributions.Categorical(logits=scores * 4).sample()
    held = HeldOut("", 0.07, scores, labels, torch.arange(4000), gap=10.0)
    expected = 10 * fit_temperature(scores, labels, weights=held.class_weights)
    assert held.temperature() == pytest.approx(expected, rel=0.05)
    monkeypatch.setattr(confidence, "SPREAD", 1e-3)  # a prior that will not move
    assert replace(held, factor=0.01).temperature() == pytest.approx(0.1, rel=0.05)


def test_supports_that_tell_nothing():
    same = torch.ones(4, 3), torch.tensor([0, 0, 1, 1])
    assert support_temperature(MLL, *same, 2) == 1.0
    broken = HeldOut("", 0.07, torch.full((2, 2), torch.nan).double(), torch.tensor([0, 1]), torch.arange(2), gap=2.0)
    assert broken.temperature() == pytest.approx(2 * 0.07)


def test_probabilities_become_honest(features):
    vectors = features.vectors[:, :4].repeat(1, 20)  # features that depend on each other are counted twenty times
    features = Features.from_arrays(vectors, features.labels)
    tasks = sample_tasks(features.labels, n_tasks=60, ways=4, shots=5, query=Balanced(8), seed=0)
    truth, raw, own = tasks.query_labels.long(), [], []
    for rows, queries in zip(tasks.support.long(), tasks.query.long(), strict=True):
        support, query = features.vectors[rows], features.vectors[queries]
        raw.append(MLL(support, tasks.support_labels, query, n_ways=4))
        own.append(raw[-1] / support_temperature(MLL, support, tasks.support_labels, 4))
    before, after = (calibration_error(probabilities(torch.stack(x), 1.0), truth) for x in (raw, own))
    assert after < 0.06
    assert after < before / 2


def test_validation_tasks_have_the_ways_and_shots_that_there_are(features):
    tasks = sample_tasks(features.labels, n_tasks=200, ways=3, shots=5, query=Balanced(15), seed=4)
    scores = [
        MLL(features.vectors[rows], tasks.support_labels, features.vectors[queries], n_ways=3)
        for rows, queries in zip(tasks.support.long(), tasks.query.long(), strict=True)
    ]
    expected = fit_temperature(torch.cat(scores), tasks.query_labels.long().flatten())
    assert validation_temperature(MLL, features, ways=3, shots=5, seed=4) == pytest.approx(expected, rel=1e-3)
    few = Features.from_arrays(features.vectors[[0, 1, 40, 41]], [0, 0, 1, 1])
    assert validation_temperature(MLL, few, ways=9, shots=9) > 0
    lonely = Features.from_arrays(features.vectors[[0, 1, 40]], [0, 0, 1])
    with pytest.raises(InputError, match="2 classes, the smallest of 1"):
        validation_temperature(MLL, lonely, ways=2, shots=1)


def test_any_method_has_one():
    support, labels, query, truth = draw(shots=(2, 2, 2), queries=8)
    statistics = {"base_mean": support.mean(0), "base_within": torch.eye(support.shape[1]).double()}
    few = {"lr_ici": {"per_round": 20}, "tim": {"steps": 5}, "alpha_tim": {"steps": 5}, "paddle": {"iterations": 5}}
    for name, method in METHODS.items():
        if "head" in needs_of(method):  # trained for other features
            continue
        if name == "combined":
            columns = score_columns(
                support, labels, query, n_ways=3, metrics=["cosine", "mll"], lambda_max=40.0, normalise=True
            )
            statistics["calibration"] = fit_calibration(
                columns, truth, metrics=["cosine", "mll"], shots=2, dims=(12, 12)
            )
        params = {key: statistics[key] for key in needs_of(method)} | few.get(name, {})
        bound = functools.partial(method, **params)
        assert 0 < support_temperature(bound, support, labels, 3, query=query) < float("inf"), name


def test_what_is_transductive():
    assert not is_transductive(MLL)
    assert not is_transductive(functools.partial(MLL, lambda_max=9.0))
    assert is_transductive(TRANSDUCTIVE)
    assert is_transductive(lambda support, labels, query, *, n_ways: query)

    def mll(support, labels, query, *, n_ways):
        return query

    assert is_transductive(mll)  # by the function, not by its name


def test_bad_input():
    support, labels, _, _ = draw()
    with pytest.raises(InputError, match="one label for each row"):
        held_out(MLL, support, labels[:-1], 3)
