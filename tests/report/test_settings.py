"""What results say: settings, names, references, published figures, reliability."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from likelyshot import Balanced, Dirichlet, Result, evaluate, sample_tasks
from likelyshot.errors import InputError
from likelyshot.evaluation import published
from likelyshot.evaluation.sweep import Sweep
from likelyshot.methods import METHODS
from likelyshot.report import compare_results


def made(
    method="mll", mean=0.8, *, n=60, query=None, features="f", file="f.npz", row=None, params=None, **config
) -> Result:
    chance = np.random.default_rng(0)
    accuracy = (mean + chance.normal(0, 0.05, 1000) + np.random.default_rng(len(method)).normal(0, 0.01, 1000))[:n]
    shares = chance.uniform(0.2, 0.9, 1000)[:n]
    return Result(
        method,
        accuracy,
        accuracy,
        accuracy,
        shares,
        {
            "temperature": 2.0,
            "fitted": True,
            "count": [0, 30, 70],
            "confidence": [0, 15.0, 63.0],
            "correct": [0, 12, 66],
        },
        [{"true": "a", "predicted": "b", "wrong": 3, "queries": 10}],
        {
            "method": method,
            "params": params or {},
            "ways": 5,
            "shots": 1,
            "query": query or {"plan": "dirichlet", "total": 75, "alpha": 2.0},
            "seed": 0,
            "tasks": n,
            "tasks_digest": f"the first {n}",
            "range": [0, n, 1],
            "features": [{"digest": features, "dim": 3, "file": file, "split": "test"}],
            "device": "cpu",
            **({"row": row} if row else {}),
            **config,
        },
        {"likelyshot": "0"},
        n * 0.002,
    )


def test_real_results_are_plain_json(features):
    tasks = sample_tasks(features.labels, n_tasks=60, ways=4, shots=2, query=Dirichlet(20, 2.0), seed=3)
    results = [evaluate(METHODS[name], features, tasks) for name in ("mll", "mll_transductive", "cosine")]
    results.append(evaluate(METHODS["euclidean"], features, tasks[:25]))
    data = json.loads(json.dumps(compare_results(results), allow_nan=False))
    (setting,) = data["settings"]
    assert setting["title"] == setting["protocol"] == "4-way 2-shot, Dirichlet(2), 20 queries"
    assert setting["references"] == ["MLL", "MLL, transductive"]
    assert [row["mean"] for row in setting["rows"]] == sorted((result.mean for result in results), reverse=True)
    assert setting["differences"]["MLL"]["Euclidean"]["tasks"] == 25
    assert setting["differences"]["MLL"]["Cosine"]["mean"] == pytest.approx(results[2].mean - results[0].mean)
    assert sum(row["front"] for row in setting["rows"]) >= 1
    assert setting["published"] == {}
    assert data["made_by"] == data["sweeps"] == []


def test_settings_are_kept_apart():
    base = {"method": "mll"}
    others = [
        {"features": "g", "file": "g.npz"},
        {"shots": 5},
        {"ways": 4},
        {"seed": 1},
        {"query": {"plan": "balanced", "per_class": 15}},
        {"overlap": True},
    ]
    settings = compare_results([made(**base), made("cosine"), *(made(**base, **other) for other in others)])["settings"]
    assert len(settings) == 1 + len(others)
    assert sorted(len(setting["rows"]) for setting in settings) == [1] * len(others) + [2]
    assert len({setting["title"] for setting in settings}) == len({setting["name"] for setting in settings}) == 7
    assert settings[0]["query"]["plan"] == "balanced"
    assert all("seed" in setting["title"] and ".npz (test)" in setting["title"] for setting in settings)


def test_features_with_the_same_name_have_numbered_titles():
    settings = compare_results([made(), made(features="g")])["settings"]
    assert [setting["title"][-10:] for setting in settings] == ["75 queries", "queries #2"]
    assert [setting["name"] for setting in settings] == ["5way-1shot-dirichlet-75-2", "5way-1shot-dirichlet-75-2-2"]


def test_networks_of_one_run_are_compared():
    mine = {"networks": ["f", "g"]}
    (setting,) = compare_results([made(file="f.npz", **mine), made("cosine", features="g", file="g.npz", **mine)])[
        "settings"
    ]
    assert (setting["source"], setting["short"]) == ("f.npz + g.npz (test)", "2 networks (test)")
    assert {row["name"]: row["source"] for row in setting["rows"]} == {"MLL": "f.npz (test)", "Cosine": "g.npz (test)"}
    assert [one["digest"] for one in setting["features"]] == ["f", "g"]
    assert setting["differences"]["MLL"]["Cosine"] is not None


def test_rows_of_the_same_method_are_named_apart():
    def names(*results):
        return [row["name"] for row in compare_results(results)["settings"][0]["rows"]]

    assert names(made(), made()) == ["MLL"]
    assert names(made(row="mine"), made(mean=0.7)) == ["mine", "MLL"]
    assert names(made(params={"x": 1, "y": 2}), made(mean=0.7, params={"x": 3, "y": 2})) == ["MLL (x=1)", "MLL (x=3)"]
    assert names(made(), made(mean=0.7)) == ["MLL", "MLL #2"]
    assert names(made("pt_map", row="pt_map_estimated")) == ["PT-MAP, marginals estimated"]


def test_the_reference_is_mll_or_else_the_best():
    def references(*names):
        return compare_results([made(name, 0.9 - 0.01 * i) for i, name in enumerate(names)])["settings"][0][
            "references"
        ]

    assert references("cosine", "mll_transductive", "mll") == ["MLL", "MLL, transductive"]
    assert references("cosine", "mll") == ["MLL"]
    assert references("cosine", "euclidean") == ["Cosine"]


@pytest.mark.parametrize(
    ("query", "shots", "ways", "rows"),
    [
        (Balanced(15), 1, 5, published.INDUCTIVE),
        (Dirichlet(75, 2.0), 5, 5, published.IMBALANCED),
        (Dirichlet(75, 1.0), 5, 5, None),
        (Balanced(10), 1, 5, None),
        (Balanced(15), 1, 4, None),
        (Balanced(15), 3, 5, None),
    ],
)
def test_published_figures_are_those_of_the_same_protocol(query, shots, ways, rows):
    found = compare_results([made(query=query.to_dict(), shots=shots, ways=ways)])["settings"][0]["published"]
    if rows is None:
        assert found == {}
        return
    assert [float(row["percent"]) for row in found["rows"]] == [row[3 if shots == 1 else 4] for row in rows]
    assert published.SOURCE in found["where"]


def test_reliability_time_and_error():
    (row,) = compare_results([made()])["settings"][0]["rows"]
    assert row["reliability"] == [
        {"queries": 30, "confidence": 0.5, "accuracy": pytest.approx(0.4)},
        {"queries": 70, "confidence": pytest.approx(0.9), "accuracy": pytest.approx(66 / 70)},
    ]
    assert row["ece"] == pytest.approx((3 + 3) / 100)
    assert row["ms"] == pytest.approx(2)
    assert len(row["by_share"]) == 6


def test_balanced_tasks_have_no_bins_of_imbalance():
    result = made()
    even = replace(result, largest_share=np.full(60, 0.2))
    assert compare_results([even])["settings"][0]["rows"][0]["by_share"] == []


def test_sweeps_alone_make_a_report_and_nothing_makes_none():
    rows = [{"point": {"eta": 1}, "mean": 0.5}]
    data = compare_results([], [Sweep("mll", {"eta": [1]}, rows, {})])
    assert data["sweeps"] == [{"method": "mll", "grid": {"eta": [1]}, "rows": rows, "config": {}}]
    with pytest.raises(InputError, match="got none"):
        compare_results([])
