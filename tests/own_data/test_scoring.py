from __future__ import annotations

import functools

import numpy as np
import pytest
import torch

from likelyshot.data.features import Base
from likelyshot.errors import InputError
from likelyshot.methods import METHODS
from likelyshot.methods.binding import is_transductive, needs_of
from likelyshot.methods.likelihood_mixture import fit_mixture
from likelyshot.own_data import scoring
from likelyshot.own_data.rows import scan
from likelyshot.own_data.scoring import passes, scores_of

#: Methods that need neither a calibration nor a trained head.
KNOWN = sorted(name for name, method in METHODS.items() if not {"calibration", "head"} & set(needs_of(method)))


def bound(name, features, validation):
    """A method with the statistics that it needs, as far as base features give them."""
    base = Base.of(validation)
    known = {"base_mean": base.mean, "base_within": base.within}
    quick = {"c": 1.0} if name == "logistic" else {}  # the strength is chosen anew for every piece
    return functools.partial(METHODS[name], **{key: known[key] for key in needs_of(METHODS[name])}, **quick)


@pytest.fixture
def task(features):
    """Three labelled rows of each of four classes, and a pile."""
    rows = torch.cat([torch.arange(40 * k, 40 * k + 3) for k in range(4)])
    pile = torch.cat([torch.arange(40 * k + 3, 40 * k + 12) for k in range(4)])
    return features.vectors[rows], torch.arange(4).repeat_interleave(3), features.vectors[pile]


