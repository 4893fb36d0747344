"""Tasks against a naive sampler, against theory, and against people's mistakes."""

from __future__ import annotations

import itertools
import json
import math
import pickle
import random
from collections import Counter

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from hostile import variants
from likelyshot.data.files import _digest, write_container
from likelyshot.data.tasks import FORMAT, Balanced, Dirichlet, Tasks, _draw_distinct, _largest_remainder, sample_tasks
from likelyshot.errors import InputError

CUB = np.repeat(np.arange(50), 60)
UNEQUAL = np.repeat(np.arange(8), [12, 70, 40, 25, 90, 33, 60, 18])


def labels_of(sizes):
    return np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))


# --- the naive sampler: one task at a time, in plain Python, as an oracle (and for the benchmarks) ---


def naive_largest_remainder(proportions, total):
    counts = [math.floor(total * p) for p in proportions]
    remainders = [total * p - c for p, c in zip(proportions, counts, strict=True)]
    while sum(counts) < total:
        best = max(range(len(counts)), key=lambda i: (remainders[i], -i))
        counts[best] += 1
        remainders[best] = -1.0
    return counts


def naive_sample_tasks(labels, n_tasks, ways, shots, query, seed, overlap=False):
    """Give a list of (support rows by way, [(query row, way)], classes), drawn with nothing but `random`."""
    rng = random.Random(seed)
    images = {}
    for row, label in enumerate(labels):
        images.setdefault(int(label), []).append(row)
    drawn = []
    for _ in range(n_tasks):
        classes = rng.sample(sorted(images), ways)
        while True:
            counts = [query.per_class] * ways if isinstance(query, Balanced) else None
            if counts is None:
                gammas = [rng.gammavariate(query.alpha, 1.0) for _ in classes]
                counts = naive_largest_remainder([g / sum(gammas) for g in gammas], query.total)
            rooms = [len(images[c]) - (0 if overlap else shots) for c in classes]
            if all(count <= room for count, room in zip(counts, rooms, strict=True)):
                break
        support, queries = [], []
        for way, (c, count) in enumerate(zip(classes, counts, strict=True)):
            if overlap:
                support.append(rng.sample(images[c], shots))
                chosen = rng.sample(images[c], count)
            else:
                rows = rng.sample(images[c], shots + count)
                support.append(rows[:shots])
                chosen = rows[shots:]
            queries += [(row, way) for row in chosen]
        rng.shuffle(queries)
        drawn.append((support, queries, classes))
    return drawn


def assert_valid(tasks, labels, n_tasks, ways, shots, n_query, overlap=False):
    """Check what must hold of every task, in a plain loop."""
    assert len(tasks) == n_tasks
    assert tasks.support.shape == (n_tasks, ways * shots)
    assert tasks.query.shape == tasks.query_labels.shape == (n_tasks, n_query)
    dtypes = [a.dtype for a in (tasks.support, tasks.query, tasks.query_labels, tasks.classes)]
    assert dtypes == [torch.int32, torch.int32, torch.int16, torch.int32]
    way_of_support = tasks.support_labels.tolist()
    assert way_of_support == [way for way in range(ways) for _ in range(shots)]
    for t in range(n_tasks):
        support, query, classes = (a[t].tolist() for a in (tasks.support, tasks.query, tasks.classes))
        assert len(set(classes)) == ways
        assert len(set(support)) == len(support)
        assert len(set(query)) == len(query)
        assert overlap or not set(support) & set(query)
        assert [labels[row] for row in support] == [classes[way] for way in way_of_support]
        assert [labels[row] for row in query] == [classes[way] for way in tasks.query_labels[t].tolist()]


def counts_of(tasks):
    """Queries of each way, (t, k)."""
    one_hot = tasks.query_labels[:, :, None] == torch.arange(tasks.ways)
    return one_hot.sum(1).numpy()


