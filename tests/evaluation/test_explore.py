from __future__ import annotations

import base64
import functools
import json

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from likelyshot import Balanced, Features, evaluate, sample_tasks
from likelyshot.errors import InputError
from likelyshot.evaluation.explore import LEAST_POSITIVE, explore, explore_work, image_map
from likelyshot.evaluation.separation import separation
from likelyshot.functional.scores import l2_normalise
from likelyshot.methods import METHODS

CONTRACT = {
    "about": {
        "title",
        "file",
        "split",
        "images",
        "dim",
        "classes",
        "normalised",
        "encoder",
        "dataset",
        "left_out",
        "settings",
    },
    "zeros": {"share", "edges", "counts"},
    "histograms": {"bins", "width", "counts", "dtype", "images"},
    "families": {
        "names",
        "best_by_likelihood",
        "best_by_ks",
        "mean_ks",
        "fits",
        "left_out",
        "rule",
        "behind",
    },
    "between": {
        "classes",
        "features",
        "log10_rate",
        "p_below_0.01",
        "median_ratio",
        "above_lambda_max",
        "test",
    },
    "scores": {
        "metrics",
        "ways",
        "shots",
        "tasks",
        "queries",
        "per_metric",
        "correlation_intra",
        "correlation_cross",
        "agreement",
        "accuracy",
    },
}


def made(classes=6, per_class=30, dim=9, zeros=0.4, seed=0):
    """Exponential features, of rates that differ between the classes, with zeros."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), per_class)
    rates = rng.uniform(0.2, 5, (classes, dim))
    vectors = rng.exponential(1 / rates[labels]) * (rng.random((len(labels), dim)) >= zeros)
    vectors[:, 0] += 1e-3  # no vector of zeros only
    names = [f"<b>class {i}</b>" for i in range(classes)]
    return Features.from_arrays(vectors, labels, classes=names, source={"file": "f.npz", "split": "val"})


@pytest.fixture(scope="module", autouse=True)
def no_map():
    """The map takes longest, and has tests of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("likelyshot.evaluation.explore.image_map", lambda features, seed: {"x": [], "y": []})
        yield


@pytest.fixture(scope="module")
def sparse():
    return made()


@pytest.fixture(scope="module")
def data(sparse):
    return explore(sparse, tasks=40, ways=3, shots=2, normalise=False)


def unpack(text, dtype, *shape):
    return np.frombuffer(base64.b64decode(text), dtype).reshape(shape)


def test_the_data_are_json_and_hold_what_the_page_draws(data):
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    for part, keys in CONTRACT.items():
        assert set(data[part]) == keys
    assert set(data) == {*CONTRACT, "classes", "features", "features_of", "map", "rates"}
    about = data["about"]
    assert (about["title"], about["images"], about["dim"], about["classes"]) == ("f.npz (val)", 180, 9, 6)
    assert about["settings"] == {
        "tasks": 40,
        "ways": 3,
        "shots": 2,
        "seed": 0,
        "lambda_max": 40.0,
        "normalise": False,
    }
    assert data["classes"][1] == "<b>class 1</b>"


def test_zeros(data, sparse):
    zero = sparse.vectors.numpy() == 0
    assert data["zeros"]["share"] == pytest.approx(zero.mean())
    assert sum(data["zeros"]["counts"]) == 9


def test_histograms_and_rates_are_those_of_the_classes(data, sparse):
    shown = data["histograms"]
    counts = unpack(shown["counts"], "u1", 6, 9, shown["bins"])
    rates = unpack(data["rates"], "<f4", 6, 9)
    x = sparse.vectors.numpy()
    for c in range(6):
        mine = x[sparse.labels.numpy() == c]
        np.testing.assert_allclose(rates[c], 1 / mine.mean(0), rtol=1e-6)
        for i in range(9):
            edges = np.arange(shown["bins"] + 1) * shown["width"][i]
            edges[-1] = np.inf
            assert counts[c, i].tolist() == np.histogram(mine[:, i], edges)[0].tolist()
    assert shown["images"] == [30] * 6


