"""Facts about a method have one home, and a method is recognised by its function."""

from __future__ import annotations

import functools
import json
import sys

import numpy as np
import pytest
import torch

from likelyshot import FewShotClassifier, cli
from likelyshot.confidence.held_out import held_out
from likelyshot.evaluation import reproduce
from likelyshot.functional.scores import class_means, cosines
from likelyshot.methods import FACTS, METHODS
from likelyshot.methods.binding import facts_of, is_transductive, needs_of, titles, variants
from likelyshot.methods.facts import Facts


def test_every_row_of_a_table_has_a_title():
    rows = {row for _, rows in reproduce.protocols(full=True).values() for row in rows}
    assert set(titles()) == {*METHODS, *variants()}
    assert rows == {row for row in titles() if row not in METHODS or "head" not in needs_of(METHODS[row])}


def test_facts_are_seen_through_partial():
    assert facts_of(functools.partial(METHODS["tim"], steps=3)) is FACTS[METHODS["tim"]]


class Unhashable:
    __hash__ = None

    def __call__(self, support, labels, query, *, n_ways):
        return query[..., :n_ways]


def test_a_method_that_is_not_ours_has_default_facts():
    assert facts_of(Unhashable()) == Facts("Unhashable")


def test_a_function_that_is_only_called_like_ours_is_not_taken_for_it():
    seen = []

    def mll(support, labels, query, *, n_ways):
        seen.append(support.shape[-1])
        return -torch.cdist(query, support)[..., :n_ways]

    X, y = np.array([[1.0, -2.0, 3.0, 1.0], [-3.0, 1.0, 0.0, 2.0]]), ["a", "b"]
    FewShotClassifier(mll, temperature=1.0).fit(X, y).predict(X)
    assert set(seen) == {4}  # not split into [relu(x), relu(-x)]
    assert is_transductive(mll)
    mll.__name__ = "tim"
    support, labels = torch.rand(8, 4), torch.arange(2).repeat(4)
    assert held_out(mll, support, labels, 2).factor == held_out(Unhashable(), support, labels, 2).factor
    mll.__name__ = "cosine"
    seen.clear()
    held_out(mll, support, labels, 2)
    assert len(seen) < 10  # ten splits are for methods with a closed form


@pytest.fixture
def added(monkeypatch):
    """Add a method: one entry, after one file."""

    def dot(support, labels, query, *, n_ways, power: float = 1.0):
        """Score by the cosine to the class mean, to some power.

        Paper: Nobody, Nowhere, 2026.
        """
        return cosines(query, class_means(support, labels, n_ways)) ** power

    monkeypatch.setitem(METHODS, "dot", dot)
    monkeypatch.setitem(FACTS, dot, Facts("Dot product", "closed form", quick=True))
    return dot


def test_a_method_that_is_added_works_everywhere(added, run, tmp_path, monkeypatch):
    assert "dot" in run("list")[1]
    assert "power=1.0" in run("list", "dot")[1]
    few = ("--tasks", 20, "--json")
    code, out, _ = run("evaluate", "-m", "dot", "mll", "-p", "power=2", "-o", tmp_path / "e", *few)
    assert code == 0
    assert {row["method"] for row in json.loads(out)} == {"dot", "mll"}
    only = {"imbalanced": (reproduce.protocols(full=True)["imbalanced"][0], ("euclidean", "mll_transductive", "dot"))}
    assert "dot" in reproduce.protocols(full=True)["imbalanced"][1]
    assert "dot" in reproduce.protocols(full=False)["imbalanced"][1]
    monkeypatch.setattr(reproduce, "protocols", lambda full: only)
    monkeypatch.setattr(reproduce, "LAMBDA_MAX", (40.0,))
    code, out, _ = run("reproduce", "--full", "-o", tmp_path / "r", "--tasks", 20)
    assert code == 0
    assert "Dot product" in out
    code, _, _ = run("report", tmp_path / "e", tmp_path / "r", "-o", tmp_path / "page.html")
    assert code == 0
    assert "dot" in (tmp_path / "page.html").read_text()
    X, y = np.array([[1.0, 2.0], [2.0, 1.0], [1.0, 3.0], [3.0, 1.0]]), ["a", "b", "a", "b"]
    assert FewShotClassifier("dot").fit(X, y).predict(X).tolist() == y
    assert not is_transductive(METHODS["dot"])


@pytest.fixture
def run(monkeypatch, capsys):
    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["likelyshot", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            sys.exit(cli.main())
        out, err = capsys.readouterr()
        return int(stop.value.code or 0), out, err

    return call