def same_distribution(a, b):
    """p-value of the chi-square test that two samples of integers come from one distribution."""
    edges = np.unique(np.quantile(np.concatenate([a, b]), np.linspace(0, 1, 11)))
    edges[-1] += 1
    table = np.stack([np.histogram(x, edges)[0] for x in (a, b)])
    return stats.chi2_contingency(table[:, table.sum(0) > 0]).pvalue


# --- what every task must be ---


@pytest.mark.parametrize("query", [Balanced(15), Balanced(1), Dirichlet(), Dirichlet(30, 0.3)])
@pytest.mark.parametrize("shots", [1, 5])
def test_tasks_are_valid(query, shots):
    n_query = query.total if isinstance(query, Dirichlet) else 5 * query.per_class
    labels = labels_of([60] * 12)
    tasks = sample_tasks(labels, n_tasks=300, shots=shots, query=query)
    assert_valid(tasks, labels, 300, 5, shots, n_query)
    if isinstance(query, Balanced):
        assert (counts_of(tasks) == query.per_class).all()
    else:
        assert (counts_of(tasks).sum(1) == query.total).all()
        assert len(np.unique(counts_of(tasks), axis=0)) > 250


def test_unequal_classes_are_never_overdrawn():
    tasks = sample_tasks(UNEQUAL, n_tasks=2_000, ways=5, shots=5, query=Dirichlet(75, 0.5))
    assert_valid(tasks, UNEQUAL, 2_000, 5, 5, 75)
    room = np.bincount(UNEQUAL)[tasks.classes.numpy()] - 5
    assert (counts_of(tasks) <= room).all()
    assert (counts_of(tasks) == room).any()  # filled to the brim at times
    assert (counts_of(tasks) == 0).any()  # and empty


def test_every_image_can_be_used():
    labels = labels_of([6, 4, 5])
    tasks = sample_tasks(labels, n_tasks=50, ways=3, shots=1, query=Balanced(3))
    assert_valid(tasks, labels, 50, 3, 1, 9)


@settings(max_examples=80, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 25), min_size=1, max_size=7),
    ways=st.integers(2, 6),
    shots=st.integers(1, 6),
    query=st.builds(Balanced, st.integers(1, 10)) | st.builds(Dirichlet, st.integers(1, 40), st.floats(0.05, 50)),
    seed=st.integers(0, 2**70),
    overlap=st.booleans(),
)
def test_valid_or_refused_for_a_reason(sizes, ways, shots, query, seed, overlap):
    labels = labels_of(sizes) * 3 - 4  # any integers do
    n_query = query.total if isinstance(query, Dirichlet) else ways * query.per_class
    room = sorted(size - (0 if overlap else shots) for size in sizes)
    try:
        tasks = sample_tasks(labels, n_tasks=20, ways=ways, shots=shots, query=query, seed=seed, overlap=overlap)
    except InputError as error:
        if "draws for one task" in str(error):
            return  # so improbable that the bound was reached
        few_classes, few_shots = len(sizes) < ways, min(sizes) < shots
        few_queries = room[0] < query.per_class if isinstance(query, Balanced) else sum(room[:ways]) < n_query
        assert few_classes or few_shots or few_queries
    else:
        assert_valid(tasks, labels, 20, ways, shots, n_query, overlap)


def test_labels_of_any_kind_give_the_same_tasks():
    kinds = [
        CUB,
        CUB.tolist(),
        torch.from_numpy(CUB),
        torch.tensor(CUB, dtype=torch.int32),
        CUB.astype(np.uint8),
    ]
    assert len({sample_tasks(labels, n_tasks=5).digest for labels in kinds}) == 1


# --- seeds ---


def test_fewer_tasks_are_the_first_of_more():
    many = sample_tasks(UNEQUAL, n_tasks=1_000, shots=2)
    for n in (1, 10, 255, 256, 257, 600):
        assert sample_tasks(UNEQUAL, n_tasks=n, shots=2).digest == many[:n].digest


