from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from likelyshot.functional.families import (
    FAMILIES,
    LEAST_SPREAD,
    fit_families,
    gamma_shape,
    histogram,
    holm,
    rate_test,
    weibull_shape,
)

ON_POSITIVE = {
    "half-normal": stats.halfnorm,
    "gamma": stats.gamma,
    "Weibull": stats.weibull_min,
    "log-normal": stats.lognorm,
    "zero-inflated exponential": stats.expon,
}


def draw(kind, seed=0, n=60):
    rng = np.random.default_rng(seed)
    x = {
        "exponential": rng.exponential(0.02, n),
        "half-normal": np.abs(rng.normal(0, 3, n)),
        "peaked gamma": rng.gamma(0.3, 1, n),
        "Weibull": rng.weibull(3, n),
        "log-normal": rng.lognormal(0, 3, n),
        "narrow": 1 + 0.01 * rng.standard_normal(n),
        "uniform": rng.random(n),
        "half zeros": rng.exponential(1, n) * (rng.random(n) < 0.5),
        "many zeros": rng.gamma(2, 1, n) * (rng.random(n) < 0.2),
    }
    return x[kind]


KINDS = [
    "exponential",
    "half-normal",
    "peaked gamma",
    "Weibull",
    "log-normal",
    "narrow",
    "uniform",
    "half zeros",
    "many zeros",
]


def fitted(x):
    fits = fit_families(torch.tensor(np.asarray(x, dtype=float)))
    assert fits.log_likelihood.isfinite().all()
    assert ((fits.ks >= 0) & (fits.ks <= 1)).all()
    return tuple(dict(zip(FAMILIES, values.tolist(), strict=True)) for values in fits)


def mass(x):
    """Log-likelihood per image of being zero or not."""
    zero = np.mean(x == 0)
    return sum(p * math.log(p) for p in (zero, 1 - zero) if p > 0)


def weibull(positive):
    """The distribution by the shape that solves the likelihood equation; SciPy's own fit is good to 1e-4 only."""
    logs = torch.tensor(np.log(positive / positive.max()))
    c = weibull_shape(logs, torch.ones_like(logs, dtype=torch.bool)).item()
    return stats.weibull_min(c, scale=np.mean(positive**c) ** (1 / c))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ON_POSITIVE)
def test_likelihood_and_distance_are_those_of_scipy(kind, name):
    x = draw(kind)
    positive, share = x[x > 0], np.mean(x > 0)
    family = ON_POSITIVE[name]
    theirs = family(*family.fit(positive, floc=0))
    log_likelihood, ks = fitted(x)
    expected = mass(x) + share * theirs.logpdf(positive).mean()
    assert log_likelihood[name] == pytest.approx(expected, abs=1e-7)
    assert log_likelihood[name] >= expected - 1e-10
    exact = weibull(positive) if name == "Weibull" else theirs
    assert exact.logpdf(positive).mean() * share + mass(x) == pytest.approx(log_likelihood[name], abs=1e-9)
    assert ks[name] == pytest.approx(share * stats.kstest(positive, exact.cdf).statistic, abs=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_the_exponential_has_the_rate_of_equation_2_and_no_point_mass_in_its_distance(kind):
    x = draw(kind)
    log_likelihood, ks = fitted(x)
    theirs = stats.expon(scale=x.mean())  # zeros included
    assert log_likelihood["exponential"] == pytest.approx(mass(x) + theirs.logpdf(x[x > 0]).sum() / len(x))
    assert ks["exponential"] == pytest.approx(stats.kstest(x, theirs.cdf).statistic, abs=1e-12)
    assert ks["exponential"] >= np.mean(x == 0)


def test_without_zeros_the_two_exponentials_are_the_same_and_with_them_the_inflated_one_is_likelier():
    log_likelihood, ks = fitted(draw("Weibull"))
    for values in (log_likelihood, ks):
        assert values["exponential"] == values["zero-inflated exponential"]
    log_likelihood, _ = fitted(draw("half zeros"))
    assert log_likelihood["exponential"] < log_likelihood["zero-inflated exponential"]


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 999), exponent=st.integers(-290, 290), kind=st.sampled_from(KINDS))
def test_the_unit_of_measurement_does_not_matter(seed, exponent, kind):
    x = draw(kind, seed)
    here, there = fitted(x), fitted(x * 10.0**exponent)
    shift = np.mean(x > 0) * exponent * math.log(10)
    for name in FAMILIES:
        assert there[0][name] + shift == pytest.approx(here[0][name], rel=1e-9, abs=1e-6)
        assert there[1][name] == pytest.approx(here[1][name], abs=1e-6)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.one_of(st.just(0.0), st.floats(0, 1e300)), min_size=1, max_size=12))
def test_all_is_finite_and_nested_families_are_ordered(values):
    log_likelihood, _ = fitted(values)
    inflated = log_likelihood["zero-inflated exponential"]
    slack = 1e-6 * (1 + abs(inflated))
    assert log_likelihood["exponential"] <= inflated + slack
    assert log_likelihood["gamma"] >= inflated - slack
    assert log_likelihood["Weibull"] >= inflated - slack