def test_families_find_what_the_features_were_made_from(sparse):
    families = explore(made(classes=10, per_class=80, dim=20), tasks=5, normalise=False)["families"]
    shares = dict(zip(families["names"], families["best_by_likelihood"], strict=True))
    assert sum(shares.values()) == pytest.approx(1)
    assert sum(families["best_by_ks"]) == pytest.approx(1)
    assert max(shares, key=shares.get) == "zero-inflated exponential"
    assert families["fits"] + families["left_out"] == 10 * 20
    assert families["behind"]["median"] > 5 * families["behind"]["median_zero_inflated"]
    assert sum(families["behind"]["counts"]) == families["fits"]


def test_pairs_with_few_or_equal_positive_values_are_left_out():
    x = np.random.default_rng(0).exponential(1, (60, 4))
    x[LEAST_POSITIVE:30, 1] = 0  # just enough
    x[LEAST_POSITIVE - 1 : 30, 2] = 0  # too few
    x[:30, 3] = 2
    families = explore(Features.from_arrays(x, [0] * 30 + [1] * 30), tasks=5, ways=2, normalise=False)["families"]
    assert (families["fits"], families["left_out"]) == (6, 2)


def test_nothing_fitted_is_said_by_zero_fits():
    families = explore(made(per_class=LEAST_POSITIVE - 1), tasks=5)["families"]
    assert families["fits"] == 0
    assert sum(families["best_by_likelihood"]) == families["behind"]["median"] == 0


def test_rates_that_differ_are_found_and_shuffled_labels_are_not():
    features = made(per_class=60, dim=400)  # of 400 uncorrected p-values, about four would be below 0.01
    assert explore(features, tasks=5, normalise=False)["between"]["p_below_0.01"] > 0.7
    order = torch.randperm(len(features), generator=torch.Generator().manual_seed(0))
    shuffled = Features(features.vectors, features.labels[order], features.classes, {})
    assert explore(shuffled, tasks=5, normalise=False)["between"]["p_below_0.01"] == 0


def test_the_share_of_rates_that_the_metric_clips(sparse):
    means = np.stack([sparse.vectors.numpy()[sparse.labels.numpy() == c].mean(0) for c in range(6)])
    between = explore(sparse, tasks=5, normalise=False, lambda_max=2.0)["between"]
    assert between["above_lambda_max"] == pytest.approx(np.mean(1 / means > 2))
    assert 0.2 < between["above_lambda_max"] < 0.8
    assert between["median_ratio"] == pytest.approx(np.median(means.max(0) / means.min(0)))


def test_the_heat_map_shows_rates_and_a_class_of_zeros_has_one_too():
    x = np.random.default_rng(0).exponential(1, (60, 3))
    x[:30, 1] = 0
    x[:, 2] = 0
    data = explore(Features.from_arrays(x, [0] * 30 + [1] * 30), tasks=5, ways=2, normalise=False)
    assert data["between"]["features"] == [0, 1]
    expected = [[x[:30, 0].mean(), x[:, 1].mean() / 31], [x[30:, 0].mean(), x[30:, 1].mean()]]
    np.testing.assert_allclose(data["between"]["log10_rate"], -np.log10(expected), atol=1e-4)
    assert unpack(data["rates"], "<f4", 2, 3)[:, 1:].tolist() == [[0, 0], [pytest.approx(1 / x[30:, 1].mean()), 0]]


