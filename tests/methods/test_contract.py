"""What every method promises, whatever it computes."""

from __future__ import annotations

import functools
import inspect

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from likelyshot import InputError, calibrate, sample_tasks
from likelyshot.data.features import Base, Features
from likelyshot.data.tasks import Balanced
from likelyshot.methods import METHODS, facts_of
from likelyshot.methods.binding import parameters_of

WAYS, SHOTS, DIM = 4, 3, 24


def draw(seed: int, *batch: int, queries: int = 11, ways: int = WAYS, shots: int = SHOTS, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    centres = torch.rand(*batch, ways, DIM, generator=generator, dtype=dtype)
    labels = torch.arange(ways).repeat_interleave(shots)
    support = torch.rand(*batch, ways * shots, DIM, generator=generator, dtype=dtype) * centres[..., labels, :]
    truth = torch.randint(ways, (queries,), generator=generator)
    query = torch.rand(*batch, queries, DIM, generator=generator, dtype=dtype) * centres[..., truth, :]
    return support, labels, query


@functools.cache
def method(name: str, ways: int = WAYS, shots: int = SHOTS):
    """A method with the statistics that it needs."""
    generator = torch.Generator().manual_seed(99)
    labels = torch.arange(60 * 21) % 21
    vectors = torch.rand(60 * 21, DIM, generator=generator) * torch.rand(21, DIM, generator=generator)[labels]
    base = Features.from_arrays(vectors, labels)
    tasks = sample_tasks(labels, n_tasks=30, ways=ways, shots=shots, query=Balanced(5), seed=1)
    statistics = {
        "base_mean": lambda: Base.of(base).mean,
        "base_within": lambda: Base.of(base).within,
        "calibration": lambda: calibrate(base, tasks),
    }
    parameters = inspect.signature(METHODS[name]).parameters
    needed = {key: make() for key, make in statistics.items() if key in parameters}
    return functools.partial(METHODS[name], n_ways=ways, **needed)


every_method = pytest.mark.parametrize("name", METHODS)


@every_method
def test_batch_equals_loop(name):
    support, labels, query = draw(0, 2, 3)
    together = method(name)(support, labels, query)
    assert together.shape == (2, 3, 11, WAYS)
    for i in range(2):
        for j in range(3):
            alone = method(name)(support[i, j], labels, query[i, j])
            torch.testing.assert_close(together[i, j], alone, rtol=1e-9, atol=1e-9)


@every_method
def test_labels_may_differ_between_tasks(name):
    support, labels, query = draw(1, 2)
    flipped = torch.stack([labels, WAYS - 1 - labels])
    scores = method(name)(support, flipped, query)
    torch.testing.assert_close(scores[0], method(name)(support[0], labels, query[0]))
    torch.testing.assert_close(scores[1], method(name)(support[1], labels, query[1]).flip(-1))


@every_method
@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 1000), data=st.data())
def test_permuting_classes_support_or_queries_permutes_the_scores(name, seed, data):
    support, labels, query = draw(seed)
    classes = torch.tensor(data.draw(st.permutations(range(WAYS))))
    rows = torch.tensor(data.draw(st.permutations(range(len(labels)))))
    queries = torch.tensor(data.draw(st.permutations(range(len(query)))))
    scores = method(name)(support, labels, query)
    again = method(name)(support[rows], classes[labels][rows], query[queries])
    torch.testing.assert_close(again[:, classes], scores[queries], rtol=1e-8, atol=1e-8)


@every_method
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_is_kept_and_inputs_are_unchanged(name, dtype):
    inputs = draw(2, dtype=dtype)
    copies = [x.clone() for x in inputs]
    scores = method(name)(*inputs)
    assert scores.dtype == (torch.float64 if name == "combined" else dtype)
    assert all(torch.equal(x, copy) for x, copy in zip(inputs, copies, strict=True))


@every_method
def test_half_precision_is_computed_in_single(name):
    support, labels, query = draw(3, dtype=torch.float32)
    scores = method(name)(support.half(), labels, query.half())
    torch.testing.assert_close(scores, method(name)(support.half().float(), labels, query.half().float()))


@every_method
def test_a_second_call_gives_the_same(name):
    inputs = draw(4)
    assert torch.equal(method(name)(*inputs), method(name)(*inputs))


@every_method
@pytest.mark.parametrize("value", [0.0, 1e-300, 1e-30, 1.0, 1e30, 1e200])
def test_zero_tiny_equal_and_huge_features_stay_finite(name, value):
    support, labels, query = draw(5)
    support, query = support.clone(), query.clone()
    support[0], query[0], query[1] = value, value, 0
    scores = method(name)(support, labels, query)
    assert scores.isfinite().all()


@every_method
def test_a_class_without_support_and_a_single_query_stay_finite(name):
    support, labels, query = draw(6)
    absent = torch.where(labels == 1, 0, labels)
    assert method(name)(support, absent, query[:1]).isfinite().all()