def test_seed_decides():
    assert sample_tasks(CUB, n_tasks=300, seed=3).digest == sample_tasks(CUB, n_tasks=300, seed=3).digest
    seeds = [0, 1, 2, 2**32, 2**32 + 1, 2**64]
    tasks = [sample_tasks(CUB, n_tasks=512, seed=seed) for seed in seeds]
    blocks = [block.digest for t in tasks for block in (t[:256], t[256:])]
    assert len(set(blocks)) == len(blocks)


def test_global_random_state_is_neither_used_nor_changed():
    np.random.seed(0)  # noqa: NPY002
    before = np.random.get_state()[1].copy(), torch.random.get_rng_state()  # noqa: NPY002
    sample_tasks(CUB, n_tasks=5)
    assert (np.random.get_state()[1] == before[0]).all()  # noqa: NPY002
    assert (torch.random.get_rng_state() == before[1]).all()


def test_memory_limit_changes_nothing(monkeypatch):
    whole = sample_tasks(UNEQUAL, n_tasks=300, shots=2)
    monkeypatch.setattr("likelyshot.data.tasks._POOL_ENTRIES", 1_000)
    assert sample_tasks(UNEQUAL, n_tasks=300, shots=2).digest == whole.digest


def test_tasks_of_a_seed_stay_what_they_were():
    tasks = sample_tasks([0, 1, 2] * 10, n_tasks=2, ways=2, shots=1, query=Balanced(2), seed=7)
    assert tasks.support.tolist() == [[3, 25], [20, 3]]
    assert tasks.query.tolist() == [[0, 1, 10, 24], [24, 21, 29, 17]]
    assert tasks.query_labels.tolist() == [[0, 1, 1, 0], [1, 1, 0, 0]]


# --- distributions; seeds are fixed, so that these pass or fail for good ---


@pytest.mark.parametrize(("size", "steps"), [(4, 3), (4, 4), (5, 2), (3, 1)])
def test_every_ordered_draw_is_equally_likely(size, steps):
    sizes = np.tile([size, 9], 20_000)  # beside rows of another size
    drawn = _draw_distinct(np.random.default_rng(1), sizes, steps)
    seen = Counter(map(tuple, drawn[::2].tolist()))
    expected = set(itertools.permutations(range(size), steps))
    assert set(seen) == expected
    assert stats.chisquare([seen[p] for p in expected]).pvalue > 0.001


def test_short_rows_hold_all_their_numbers_first():
    drawn = _draw_distinct(np.random.default_rng(0), np.array([2, 6, 3]), 5)
    assert sorted(drawn[0, :2]) == [0, 1]
    assert sorted(drawn[2, :3]) == [0, 1, 2]
    assert len(set(drawn[1])) == 5


def test_classes_and_images_are_uniform():
    labels = labels_of([20] * 6)
    tasks = sample_tasks(labels, n_tasks=10_000, ways=3, query=Dirichlet(20))
    ordered = Counter(map(tuple, tasks.classes.tolist()))
    assert len(ordered) == 6 * 5 * 4
    assert stats.chisquare(list(ordered.values())).pvalue > 0.001
    for column in (tasks.support[:, 0], tasks.support[:, 2], tasks.query[:, 0], tasks.query[:, -1]):
        assert stats.chisquare(np.bincount(column.numpy(), minlength=120)).pvalue > 0.001


def test_a_query_tells_nothing_about_the_support_but_that_it_is_another():
    labels = np.repeat([0, 1], 5)
    tasks = sample_tasks(labels, n_tasks=10_000, ways=2, query=Balanced(1))
    way0 = tasks.query[tasks.query_labels == 0]
    in_class0 = tasks.classes[:, 0] == 0
    pairs = Counter(zip(tasks.support[in_class0, 0].tolist(), way0[in_class0].tolist(), strict=True))
    assert set(pairs) == set(itertools.permutations(range(5), 2))
    assert stats.chisquare(list(pairs.values())).pvalue > 0.001