@pytest.mark.parametrize("normalise", [True, False])
def test_scores_are_those_of_the_methods(sparse, normalise):
    scores = explore(sparse, tasks=40, ways=3, shots=2, normalise=normalise, lambda_max=7.0)["scores"]
    tasks = sample_tasks(sparse.labels, n_tasks=40, ways=3, shots=2, query=Balanced(15), seed=0)
    x = l2_normalise(sparse.vectors) if normalise else sparse.vectors
    decided = {}
    for name in scores["metrics"]:
        method = functools.partial(METHODS[name], normalise=False, **({"lambda_max": 7.0} if name == "mll" else {}))
        alone = torch.stack(
            [
                method(x[s], tasks.support_labels, x[q], n_ways=3)
                for s, q in zip(tasks.support, tasks.query, strict=True)
            ]
        )
        right = torch.nn.functional.one_hot(tasks.query_labels.long(), 3).bool()
        found = scores["per_metric"][name]
        assert found["auc"] == pytest.approx(roc_auc_score(right.flatten(), alone.flatten()), abs=1e-6)
        assert found["intra_mean"] == pytest.approx(alone[right].mean().item(), rel=1e-5)
        assert found["cross_std"] == pytest.approx(alone[~right].std(correction=0).item(), rel=1e-5)
        own = alone[right].unsqueeze(-1)
        assert found["auc_within_query"] == pytest.approx(
            (own > alone[~right].reshape(len(own), 2)).double().mean().item(), abs=1e-4
        )
        result = evaluate(functools.partial(method, normalise=normalise), sparse, tasks)
        assert scores["accuracy"][name] == pytest.approx(result.mean, abs=1e-3)
        decided[name] = alone.argmax(-1)
    same = (decided["cosine"] == decided["mll"]).double().mean().item()
    assert scores["agreement"]["pairs"]["cosine-mll"] == pytest.approx(same, abs=1e-3)
    assert scores["agreement"]["all"] <= min(scores["agreement"]["pairs"].values())
    assert np.diag(scores["correlation_intra"]).tolist() == pytest.approx([1, 1, 1])


def test_at_one_shot_on_unit_vectors_euclidean_and_cosine_are_one(sparse):
    scores = explore(sparse, tasks=20)["scores"]
    assert scores["correlation_cross"][0][1] == pytest.approx(1)
    assert scores["agreement"]["pairs"]["euclidean-cosine"] > 0.999


def test_separation_of_two_gaussians():
    rng = np.random.default_rng(0)
    found = separation(rng.normal(1, 2, 20_000), rng.normal(-1, 1, 50_000))
    assert found["d_prime"] == pytest.approx(2 / np.sqrt(2.5), abs=0.03)
    assert found["auc"] == pytest.approx(0.8145, abs=0.01)  # Phi(2 / sqrt(5))
    width = np.diff(found["edges"])
    assert (width * found["intra"]).sum() == pytest.approx(1, abs=0.01)
    assert (width * found["cross"]).sum() == pytest.approx(1, abs=0.01)


def test_separation_where_nothing_varies():
    found = separation(np.ones(3), np.ones(4))
    assert (found["auc"], found["d_prime"]) == (0.5, 0)
    assert np.isfinite(found["intra"]).all()


def test_the_same_arguments_give_the_same_data_and_another_seed_other_scores(sparse, data):
    assert explore(sparse, tasks=40, ways=3, shots=2, normalise=False) == data
    other = explore(sparse, tasks=40, ways=3, shots=2, normalise=False, seed=1)
    assert other["scores"] != data["scores"]
    assert other["families"] == data["families"]


def test_progress_adds_up_to_the_work(sparse):
    done = []
    explore(sparse, tasks=30, progress=done.append)
    assert sum(done) == explore_work(sparse, 30) == 210


def test_few_images_per_class_give_fewer_queries():
    assert explore(made(per_class=4), tasks=5, shots=1)["scores"]["queries"] == 5 * 3
    with pytest.raises(InputError, match="fewer shots"):
        explore(made(per_class=4), tasks=5, shots=4)


