from __future__ import annotations

import functools
import sys
import textwrap

import numpy as np
import pytest
import torch

from likelyshot import Balanced, Dirichlet, Features, Result, calibrate, evaluate, machine, sample_tasks
from likelyshot.data.features import Base
from likelyshot.errors import InputError
from likelyshot.evaluation.evaluate import describe, fit_temperature
from likelyshot.methods import FACTS, METHODS
from likelyshot.methods.facts import Facts
from processes import Child


@pytest.fixture(scope="module")
def tasks(features):
    return sample_tasks(features.labels, n_tasks=60, ways=4, shots=2, query=Dirichlet(20, 2.0), seed=3)


def test_equals_a_loop_over_tasks(features, tasks):
    result = evaluate(METHODS["mll"], features, tasks)
    for t in range(len(tasks)):
        scores = METHODS["mll"](
            features.vectors[tasks.support[t]],
            tasks.support_labels,
            features.vectors[tasks.query[t]],
            n_ways=4,
        )
        right = (scores.argmax(-1) == tasks.query_labels[t]).double().mean().item()
        assert result.accuracy[t] == pytest.approx(right, abs=1e-8)
    assert result.mean == pytest.approx(result.accuracy.mean())
    assert result.ci95 == pytest.approx(1.96 * result.accuracy.std(ddof=1) / np.sqrt(60))


@pytest.mark.parametrize("name", ["euclidean", "cosine", "mll", "mll_transductive", "combined", "simpleshot"])
def test_any_chunk_size_and_number_of_workers_gives_the_same(name, features, validation, tasks):
    method = METHODS[name]
    if name == "combined":
        drawn = sample_tasks(validation.labels, n_tasks=30, ways=4, shots=2, query=Balanced(5), seed=0)
        method = functools.partial(method, calibration=calibrate(validation, drawn))
    if name == "simpleshot":
        method = functools.partial(method, base_mean=validation.vectors.mean(0))
    wanted = evaluate(method, features, tasks)
    for chunk_bytes, workers in ((1, 1), (1, 3), (5_000, 2), (10**9, 1)):
        found = evaluate(method, features, tasks, chunk_bytes=chunk_bytes, workers=workers)
        assert np.array_equal(found.accuracy, wanted.accuracy)
        assert np.array_equal(found.macro_f1, wanted.macro_f1)


def test_progress_counts_every_task_once(features, tasks):
    done = []
    evaluate(METHODS["mll"], features, tasks, chunk_bytes=10_000, progress=done.append)
    assert sum(done) == len(tasks)
    assert len(done) > 1


def test_the_configuration_says_all_that_is_needed(features, tasks):
    result = evaluate(functools.partial(METHODS["mll"], lambda_max=80.0), features, tasks)
    assert result.config["params"] == {"lambda_max": 80.0, "normalise": True, "shrinkage": 0.0}
    assert result.config["tasks_digest"] == tasks.digest
    assert result.config["features"][0]["digest"] == features.digest
    assert {"torch", "numpy", "python", "likelyshot", "date"} <= result.environment.keys()
    assert result.seconds > 0


def test_methods_without_their_statistics_are_refused(features, tasks):
    with pytest.raises(InputError, match="simpleshot needs base_mean"):
        evaluate(METHODS["simpleshot"], features, tasks)
    with pytest.raises(InputError, match="combined needs calibration"):
        evaluate(METHODS["combined"], features, tasks)


def test_statistics_are_described_not_dumped():
    name, params = describe(functools.partial(METHODS["simpleshot"], base_mean=torch.ones(4)))
    assert name == "simpleshot"
    assert params["base_mean"]["shape"] == [4]


def test_tasks_of_other_labels_are_refused(features, tasks):
    other = Features.from_arrays(features.vectors[:-1], features.labels[:-1])
    with pytest.raises(InputError, match="labels"):
        evaluate(METHODS["mll"], other, tasks)


def test_an_all_zero_vector_is_refused_when_it_would_be_normalised(features, tasks):
    vectors = features.vectors.clone()
    vectors[7] = 0
    broken = Features(vectors, features.labels, features.classes, {})
    with pytest.raises(InputError, match=r"vector 8 \(class class 0\) is all zeros.*--no-normalise"):
        evaluate(METHODS["cosine"], broken, tasks)
    evaluate(functools.partial(METHODS["euclidean"], normalise=False), broken, tasks)


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_lengths_whose_squares_overflow_or_vanish_are_left_to_the_method(features, tasks, scale):
    scaled = Features(features.vectors * scale, features.labels, features.classes, {})
    wanted, found = (evaluate(METHODS["mll"], part, tasks).accuracy for part in (features, scaled))
    assert np.abs(wanted - found).max() <= 0.05 + 1e-9  # one query of 20, by rounding
    assert np.abs(wanted - found).mean() < 1e-2