@pytest.mark.parametrize("query", [Balanced(15), Dirichlet(75)])
def test_order_of_queries_does_not_tell_their_class(query):
    tasks = sample_tasks(CUB, n_tasks=5_000, query=query)
    ways = tasks.query_labels.numpy()
    for position in (0, 1, 37, 74):
        assert stats.chisquare(np.bincount(ways[:, position], minlength=5)).pvalue > 0.001
    counts = counts_of(tasks)
    expected = (counts * (counts - 1)).sum(1) / (75 * 74)  # share of neighbours of one class, given the counts
    excess = (ways[:, 1:] == ways[:, :-1]).mean(1) - expected
    assert abs(excess.mean()) < 4 * excess.std() / math.sqrt(len(tasks))
    assert excess.std() > 0  # not the same order everywhere


@pytest.mark.parametrize("alpha", [0.5, 2.0, 10.0])
@pytest.mark.parametrize("ways", [3, 5])
def test_dirichlet_moments(alpha, ways):
    total = 75
    labels = np.repeat(np.arange(10), 100)
    counts = counts_of(sample_tasks(labels, n_tasks=10_000, ways=ways, query=Dirichlet(total, alpha), seed=5))
    variance = total**2 * (1 / ways) * (1 - 1 / ways) / (ways * alpha + 1)
    assert counts.mean(0) == pytest.approx(total / ways, abs=4 * math.sqrt(variance / 10_000))
    covariance = np.cov(counts.T)
    assert np.diag(covariance) == pytest.approx(variance, rel=0.06)  # rounding adds about 1/12
    off_diagonal = covariance[~np.eye(ways, dtype=bool)]
    assert off_diagonal == pytest.approx(-variance / (ways - 1), rel=0.12)


def test_extreme_concentrations():
    even = counts_of(sample_tasks(CUB, n_tasks=50, query=Dirichlet(75, 1e100)))
    assert (even == 15).all()
    single = counts_of(sample_tasks(CUB, n_tasks=50, query=Dirichlet(40, 1e-12)))
    assert (single.max(1) == 40).all()


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 50), min_size=2, max_size=8).filter(sum), st.integers(1, 200))
def test_largest_remainder_is_the_loop(weights, total):
    proportions = [w / sum(weights) for w in weights]  # small integers: many ties
    counts = _largest_remainder(np.array([proportions]), total)[0].tolist()
    assert counts == naive_largest_remainder(proportions, total)
    assert sum(counts) == total
    assert all(abs(c - total * p) < 1 + 1e-9 for c, p in zip(counts, proportions, strict=True))


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("query", [Dirichlet(40, 1.0), Balanced(7)])
def test_same_distribution_as_the_naive_sampler(query, overlap):
    shots, ways = 3, 4
    naive = naive_sample_tasks(UNEQUAL, 1_500, ways, shots, query, seed=1, overlap=overlap)
    n_query = len(naive[0][1])
    tasks = sample_tasks(UNEQUAL, n_tasks=3_000, ways=ways, shots=shots, query=query, seed=1, overlap=overlap)
    ours = list(zip(tasks.support.tolist(), tasks.query.tolist(), tasks.classes.tolist(), strict=True))
    theirs = [(list(itertools.chain(*s)), [row for row, _ in q], c) for s, q, c in naive]
    statistics = {
        "class of way 0": lambda s, q, c: c[0],
        "image of the support": lambda s, q, c: s[0],
        "image of the query": lambda s, q, c: q[0],
        "queries of the largest class": lambda s, q, c: Counter(UNEQUAL[q].tolist()).most_common(1)[0][1],
        "queries of class 4": lambda s, q, c: int((UNEQUAL[q] == 4).sum()),
        "queries of class 0": lambda s, q, c: int((UNEQUAL[q] == 0).sum()),
        "shared": lambda s, q, c: len(set(s) & set(q)),
    }
    assert len(ours[0][1]) == n_query
    for name, statistic in statistics.items():
        a, b = (np.array([statistic(*task) for task in sample]) for sample in (ours, theirs))
        if a.std() == 0:
            assert (a[0] == b).all(), name
        else:
            assert same_distribution(a, b) > 0.001, name