def test_only_zeros():
    log_likelihood, ks = fitted([0.0] * 5)
    assert set(log_likelihood.values()) == {0.0}
    assert ks["exponential"] == 1
    assert {ks[name] for name in ON_POSITIVE} == {0.0}


@pytest.mark.parametrize("values", [[0.0, 0.0, 2.0], [3.0] * 6, [5e-324, 5e-324], [1.7e308] * 3])
def test_equal_values_are_fitted_with_the_least_spread(values):
    x = np.array(values)
    share, level = np.mean(x > 0), x.max()
    log_likelihood, ks = fitted(x)
    narrowest = stats.norm(0, LEAST_SPREAD).logpdf(0) - math.log(level)
    assert log_likelihood["log-normal"] == pytest.approx(mass(x) + share * narrowest)
    assert log_likelihood["gamma"] == pytest.approx(log_likelihood["log-normal"], abs=1e-6)
    assert log_likelihood["Weibull"] == pytest.approx(log_likelihood["gamma"], abs=0.2)
    assert ks["log-normal"] == pytest.approx(share / 2)


def test_every_feature_is_fitted_by_itself():
    x = torch.tensor(np.stack([draw(kind) for kind in KINDS] + [np.zeros(60)])).reshape(2, 5, 60)
    before = x.clone()
    together = fit_families(x)
    assert torch.equal(x, before)
    assert together.ks.shape == (6, 2, 5)
    for i in range(2):
        for j in range(5):
            for all_of_them, alone in zip(together, fit_families(x[i, j]), strict=True):
                torch.testing.assert_close(all_of_them[:, i, j], alone, rtol=1e-9, atol=1e-9)


def test_the_gamma_shape_solves_its_equation_down_to_the_least_spread():
    gap = torch.logspace(-5.5, 3, 1000, dtype=torch.float64)
    k = gamma_shape(gap)
    torch.testing.assert_close(k.log() - torch.digamma(k), gap, rtol=1e-7, atol=0)
    assert gamma_shape(torch.zeros(1, dtype=torch.float64)).item() == pytest.approx(LEAST_SPREAD**-2, rel=1e-6)


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 9999), exponent=st.floats(-2, 2.5), apart=st.booleans())
def test_the_weibull_shape_solves_its_equation(seed, exponent, apart):
    rng = np.random.default_rng(seed)
    y = rng.standard_normal(40) if apart else np.where(np.arange(40) < rng.integers(1, 40), 0.0, -1.0)
    logs = torch.tensor((y - y.max()) * 10**exponent)
    c = weibull_shape(logs, torch.ones(40, dtype=torch.bool))
    weights = torch.softmax(c * logs, -1)
    if c.item() < math.pi / math.sqrt(6) / LEAST_SPREAD:
        assert (c * ((weights * logs).sum() - logs.mean())).item() == pytest.approx(1, abs=1e-9)


def test_histogram_against_numpy():
    x = np.random.default_rng(0).exponential(1, (3, 200))
    width = x.max(1) / 25
    counts = histogram(torch.tensor(x), torch.tensor(width), 25)
    for i in range(3):
        expected = np.histogram(x[i], bins=25, range=(0, x[i].max()))[0]
        assert counts[i].tolist() == expected.tolist()
        density = counts[i] / (200 * width[i])  # eq. (1)
        assert (density * width[i]).sum().item() == pytest.approx(1)


def moments(groups):
    counts = torch.tensor([len(group) for group in groups])
    means = torch.tensor(np.stack([group.mean(0) for group in groups]))
    return counts, means, torch.tensor(np.stack([group.var(0) for group in groups]))


def test_the_rate_test_is_the_share_of_variance_between_classes():
    rng = np.random.default_rng(0)
    groups = [rng.exponential(scale, (n, 4)) for scale, n in ((1, 20), (1.5, 30), (1.1, 9))]
    statistic, p = rate_test(*moments(groups))
    f = stats.f_oneway(*groups).statistic
    between = 2 * f / (2 * f + 59 - 3)
    np.testing.assert_allclose(statistic, 58 * between)
    np.testing.assert_allclose(p, stats.chi2.sf(58 * between, 2))


@pytest.mark.parametrize("zeros", [0.0, 0.5, 0.95])
def test_classes_alike_are_found_different_no_more_often_than_said(zeros):
    rng = np.random.default_rng(1)
    groups = [rng.exponential(1, (60, 2000)) * (rng.random((60, 2000)) >= zeros) for _ in range(20)]
    p = rate_test(*moments(groups))[1].numpy()
    assert np.mean(p < 0.05) == pytest.approx(0.05, abs=0.02)
    assert np.mean(p < 0.01) == pytest.approx(0.01, abs=0.01)


def test_a_feature_that_does_not_vary_is_no_difference():
    statistic, p = rate_test(torch.tensor([3, 4]), torch.tensor([[0.0], [0.0]]), torch.zeros(2, 1))
    assert (statistic.item(), p.item()) == (0, 1)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_rejects_step_by_step(values):
    p = np.array(values)
    adjusted = holm(torch.tensor(p))
    for level in (0.01, 0.05, 0.2):
        rejected = set()
        for step, i in enumerate(np.argsort(p, kind="stable")):
            if p[i] * (len(p) - step) > level:
                break
            rejected.add(i)
        assert {i for i, value in enumerate(adjusted.tolist()) if value <= level} == rejected
