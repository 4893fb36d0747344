"""Comparisons of results, against scipy and naive loops."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from likelyshot import Result
from likelyshot.report.comparison import accuracy_by_share, differences, paired, pareto, share_edges, winner

N = 200


def made(accuracy, *, digest="d", shares=None, start=0) -> Result:
    accuracy = np.asarray(accuracy, float)
    config = {"tasks_digest": digest, "range": [start, start + len(accuracy), 1]}
    shares = np.full(len(accuracy), 0.2) if shares is None else np.asarray(shares)
    return Result("m", accuracy, accuracy, accuracy, shares, {}, [], config, {}, 1.0)


@pytest.fixture(scope="module")
def trio():
    chance = np.random.default_rng(0)
    hard = chance.normal(0.7, 0.1, N)
    return {name: made(hard + chance.normal(gain, 0.02, N)) for name, gain in (("a", 0), ("b", 0.05), ("c", 0.0005))}


def test_differences_are_paired_and_holm_corrected(trio):
    found = differences(trio, "a")
    p = []
    for name in ("b", "c"):
        gap = trio[name].accuracy - trio["a"].accuracy
        low, high = stats.norm.interval(0.95, gap.mean(), stats.sem(gap))
        assert found[name]["mean"] == pytest.approx(gap.mean())
        assert found[name]["ci95"] == pytest.approx((high - low) / 2, rel=1e-4)
        assert found[name]["significant"] == (low > 0 or high < 0)
        p.append(2 * stats.norm.sf(abs(gap.mean() / stats.sem(gap))))
    assert list(found) == ["b", "c"]
    small, large = sorted(p)
    corrected = {small: 2 * small, large: max(2 * small, large)}
    for name, value in zip(("b", "c"), p, strict=True):
        assert found[name]["holm"] == pytest.approx(min(1, corrected[value]), rel=1e-6)


def test_a_result_over_fewer_tasks_is_paired_with_the_first(trio):
    part = made(trio["b"].accuracy[:50], digest="of the first 50")
    gap = paired(part, trio["a"])
    assert gap["tasks"] == 50
    assert gap["mean"] == pytest.approx((trio["b"].accuracy - trio["a"].accuracy)[:50].mean())
    assert paired(trio["a"], part)["mean"] == pytest.approx(-gap["mean"])


def test_other_tasks_are_not_paired(trio):
    assert paired(trio["a"], made(trio["a"].accuracy, digest="other")) is None
    assert paired(trio["a"], made(trio["a"].accuracy[20:40], digest="other", start=20)) is None
    shares = np.linspace(0.2, 0.9, N)
    assert paired(made(np.ones(N), shares=shares), made(np.ones(20), digest="e", shares=shares[20:40])) is None
    assert paired(made(np.ones(N), shares=shares), made(np.ones(20), digest="e", shares=shares[:20])) is not None


def test_one_task_is_never_significant():
    gap = differences({"a": made([0.5]), "b": made([0.9])}, "a")["b"]
    assert (gap["significant"], gap["holm"]) == (False, 1.0)


def test_equal_results_tie_and_constant_gaps_are_certain():
    found = differences({"a": made([0.5, 0.5]), "b": made([0.5, 0.5]), "c": made([0.75, 0.75])}, "a")
    assert found["b"]["holm"] == 1
    assert not found["b"]["significant"]
    assert found["c"]["holm"] == 0
    assert found["c"]["significant"]


def test_who_wins(trio):
    found = winner(trio)
    assert (found["best"], found["tied"], found["unpaired"]) == ("b", [], [])
    assert found["runner_up"] == max(("a", "c"), key=lambda name: trio[name].mean)
    assert found["difference"]["significant"]
    without = winner({name: trio[name] for name in ("a", "c")})
    assert not without["difference"]["significant"]
    assert without["tied"] == [without["runner_up"]]
    assert winner({"a": trio["a"]}) == {"best": "a", "runner_up": None, "difference": None, "tied": [], "unpaired": []}


def test_the_common_tasks_decide_when_means_are_over_others(trio):
    easy_first = np.sort(trio["a"].accuracy)[::-1]
    whole = made(easy_first)
    part = made(easy_first[:20] - 0.01 - 0.001 * np.arange(20) % 2, digest="of the first 20")
    assert part.mean > whole.mean  # only because it met the easy tasks
    found = winner({"whole": whole, "part": part})
    assert (found["best"], found["runner_up"]) == ("whole", "part")
    assert found["difference"]["mean"] > 0


def test_results_on_other_tasks_are_named(trio):
    found = winner({**trio, "z": made(np.zeros(N), digest="other")})
    assert found["unpaired"] == ["z"]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=8))
def test_the_front_is_what_nothing_dominates(points):
    costs, gains = zip(*points, strict=True)
    for (cost, gain), on_front in zip(points, pareto(costs, gains), strict=True):
        better = [p for p in points if (p[0] < cost and p[1] >= gain) or (p[0] <= cost and p[1] > gain)]
        assert on_front == (not better)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(15, 75), min_size=1, max_size=300))
def test_every_task_is_in_one_bin(counts):
    shares = np.array(counts) / 75
    edges = share_edges(shares)
    if len(shares) < 20 or len(set(counts)) == 1:
        assert len(edges) == 0
        return
    assert 3 <= len(edges) <= 9
    assert (np.diff(edges) > 0).all()
    assert (edges[0], edges[-1]) == (shares.min(), shares.max())
    assert not set(edges[1:-1]) & set(shares)
    accuracy = np.arange(len(shares)) / len(shares)
    found = accuracy_by_share(made(accuracy, shares=shares), edges)
    for (low, high), cell in zip(itertools.pairwise(edges), found, strict=True):
        here = [i for i, share in enumerate(shares) if low <= share <= high]
        assert (cell is None) == (len(here) < 2)
        if cell:
            assert cell["tasks"] == len(here)
            assert cell["mean"] == pytest.approx(np.mean([accuracy[i] for i in here]))
            assert cell["share"] == pytest.approx(np.mean([shares[i] for i in here]))


def test_bins_hold_about_as_many_tasks():
    shares = np.random.default_rng(0).uniform(0.2, 1, 800)
    counts, _ = np.histogram(shares, share_edges(shares))
    assert len(counts) == 8
    assert counts.min() >= 95
    assert counts.max() <= 105