@pytest.mark.parametrize("name", ["simpleshot", "laplacianshot", "bd_cspn", "bavardage"])
@pytest.mark.parametrize("at", ["far", "on a vector"])
def test_centring_on_the_base_classes_is_the_same_before_the_tasks_as_in_them(name, at, features, validation, tasks):
    base = Base.of(validation)
    mean = base.mean if at == "far" else features.vectors[3]  # the latter leaves a vector without a length
    needed = {"base_mean": mean} | ({"base_within": base.within} if name == "bavardage" else {})
    method = functools.partial(METHODS[name], **needed)
    result = evaluate(method, features, tasks)
    assert result.config["params"]["base_mean"]["shape"] == [12]
    for t in range(0, len(tasks), 7):
        support, query = features.vectors[tasks.support[t]], features.vectors[tasks.query[t]]
        scores = method(support, tasks.support_labels, query, n_ways=4)
        right = (scores.argmax(-1) == tasks.query_labels[t]).double().mean().item()
        assert result.accuracy[t] == pytest.approx(right, abs=1e-8)


def test_a_function_of_ones_own_may_be_called_like_one_of_ours(features, tasks):
    def simpleshot(support, labels, query, *, n_ways, base_mean):
        assert base_mean.shape == (12,)
        return METHODS["protonet"](support - base_mean, labels, query - base_mean, n_ways=n_ways)

    mine = functools.partial(simpleshot, base_mean=torch.ones(12))
    assert evaluate(mine, features, tasks).mean == pytest.approx(evaluate(METHODS["protonet"], features, tasks).mean)


def test_normalise_of_a_function_of_ones_own_means_what_it_says(features, tasks):
    """Here it scales every feature; length-one vectors in its place would be other features."""
    far = Features(features.vectors + 3, features.labels, features.classes, {})

    def mll(support, labels, query, *, n_ways, normalise=True):
        if normalise:
            mean, spread = support.mean(-2, keepdim=True), support.std(-2, keepdim=True)
            support, query = (support - mean) / spread, (query - mean) / spread
        return METHODS["protonet"](support, labels, query, n_ways=n_ways)

    result = evaluate(mll, far, tasks)
    for t in range(0, len(tasks), 5):
        scores = mll(far.vectors[tasks.support[t]], tasks.support_labels, far.vectors[tasks.query[t]], n_ways=4)
        right = (scores.argmax(-1) == tasks.query_labels[t]).double().mean().item()
        assert result.accuracy[t] == pytest.approx(right, abs=1e-8)
    zero = Features(features.vectors * (features.labels > 0)[:, None], features.labels, features.classes, {})
    evaluate(mll, zero, tasks)  # ours refuse vectors without a direction


def test_no_tasks_are_refused(features, tasks):
    with pytest.raises(InputError, match="expected at least one task"):
        evaluate(METHODS["mll"], features, tasks[:0])
    with pytest.raises(InputError, match="expected at least one task"):
        calibrate(features, tasks[:0])


def test_numbers_of_numpy_are_saved(features, tasks, tmp_path):
    result = evaluate(functools.partial(METHODS["mll"], lambda_max=np.float32(40)), features, tasks)
    assert Result.load(result.save(tmp_path / "r.json")).config["params"]["lambda_max"] == 40

    def mine(support, labels, query, *, n_ways, network=None, weights=None, names=("a", 1)):
        return METHODS["protonet"](support, labels, query, n_ways=n_ways)

    result = evaluate(functools.partial(mine, network=torch.nn.ReLU(), weights=np.ones(3)), features, tasks)
    params = Result.load(result.save(tmp_path / "r.json")).config["params"]
    assert (params["network"], params["weights"]["shape"], params["names"]) == ("ReLU", [3], ["a", 1])


def test_negative_features_are_refused_by_mll(features, tasks):
    signed = Features(features.vectors - 0.1, features.labels, features.classes, {})
    with pytest.raises(InputError, match="non-negative"):
        evaluate(METHODS["mll"], signed, tasks)
    evaluate(METHODS["mll"], signed.rectified(), tasks)


def test_a_calibration_of_another_encoder_is_refused(features, validation, tasks):
    def of(encoder, part):
        return Features(part.vectors, part.labels, part.classes, {"encoder": encoder} if encoder else {})

    drawn = sample_tasks(validation.labels, n_tasks=30, ways=4, shots=2, query=Balanced(5), seed=0)
    method = functools.partial(METHODS["combined"], calibration=calibrate(of("A", validation), drawn))
    with pytest.raises(InputError, match="made with features of 'A', these are of 'B'"):
        evaluate(method, of("B", features), tasks)
    evaluate(method, of("A", features), tasks)
    evaluate(method, of(None, features), tasks)


