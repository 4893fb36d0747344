"""The oracles condition on a variable or a common factor; the code integrates over the correlations."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import multivariate_normal

from likelyshot.errors import InputError
from likelyshot.functional.normal_cdf import normal_cdf, normal_log_cdf

INF = math.inf
LOG_TINY = math.log(torch.finfo(torch.float64).tiny)
POSITIVE = [(0.9, 0.6, 0.7), (0.5, 0.3, 0.2), (0.999, 0.999, 0.999), (0.999, 0.5, 0.52), (0.0, 0.9, 0.0)]
ONE_NEGATIVE = [(-0.3, 0.5, 0.2), (0.9, 0.3, -0.1), (0.03, -0.999, 0.0)]
NEGATIVE = [(-0.49, -0.49, -0.49), (-0.999, 0.5, -0.52), (-0.9, -0.6, 0.7), (-0.999, -0.999, 0.999)]
NEARLY_SINGULAR = [
    (0.9, 0.6, 0.54 + 0.8 * math.sqrt(0.19) - 1e-6),
    (0.9, 0.6, 0.54 - 0.8 * math.sqrt(0.19) + 1e-9),
    (-0.4999999, -0.4999999, -0.4999999),
]


def matrix(*upper):
    """The correlation matrix of (), (r12) or (r12, r13, r23)."""
    n = {0: 1, 1: 2, 3: 3}[len(upper)]
    r = torch.eye(n, dtype=torch.float64)
    for (i, j), value in zip(itertools.combinations(range(n), 2), upper, strict=True):
        r[i, j] = r[j, i] = value
    return r


def random_matrix(seed):
    """Every third one is nearly singular."""
    generator = np.random.default_rng(seed)
    root = generator.normal(size=(3, 3))
    if seed % 3 == 0:
        root[2] = root[0] - 0.5 * root[1] + 10.0 ** -generator.integers(1, 5) * root[2]
    root /= np.linalg.norm(root, axis=1, keepdims=True)
    r = root @ root.T
    return matrix(r[0, 1], r[0, 2], r[1, 2])


def bivariate_by_mpmath(h, k, r):
    """F and 1 - F by conditioning on the first variable, at 20 digits."""
    with mpmath.workdps(20):
        h, k, r = mpmath.mpf(h), mpmath.mpf(k), mpmath.mpf(r)
        deviation = mpmath.sqrt(1 - r * r)
        steps = [float(k / r + i * deviation / r) for i in (-8, -3, 0, 3, 8)]
        cuts = sorted({-45.0, float(h), *(x for x in [*steps, *range(-45, 45, 5)] if -45 < x < h)})

        def integrate(sign):
            def joint(x):
                return mpmath.npdf(x) * mpmath.ncdf(sign * (k - r * x) / deviation)

            scale = max(joint(x) for x in cuts)  # mpmath stops at an absolute error
            return scale * mpmath.quad(lambda x: joint(x) / scale, cuts)

        return integrate(1), mpmath.ncdf(-h) + integrate(-1)


def trivariate_by_conditioning(h, r, **tolerance):
    """F by nested adaptive quadrature, over the first variable and then the second."""
    (h1, h2, h3), r12, r13 = h, float(r[0, 1]), float(r[0, 2])
    s2, s3 = math.sqrt(1 - r12**2), math.sqrt(1 - r13**2)
    partial = (float(r[1, 2]) - r12 * r13) / (s2 * s3)
    rest = math.sqrt(1 - partial**2)

    def integrate(function, top, cuts):
        if top <= -14:
            return 0.0
        top = min(top, 9.0)
        cuts = [cut for cut in (*cuts, -9.0, -6.0, -3.0) if -14 < cut < top] or None
        return quad(function, -14, top, points=cuts, limit=400, **tolerance)[0]

    def inner(x):
        a, b = (h2 - r12 * x) / s2, (h3 - r13 * x) / s3
        cuts = [(b + step * rest) / partial for step in (-5, 0, 5)] if partial else []
        return density(x) * integrate(lambda y: density(y) * ndtr((b - partial * y) / rest), a, cuts)

    slope, offset = (
        r12 / s2 - partial * r13 / s3,
        h2 / s2 - partial * h3 / s3,
    )  # where both limits are the same
    cuts = [(offset + step * rest) / slope for step in (-5, 0, 5)] if slope else []
    return integrate(inner, h1, cuts)


def density(x):
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def one_factor(h, loadings):
    """F and 1 - F for r_ij = loading_i loading_j: given the factor the variables are independent."""
    deviations = np.sqrt(1 - loadings**2)
    steps = (h + np.outer([-30, -8, -4, -2, -1, 0, 1, 2, 4, 8, 30], deviations)) / loadings
    cuts = np.unique(np.clip(np.concatenate([steps.ravel(), np.linspace(-48, 48, 193)]), -48, 48))
    nodes, weights = np.polynomial.legendre.leggauss(30)
    x = (cuts[:-1, None] + np.diff(cuts)[:, None] * (nodes + 1) / 2).ravel()
    mass = (np.diff(cuts)[:, None] * weights / 2).ravel() * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    u = (h - loadings * x[:, None]) / deviations
    p, q = ndtr(u), ndtr(-u)
    return mass @ p.prod(1), mass @ (q[:, 0] + p[:, 0] * q[:, 1] + p[:, 0] * p[:, 1] * q[:, 2])


def points(seed, n, dimensions=3, scale=2.0):
    return torch.randn(n, dimensions, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * scale


@pytest.mark.parametrize("r", [-0.999, 0.3, 0.93])
def test_two_dimensions_to_relative_accuracy_in_both_tails(r):
    z = [(0.3, -0.2), (-9.0, -8.5), (-3.0, 3.1), (8.0, 9.0)]
    log_f, log_s = normal_log_cdf(torch.tensor(z, dtype=torch.float64), matrix(r))
    for i, point in enumerate(z):
        lower, upper = bivariate_by_mpmath(*point, r)
        assert float(upper) == pytest.approx(log_s[i].exp().item(), rel=1e-11, abs=0)
        if lower < 1e-300:
            assert log_f[i] < -690
        else:
            assert log_f[i].item() == pytest.approx(float(mpmath.log(lower)), abs=1e-6, rel=1e-12)


@pytest.mark.parametrize("r", [*POSITIVE, *ONE_NEGATIVE, *NEGATIVE, *NEARLY_SINGULAR])
def test_three_dimensions_with_difficult_correlations(r):
    z = torch.cat([points(3, 3, scale=1.0), torch.zeros(1, 3), torch.tensor([[0.7, 0.7, 0.7], [0.5, -0.5, 4.0]])])
    expected = [trivariate_by_conditioning(h, matrix(*r), epsabs=1e-11) for h in z.tolist()]
    np.testing.assert_allclose(normal_cdf(z, matrix(*r)), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_three_dimensions_with_random_correlations(seed):
    z, r = points(seed, 2, scale=1.5), random_matrix(seed)
    expected = [trivariate_by_conditioning(h, r, epsabs=1e-11) for h in z.tolist()]
    np.testing.assert_allclose(normal_cdf(z, r), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    "loadings", [(0.9, 0.8, 0.7), (0.3, 0.2, 0.1), (0.9995, 0.9995, 0.9995), (0.9997, 0.9993, 0.5)]
)
def test_relative_accuracy_in_both_tails_of_three_dimensions(loadings):
    loadings = np.array(loadings)
    r = np.outer(loadings, loadings)
    r = matrix(r[0, 1], r[0, 2], r[1, 2])
    spread = np.random.default_rng(0).uniform(0.3, 1, (8, 3))
    for depth, tolerance in ((3, 1e-11), (10, 1e-9), (20, 1e-5), (30, 5e-3)):
        below, above = torch.tensor(-depth * spread), torch.tensor(depth * spread)
        below[0], above[0], below[1] = -depth, depth, torch.tensor([-depth, 0.5, 2.0])
        lower = np.array([one_factor(h, loadings)[0] for h in below.numpy()])
        upper = np.array([one_factor(h, loadings)[1] for h in above.numpy()])
        representable = lower > 1e-290
        assert representable.sum() > 3
        log_f = normal_log_cdf(below, r)[0][representable]
        np.testing.assert_allclose(log_f, np.log(lower[representable]), rtol=0, atol=tolerance)
        np.testing.assert_allclose(normal_log_cdf(above, r)[1], np.log(upper), rtol=0, atol=1e-11)


@pytest.mark.parametrize("loadings", [(0.9995, -0.9995, 0.9), (-0.9995, -0.9995, 0.3), (0.999999, 0.999999, -0.9)])
def test_absolute_accuracy_and_upper_tail_with_negative_correlations(loadings):
    loadings = np.array(loadings)
    r = np.outer(loadings, loadings)
    z = torch.cat([points(5, 20), points(6, 20, scale=6.0), points(7, 20, 1) + points(8, 20, scale=0.05)])
    log_f, log_s = normal_log_cdf(z, matrix(r[0, 1], r[0, 2], r[1, 2]))
    expected = np.array([one_factor(h, loadings) for h in z.numpy()])
    np.testing.assert_allclose(log_f.exp(), expected[:, 0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(log_s.exp(), expected[:, 1], rtol=1e-10)


@pytest.mark.parametrize("r", [(0.9, 0.3, -0.1), (-0.6, 0.7, 0.05)])
def test_relative_accuracy_with_one_negative_correlation(r):
    h = (-4.0, -4.5, -5.0)
    expected = trivariate_by_conditioning(h, matrix(*r), epsabs=0.0, epsrel=1e-10)
    assert expected < 1e-10
    assert normal_cdf(torch.tensor(h), matrix(*r)).item() == pytest.approx(expected, rel=1e-7, abs=0)


def test_agrees_with_scipy():
    z, r = points(0, 4), matrix(0.9, 0.6, 0.7)
    other = multivariate_normal.cdf(z.numpy(), cov=r.numpy(), abseps=1e-7, releps=1e-7, maxpts=200_000)
    np.testing.assert_allclose(normal_cdf(z, r), other, rtol=0, atol=2e-6)


@pytest.mark.parametrize("r", [*POSITIVE, *ONE_NEGATIVE, *NEGATIVE, *NEARLY_SINGULAR])
def test_closed_form_at_the_origin(r):
    in_three = 1 / 8 + sum(math.asin(x) for x in r) / (4 * math.pi)
    assert normal_cdf(torch.zeros(3), matrix(*r)).item() == pytest.approx(in_three, abs=1e-12)
    in_two = 1 / 4 + math.asin(r[0]) / (2 * math.pi)
    assert normal_cdf(torch.zeros(2), matrix(r[0])).item() == pytest.approx(in_two, abs=1e-13)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_independence_is_the_product(n):
    z = points(1, 50, n, scale=4.0)
    log_f, log_s = normal_log_cdf(z, torch.eye(n))
    torch.testing.assert_close(log_f, torch.special.log_ndtr(z).sum(-1), rtol=1e-12, atol=0)
    torch.testing.assert_close(log_s.exp(), 1 - log_f.exp(), rtol=0, atol=1e-15)


@pytest.mark.parametrize("r", [*POSITIVE, *ONE_NEGATIVE, *NEGATIVE, *NEARLY_SINGULAR])
def test_the_order_of_the_variables_does_not_matter(r):
    z, r = points(2, 100), matrix(*r)
    for order in itertools.permutations(range(3)):
        permuted = normal_cdf(z[:, order], r[order, :][:, order])
        torch.testing.assert_close(permuted, normal_cdf(z, r), rtol=0, atol=1e-12)


@settings(deadline=None, max_examples=100)
@given(
    r=st.sampled_from([*POSITIVE, *ONE_NEGATIVE[:2]]),
    z=st.lists(st.floats(-25, 25), min_size=3, max_size=3),
    axis=st.integers(0, 2),
    step=st.floats(0, 10),
)
def test_monotone_in_each_coordinate(r, z, axis, step):
    further = list(z)
    further[axis] += step
    log_f, log_s = normal_log_cdf(torch.tensor([z, further], dtype=torch.float64), matrix(*r))
    assert log_f[1] >= log_f[0] - 3e-3  # the relative error, deep in the tail
    assert log_s[1] <= log_s[0] + 1e-11


@pytest.mark.parametrize("r", [*POSITIVE, *ONE_NEGATIVE, *NEGATIVE, *NEARLY_SINGULAR])
def test_without_a_limit_a_variable_drops_out(r):
    r = matrix(*r)
    for dropped in range(3):
        kept = [i for i in range(3) if i != dropped]
        z = points(4, 60)
        z[:, dropped] = INF
        torch.testing.assert_close(normal_cdf(z, r), normal_cdf(z[:, kept], r[kept][:, kept]), rtol=0, atol=1e-13)
        z[:, kept[0]] = INF
        one = [kept[1]]
        torch.testing.assert_close(normal_cdf(z, r), normal_cdf(z[:, one], torch.eye(1)), rtol=0, atol=1e-13)


def test_probabilities_next_to_one_and_to_zero_stay_apart():
    z = torch.tensor([[9.0, 9.5, 10.0], [11.0, 11.5, 12.0], [-11.0, 0.0, 0.0]])
    log_f, log_s = normal_log_cdf(z, matrix(0.9, 0.6, 0.7))
    assert -1e-18 < log_f[0] < log_f[1] < -1e-29
    assert -1e-20 < log_s[2] < -1e-30
    torch.testing.assert_close(log_f[:2], -log_s[:2].exp())


@pytest.mark.parametrize("n", [1, 2, 3])
def test_batch_equals_loop(n):
    r = matrix(*[(), (0.8,), (0.9, 0.6, 0.7)][n - 1])
    z = points(9, 3000, n, scale=3.0)
    together = torch.stack(normal_log_cdf(z.reshape(2, 1500, n), r))
    for i in range(0, 3000, 97):
        alone = torch.stack(normal_log_cdf(z[i], r))
        torch.testing.assert_close(together.reshape(2, 3000)[:, i], alone, rtol=1e-13, atol=1e-15)
    assert together.shape == (2, 2, 1500)
    assert normal_log_cdf(z[0], r)[0].shape == ()
    assert normal_cdf(z[:0].reshape(4, 0, n), r).shape == (4, 0)


def test_inputs_are_left_alone_and_the_result_is_float64_without_gradient():
    z = (points(1, 5) * 30).float().requires_grad_()
    r = matrix(0.9, 0.6, 0.7).float()
    z_before, r_before = z.detach().clone(), r.clone()
    log_f, log_s = normal_log_cdf(z, r)
    assert torch.equal(z, z_before)
    assert torch.equal(r, r_before)
    assert log_f.dtype == log_s.dtype == normal_cdf(z, r).dtype == torch.float64
    assert not log_f.requires_grad
    assert normal_cdf(torch.zeros(2, dtype=torch.int64), torch.eye(2)).item() == 0.25


@pytest.mark.parametrize("r", [(), (0.5,), (-0.999,), *POSITIVE, *ONE_NEGATIVE, *NEGATIVE, *NEARLY_SINGULAR])
def test_huge_and_infinite_points_give_no_nan(r):
    r = matrix(*r)
    values = [-INF, -1e300, -1e150, -50.0, -38.0, -1.0, 0.0, 2.0, 38.0, 50.0, 1e300, INF]
    z = torch.tensor(list(itertools.product(values, repeat=len(r))), dtype=torch.float64)
    log_f, log_s = normal_log_cdf(z, r)
    assert not torch.stack([log_f, log_s, normal_cdf(z, r)]).isnan().any()
    assert log_f.max() <= 0
    assert log_s.max() <= 0
    assert torch.equal(log_f.isinf(), (z == -INF).any(-1))
    assert normal_cdf(z, r)[(z == -INF).any(-1)].count_nonzero() == 0
    assert torch.equal(log_s.isinf(), (z == INF).all(-1))


def test_the_order_goes_on_below_underflow():
    z = torch.tensor([-20.0, -37.0, -39.0, -50.0, -1e3, -1e10, -1e100, -1e150], dtype=torch.float64)
    z = z[:, None].expand(-1, 3)
    r = matrix(0.9, 0.6, 0.7)
    log_f, log_s = normal_log_cdf(z, r)[0], normal_log_cdf(-z, r)[1]
    for logs in (log_f, log_s):
        assert (logs.diff() < 0).all()
        torch.testing.assert_close(logs[2:], LOG_TINY + torch.special.log_ndtr(z[2:, 0]))
    assert log_s[1] > LOG_TINY


def test_singular_matrices_to_the_documented_accuracy():
    z = torch.cat([points(3, 300), points(4, 50, 1).expand(-1, 3), torch.zeros(1, 3)])
    phi = torch.special.ndtr(z)
    close = {"rtol": 0, "atol": 1e-7}
    torch.testing.assert_close(normal_cdf(z[:, :2], matrix(1.0)), phi[:, :2].amin(-1), **close)
    torch.testing.assert_close(normal_cdf(z[:, :2], matrix(-1.0)), (phi[:, :2].sum(-1) - 1).clamp(min=0), **close)
    torch.testing.assert_close(normal_cdf(z, matrix(1.0, 1.0, 1.0)), phi.amin(-1), **close)
    joined = torch.stack([z[:, :2].amin(-1), z[:, 2]], -1)
    torch.testing.assert_close(normal_cdf(z, matrix(1.0, 0.5, 0.5)), normal_cdf(joined, matrix(0.5)), **close)
    opposite = normal_cdf(z[:, [0, 2]], matrix(0.5)) - normal_cdf(torch.stack([-z[:, 1], z[:, 2]], -1), matrix(0.5))
    torch.testing.assert_close(normal_cdf(z, matrix(-1.0, 0.5, -0.5)), opposite.clamp(min=0), **close)
    rank_two, nearly = (normal_cdf(z, matrix(*[r] * 3)) for r in (-0.5, -0.5 + 1e-15))
    torch.testing.assert_close(rank_two, nearly, **close)


@pytest.mark.parametrize(
    ("z", "correlation", "message"),
    [
        (torch.zeros(2, 4), torch.eye(4), r"n = 1, 2 or 3, got shape \(2, 4\)"),
        (torch.tensor(0.0), torch.eye(1), r"got shape \(\)"),
        (torch.zeros(2, 0), torch.eye(0), r"got shape \(2, 0\)"),
        (torch.zeros(2, 3), torch.eye(2), r"expected a \(3, 3\) correlation matrix .* got shape \(2, 2\)"),
        (torch.zeros(2), torch.tensor([[1.0, 0.5], [0.4, 1.0]]), "symmetric"),
        (torch.zeros(2), torch.tensor([[2.0, 0.5], [0.5, 1.0]]), "divide the covariance"),
        (torch.zeros(2), torch.tensor([[1.0, 1.1], [1.1, 1.0]]), "semi-definite"),
        (torch.zeros(3), matrix(-0.9, -0.9, -0.9), "semi-definite"),
        (torch.zeros(2), torch.full((2, 2), math.nan), "nan"),
    ],
)
def test_unusable_input_is_named(z, correlation, message):
    with pytest.raises(InputError, match=message):
        normal_log_cdf(z, correlation)
    with pytest.raises(InputError, match=message):
        normal_cdf(z, correlation)
