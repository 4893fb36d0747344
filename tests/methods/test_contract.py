"""What every method promises, whatever it computes."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from likelyshot import InputError, calibrate, heads, sample_tasks
from likelyshot.data.features import Base, Features
from likelyshot.data.tasks import Balanced
from likelyshot.functional.scores import l2_normalise
from likelyshot.methods import METHODS
from likelyshot.methods.binding import facts_of, needs_of, parameters_of

WAYS, SHOTS, DIM = 4, 3, 24
#: What holds after 20 steps holds after the thousand of the default, which the tests of these methods take.
FEW_STEPS = {"tim": {"steps": 20}, "alpha_tim": {"steps": 20}, "baseline": {"steps": 20}, "baseline_pp": {"steps": 20}}
#: Without the choice of a strength or many small rounds, which the tests of these methods take.
FEW_STEPS |= {"logistic": {"c": 1.0}, "lr_ici": {"per_round": 50}}
#: Over the graph of an untrained head, labels must not spread as far.
FEW_STEPS |= {"tpn": {"alpha": 0.5}}
NON_NEGATIVE = [name for name, ours in METHODS.items() if facts_of(ours).non_negative]
INDUCTIVE = [name for name, ours in METHODS.items() if facts_of(ours).kind != "transductive" and name != "combined"]


def draw(seed: int, *batch: int, queries: int = 11, ways: int = WAYS, shots: int = SHOTS, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    centres = torch.rand(*batch, ways, DIM, generator=generator, dtype=dtype)
    labels = torch.arange(ways).repeat_interleave(shots)
    support = torch.rand(*batch, ways * shots, DIM, generator=generator, dtype=dtype) * centres[..., labels, :]
    truth = torch.randint(ways, (queries,), generator=generator)
    query = torch.rand(*batch, queries, DIM, generator=generator, dtype=dtype) * centres[..., truth, :]
    return support, labels, query


def build_head(name: str, ways: int = WAYS, dim: int = DIM) -> heads.Head:
    """A head where its training starts, for so many classes, if it is tied to them."""
    return heads.build(name, {"ways": ways} if "ways" in heads.parameters(name, {}) else {}, dim=dim)


@functools.cache
def method(name: str, ways: int = WAYS, shots: int = SHOTS):
    """A method with the statistics that it needs, and few steps."""
    generator = torch.Generator().manual_seed(99)
    labels = torch.arange(60 * 21) % 21
    vectors = torch.rand(60 * 21, DIM, generator=generator) * torch.rand(21, DIM, generator=generator)[labels]
    base = Features.from_arrays(vectors, labels)
    tasks = sample_tasks(labels, n_tasks=30, ways=ways, shots=shots, query=Balanced(5), seed=1)
    statistics = {
        "base_mean": lambda: Base.of(base).mean,
        "base_within": lambda: Base.of(base).within,
        "calibration": lambda: calibrate(base, tasks),
        "head": lambda: build_head(name, ways),
    }
    parameters = inspect.signature(METHODS[name]).parameters
    needed = {key: make() for key, make in statistics.items() if key in parameters}
    return functools.partial(METHODS[name], n_ways=ways, **needed, **FEW_STEPS.get(name, {}))


every_method = pytest.mark.parametrize("name", METHODS)


@every_method
def test_every_parameter_is_described(name):
    described = (inspect.getdoc(METHODS[name]) or "").partition("Args:\n")[2]
    for key in [*needs_of(METHODS[name]), *parameters_of(METHODS[name])]:
        assert f"    {key}: " in described


@every_method
def test_a_batch_is_its_tasks_one_by_one(name):
    support, labels, query = draw(0, 2, 2)
    together = method(name)(support, labels, query)
    assert together.shape == (2, 2, 11, WAYS)
    for i, j in itertools.product(range(2), range(2)):
        alone = method(name)(support[i, j], labels, query[i, j])
        torch.testing.assert_close(together[i, j], alone, rtol=1e-9, atol=1e-9)
    shared = method(name)(support[0, 0], labels, query[0])
    torch.testing.assert_close(shared[1], method(name)(support[0, 0], labels, query[0, 1]), rtol=1e-9, atol=1e-9)


@every_method
def test_labels_may_differ_between_tasks(name):
    support, labels, query = draw(1, 2)
    flipped = torch.stack([labels, WAYS - 1 - labels])
    scores = method(name)(support, flipped, query)
    torch.testing.assert_close(scores[0], method(name)(support[0], labels, query[0]))
    torch.testing.assert_close(scores[1], method(name)(support[1], labels, query[1]).flip(-1))


@every_method
@settings(deadline=None, max_examples=4)
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
def test_dtype_is_kept_inputs_are_unchanged_and_a_second_call_gives_the_same(name):
    for dtype in (torch.float32, torch.float64):
        inputs = draw(2, dtype=dtype)
        copies = [x.clone() for x in inputs]
        scores = method(name)(*inputs)
        assert scores.dtype == (torch.float64 if name == "combined" else dtype)
        assert all(torch.equal(x, copy) for x, copy in zip(inputs, copies, strict=True))
        assert torch.equal(method(name)(*inputs), scores)


@every_method
def test_half_precision_is_computed_in_single(name):
    support, labels, query = draw(3, dtype=torch.float32)
    scores = method(name)(support.half(), labels, query.half())
    torch.testing.assert_close(scores, method(name)(support.half().float(), labels, query.half().float()))


@every_method
def test_odd_tasks_have_finite_scores(name):
    """Zero, tiny, equal and huge features; duplicates; a class without support; a single query; none."""
    support, labels, query = draw(5, queries=5)
    zeros = torch.zeros_like(support)
    tasks = [
        (support, torch.where(labels == 1, 0, labels), query[:1]),
        (support, labels, support.clone()),
        (support[:1].expand_as(support), labels, support[:1].expand(3, -1)),
        (support, labels, zeros[:3]),
        (zeros, labels, query),
        (zeros, labels, zeros[:3]),
    ]
    tasks += [tuple(x.float() if x.is_floating_point() else x for x in task) for task in tasks]
    for value in (0.0, 1e-300, 1e-30, 1.0, 1e30, 1e200):
        odd_support, odd_query = support.clone(), query.clone()
        odd_support[0], odd_query[0], odd_query[1] = value, value, 0
        tasks.append((odd_support, labels, odd_query))
    for task in tasks:
        assert method(name)(*task).isfinite().all()
    assert method(name)(support, labels, query[:0]).shape == (0, WAYS)


@every_method
def test_many_ways_and_shots_are_better_than_chance(name):
    for ways, shots in ((20, 1), (2, 50)):
        support, labels, _ = draw(10, 2, ways=ways, shots=shots)
        truth = torch.arange(40) % ways
        centres = torch.rand(2, ways, DIM, generator=torch.Generator().manual_seed(10), dtype=torch.float64)
        noise = torch.rand(2, 40, DIM, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        scores = method(name, ways, shots)(support, labels, noise * centres[:, truth])
        assert scores.isfinite().all()
        assert (scores.argmax(-1) == truth).double().mean() > {20: 0.15, 2: 0.75}[ways]


@every_method
def test_identical_queries_get_identical_scores(name):
    support, labels, query = draw(11)
    for copies in (query[:1].expand(9, -1), support[:1].expand(9, -1)):
        scores = method(name)(support, labels, copies)
        torch.testing.assert_close(scores, scores[:1].expand_as(scores), rtol=1e-7, atol=1e-7)
    scores = method(name)(support, labels, torch.cat([support, support]))
    torch.testing.assert_close(scores[: len(support)], scores[len(support) :], rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("name", [name for name in METHODS if "normalise" in parameters_of(METHODS[name])])
def test_the_scale_of_features_does_not_matter_where_they_are_normalised(name):
    support, labels, query = draw(14)
    scores = method(name)(support, labels, query)
    for scale in (1e-300, 1e-30, 1e30, 1e200):
        scaled = method(name)(support * scale, labels, query * scale)
        torch.testing.assert_close(scaled, scores, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("name", [name for name in METHODS if "normalise" in parameters_of(METHODS[name])])
def test_unit_vectors_are_normalised_already_unless_the_facts_say_otherwise(name):
    """`evaluate` normalises every vector once, and then calls methods without."""
    support, labels, query = draw(16)
    scores = method(name)(support, labels, query)
    again = method(name)(l2_normalise(support), labels, l2_normalise(query), normalise=False)
    if facts_of(METHODS[name]).rescales:
        assert not torch.allclose(again, scores, rtol=1e-3)
    else:
        torch.testing.assert_close(again, scores, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("name", sorted(METHODS.keys() - {"combined"}))
def test_signed_features_are_refused_by_methods_that_have_no_answer(name):
    support, labels, query = draw(12)
    if name in NON_NEGATIVE:
        for pair in ((support - 1, query), (support, query - 1)):
            with pytest.raises(
                InputError, match=rf"{name} needs non-negative features.*relu\(x\), relu\(-x\).*rectify"
            ):
                method(name)(pair[0], labels, pair[1])
    else:
        assert method(name)(support - 0.5, labels, query - 0.5).isfinite().all()


@every_method
def test_inputs_that_do_not_fit_are_refused(name):
    support, labels, query = draw(9)
    for wrong, message in (
        ((support, labels[:-1], query), "expected a label for each of 12 support vectors, got labels of shape"),
        ((support, labels + 1, query), "expected labels from 0 to 3, one less than n_ways, got 1 to 4"),
        ((support, labels - 1, query), "expected labels from 0 to 3, one less than n_ways, got -1 to 2"),
        ((support, labels, query[:, :-1]), "dimension"),
    ):
        with pytest.raises(InputError, match=message):
            method(name)(*wrong)
    for which, value in itertools.product((0, 2), (float("nan"), float("inf"))):
        inputs = list(draw(9))
        inputs[which][1, 2] = value
        with pytest.raises(InputError, match="expected finite features, but got NaN or infinity"):
            method(name)(*inputs)


@pytest.mark.parametrize("name", [name for name in METHODS if "base_mean" in needs_of(METHODS[name])])
def test_a_mean_of_another_encoder_is_refused_and_none_is_for_centred_features(name):
    for wrong in (torch.zeros(DIM - 1), torch.zeros(1, DIM), "mean"):
        with pytest.raises(InputError, match=r"expected base_mean as a tensor of shape \(24,\), got"):
            method(name)(*draw(9), base_mean=wrong)
    support, labels, query = draw(9)
    mean = method(name).keywords["base_mean"].double()
    centred = [l2_normalise(x - mean) for x in (support, query)]
    done = method(name)(centred[0], labels, centred[1], base_mean=None)
    torch.testing.assert_close(done, method(name)(support, labels, query), rtol=1e-6, atol=1e-6)


NONSENSE = [None, "many", [1.0], {}, True, 1j, float("nan"), float("inf"), -1, -1e300, 1e300, 10**400, torch.ones(2)]
EXTREME = [0, 1e-300, 1e-12, 1e-6, 0.5, 1, 1e6, 1e12]


@every_method
def test_a_value_that_has_no_meaning_is_refused_for_every_parameter(name):
    support, labels, query = draw(15, dtype=torch.float32)
    for key, default in (parameters_of(METHODS[name]) | {"n_ways": WAYS}).items():
        numbers = isinstance(default, int | float) and not isinstance(default, bool)
        assert numbers or key in (
            "alpha",
            "batch_statistics",
            "lambda_max",
            "normalise",
            "marginals",
            "rectified",
            "rule",
            "t_vb",
            "transductive",
        ), "a parameter of a new kind"
        for value in NONSENSE:
            if value is default or (isinstance(value, bool) and isinstance(default, bool)):
                continue  # None leaves the choice to the method
            with pytest.raises(InputError, match=key):
                method(name)(support, labels, query, **{key: value})


@every_method
def test_an_extreme_value_is_refused_or_has_finite_scores(name):
    support, labels, query = draw(15, queries=5, dtype=torch.float32)
    labels = torch.where(labels == 1, 0, labels)  # one class has no support
    few = {"steps": 3} if "steps" in parameters_of(METHODS[name]) else {}
    for key, default in parameters_of(METHODS[name]).items():
        if not isinstance(default, int | float | None) or default is True:
            continue
        for value in EXTREME:
            number = int(value) if isinstance(default, int) else value
            with contextlib.suppress(InputError):
                assert method(name)(support, labels, query, **few | {key: number}).isfinite().all()


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("mll", "lambda_max", 0.0),
        ("mll_transductive", "eta", 1.1),
        ("bavardage", "iterations", 0),
        ("laplacianshot", "neighbours", 0),
        ("lr_ici", "dims", 0),
        ("protolp", "beta", 1.5),
        ("pt_map", "lam", 10_000),
        ("pt_map", "power", 1.5),
        ("pt_map", "tolerance", 0.0),
        ("tim", "steps", 100_001),
        ("tim", "steps", 2.0),
    ],
)
def test_the_bounds_of_parameters(name, key, value):
    with pytest.raises(InputError, match=rf"^{key} must be a (whole )?number from .* to .*, got {value}: "):
        method(name)(*draw(15), **{key: value})


@pytest.mark.parametrize("name", [name for name in INDUCTIVE if facts_of(METHODS[name]).kind == "closed form"])
def test_methods_with_a_closed_form_are_differentiable(name):
    support, labels, query = draw(8, queries=2)
    support, query = support[:, :5].clone() + 0.1, query[:, :5].clone() + 0.1
    function = METHODS[name]
    extra = {"base_mean": torch.full((5,), 0.1, dtype=torch.float64)} if name == "simpleshot" else {}
    extra |= {"head": heads.build(name, {}, dim=5).requires_grad_(False)} if "head" in needs_of(function) else {}
    assert torch.autograd.gradcheck(
        lambda s, q: function(s, labels, q, n_ways=WAYS, **extra),
        (support.requires_grad_(), query.requires_grad_()),
    )


@pytest.mark.parametrize("name", INDUCTIVE)
def test_inductive_scores_do_not_depend_on_the_other_queries(name):
    support, labels, query = draw(9)
    torch.testing.assert_close(method(name)(support, labels, query)[:3], method(name)(support, labels, query[:3]))
