from __future__ import annotations

import numpy as np
import pytest
import torch

from likelyshot.errors import InputError
from likelyshot.methods.likelihood_mixture import Constants, fit_mixture, likelihood_mixture, most_similar
from mixture_loops import centred, choices, softmax, spread, unit

LABELS = {
    "one shot": [0, 1, 2, 3],
    "five shots": [0, 1, 2, 3] * 5,
    "unequal shots": [0, 0, 0, 1, 2, 2, 3, 0, 0],
    "a class without support": [0, 0, 1, 3],
    "one shot, a class without support": [0, 1, 3],
}


def sample(seed, labels, queries=30, dim=16, ways=4):
    """Skewed features of classes that differ, and queries of which class 0 holds half and the last class none."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.tensor(labels)
    centres = torch.rand(ways, dim, generator=generator, dtype=torch.float64) ** 3
    truth = torch.randint(ways - 1, (queries,), generator=generator)
    truth[: queries // 2] = 0

    def noisy(rows):
        return centres[rows] * (0.5 + torch.rand(len(rows), dim, generator=generator, dtype=torch.float64))

    return noisy(labels), labels, noisy(truth), truth


def oracle(support, labels, query, ways, iterations, base_within=None):
    """The equations of the docstring on the vectors themselves, one sample and one class at a time."""
    x = [unit(v) for v in torch.cat([support, query]).numpy()]
    n, s, labels = len(x), len(support), labels.tolist()
    roots = [unit(np.sqrt(v)) for v in x]
    if base_within is not None:
        spread_out = np.eye(len(x[0])) + 100 * base_within / np.trace(base_within)
        values, vectors = np.linalg.eigh(spread_out)
        roots = [unit(vectors @ (vectors.T @ v / np.sqrt(values))) for v in roots]
    y = [unit(v - np.mean(roots, 0)) for v in roots]
    own = [[i for i in range(s) if labels[i] == k] for k in range(ways)]
    scatter = sum(
        np.outer(y[i] - np.mean([y[j] for j in own[k]], 0), y[i] - np.mean([y[j] for j in own[k]], 0))
        for k in range(ways)
        for i in own[k]
    )
    near = np.zeros((n, n))
    for i in range(n):
        for j in sorted((j for j in range(n) if j != i), key=lambda j: -roots[i] @ roots[j])[:4]:
            near[i, j] = 1
    near += near.T
    present = [k for k in range(ways) if own[k]]
    common = np.mean([np.mean([x[i] for i in own[k]], 0) for k in present], 0)
    shots = s / len(present)
    trust, directions = (shots - 1) / (shots + 9), 40 * shots / (shots + 1)
    floor = np.sum(x) / len(x) / (np.max(x, 0) > 0).sum()
    prior, weight, part, coefficients, skill = choices(x[:s], y[:s], labels, ways, common, floor, directions)
    metric = np.linalg.inv(scatter / prior + np.eye(len(y[0])))
    one_shot = s == len(present)
    r = np.array([[float(i < s and labels[i] == k) for k in range(ways)] for i in range(n)])
    counted = np.ones(n)  # for the shares; in the sums of classes, queries count less
    for step in range(iterations + 1):
        e, d = np.zeros((n - s, ways)), np.zeros((n - s, ways))
        if one_shot and step == (iterations + 1) // 2:
            scatter = np.zeros_like(metric)
            for k in range(ways):
                weights = counted * r[:, k]
                mean = weights @ np.array(y) / max(weights.sum(), 1e-300)
                for i in range(n):
                    scatter = scatter + weights[i] * np.outer(y[i] - mean, y[i] - mean)
            total = sum(counted[i] * r[i].sum() for i in range(n))
            metric = np.linalg.inv(40 * scatter / total + np.eye(len(y[0])))
        for k in range(ways):
            counts = np.where(np.arange(n) < s, 1, counted * np.sqrt(skill))
            total = sum(counts[i] * r[i, k] for i in range(n))
            mean = sum(counts[i] * r[i, k] * x[i] for i in range(n))
            rate = 1 / np.maximum((mean + common) / (total + 1), floor)
            centre = sum(counts[i] * r[i, k] * y[i] for i in range(n)) / (total + 1)
            for q in range(n - s):
                e[q, k] = np.log(rate).sum() - rate @ x[s + q]
                d[q, k] = (y[s + q] - centre) @ metric @ (y[s + q] - centre)
        weights = counted[s:, None] * r[s:]
        w = d.min(1).mean() if step == 0 else (weights * d).sum() / weights.sum()
        g = -directions / 2 * d / w
        z = (1 - weight) * centred(g) + weight * centred(e) * spread(g) / spread(e)
        if step == 0:
            if part:
                logits = centred(np.array([coefficients @ v for v in y[s:]]))
                z = (1 - part) * z + part * logits * spread(z) / spread(logits)
            start = z
        else:
            z = (1 - trust) * z + trust * start * spread(z) / spread(start)
            for q in range(n - s):
                z[q] += 2 * near[s + q] @ r / near[s + q].sum()
            if step > 1 or not one_shot:
                even = (1 - skill) ** 2
                equal = np.array([weights.sum() / len(present) if own[k] else 0 for k in range(ways)])
                z = z + np.log(2 + (1 - even) * weights.sum(0) + even * equal)
        r[s:] = softmax(z)
        counted[s:] = 1 / (1 + np.exp(-directions / 2 * (1 - d.min(1)) / w))
    return torch.tensor(z).log_softmax(-1)


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("iterations", [1, 5])
@pytest.mark.parametrize("dim", [16, 40], ids=["few features, coordinates", "many features, inner products"])
def test_equals_the_equations_one_sample_at_a_time(labels, iterations, dim):
    support, labels, query, _ = sample(0, labels, dim=dim)
    scores = likelihood_mixture(support, labels, query, n_ways=4, iterations=iterations)
    expected = oracle(support, labels, query, 4, iterations)
    torch.testing.assert_close(scores, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dim", [16, 40])
def test_tasks_with_one_and_with_more_examples_per_class_share_a_batch(dim):
    support, one_shot, query, _ = sample(14, [0, 1, 2, 3], dim=dim)
    labels = torch.stack([one_shot, torch.tensor([0, 0, 1, 3])])
    scores = likelihood_mixture(support, labels, query, n_ways=4)
    for each, own in zip(scores, labels, strict=True):
        torch.testing.assert_close(each, likelihood_mixture(support, own, query, n_ways=4), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(scores[1], oracle(support, labels[1], query, 4, 7), rtol=1e-6, atol=1e-6)


def test_held_out_examples_choose_the_likelihood_that_names_them():
    support, labels, query, _ = sample(0, [0, 1, 2, 3] * 5, dim=60)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    for iterations in (0, 3):
        mixture = fit_mixture(support, labels, query, n_ways=4, iterations=iterations).mixture()
        assert 0 < float(mixture.exponential) < 1
        one_shot = fit_mixture(support[:4], labels[:4], query, n_ways=4, iterations=iterations).mixture()
        assert float(one_shot.exponential) == pytest.approx(0.5)
        again = fit_mixture(support[..., order], labels, query[..., order], n_ways=4, iterations=iterations).mixture()
        torch.testing.assert_close(again.exponential, mixture.exponential)
    rng = np.random.default_rng(0)
    signal, common = rng.uniform(0.8, 1.2, (4, 60)), rng.uniform(0, 1, (3, 60))
    nuisance = rng.uniform(0, 4, (20, 3)) @ common  # directions within classes, which only the Gaussian discounts
    x = torch.tensor(signal[labels.numpy()] + nuisance)
    assert float(fit_mixture(x, labels, x, n_ways=4).weights.exponential) < 0.2


def test_held_out_examples_choose_the_metric():
    rng = np.random.default_rng(1)
    labels = torch.arange(4).repeat(8)
    signal, common = rng.uniform(0.9, 1.1, (4, 60)), rng.uniform(0, 1, (2, 60))
    few = torch.tensor(signal[labels.numpy()] + rng.uniform(0, 4, (32, 2)) @ common)  # vary in two directions
    many = torch.tensor(rng.uniform(0.5, 1.5, (4, 60))[labels.numpy()] + rng.uniform(0, 1, (32, 60)))  # in all
    in_few, in_many = (float(fit_mixture(x, labels, x, n_ways=4).weights.scatter) for x in (few, many))
    assert in_few < 0.1 < 0.4 < in_many


def test_held_out_examples_let_the_regression_count_where_it_names_them():
    rng = np.random.default_rng(2)
    labels = torch.arange(5).repeat(10)
    words = (rng.random((50, 300)) < 0.05) * rng.exponential(1, (50, 300))  # as of texts: a few of many words
    words[:, :20] = (rng.random((50, 20)) < 0.3) * (np.arange(20) % 5 == labels.numpy()[:, None])
    nuisance = rng.uniform(0, 4, (50, 3)) @ rng.uniform(0, 1, (3, 300))  # which only the metric discounts
    hidden = rng.uniform(0.8, 1.2, (5, 300))[labels.numpy()] + rng.uniform(0, 1, (50, 300)) + nuisance
    counts = []
    for x in (torch.tensor(words + 1e-3), torch.tensor(hidden)):
        whole = fit_mixture(x, labels, x, n_ways=5)
        counts.append(float(whole.weights.regression))
        given = fit_mixture(x, labels, x, n_ways=5, constants=Constants(regression=0.0))
        assert not given.weights.regression.any()
        one_shot = fit_mixture(x[:5], labels[:5], x, n_ways=5)
        assert not one_shot.weights.regression.any()
    assert counts[0] > 0.6 > 0.3 > counts[1]


@pytest.mark.parametrize(("shots", "least"), [(2, 0.25), (5, 0.8)])
def test_held_out_examples_that_share_nothing_are_not_named(shots, least):
    rng = np.random.default_rng(3)
    x = torch.tensor((rng.random((20 * shots, 600)) < 0.02) * rng.exponential(1, (20 * shots, 600)) + 1e-9)
    skill = fit_mixture(x, torch.arange(20).repeat(shots), x, n_ways=20).weights.skill
    assert float(skill) < 0.15
    told = torch.eye(20, dtype=torch.float64).repeat(shots, 1)
    x = torch.cat([x, told], -1)
    assert float(fit_mixture(x, torch.arange(20).repeat(shots), x, n_ways=20).weights.skill) > least


def test_a_large_pile_of_weak_features_gathers_less_in_one_class():
    rng = np.random.default_rng(3)
    labels = np.concatenate([np.repeat(np.arange(10), 5), rng.integers(10, size=1200)])
    nuisance = rng.random((len(labels), 8)) @ rng.random((8, 60))  # says more than the class does
    signal = 0.1 * rng.random((10, 60))[labels]
    x = torch.tensor(1 + signal + 0.6 * nuisance + 0.3 * rng.random((len(labels), 60)))
    largest, right = [], []
    for skill in (None, 1.0):
        fit = fit_mixture(x[:50], torch.tensor(labels[:50]), x[50:], n_ways=10, constants=Constants(skill=skill))
        answers = fit.scores(x[50:]).argmax(-1)
        largest.append(int(answers.bincount().max()))
        right.append(float((answers == torch.tensor(labels[50:])).double().mean()))
    assert largest[0] < 0.7 * largest[1]
    assert right[0] > right[1]


def test_an_example_more_of_one_class_is_enough_to_hold_it_out():
    support, labels, query, truth = sample(15, [0, 0, 1, 2, 3])
    fit = fit_mixture(support, labels, query, n_ways=4)
    assert 0 < float(fit.weights.regression) < 1
    assert (fit.scores(query).argmax(-1) == truth).double().mean() > 0.6


def test_very_many_examples_are_not_held_out_of_the_regression(monkeypatch):
    support, labels, query, _ = sample(0, [0, 1, 2, 3] * 3)
    monkeypatch.setattr("likelyshot.functional.held_out_weights.LARGEST_REGRESSION", 100)
    assert not fit_mixture(support, labels, query, n_ways=4).weights.regression.any()


@pytest.mark.parametrize("dim", [16, 40])
def test_the_covariance_of_base_classes_scales_the_roots(dim):
    support, labels, query, _ = sample(0, [0, 1, 2, 3] * 2, dim=dim)
    noise = torch.rand(dim, 60, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    within = noise @ noise.T
    scores = likelihood_mixture(support, labels, query, n_ways=4, base_within=within)
    expected = oracle(support, labels, query, 4, 7, base_within=within.numpy())
    torch.testing.assert_close(scores, expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(
        likelihood_mixture(support, labels, query, n_ways=4, base_within=torch.zeros(dim, dim)),
        likelihood_mixture(support, labels, query, n_ways=4),
    )
    with pytest.raises(InputError, match=r"base_within"):
        likelihood_mixture(support, labels, query, n_ways=4, base_within=torch.eye(3))


@pytest.mark.parametrize("marginals", ["estimated", "uniform"])
@pytest.mark.parametrize("labels", [LABELS["one shot"], LABELS["five shots"]], ids=["one shot", "five shots"])
@pytest.mark.parametrize("dim", [16, 60])
def test_a_fitted_mixture_scores_further_queries_as_its_own(labels, marginals, dim):
    support, labels, query, _ = sample(10, labels, queries=60, dim=dim)
    alone = Constants(agreement=0.0)  # a neighbour of a further query need not be one of its own
    fit = fit_mixture(support, labels, query, n_ways=4, marginals=marginals, constants=alone)
    mixture, scores = fit.mixture(), fit.scores(query)
    torch.testing.assert_close(mixture.scores(query), scores, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(mixture.scores(query[7:9]), scores[7:9], rtol=1e-5, atol=1e-5)
    fit = fit_mixture(support, labels, query, n_ways=4, marginals=marginals)
    mixture, scores = fit.mixture(), fit.scores(query)
    assert (mixture.scores(query).argmax(-1) == scores.argmax(-1)).double().mean() > 0.95


def test_neighbours_of_a_further_query_vote_by_their_responsibilities():
    support, labels, query, _ = sample(11, [0, 1, 2, 3] * 2, queries=40)
    mixture = fit_mixture(support, labels, query, n_ways=4).mixture()
    further = sample(12, [0], queries=5)[2]
    roots = np.stack([unit(np.sqrt(unit(v))) for v in torch.cat([support, query]).numpy()])
    expected = []
    for v in further.numpy():
        nearest = np.argsort(-roots @ unit(np.sqrt(unit(v))))[:4]
        expected.append(2 * mixture.votes.numpy()[:, nearest].mean(1))
    without = mixture._replace(voters=None).scores(further)
    torch.testing.assert_close(mixture.scores(further), (without + torch.tensor(np.array(expected))).log_softmax(-1))


def test_samples_that_share_nearly_everything_are_told_apart_in_single_precision():
    support, labels, query, truth = sample(13, [0, 1, 2, 3] * 2, dim=60)
    support, query = support + 3, query + 3  # cosines above 0.99
    single = likelihood_mixture(support.float(), labels, query.float(), n_ways=4)
    double = likelihood_mixture(support, labels, query, n_ways=4)
    torch.testing.assert_close(single.double(), double, rtol=2e-3, atol=2e-3)
    assert (double.argmax(-1) == truth).double().mean() > 0.9


def test_without_rounds_no_query_depends_on_another():
    support, labels, query, truth = sample(1, [0, 1, 2, 3] * 3)
    scores = likelihood_mixture(support, labels, query, n_ways=4, iterations=0)
    for i in range(3):
        alone = likelihood_mixture(support, labels, query[i : i + 1], n_ways=4, iterations=0)
        torch.testing.assert_close(scores[i : i + 1], alone)
    assert (scores.argmax(-1) == truth).double().mean() > 0.8


def test_scores_are_log_probabilities():
    support, labels, query, _ = sample(2, [0, 1, 2, 3])
    for iterations in (0, 3):
        scores = likelihood_mixture(support, labels, query, n_ways=4, iterations=iterations)
        torch.testing.assert_close(scores.exp().sum(-1), torch.ones(len(query), dtype=torch.float64))


@pytest.mark.parametrize("shares", [[0.25] * 4, [0.5, 0.3, 0.1, 0.1]])
def test_given_shares_are_kept(shares):
    support, labels, query, _ = sample(3, [0, 1, 2, 3])
    marginals = torch.tensor(shares)
    scores = likelihood_mixture(support, labels, query, n_ways=4, marginals=marginals)
    torch.testing.assert_close(scores.exp().mean(0), marginals.double(), rtol=0, atol=2e-6)


def test_uniform_is_a_name_for_equal_shares():
    support, labels, query, _ = sample(4, [0, 1, 2, 3])
    named = likelihood_mixture(support, labels, query, n_ways=4, marginals="uniform")
    given = likelihood_mixture(support, labels, query, n_ways=4, marginals=torch.ones(4))
    torch.testing.assert_close(named, given)


def test_shares_may_differ_between_tasks():
    support, labels, query, _ = sample(5, [0, 1, 2, 3])
    marginals = torch.tensor([[0.25] * 4, [0.4, 0.3, 0.2, 0.1]])
    scores = likelihood_mixture(support, labels, query, n_ways=4, marginals=marginals)
    assert scores.shape == (2, 30, 4)
    alone = likelihood_mixture(support, labels, query, n_ways=4, marginals=marginals[1])
    torch.testing.assert_close(scores[1], alone, rtol=1e-5, atol=1e-5)


def test_what_is_unlike_every_class_moves_none():
    support, labels, query, _ = sample(6, [0, 1, 2] * 5, dim=40, ways=3)
    foreign = torch.zeros(20, 40, dtype=torch.float64)
    foreign[:, :2] = torch.rand(20, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    before = likelihood_mixture(support, labels, query, n_ways=3)
    after = likelihood_mixture(support, labels, torch.cat([query, foreign]), n_ways=3)[:30]
    assert (before.argmax(-1) == after.argmax(-1)).double().mean() > 0.95


def test_more_rounds_do_not_wear_the_labelled_examples_out():
    support, labels, query, truth = sample(7, [0, 1, 2, 3] * 2)
    few, many = (likelihood_mixture(support, labels, query, n_ways=4, iterations=i) for i in (7, 200))
    assert (many.argmax(-1) == truth).double().mean() >= (few.argmax(-1) == truth).double().mean() - 0.05


@pytest.mark.parametrize(
    ("change", "shots"),
    [
        ({"exponential": 0.0}, 2),
        ({"exponential": 1.0}, 2),
        ({"agreement": 0.0}, 2),
        ({"power": 1.0}, 2),
        ({"prior_scatter": 1e6}, 2),
        ({"regression": 0.0}, 2),
        ({"regression": 1.0}, 2),
        ({"query_directions": 1e-6}, 1),
        ({"skill": 0.3}, 2),
    ],
)
def test_every_part_changes_the_scores(change, shots):
    support, labels, query, _ = sample(8, [0, 1, 2, 3] * shots)
    whole = likelihood_mixture(support, labels, query, n_ways=4)
    part = fit_mixture(support, labels, query, n_ways=4, constants=Constants(**change)).scores(query)
    assert part.isfinite().all()
    assert not torch.allclose(whole, part)


def test_parameters_that_make_no_sense_are_refused():
    support, labels, query, _ = sample(9, [0, 1, 2, 3])
    with pytest.raises(InputError, match="iterations must be a whole number"):
        likelihood_mixture(support, labels, query, n_ways=4, iterations=-1)
    with pytest.raises(InputError, match="marginals must be"):
        likelihood_mixture(support, labels, query, n_ways=4, marginals="equal")


@pytest.mark.parametrize("count", [300, 1001])
def test_the_most_similar_voters_are_those_of_all_products(count):
    generator = torch.Generator().manual_seed(0)
    voters, roots = torch.randn(count, 8, generator=generator), torch.randn(50, 8, generator=generator)
    expected = (roots.double() @ voters.double().T).topk(4).indices
    assert torch.equal(most_similar(voters, roots, 4), expected)
