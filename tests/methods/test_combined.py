from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from hostile import variants
from likelyshot import Features, calibrate, sample_tasks
from likelyshot.data.tasks import Balanced
from likelyshot.errors import InputError
from likelyshot.methods.calibration import Calibration, Gaussian, fit_calibration, independent_columns
from likelyshot.methods.combined import combined, score_columns

METRICS = ("euclidean", "cosine", "mll")


def features(seed, classes=12, per_class=20, dim=30):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(per_class)
    centres = torch.rand(classes, dim, generator=generator) ** 2
    return Features.from_arrays(torch.rand(len(labels), dim, generator=generator) * centres[labels], labels)


def task(seed, shots, ways=5):
    validation, test = features(seed), features(seed + 1)
    draw = {"ways": ways, "shots": shots, "query": Balanced(6), "seed": 0}
    calibration = calibrate(validation, sample_tasks(validation.labels, n_tasks=40, **draw))
    tasks = sample_tasks(test.labels, n_tasks=3, **draw)
    return calibration, test.vectors[tasks.support], tasks.support_labels, test.vectors[tasks.query], tasks


def published_index(rule, intra, cross):
    """The formulas as they are printed, from the two CDFs."""
    p_tp, p_fp = intra, 1 - cross
    return {
        "youden": p_tp - p_fp,
        "closest": -np.sqrt((1 - p_tp) ** 2 + p_fp**2),
        "concordance": p_tp * (1 - p_fp),
    }[rule]


@pytest.mark.parametrize("rule", ["youden", "closest", "concordance"])
@pytest.mark.parametrize("shots", [1, 5])
def test_orders_as_the_printed_index_of_scipys_cdf(shots, rule):
    calibration, support, labels, query, _ = task(0, shots)
    support, query = support[0], query[0, :6]
    columns = score_columns(support, labels, query, n_ways=5, metrics=METRICS, lambda_max=40.0, normalise=True).numpy()

    def cdf(gaussian):
        kept = list(gaussian.independent)
        mean, covariance = np.array(gaussian.mean)[kept], np.array(gaussian.covariance)[np.ix_(kept, kept)]
        return multivariate_normal(mean, covariance, seed=0).cdf(columns[..., kept])

    expected = published_index(rule, cdf(calibration.intra), cdf(calibration.cross))
    scores = combined(support, labels, query, n_ways=5, calibration=calibration, rule=rule).numpy()
    back = {
        "youden": np.tanh(scores / 2),
        "closest": -np.sqrt(2 / (1 + np.exp(scores))),
        "concordance": 1 / (1 + np.exp(-scores)),
    }[rule]
    np.testing.assert_allclose(back, expected, atol=5e-5)  # what SciPy's quasi-Monte Carlo gives


def test_one_metric_alone_decides_as_that_metric():
    _, support, labels, query, _ = task(2, 5)
    validation = features(2)
    drawn = sample_tasks(validation.labels, n_tasks=40, ways=5, shots=5, query=Balanced(6), seed=0)
    single = calibrate(validation, drawn, metrics=["mll"])
    columns = score_columns(support, labels, query, n_ways=5, metrics=["mll"], lambda_max=40.0, normalise=True)
    scores = combined(support, labels, query, n_ways=5, calibration=single)
    assert torch.equal(scores.argmax(-1), columns[..., 0].argmax(-1))


def test_one_network_per_metric():
    calibration, support, labels, query, _ = task(3, 5)
    together = combined(support, labels, query, n_ways=5, calibration=calibration)
    apart = combined([support] * 3, labels, [query] * 3, n_ways=5, calibration=calibration)
    assert torch.equal(together, apart)
    other = combined([support, support, support * 0.5 + 0.1], labels, [query] * 3, n_ways=5, calibration=calibration)
    assert not torch.equal(together, other)


def test_the_wrong_number_of_networks_is_refused():
    calibration, support, labels, query, _ = task(3, 5)
    calibration = dataclasses.replace(calibration, dims=(30, 30))
    with pytest.raises(InputError, match="one network per metric"):
        combined([support] * 2, labels, [query] * 2, n_ways=5, calibration=calibration)


def test_collinear_scores_are_found_and_left_out_exactly():
    calibration, support, labels, query, _ = task(4, 1)
    assert calibration.intra.independent == (0, 2)  # at 1-shot, cosine says what Euclidean has said
    drawn = sample_tasks(features(4).labels, n_tasks=40, ways=5, shots=1, query=Balanced(6), seed=0)
    two = calibrate(features(4), drawn, metrics=["euclidean", "mll"])
    torch.testing.assert_close(
        combined(support, labels, query, n_ways=5, calibration=calibration),
        combined(support, labels, query, n_ways=5, calibration=two),
    )