def test_overlap_is_as_large_as_expected_and_off_by_default():
    for shots in (1, 5):
        tasks = sample_tasks(CUB, n_tasks=4_000, shots=shots, overlap=True)
        shared = (tasks.query[:, :, None] == tasks.support[:, None, :]).any(2).float().mean(1)
        assert shared.mean().item() == pytest.approx(shots / 60, abs=4 * shared.std().item() / math.sqrt(4_000))
        assert_valid(tasks[:100], CUB, 100, 5, shots, 75, overlap=True)
        default = sample_tasks(CUB, n_tasks=4_000, shots=shots)
        assert not (default.query[:, :, None] == default.support[:, None, :]).any()


def test_overlap_needs_fewer_images():
    labels = np.repeat([0, 1], 5)
    tasks = sample_tasks(labels, n_tasks=9, ways=2, shots=5, query=Balanced(5), overlap=True)
    assert_valid(tasks, labels, 9, 2, 5, 10, overlap=True)
    assert sample_tasks(labels, n_tasks=9, ways=2, shots=5, query=Dirichlet(4), overlap=True).query.shape == (
        9,
        4,
    )


# --- errors: what was expected, what came, what to do ---


@pytest.mark.parametrize("bad", [0, -1, 1.5, 15.0, "15", None, True])
def test_plans_refuse_bad_numbers(bad):
    with pytest.raises(InputError, match="expected per_class to be a whole number of at least 1, but got"):
        Balanced(bad)
    with pytest.raises(InputError, match="expected total to be a whole number of at least 1, but got"):
        Dirichlet(total=bad)


@pytest.mark.parametrize("bad", [0, -2.0, math.nan, math.inf, 10**400, "2", None, True, 1j])
def test_dirichlet_refuses_bad_alpha(bad):
    with pytest.raises(InputError, match="expected alpha above 0"):
        Dirichlet(alpha=bad)


