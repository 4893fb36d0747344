"""The likelihood mixture: an exponential and a Gaussian likelihood for every class, fitted to support and queries."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from likelyshot import machine
from likelyshot.functional.checks import check_count, check_non_negative, check_shape, prepare
from likelyshot.functional.gram import (
    class_shares,
    discounted_directions,
    discounted_products,
    join,
    nearest_neighbours,
    scatter_within,
    softly_discounted_products,
    squared_distances_to_means,
)
from likelyshot.functional.held_out_weights import (
    LEAST_DISTANCE,
    LEAST_MEAN,
    Labelled,
    Weights,
    centre,
    ratio,
    spread,
    weigh,
)
from likelyshot.functional.scores import l2_normalise
from likelyshot.functional.sinkhorn import sinkhorn

#: Samples above which there are no neighbours: their graph is quadratic.
LARGEST_GRAPH = 6000
#: Voters among which a maximum is found first.
GROUP = 32
#: Guard, of unit vectors: what is there by rounding only, in units of the machine's epsilon.
ROUNDING = 100


class Constants(NamedTuple):
    """The numbers of the method, the same for all data; chosen on validation classes (`tools/ahead.py`)."""

    directions: float = 40.0  # independent ones in which samples of a class differ
    power: float = 0.5  # of the features, for the Gaussian and the neighbours
    prior_examples: float = 1.0  # that every class has before any is seen: the average class, the centre
    # None leaves these to held-out examples: weights of the exponential likelihood and of the logistic regression, the
    # squared length by which unit vectors vary in a direction before examples are seen, and what answers are worth.
    exponential: float | None = None
    regression: float | None = None
    prior_scatter: float | None = None
    skill: float | None = None
    query_directions: float = 40.0  # in which unit vectors vary, at one shot, before queries show their scatter
    base_scatter: float = 100.0  # weight of the covariance of base classes, whose trace is scaled to 1
    prior_queries: float = 2.0  # that every class has before any is seen
    neighbours: int = 4
    agreement: float = 2.0  # how much the neighbours' mean responsibility counts
    trusted_shots: float = 10.0  # beyond the first, at which the support alone counts as much as with the queries
    background: float = 1.0  # squared distance of every sample to the centre of all: further from a class is of none


@torch.no_grad()
def likelihood_mixture(
    support: Tensor,
    labels: Tensor,
    query: Tensor,
    *,
    n_ways: int,
    base_within: Tensor | None = None,
    marginals: str | Tensor = "estimated",
    iterations: int = 7,
    normalise: bool = True,
) -> Tensor:
    """Score by the log-posterior of a mixture whose classes have an exponential and a Gaussian likelihood.

    Paper: this library, after Hess & Ditzler, A maximum log-likelihood method for imbalanced few-shot learning tasks.
    Responsibilities r: of the support its labels, fixed; of the queries at first none. x are unit vectors; y are unit
    vectors of sqrt(x), minus the mean of all samples, unit again. In every round, with N_k the sum of class k's r:
    e_qk = sum_i log lambda_ki - lambda_k . x_q, the paper's exponential likelihood, 1 / lambda_k = (sum r x + m) /
    (N_k + 1) with m the mean of the support's class means, and at least the mean of all features that occur;
    g_qk = -D/2 d_qk / w, a Gaussian of D = 40 n / (n + 1) directions with n shots: d the squared distance of y to
    sum r y / (N_k + 1), in the metric of `discounted_directions`, and w its r-weighted mean over the queries (in
    round 0, the mean of the nearest);
    l = (1 - a) g + a e, with e scaled to the spread of g over the classes; then (1 - t) l + t l_0, where l_0 is what
    the support alone says, scaled to the spread of l, and t = (n - 1) / (n + 9);
    l_0 = (1 - b) l + b h in round 0, h the logits of `kernel_logistic` on y, scaled to the spread of l.
    Held-out labelled examples choose a, b and the prior scatter of the metric, as `weigh` has it; with one shot a is
    1/2 and b is 0.
    r = softmax_k(l + log share_k + 2 A), A the mean r of the 4 nearest samples by sqrt(x), share_k proportional to
    2 + (1 - u) c_k + u c, c_k the sum of the queries' r, c its share of each class if all that have examples have the
    same. Share and A begin after round 0. In sums a query counts sigmoid(D/2 (1 - min_k d_qk) / w): one nearer to the
    mean of all samples than to any class moves none.
    The skill s of held-out examples, 1 with one shot, says what the answers for queries are worth: u = (1 - s)^2, and
    in the sums that classes are fitted to, a query counts sqrt(s) of that.
    With one example per class, shares begin after round 1, and from the middle round on the metric is
    (40 S / N + I)^-1, S = `scatter_within` of the r that count in sums then, N their sum.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d), base_within (d, d), marginals (..., k),
    non-negative -> (..., q, k).

    Args:
        base_within: Covariance S within base classes (d, d), `likelyshot.Base.of(features).within`, if it is known.
            The vectors sqrt(x) then become (I + 100 S / trace S)^-1/2 sqrt(x), unit again.
        marginals: Class shares of the queries: "estimated" as above, or "uniform" or a number per class, which r then
            has exactly, by Sinkhorn.
        iterations: Number of rounds after the first. With 0, no query depends on another: all statistics are those of
            the support, and known shares are a prior.
        normalise: Scale every vector to unit length first.

    >>> support, query = torch.tensor([[9.0, 1.0], [1.0, 9.0]]), torch.tensor([[7.0, 2.0], [2.0, 8.0], [8.0, 1.0]])
    >>> likelihood_mixture(support, torch.tensor([0, 1]), query, n_ways=2).argmax(-1)
    tensor([0, 1, 0])
    """
    check_count("iterations", iterations, "7 are enough, 0 are for single queries")
    check_non_negative("likelihood_mixture", support, query)
    fit = fit_mixture(
        support,
        labels,
        query,
        n_ways=n_ways,
        base_within=base_within,
        marginals=marginals,
        iterations=iterations,
        normalise=normalise,
    )
    return fit.scores(query)


class Views(NamedTuple):
    """Samples as the likelihoods see them."""

    x: Tensor  # (..., n, d) unit vectors
    root: Tensor  # (..., n, d) unit vectors of sqrt(x), as the neighbours see them
    y: Tensor  # (..., n, d) the same around the centre, unit again; in the coordinates of the metric at one shot
    shadow: Tensor  # (..., n, m) what the metric takes off: <a, b> = a.y . b.y - a.shadow . b.shadow
    square: Tensor  # (..., n, 1) <y, y>

    def part(self, rows: slice) -> Views:
        """Give some of the samples."""
        return Views(*(values[..., rows, :] for values in self))


class Space(NamedTuple):
    """How samples are seen: the power, the scaling by base classes, the centre and the discounted directions."""

    power: float
    factor: Tensor | None  # (d, d), F F' = (I + c S)^-1
    centre: Tensor  # (..., 1, d)
    directions: Tensor  # (..., m, d), of labelled samples
    whitening: Tensor | None = None  # (..., d, d), F F' = (S / prior + I)^-1, which takes their place at one shot

    @staticmethod
    def at_start(samples: Tensor, base_within: Tensor | None, constants: Constants) -> Space:
        """Give the space before any sample has been seen."""
        dim, factor = samples.shape[-1], None
        if base_within is not None:
            check_shape("base_within", base_within, (dim, dim), "use that of the same features")
            factor = _base_factor(base_within, base_within._version, constants.base_scatter).to(samples)
        return Space(constants.power, factor, samples.new_zeros(1, dim), samples.new_zeros(0, dim))

    def roots(self, x: Tensor) -> Tensor:
        """Take the power of unit vectors, scale them by the base classes, and give them unit length."""
        roots = x.sqrt() if self.power == 0.5 else x.pow(self.power)
        if self.factor is not None:
            roots = roots @ self.factor
        return l2_normalise(roots)

    def around_centre(self, root: Tensor) -> Tensor:
        """Take the centre off, and give unit length again; what is left by rounding only becomes zero."""
        y = root - self.centre
        squares = y.square().sum(-1, keepdim=True)
        return y * torch.where(squares > ROUNDING * torch.finfo(y.dtype).eps, squares, torch.inf).rsqrt()

    def views(self, x: Tensor) -> Views:
        """See unit vectors (..., n, d)."""
        root = self.roots(x)
        return self.seen(x, root, self.around_centre(root))

    def seen(self, x: Tensor, root: Tensor, y: Tensor) -> Views:
        """Add what the metric takes off, or give coordinates in which it is plain."""
        if self.whitening is not None:
            y = y @ self.whitening
            return Views(x, root, y, y[..., :0], y.square().sum(-1, keepdim=True))
        shadow = y @ self.directions.mT
        unit = (y != 0).any(-1, keepdim=True).to(y.dtype)
        return Views(x, root, y, shadow, unit - shadow.square().sum(-1, keepdim=True))


class Classes(NamedTuple):
    """The parameters of the classes, and how their likelihoods are joined."""

    rates: Tensor  # (..., k, d) of the exponential
    centres: Tensor  # (..., k, d) of the Gaussian
    shadows: Tensor  # (..., k, m) of the centres
    width: Tensor  # (..., 1, 1) w
    scale: Tensor  # (..., 1, 1) of the exponential likelihood, to the spread of the Gaussian

    def exponential(self, views: Views) -> Tensor:
        """Compute e, centred over the classes: (..., k, n)."""
        return centre(self.rates.log().sum(-1, keepdim=True) - self.rates @ views.x.mT)

    def distances(self, views: Views) -> Tensor:
        """Compute d: (..., k, n)."""
        return self.distances_to(self.centres, self.shadows, views)

    @staticmethod
    def distances_to(centres: Tensor, shadows: Tensor, views: Views) -> Tensor:
        """Compute d of samples to centres: (..., k, n)."""
        products = centres @ views.y.mT - shadows @ views.shadow.mT
        norms = centres.square().sum(-1) - shadows.square().sum(-1)
        return (norms.unsqueeze(-1) + views.square.mT).sub_(products, alpha=2).clamp_min_(0)

    def joined(self, e: Tensor, d: Tensor, directions: Tensor, exponential: Tensor) -> Tensor:
        """Join the likelihoods of every class: l, (..., k, n)."""
        return torch.lerp(centre(-directions / 2 * d / self.width), e * self.scale, exponential)


class Mixture(NamedTuple):
    """A fitted mixture, which scores any further query."""

    space: Space
    first: Classes  # from the support alone
    last: Classes  # from support and queries
    directions: Tensor  # (..., 1, 1) D
    exponential: Tensor  # (..., 1, 1) a
    trust: Tensor  # (..., 1, 1) what l_0 counts: t, and its scale to the spread of l
    echo: Tensor
    log_shares: Tensor  # (..., k, 1)
    regression: Tensor  # (..., k, d) of y, scaled to the spread of the other likelihoods
    regression_weight: Tensor  # (..., 1, 1) b, how much it counts in l_0
    voters: Tensor | None  # (..., n, d) roots of the samples
    votes: Tensor  # (..., k, n) their responsibilities
    normalise: bool
    constants: Constants

    def scores(self, query: Tensor) -> Tensor:
        """Score queries one by one, as the last round does: (..., q, d) -> (..., q, k), log-probabilities."""
        query = query.to(self.votes.dtype)
        views = self.space.views(l2_normalise(query) if self.normalise else query)
        weight = self.exponential
        start = self.first.joined(self.first.exponential(views), self.first.distances(views), self.directions, weight)
        z = start = torch.lerp(start, centre(self.regression @ views.y.mT), self.regression_weight)
        if self.last is not self.first:
            z = self.last.joined(self.last.exponential(views), self.last.distances(views), self.directions, weight)
            z = torch.lerp(z, start * self.echo, self.trust)
        if self.voters is not None:
            nearest = most_similar(self.voters, views.root, min(self.constants.neighbours, self.voters.shape[-2]))
            votes = self.votes[..., nearest].mean(-1)  # (k, q)
            z = z + self.constants.agreement * votes
        return (z + self.log_shares).log_softmax(-2).mT


def most_similar(voters: Tensor, roots: Tensor, count: int) -> Tensor:
    """Find the `count` voters with the largest inner products for each row, largest first.

    The product of all voters and rows is nearly all that `Mixture.scores` costs. It is a third quicker this way round,
    and the largest are looked for among the groups of voters with the largest maxima, which hold them all.
    Shapes: voters (n, d), roots (q, d) -> (q, count).

    >>> most_similar(torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]), torch.tensor([[0.1, 0.9]]), 2)
    tensor([[2, 1]])
    """
    if voters.ndim != 2 or roots.ndim != 2 or len(voters) < 2 * count * GROUP:
        return (roots @ voters.mT).topk(count).indices
    groups = -(-len(voters) // GROUP)
    products = roots.new_empty(groups * GROUP, len(roots))
    products[len(voters) :] = -torch.inf
    torch.mm(voters, roots.mT, out=products[: len(voters)])
    tops = products.view(groups, GROUP, -1).amax(1).mT.contiguous().topk(count).indices  # (q, count)
    places = (tops.unsqueeze(-1) * GROUP + torch.arange(GROUP, device=tops.device)).flatten(1)
    return places.gather(1, products.mT.gather(1, places).topk(count).indices)


class Statistics(NamedTuple):
    """What a round finds: the parameters of the classes, with the centres of the Gaussian as weights of the samples."""

    rates: Tensor  # (..., k, d)
    members: Tensor  # (..., k, n): centre_k = sum_n members_kn y_n
    width: Tensor  # (..., 1, 1)
    scale: Tensor  # (..., 1, 1)

    def classes(self, views: Views) -> Classes:
        """Give the centres as vectors."""
        return Classes(self.rates, self.members @ views.y, self.members @ views.shadow, self.width, self.scale)


class Fit(NamedTuple):
    """What the rounds end with."""

    z: Tensor  # (..., k, q) log-posterior of the queries
    samples: Tensor  # (..., n, d) unit vectors, the labelled ones first
    known: Tensor  # (..., k, s) their classes
    within: Tensor | None  # (..., k, n) responsibilities that the metric is from, at one shot
    base_within: Tensor | None
    first: Statistics
    last: Statistics
    directions: Tensor
    weights: Weights
    regression: Tensor  # (..., k, s) coefficients of the labelled samples, scaled
    trust: Tensor
    echo: Tensor
    log_shares: Tensor
    voters: Tensor | None  # (..., k, n) responsibilities that the last round took the neighbours' votes from
    r: Tensor  # (..., k, n) those after it
    normalise: bool
    constants: Constants

    def scores(self, query: Tensor) -> Tensor:
        """Give the scores of the queries that it was fitted to (..., q, k), without what would score others."""
        return self.mixture().scores(query) if self.last is self.first else self.z.mT

    def mixture(self) -> Mixture:
        """Give what scores further queries."""
        space, views = _see(
            self.samples, self.known, self.base_within, self.constants, self.weights.scatter, self.within
        )
        first = self.first.classes(views)
        return Mixture(
            space,
            first,
            first if self.last is self.first else self.last.classes(views),
            self.directions,
            self.weights.exponential,
            self.trust,
            self.echo,
            self.log_shares,
            self.regression @ views.y[..., : self.known.shape[-1], :],
            self.weights.regression,
            None if self.voters is None else views.root,
            self.r if self.voters is None else self.voters,
            self.normalise,
            self.constants,
        )


def fit_mixture(
    support: Tensor,
    labels: Tensor,
    query: Tensor,
    *,
    n_ways: int,
    base_within: Tensor | None = None,
    marginals: str | Tensor = "estimated",
    iterations: int = 7,
    normalise: bool = True,
    constants: Constants = Constants(),  # noqa: B008
) -> Fit:
    """Go through the rounds of `likelihood_mixture`."""
    support, query = prepare(support, labels, query, n_ways, normalise)
    shares = class_shares(marginals, n_ways).to(query)
    estimated = isinstance(marginals, str) and marginals == "estimated"
    s, alone = support.shape[-2], iterations == 0
    samples, r = join(support, labels, query[..., :0, :] if alone else query, n_ways)  # (..., n, d), (..., k, n)
    r = r.expand(*np.broadcast_shapes(r.shape[:-2], shares.shape[:-1]), -1, -1)
    queries = samples if alone else samples[..., s:, :]
    known, v = r[..., :s], r[..., s:]  # v: what queries count in sums, (..., k, q)
    examples = known.sum(-1, keepdim=True)  # (..., k, 1)
    present = (examples > 0).sum(-2, keepdim=True).clamp_min(1).to(r)  # classes with support
    even = (examples > 0) / present  # their shares, if these are equal
    shots = s / present
    one_shot, within = present == s, None  # never so where s > n_ways
    directions = constants.directions * shots / (shots + 1)  # D
    trust = (shots - 1) / (shots - 1 + constants.trusted_shots)  # t
    total = samples.sum(-2, keepdim=True)
    active = (total > 0).sum(-1, keepdim=True).clamp_min(1)  # features that occur
    floor = (total.sum(-1, keepdim=True) / (samples.shape[-2] * active)).clamp_min(LEAST_MEAN)
    labelled = known @ samples[..., :s, :]
    common = (labelled / examples.clamp_min(1)).sum(-2, keepdim=True) / present
    labelled, examples = labelled + constants.prior_examples * common, examples + constants.prior_examples
    example = Labelled(samples[..., :s, :], known, labelled, examples, floor, directions)
    comparison = _compare(samples, example, base_within, constants, alone)
    distances, graph, weights = comparison.distances, comparison.graph, comparison.weights
    weight = weights.exponential
    prior = shares.to(r).clamp_min(torch.finfo(r.dtype).tiny).log().unsqueeze(-1)
    potentials = torch.zeros_like(shares)
    skill = weights.skill if constants.skill is None else torch.full_like(weights.skill, constants.skill)
    worth, evenness = skill.sqrt(), (1 - skill).square()
    for step in range(iterations + 1):
        of_class = v.sum(-1, keepdim=True)  # (..., k, 1)
        v = v * worth
        taken = v.sum(-1, keepdim=True)
        counts = examples + taken
        means = (labelled if step == 0 else labelled + v @ queries) / counts
        rates, members = torch.maximum(means, floor).reciprocal(), torch.cat([known, v], -1) / counts
        e = centre(rates.log().sum(-1, keepdim=True) - rates @ queries.mT)  # (..., k, q)
        if s <= n_ways and step > 0 and step == (iterations + 1) // 2:
            within = torch.cat([known, v * one_shot], -1)
            distances = comparison.within(within)
        d = distances(members)  # (..., k, q)
        nearest = d.amin(-2, keepdim=True)
        if alone:
            w = _weighted_mean(d, 1 - known, (1 - known).sum((-2, -1), keepdim=True))
        elif step == 0:
            w = nearest.mean(-1, keepdim=True)
        else:
            w = _weighted_mean(d, v, taken.sum(-2, keepdim=True))
        width = w.clamp_min(LEAST_DISTANCE)
        sharpness = directions / 2 / width
        g = centre(d * -sharpness)
        scale = ratio(spread(g), spread(e))
        z = torch.lerp(g, e * scale, weight)
        last = Statistics(rates, members, width, scale)
        if step == 0:
            logits = weights.held_out if alone else comparison.logits
            factor = ratio(spread(z), spread(logits))
            z = torch.lerp(z, logits * factor, weights.regression)
            first, start, start_spread, echo, voters = last, z, spread(z), torch.ones_like(directions), None
            if alone:
                break
        else:
            echo = ratio(spread(z), start_spread)
            z = torch.lerp(z, start * echo, trust)
            if graph is not None:
                voters, z = r, z + r @ graph
        if estimated:
            if step > 0:
                of_class = torch.lerp(of_class, of_class.sum(-2, keepdim=True) * even, evenness)
                prior = (constants.prior_queries + of_class).log()
                if s <= n_ways and step == 1:
                    prior = torch.where(one_shot, 0, prior)
                z = z + prior
            z = z.log_softmax(-2)
        else:
            log_p, potentials = sinkhorn(machine.widest(z), shares, potentials, settle=step == iterations)
            z, prior = log_p.to(z.dtype), potentials.to(z.dtype).unsqueeze(-1)
        p = z.exp()
        r, v = torch.cat([known, p], -1), p * torch.sigmoid(sharpness * (constants.background - nearest))
    return Fit(
        z,
        samples,
        known,
        within,
        base_within,
        first,
        last,
        directions,
        weights,
        weights.coefficients * factor,
        trust,
        echo,
        prior,
        voters,
        r,
        normalise,
        constants,
    )


#: From members (..., k, n) of centres to d of the queries (..., k, q).
Distances = Callable[[Tensor], Tensor]


class Comparison(NamedTuple):
    """What the samples of a task are to each other."""

    distances: Distances
    within: Callable[[Tensor], Distances]  # in the metric of these responsibilities (..., k, n)
    weights: Weights
    logits: Tensor  # (..., k, q) of the regression
    graph: Tensor | None  # (..., n, q) of the neighbours, scaled by how much they count


def _compare(
    samples: Tensor, examples: Labelled, base_within: Tensor | None, constants: Constants, alone: bool
) -> Comparison:
    """Compare the samples, of which the first are labelled, in the metric that held-out examples choose.

    Inner products of the samples are enough. Where samples are more than twice as many as features, their
    coordinates cost less in every round.
    """
    (n, dim), known = samples.shape[-2:], examples.known
    s = known.shape[-1]
    chosen = (constants.prior_scatter, constants.exponential, constants.regression)
    distances: Distances
    if alone or n > 2 * dim:
        root, y, space = _around_centre(samples, base_within, constants)
        labelled = y[..., :s, :]
        many = s > dim
        weights = weigh(examples, labelled if many else labelled @ labelled.mT, *chosen, vectors=many)
        space = space._replace(directions=discounted_directions(labelled, known, weights.scatter))
        views = space.seen(samples, root, y)
        start = 0 if alone else s
        distances = functools.partial(_distances_by_views, views, start)

        def within(r: Tensor) -> Distances:
            _, views = _see(samples, known, base_within, constants, weights.scatter, r)
            return functools.partial(_distances_by_views, views, start)

        logits = (weights.coefficients @ labelled) @ y[..., s:, :].mT
        gram = None if alone or n > LARGEST_GRAPH else root @ root.mT
    else:
        root = Space.at_start(samples, base_within, constants).roots(samples)
        root -= root.mean(-2, keepdim=True)
        gram = root @ root.mT
        unit = _unit_products(gram)
        weights = weigh(examples, unit[..., :s, :s], *chosen)
        products = discounted_products(unit, known, weights.scatter)
        distances = functools.partial(_distances_by_products, products, s)

        def within(r: Tensor) -> Distances:
            discounted = softly_discounted_products(unit, r, _prior_within(r, known, weights.scatter, constants))
            return functools.partial(_distances_by_products, discounted, s)

        logits = weights.coefficients @ unit[..., :s, s:]
    graph = None if gram is None else constants.agreement * _neighbour_graph(gram, constants.neighbours)[..., s:]
    return Comparison(distances, within, weights, centre(logits), graph)


def _distances_by_views(views: Views, start: int, members: Tensor) -> Tensor:
    return Classes.distances_to(members @ views.y, members @ views.shadow, views.part(slice(start, None)))


def _distances_by_products(products: Tensor, start: int, members: Tensor) -> Tensor:
    return squared_distances_to_means(products, members)[..., start:]


def _unit_products(gram: Tensor) -> Tensor:
    """Give the inner products of vectors scaled to unit length; what is there by rounding only becomes zero."""
    squares = gram.diagonal(dim1=-2, dim2=-1)
    scale = torch.where(squares > ROUNDING * torch.finfo(gram.dtype).eps, squares, torch.inf).rsqrt()
    return gram * scale.unsqueeze(-1) * scale.unsqueeze(-2)


def _around_centre(samples: Tensor, base_within: Tensor | None, constants: Constants) -> tuple[Tensor, Tensor, Space]:
    """See samples around their own centre: unit vectors of sqrt(x), y, and the space without its metric."""
    space = Space.at_start(samples, base_within, constants)
    root = space.roots(samples)
    space = space._replace(centre=root.mean(-2, keepdim=True))
    return root, space.around_centre(root), space


def _see(
    samples: Tensor,
    known: Tensor,
    base_within: Tensor | None,
    constants: Constants,
    scatter: Tensor,
    within: Tensor | None = None,
) -> tuple[Space, Views]:
    """Choose the space of all samples, of which the first are labelled, and see them in it.

    The metric is that of the labelled samples or, where they are given, of responsibilities of all.
    """
    root, y, space = _around_centre(samples, base_within, constants)
    if within is None:
        labelled = y[..., : known.shape[-1], :]
        space = space._replace(directions=discounted_directions(labelled, known, scatter))
    else:
        metric = scatter_within(y, within) / _prior_within(within, known, scatter, constants)
        metric.diagonal(dim1=-2, dim2=-1).add_(1)
        lower, identity = torch.linalg.cholesky_ex(metric).L, torch.eye(y.shape[-1], dtype=y.dtype, device=y.device)
        space = space._replace(whitening=torch.linalg.solve_triangular(lower, identity, upper=False).mT)
    return space, space.seen(samples, root, y)


def _prior_within(within: Tensor, known: Tensor, scatter: Tensor, constants: Constants) -> Tensor:
    """Give the prior scatter of a direction, for the metric of responsibilities (..., k, n): (..., 1, 1).

    With one example per class it is 1/40 for every sample: unit vectors that vary in 40 directions. Other tasks of a
    batch keep the metric, and so the prior, of their labelled samples.
    """
    one_shot = known.sum(-1, keepdim=True).amax(-2, keepdim=True) <= 1
    per_sample = within.sum((-2, -1), keepdim=True) / constants.query_directions
    return torch.where(one_shot, per_sample, scatter)


@functools.lru_cache(maxsize=2)
def _base_factor(base_within: Tensor, version: int, weight: float) -> Tensor:
    """Give F with F F' = (I + weight S / trace S)^-1; `version` is that of the tensor, which may change in place."""
    within = base_within.double()
    scale = weight / within.diagonal().sum().clamp_min(1e-30)
    identity = torch.eye(len(within)).to(within)
    inverse: Tensor = torch.linalg.solve_triangular(
        torch.linalg.cholesky(identity + scale * within), identity, upper=False
    )
    return inverse.mT


def _neighbour_graph(gram: Tensor, neighbours: int) -> Tensor:
    """Give the share of every sample in the neighbourhood of another, either being near the other: (..., n, n)."""
    near = nearest_neighbours(gram, neighbours)
    near = near + near.mT
    return near / near.sum(-2, keepdim=True).clamp_min(1)  # symmetric before: columns are the receivers


def _weighted_mean(x: Tensor, weights: Tensor, total: Tensor) -> Tensor:
    return (x * weights).sum((-2, -1), keepdim=True) / total.clamp_min(torch.finfo(x.dtype).tiny)