@pytest.mark.parametrize("name", KNOWN)
def test_pieces_give_what_the_method_gives(name, task, features, validation, monkeypatch):
    monkeypatch.setattr("likelyshot.own_data.rows.CACHE_BYTES", 4 * 12 * 5)  # 5 rows a piece
    support, labels, pile = task
    method = bound(name, features, validation)
    pieces = list(scores_of(method, support, labels, pile.numpy(), n_ways=4)())
    assert len(pieces) == 8
    wanted = method(support, labels, pile, n_ways=4)
    torch.testing.assert_close(torch.cat([rows for rows, _ in pieces]), pile)
    torch.testing.assert_close(torch.cat([scores for _, scores in pieces]), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", KNOWN)
def test_inductive_methods_are_those_that_look_at_one_row(name, task, features, validation):
    support, labels, pile = task
    method = bound(name, features, validation)
    together, alone = (method(support, labels, query, n_ways=4)[:1] for query in (pile, pile[:1]))
    assert torch.allclose(together, alone, rtol=1e-4, atol=1e-4) == (not is_transductive(method))


def test_unusable_rows_are_left_out(task):
    support, labels, pile = task
    rows, usable = pile.numpy().copy(), np.ones(len(pile), dtype=bool)
    rows[4], usable[4] = np.nan, False
    rest = torch.from_numpy(rows[usable])
    for name in ("mll", "mll_transductive", "paddle"):
        result = list(scores_of(METHODS[name], support, labels, rows, n_ways=4, usable=usable)())
        wanted = METHODS[name](support, labels, rest, n_ways=4)
        torch.testing.assert_close(torch.cat([scores for _, scores in result]), wanted, rtol=1e-4, atol=1e-4)


def test_signed_rows_are_rectified(task):
    support, labels, pile = task
    support, pile = support - 0.2, pile - 0.2
    split = [torch.cat([x.clamp_min(0), (-x).clamp_min(0)], -1) for x in (support, pile)]
    for name in ("mll", "mll_transductive", "pt_map"):
        result = list(scores_of(METHODS[name], split[0], labels, pile.numpy(), n_ways=4, rectified=True)())
        wanted = METHODS[name](split[0], labels, split[1], n_ways=4)
        torch.testing.assert_close(torch.cat([scores for _, scores in result]), wanted, rtol=1e-4, atol=1e-4)


def test_scores_of_a_parameterised_method(task):
    support, labels, pile = task
    method = functools.partial(METHODS["mll_transductive"], iterations=2, eta=0.3, lambda_max=9.0, normalise=False)
    result = list(scores_of(method, support, labels, pile.numpy(), n_ways=4)())
    wanted = method(support, labels, pile, n_ways=4)
    torch.testing.assert_close(torch.cat([scores for _, scores in result]), wanted, rtol=1e-4, atol=1e-4)
    assert passes(method) == 2
    assert passes(METHODS["mll"]) == passes(METHODS["tim"]) == 0


def test_progress_counts_rows_of_all_passes(task):
    support, labels, pile = task
    for name in ("mll", "mll_transductive", "paddle"):
        steps = []
        scores_of(METHODS[name], support, labels, pile.numpy(), n_ways=4, progress=steps.append)
        assert sum(steps) == passes(METHODS[name]) * len(pile)


def test_a_large_pile_is_fitted_on_a_sample_and_scored_row_by_row(task, monkeypatch):
    support, labels, pile = task
    method = functools.partial(METHODS["likelihood_mixture"], iterations=4)
    monkeypatch.setattr(scoring, "FITTED", 30)
    run = functools.partial(scores_of, method, support, labels, pile.numpy(), n_ways=4)
    scores = torch.cat([scores for _, scores in run(seed=3)()])
    sample = np.sort(np.random.default_rng(3).choice(36, 30, replace=False))
    fit = fit_mixture(support, labels, pile[sample], n_ways=4, iterations=4)
    mixture, own = fit.mixture(), fit.scores(pile[sample])
    torch.testing.assert_close(scores, mixture.scores(pile))
    assert (scores[sample].argmax(-1) == own.argmax(-1)).double().mean() > 0.9
    assert not torch.equal(scores, torch.cat([scores for _, scores in run(seed=4)()]))
    usable = np.arange(36) % 9 > 0  # 32 rows
    assert sum(len(rows) for rows, _ in run(usable=usable)()) == 32
    monkeypatch.setattr(scoring, "FITTED", 36)
    torch.testing.assert_close(torch.cat([scores for _, scores in run()()]), method(support, labels, pile, n_ways=4))


def test_a_pile_too_large_to_compare_is_refused(task, monkeypatch):
    support, labels, pile = task
    monkeypatch.setattr(scoring, "WHOLE_PILE_BYTES", 10_000)
    with pytest.raises(InputError, match=r"paddle compares all 36 items .* use likelihood_mixture"):
        list(scores_of(METHODS["paddle"], support, labels, pile.numpy(), n_ways=4)())
    assert list(scores_of(METHODS["mll_transductive"], support, labels, pile.numpy(), n_ways=4)())


def test_scan_finds_what_cannot_be_used():
    rows = np.random.default_rng(0).random((50, 3)).astype(np.float16)
    rows[3, 1], rows[17, 0], rows[20, 2], rows[40] = np.nan, np.inf, -np.inf, 0
    steps = []
    result = scan(rows, progress=steps.append)
    assert result.infinite.tolist() == [3, 17, 20]
    assert result.zeros.tolist() == [40]
    assert np.flatnonzero(~result.usable).tolist() == [3, 17, 20, 40]
    assert not result.negative  # the row with -inf does not count
    assert sum(steps) == 50
    rows[5, 0] = -1
    assert scan(rows).negative


def test_an_empty_pile_is_no_trouble(task):
    support, labels, pile = task
    assert len(scan(pile.numpy()[:0]).usable) == 0
    for name in ("mll", "mll_transductive", "paddle"):
        assert list(scores_of(METHODS[name], support, labels, pile.numpy()[:0], n_ways=4)()) == []


def test_likelihood_is_fitted_once_for_all_blocks(task, monkeypatch):
    support, labels, pile = task
    fits = []
    monkeypatch.setattr(scoring, "fit_mixture", lambda *args, **kwargs: fits.append(1) or fit_mixture(*args, **kwargs))
    method = functools.partial(METHODS["likelihood"], base_within=torch.eye(pile.shape[1]))
    score = scoring.learnt(method, support, labels, pile.numpy(), n_ways=4)
    expected = method(support, labels, pile, n_ways=4)
    for rows, own in zip(pile.split(7), expected.split(7), strict=True):
        torch.testing.assert_close(score(rows), own)
    assert len(fits) == 1
    with pytest.raises(InputError, match=r"^likelihood needs non-negative"):
        score(-pile)