def test_the_tails_are_still_ordered():
    gaussian = Gaussian(mean=(0.0,), covariance=((1e-4,),), independent=(0,))
    calibration = Calibration(
        ("cosine",), 2, 1, (2,), 40.0, True, intra=gaussian, cross=gaussian, features=(), encoders=(), tasks=""
    )
    low = Gaussian(mean=(50.0,), covariance=((1.0,),), independent=(0,))
    for shift in (low, gaussian):
        tail = dataclasses.replace(calibration, intra=shift, cross=shift)
        for rule in ("youden", "closest", "concordance"):
            inputs = (torch.eye(2), torch.tensor([0, 1]), torch.tensor([[0.3, 1.0], [1.0, 0.9], [0.5, 0.6]]))
            scores = combined(*inputs, n_ways=2, calibration=tail, rule=rule)
            assert scores.isfinite().all()
            assert scores.argmax(-1).tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ways": 4}, "made for 4 ways, these tasks have 5"),
        ({"shots": 5}, "made for 5 shots, these tasks have 1"),
        ({"dims": (512, 512, 512)}, "made for .* feature dimensions"),
    ],
)
def test_a_calibration_for_other_tasks_is_refused_with_the_reason(change, message):
    calibration, support, labels, query, _ = task(0, 1)
    with pytest.raises(InputError, match=message):
        combined(support, labels, query, n_ways=5, calibration=dataclasses.replace(calibration, **change))


def test_without_a_bound_the_calibration_takes_that_of_the_features():
    generator = torch.Generator().manual_seed(0)
    long = Features.from_arrays(torch.rand(60, 2_000, generator=generator) ** 3, torch.arange(60) % 6)
    tasks = sample_tasks(long.labels, n_tasks=5, ways=5, shots=1, query=Balanced(4), seed=0)
    unit = long.vectors / long.vectors.norm(dim=1, keepdim=True)
    assert calibrate(long, tasks).lambda_max == pytest.approx(float(1.5 / unit.mean()), rel=1e-5)
    assert calibrate(long, tasks, lambda_max=40.0).lambda_max == 40.0


def test_calibration_counts_all_pairs():
    calibration, _, _, _, _ = task(5, 5)
    validation = features(5)
    tasks = sample_tasks(validation.labels, n_tasks=40, ways=5, shots=5, query=Balanced(6), seed=0)
    intra, cross = [], []
    for t in range(len(tasks)):
        columns = score_columns(
            validation.vectors[tasks.support[t]],
            tasks.support_labels,
            validation.vectors[tasks.query[t]],
            n_ways=5,
            metrics=METRICS,
            lambda_max=40.0,
            normalise=True,
        )
        for q, truth in enumerate(tasks.query_labels[t]):
            for k in range(5):
                (intra if k == truth else cross).append(columns[q, k].numpy())
    assert len(cross) == 4 * len(intra)
    np.testing.assert_allclose(calibration.intra.mean, np.mean(intra, 0), rtol=1e-5)
    np.testing.assert_allclose(calibration.cross.covariance, np.cov(np.array(cross).T), rtol=1e-4)
    assert calibration.features == (validation.digest,)
    assert calibration.tasks == tasks.digest


def test_calibrations_survive_the_disk(tmp_path):
    calibration = task(6, 1)[0]
    assert Calibration.load(calibration.save(tmp_path / "c.json")) == calibration


def test_other_calibration_files_are_refused_or_can_be_used(tmp_path):
    path = tmp_path / "c.json"
    calibration, support, labels, query, _ = task(6, 1)
    document = json.loads(calibration.save(path).read_text())
    refused = 0
    for place, content in variants(document):
        path.write_bytes(content)
        try:
            loaded = Calibration.load(path)
        except InputError:
            refused += 1
            continue
        try:
            scores = combined(support, labels, query, n_ways=5, calibration=loaded)
        except InputError:
            continue  # made for other tasks
        assert not scores.isnan().any(), place
    assert refused > 200


def test_a_calibration_that_does_not_fit_itself_is_refused():
    calibration = task(6, 1)[0]
    with pytest.raises(InputError, match="expected statistics of 1 metrics"):
        dataclasses.replace(calibration, metrics=("mll",))


def test_too_few_pairs_or_unknown_metrics_are_refused():
    with pytest.raises(InputError, match="at least two right"):
        fit_calibration(torch.rand(1, 2, 1), torch.tensor([0]), metrics=["mll"], shots=1, dims=(3,))
    with pytest.raises(InputError, match="did you mean 'cosine'"):
        fit_calibration(torch.rand(9, 2, 1), torch.zeros(9), metrics=["cosin"], shots=1, dims=(3,))
    with pytest.raises(InputError, match="features that vary"):
        fit_calibration(torch.zeros(9, 2, 1), torch.zeros(9), metrics=["mll"], shots=1, dims=(3,))


def test_independent_columns_of_singular_covariances():
    a, b = np.random.default_rng(0).normal(size=(2, 500))
    assert independent_columns(np.cov([a, b, a + b])) == (0, 1)
    assert independent_columns(np.cov([a, 3 * a - 1, b])) == (0, 2)
    assert independent_columns(np.cov([np.ones(500), a])) == (1,)
    assert independent_columns(np.cov([a, b, a + 0.1 * b])) == (0, 1)
    assert independent_columns(np.cov([a, a + 1e-2 * b])) == (0, 1)