def test_plans_describe_themselves():
    assert Balanced().describe() == "balanced, 15 per class"
    assert Dirichlet().describe() == "Dirichlet(2), 75 queries"
    assert Dirichlet(30, 0.5).describe() == "Dirichlet(0.5), 30 queries"
    plan = Dirichlet(np.int64(30), np.float32(0.5))
    assert json.loads(json.dumps(plan.to_dict())) == {"plan": "dirichlet", "total": 30, "alpha": 0.5}
    assert Balanced(np.int32(3)).to_dict() == {"plan": "balanced", "per_class": 3}
    assert Dirichlet() == Dirichlet(75, 2.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ways": 1}, "expected ways to be a whole number of at least 2, but got 1"),
        ({"ways": 5.0}, "expected ways to be a whole number"),
        ({"shots": 0}, "expected shots to be a whole number of at least 1, but got 0"),
        ({"n_tasks": 0}, "expected n_tasks to be a whole number of at least 1, but got 0"),
        ({"n_tasks": True}, "expected n_tasks to be a whole number of at least 1, but got True"),
        ({"seed": -1}, "expected seed to be a whole number of at least 0, but got -1"),
        ({"seed": None}, "expected seed to be a whole number"),
        ({"seed": 0.5}, "expected seed to be a whole number"),
        ({"query": 15}, r"expected a query plan, but got 15: give Balanced\(15\) or Dirichlet\(75\)"),
        ({"ways": 51}, "expected at least 51 classes for 51-way tasks, but got 50 classes: add some, or ask for fewer"),
        ({"shots": 61}, r"class 0 has 60 images, but 61 are needed \(61-shot, Dirichlet\(2\), 75 queries\)"),
        (
            {"query": Dirichlet(500)},
            "class 0 has 60 images, but 500 queries are needed and the 5 smallest have 295",
        ),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        sample_tasks(CUB, **{"n_tasks": 3, **arguments})


@pytest.mark.parametrize(
    "labels",
    [
        *([], np.zeros((0,), np.int64), np.zeros((4, 2), np.int64), 3, [0.0, 1.0], [True, False], ["a", "b"]),
        *(torch.zeros(4, dtype=dtype) for dtype in (torch.float32, torch.bfloat16, torch.bool)),
        *([2**31, 0], [2**80, 0], np.array([-(2**63), 0])),
    ],
)
def test_bad_labels(labels):
    with pytest.raises(InputError, match=r"expected integer labels \(n,\), n > 0, but got .*: number the classes"):
        sample_tasks(labels)


def test_one_class_only():
    with pytest.raises(InputError, match="but got one class only, 'heron'"):
        sample_tasks([0] * 100, classes=["heron"])


def test_balanced_names_the_first_class_that_is_too_small():
    labels = np.repeat(np.arange(6), [40, 40, 19, 40, 12, 40])
    names = ["auk", "crow", "egret", "gull", "ibis", "wren"]
    message = r"class 'egret' has 19 images, but 20 are needed \(5-shot, balanced, 15 per class\): ask for fewer"
    with pytest.raises(InputError, match=message):
        sample_tasks(labels, shots=5, query=Balanced(15), classes=names)
    with pytest.raises(InputError, match="class 12 has 19 images, but 20 are needed"):
        sample_tasks(labels + 10, shots=5, query=Balanced(15), classes=names)
    with pytest.raises(InputError, match="class 'ibis' has 12 images, but 15 are needed"):
        sample_tasks(labels, shots=5, query=Balanced(15), classes=names, overlap=True)


def test_dirichlet_that_can_never_work_names_the_smallest_class():
    labels = np.repeat(np.arange(6), [16, 15, 10, 17, 60, 14])
    message = "class 'egret' has 10 images, but 75 queries are needed and the 5 smallest have 67: ask for"
    with pytest.raises(InputError, match=message):
        sample_tasks(labels, classes=["auk", "crow", "egret", "gull", "ibis", "wren"])


def test_dirichlet_that_hardly_ever_works_gives_up_and_names_the_class():
    labels = np.repeat(np.arange(5), [16, 16, 16, 16, 16])  # room for 75 queries, if all get 15
    with pytest.raises(InputError, match=r"class 'c\d' has 16 images, but \d\d were needed in the last of 1,000"):
        sample_tasks(labels, classes=[f"c{i}" for i in range(5)], query=Dirichlet(75, 0.1))


# --- slices, digests, files ---


def test_slices():
    tasks = sample_tasks(CUB, n_tasks=700, shots=2, seed=4)
    part = tasks[100:300][10:50:3]
    assert len(part) == 14
    assert part.query.equal(tasks.query[110:150:3])
    assert part.config["n_tasks"] == 14
    assert range(*part.config["range"]) == range(110, 150, 3)
    assert part.config["seed"] == 4
    assert tasks[:].digest == tasks.digest
    assert tasks[:10].query.data_ptr() == tasks.query.data_ptr()
    assert tasks[-5:].classes.equal(tasks.classes[695:])
    assert len(tasks[900:]) == 0
    joined = torch.cat([tasks[start : start + 64].query for start in range(0, 700, 64)])
    assert joined.equal(tasks.query)
    for bad in (3, slice(None, None, -1), "a"):
        with pytest.raises(InputError, match=r"expected a forward slice of tasks, but got .*write tasks\[i:i"):
            tasks[bad]


def test_config_says_how_they_were_drawn():
    config = sample_tasks(CUB, n_tasks=np.int64(3), seed=np.int64(9), overlap=True, query=Balanced(4)).config
    assert json.loads(json.dumps(config)) == config
    assert {name: config[name] for name in ("n_tasks", "seed", "overlap", "query")} == {
        **{"n_tasks": 3, "seed": 9, "overlap": True},
        "query": {"plan": "balanced", "per_class": 4},
    }


def test_digest_sees_every_array():
    tasks = sample_tasks(CUB, n_tasks=4)
    arrays = {name: getattr(tasks, name) for name in ("support", "query", "query_labels", "classes")}
    digests = {tasks.digest}
    for name in arrays:
        changed = arrays[name].clone()
        changed[2, 1] = (changed[2, 1] + 1) % 5
        digests.add(Tasks(**{**arrays, name: changed}, ways=5, shots=1, config=tasks.config).digest)
    assert len(digests) == 5
    assert pickle.loads(pickle.dumps(tasks)).digest == tasks.digest


def test_check_refuses_other_labels():
    tasks = sample_tasks(CUB, n_tasks=3)
    tasks.check(CUB)
    tasks.check(torch.from_numpy(CUB).int())
    for other in (CUB[::-1].copy(), CUB[:-1], CUB + 1):
        with pytest.raises(InputError, match=rf"expected the 3000 labels \(digest \w+\).*but got {len(other)} other"):
            tasks[:2].check(other)


def test_inconsistent_tasks_are_refused():
    tasks = sample_tasks(CUB, n_tasks=4)
    arrays = {name: getattr(tasks, name) for name in ("support", "query", "query_labels", "classes")}
    wrong = [
        {"support": tasks.support[:3]},
        {"support": tasks.support.long()},
        {"query": tasks.query[:, :-1]},
        {"query": tasks.query[:, 0], "query_labels": tasks.query_labels[:, 0]},
        {"classes": tasks.classes[:, :4]},
        {"classes": tasks.classes[0, 0]},
        {"query_labels": tasks.query_labels + 1},
        {"query_labels": tasks.query_labels - 1},
        {"query": -1 - tasks.query},
        {"support": -1 - tasks.support},
        {"shots": 2},
        {"config": {}},
        {"config": {**tasks.config, "range": [0, 5, 1]}},
        {"config": {**tasks.config, "query": {"plan": "spiral"}}},
    ]
    for change in wrong:
        with pytest.raises(InputError, match="sample them again"):
            Tasks(**{**arrays, "ways": 5, "shots": 1, "config": tasks.config, **change})


def test_save_and_load(tmp_path):
    tasks = sample_tasks(UNEQUAL, n_tasks=300, shots=3, query=Dirichlet(50, 1.5))
    for saved in (tasks, tasks[5:100:7]):
        saved.save(tmp_path / "tasks.safetensors")
        loaded = Tasks.load(str(tmp_path / "tasks.safetensors"))
        assert loaded.digest == saved.digest
        assert loaded.config == saved.config
        assert (loaded.ways, loaded.shots) == (5, 3)
        loaded.check(UNEQUAL)
    assert [path.name for path in tmp_path.iterdir()] == ["tasks.safetensors"]


def test_damaged_and_foreign_files_are_refused(tmp_path):
    path = tmp_path / "tasks.safetensors"
    tasks = sample_tasks(CUB, n_tasks=20)
    arrays = {name: getattr(tasks, name) for name in ("support", "query", "query_labels", "classes")}
    facts = {"ways": 5, "shots": 1, "config": tasks.config}
    tasks.save(path)
    good = path.read_bytes()
    flipped = bytearray(good)
    flipped[-3] ^= 1
    for content in (good[:100], good + b"x", bytes(flipped), b"PK\x03\x04 not this", safetensors.torch.save(arrays)):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"expected a file written by Tasks\.save, but .*tasks\.safetensors"):
            Tasks.load(path)
    for some in ({"support": arrays["support"]}, {**arrays, "more": tasks.query.clone()}):
        write_container(path, some, facts, form=FORMAT)
        with pytest.raises(InputError, match="expected the arrays support, query, query_labels, classes in"):
            Tasks.load(path)
    refused = 0
    for place, content in variants(facts):
        text = content.decode()
        path.write_bytes(safetensors.torch.save(arrays, {FORMAT: text, "digest": _digest(arrays, text)}))
        try:
            loaded = Tasks.load(path)
        except InputError:
            refused += 1
        else:
            assert (loaded.digest, loaded[1:3].digest) == (tasks.digest, tasks[1:3].digest), place
    assert refused > 100
    for missing in (tmp_path / "none", tmp_path):
        with pytest.raises(InputError, match="expected a file written by"):
            Tasks.load(missing)
    with pytest.raises(InputError, match="is a folder"):
        tasks.save(tmp_path)