def test_only_some_features_are_shipped_where_there_are_many(monkeypatch):
    monkeypatch.setattr("likelyshot.evaluation.explore.SHIPPED_BYTES", 6 * 44 * 4)  # three of them
    features = made(dim=50)
    features.vectors[:30, 17] += 100  # one class differs
    data = explore(features, tasks=5, normalise=False)
    assert 17 in data["features"]
    assert {0, 49} <= set(data["features"])
    assert len(data["features"]) == len(data["histograms"]["width"]) == 3
    assert data["features_of"] == 50
    assert data["families"]["fits"] + data["families"]["left_out"] == 6 * 50


def test_large_classes_are_counted_in_two_bytes_and_thinned(monkeypatch):
    monkeypatch.setattr("likelyshot.evaluation.explore.MOST_PER_CLASS", 300)
    features = made(classes=2, per_class=400, dim=3)
    done = []
    data = explore(features, tasks=5, ways=2, normalise=False, progress=done.append)
    assert data["histograms"]["dtype"] == "uint16"
    assert unpack(data["histograms"]["counts"], "<u2", 2, 3, 40).sum(-1).tolist() == [[300] * 3] * 2
    assert data["histograms"]["images"] == [300, 300]
    assert sum(done) == explore_work(features, 5)


def test_a_class_without_images_is_left_out():
    features = Features.from_arrays(made().vectors, made().labels + 1, classes=[f"c{i}" for i in range(8)])
    assert explore(features, tasks=5)["classes"] == [f"c{i}" for i in range(1, 7)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_the_precision_of_the_file_is_enough(sparse, dtype):
    features = Features(sparse.vectors.to(dtype), sparse.labels, sparse.classes, {})
    assert explore(features, tasks=20)["scores"]["accuracy"]["cosine"] == pytest.approx(
        explore(sparse, tasks=20)["scores"]["accuracy"]["cosine"], abs=0.01
    )


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        (lambda x: x - 1, {}, "--rectify"),
        (lambda x: x * 0, {}, "all values are zero"),
        (lambda x: (x * 1e30).float(), {"normalise": False}, "L2-normalise"),
        (lambda x: x, {"lambda_max": 0.0}, "lambda_max"),
        (lambda x: x, {"ways": 7}, "at least 7 classes"),
    ],
)
def test_what_cannot_be_explored_is_refused_with_a_remedy(sparse, change, arguments, message):
    features = Features(change(sparse.vectors), sparse.labels, sparse.classes, {})
    with pytest.raises(InputError, match=message):
        explore(features, tasks=5, **arguments)


def test_vectors_of_zeros_only_among_others_are_borne(sparse):
    vectors = sparse.vectors.clone()
    vectors[3] = 0
    json.dumps(explore(Features(vectors, sparse.labels, sparse.classes, {}), tasks=20), allow_nan=False)


def test_similar_images_are_near_each_other_on_the_map():
    generator = torch.Generator().manual_seed(0)
    centres = torch.rand(3, 20, generator=generator)
    labels = torch.arange(3).repeat(20)
    vectors = centres[labels] + 0.02 * torch.randn(60, 20, generator=generator)  # signed ones too
    features = Features.from_arrays(
        vectors, labels, classes=["a", "b", "c", "none"], paths=[f"{i}.png" for i in range(60)]
    )
    layout = image_map(features)
    places = torch.tensor([layout["x"], layout["y"]]).T.double()
    nearest = torch.cdist(places, places).fill_diagonal_(torch.inf).argmin(1)
    assert torch.equal(labels[nearest], labels)
    assert layout["classes"] == ["a", "b", "c"]
    assert layout["names"][:2] == ["0.png", "1.png"]
    assert image_map(features) == layout


@pytest.mark.parametrize(("rows", "dim"), [(1, 3), (2, 1), (6, 1), (1_200, 2)])
def test_maps_of_few_many_or_equal_images(rows, dim):
    for vectors in (torch.ones(rows, dim), torch.rand(rows, dim, generator=torch.Generator().manual_seed(0))):
        layout = image_map(Features.from_arrays(vectors, ["x"] * rows))
        assert len(layout["names"]) == min(rows, 1_000)
        assert np.isfinite([layout["x"], layout["y"]]).all()