@every_method
@pytest.mark.parametrize(("ways", "shots"), [(20, 1), (2, 50), (20, 5), (2, 1)])
def test_many_ways_and_shots_are_better_than_chance(name, ways, shots):
    generator = torch.Generator().manual_seed(0)
    support, labels, _ = draw(10, 2, ways=ways, shots=shots)
    truth = torch.arange(60) % ways
    centres = torch.rand(2, ways, DIM, generator=torch.Generator().manual_seed(10), dtype=torch.float64)
    query = torch.rand(2, 60, DIM, generator=generator, dtype=torch.float64) * centres[:, truth]
    scores = method(name, ways, shots)(support, labels, query)
    assert scores.shape == (2, 60, ways)
    assert scores.isfinite().all()
    assert (scores.argmax(-1) == truth).double().mean() > 2 / ways * (0.7 if ways == 2 else 1)


@every_method
def test_identical_queries_get_identical_scores(name):
    support, labels, query = draw(11)
    for copies in (query[:1].expand(9, -1), support[:1].expand(9, -1), torch.cat([support, support])):
        scores = method(name)(support, labels, copies)
        assert scores.isfinite().all()
    torch.testing.assert_close(scores[: len(support)], scores[len(support) :], rtol=1e-7, atol=1e-7)
    scores = method(name)(support, labels, query[:1].expand(9, -1))
    torch.testing.assert_close(scores, scores[:1].expand_as(scores), rtol=1e-7, atol=1e-7)


@every_method
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_duplicated_and_zero_points_stay_finite(name, dtype):
    support, labels, query = draw(13, dtype=dtype)
    zeros = torch.zeros_like(support)
    for known, asked in (
        (support, query[:1].expand(9, -1)),
        (support, support.clone()),
        (support[:1].expand_as(support), support[:1].expand(3, -1)),
        (support, zeros[:3]),
        (zeros, query),
        (zeros, zeros[:3]),
    ):
        assert method(name)(known, labels, asked).isfinite().all()


@pytest.mark.parametrize("name", [name for name in METHODS if "normalise" in parameters_of(METHODS[name])])
@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30, 1e200])
def test_the_scale_of_features_does_not_matter_where_they_are_normalised(name, scale):
    support, labels, query = draw(14)
    scores = method(name)(support, labels, query)
    scaled = method(name)(support * scale, labels, query * scale)
    torch.testing.assert_close(scaled, scores, rtol=1e-7, atol=1e-7)


NON_NEGATIVE = {name: why for name, ours in METHODS.items() if (why := facts_of(ours).non_negative)}


@pytest.mark.parametrize("name", NON_NEGATIVE)
def test_negative_features_are_refused_by_methods_that_have_no_answer(name):
    support, labels, query = draw(12)
    for pair in ((support - 1, query), (support, query - 1)):
        with pytest.raises(ValueError, match=f"{name} {NON_NEGATIVE[name]} and needs them non-negative.*rectify"):
            method(name)(pair[0], labels, pair[1])


@pytest.mark.parametrize("name", sorted(METHODS.keys() - NON_NEGATIVE.keys() - {"combined"}))
def test_signed_features_are_fine_for_all_others(name):
    support, labels, query = draw(12)
    assert method(name)(support - 0.5, labels, query - 0.5).isfinite().all()


@every_method
def test_no_queries_are_no_scores(name):
    support, labels, query = draw(9)
    assert method(name)(support, labels, query[:0]).shape == (0, WAYS)


@every_method
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda labels: labels[:-1], "expected a label for each of 12 support vectors, got labels of shape"),
        (lambda labels: labels + 1, "expected labels from 0 to 3, one less than n_ways, got 1 to 4"),
        (lambda labels: labels - 1, "expected labels from 0 to 3, one less than n_ways, got -1 to 2"),
    ],
)
def test_labels_that_do_not_fit_are_refused(name, change, message):
    support, labels, query = draw(9)
    with pytest.raises(InputError, match=message):
        method(name)(support, change(labels), query)


@every_method
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("which", [0, 2], ids=["support", "query"])
def test_features_that_are_not_finite_are_refused(name, value, which):
    inputs = list(draw(9))
    inputs[which][1, 2] = value
    with pytest.raises(InputError, match="expected finite features, but got NaN or infinity"):
        method(name)(*inputs)


@every_method
def test_other_dimensions_are_refused(name):
    support, labels, query = draw(7)
    with pytest.raises(ValueError, match="dimension"):
        method(name)(support, labels, query[:, :-1])


@pytest.mark.parametrize("name", ["euclidean", "cosine", "mll", "protonet", "simpleshot", "matching"])
def test_inductive_methods_are_differentiable(name):
    support, labels, query = draw(8, queries=2)
    support, query = support[:, :5].clone() + 0.1, query[:, :5].clone() + 0.1
    function = METHODS[name]
    extra = {"base_mean": torch.full((5,), 0.1, dtype=torch.float64)} if name == "simpleshot" else {}
    assert torch.autograd.gradcheck(
        lambda s, q: function(s, labels, q, n_ways=WAYS, **extra),
        (support.requires_grad_(), query.requires_grad_()),
    )


@pytest.mark.parametrize(
    "name", ["euclidean", "cosine", "mll", "protonet", "simpleshot", "matching", "baseline", "baseline_pp"]
)
def test_inductive_scores_do_not_depend_on_the_other_queries(name):
    support, labels, query = draw(9)
    torch.testing.assert_close(method(name)(support, labels, query)[:3], method(name)(support, labels, query[:3]))