def test_one_network_per_metric(features, validation, tasks):
    networks = [Features(features.vectors * s, features.labels, features.classes, {}) for s in (1, 2, 3)]
    drawn = sample_tasks(validation.labels, n_tasks=30, ways=4, shots=2, query=Balanced(5), seed=0)
    method = functools.partial(METHODS["combined"], calibration=calibrate([validation] * 3, drawn))
    apart, together = evaluate(method, networks, tasks), evaluate(method, features, tasks)
    assert np.array_equal(apart.accuracy, together.accuracy)
    assert len(apart.config["features"]) == 3


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak memory of Linux")
@pytest.mark.processes
def test_memory_does_not_hold_the_vectors_of_all_tasks(tmp_path):
    script = textwrap.dedent(
        """
        import torch
        from likelyshot import Features, sample_tasks, Dirichlet, evaluate
        from likelyshot.methods import METHODS
        labels = torch.arange(20).repeat_interleave(600)
        vectors = torch.rand(len(labels), 640, dtype=torch.float16)
        tasks = sample_tasks(labels, n_tasks=4_000, ways=5, shots=5, query=Dirichlet(75, 2.0), seed=0)
        evaluate(METHODS["mll"], Features.from_arrays(vectors, labels), tasks)
        # not ru_maxrss, which starts from the peak of the process that started this one
        [peak] = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
        print(int(peak) / 1e6)
        """
    )
    child = Child(script, folder=tmp_path)
    assert child.wait() == 0, child.err
    assert float(child.out) < 1


def test_a_result_says_how_it_was_wrong(features):
    tasks = sample_tasks(features.labels, n_tasks=60, ways=4, shots=1, query=Dirichlet(20, 1.0), seed=3)
    result = evaluate(METHODS["euclidean"], features, tasks, temperature=0.5)
    counts = [np.bincount(row, minlength=4) for row in tasks.query_labels.numpy()]
    assert result.largest_share == pytest.approx([row.max() / 20 for row in counts])
    assert sum(result.reliability["count"]) == 60 * 20
    assert sum(result.reliability["correct"]) == pytest.approx(result.mean * 60 * 20)
    assert (result.reliability["temperature"], result.reliability["fitted"]) == (0.5, True)
    assert evaluate(METHODS["euclidean"], features, tasks).reliability["fitted"] is False
    shares = [pair["wrong"] / pair["queries"] for pair in result.confused]
    assert shares == sorted(shares, reverse=True)
    assert all(pair["true"] != pair["predicted"] and pair["queries"] >= 20 for pair in result.confused)


def test_a_fitted_temperature_is_better_calibrated(features):
    tasks = sample_tasks(features.labels, n_tasks=60, ways=4, shots=1, query=Balanced(5), seed=3)
    temperature = fit_temperature(METHODS["mll"], features, tasks)
    assert evaluate(METHODS["mll"], features, tasks, temperature=temperature).ece < 0.1
    assert (
        evaluate(METHODS["mll"], features, tasks, temperature=temperature).ece
        < evaluate(METHODS["mll"], features, tasks, temperature=temperature / 20).ece
    )


def test_inputs_are_checked_once_and_not_in_every_chunk(features, tasks, monkeypatch):
    seen = []

    def spy(support, labels, query, *, n_ways):
        seen.append(machine.inputs_are_checked())
        return METHODS["euclidean"](support, labels, query, n_ways=n_ways)

    evaluate(spy, features, tasks)
    assert not any(seen), "a method of the user's own checks what it likes"
    seen.clear()
    monkeypatch.setitem(FACTS, spy, Facts("spy"))
    evaluate(spy, features, tasks)
    assert seen
    assert all(seen)
    seen.clear()
    evaluate(spy, Features.from_arrays(features.vectors * 1e20, features.labels), tasks)
    assert not any(seen), "what could overflow is left to the method"


def test_a_chunk_that_does_not_fit_is_done_in_halves(features, tasks):
    sizes = []

    def small(support, labels, query, *, n_ways):
        if len(support) > 3:
            raise torch.OutOfMemoryError
        sizes.append(len(support))
        return METHODS["mll"](support, labels, query, n_ways=n_ways)

    expected = evaluate(METHODS["mll"], features, tasks)
    found = evaluate(small, features, tasks, workers=1)
    assert sum(sizes) == len(tasks)
    assert max(sizes) == 3 or len(tasks) < 3
    np.testing.assert_allclose(found.accuracy, expected.accuracy)

    def never(support, labels, query, *, n_ways):
        raise torch.OutOfMemoryError

    with pytest.raises(InputError, match="expected memory for at least one task on cpu"):
        evaluate(never, features, tasks)


def test_a_device_without_double_precision_is_refused_by_methods_that_need_it(features, tasks, monkeypatch):
    monkeypatch.setattr(machine, "WITHOUT_DOUBLE", {"cpu"})
    with pytest.raises(InputError, match="ridge computes in double precision, which cpu does not have"):
        evaluate(METHODS["ridge"], features, tasks)
    assert len(evaluate(METHODS["likelihood_mixture"], features, tasks).accuracy) == len(tasks)
