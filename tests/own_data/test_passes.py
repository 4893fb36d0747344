"""Transductive MLL in passes over a pile against the method on the whole pile."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from likelyshot.errors import InputError
from likelyshot.methods import METHODS
from likelyshot.methods.mll import mll
from likelyshot.methods.mll_transductive import mll_transductive
from likelyshot.own_data.rows import as_tensor, block_rows, blocks
from likelyshot.own_data.scoring import prototype_scores, scores_of, transductive_prototypes


@pytest.fixture(params=[1, 7, 90, 1_000])
def rows_per_block(request, monkeypatch):
    """Blocks of so many rows of 11 numbers."""
    monkeypatch.setattr("likelyshot.own_data.rows.CACHE_BYTES", 4 * 11 * request.param)


def task(seed: int = 0, ways: int = 4, shots: int = 3, queries: int = 90, dim: int = 11):
    """Labelled rows and a pile, exponential around class means, float64."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.rand(ways, dim, generator=generator, dtype=torch.float64) ** 2 + 0.01

    def draw(labels):
        noise = torch.empty(len(labels), dim, dtype=torch.float64).exponential_(generator=generator)
        return noise * centres[labels]

    labels = torch.arange(ways).repeat_interleave(shots)
    return draw(labels), labels, draw(torch.randint(ways, (queries,), generator=generator))


def in_passes(support, labels, pile, ways=4, **options):
    """The scores by passes over the pile."""
    params = {key: options[key] for key in ("lambda_max", "normalise") if key in options}
    prototypes = transductive_prototypes(support, labels, pile.numpy(), n_ways=ways, **options)
    return prototype_scores(pile, prototypes, **params)


@pytest.mark.usefixtures("rows_per_block")
@pytest.mark.parametrize(
    "options",
    [{}, {"iterations": 3, "eta": 0.9, "lambda_max": 7.0}, {"normalise": False}, {"eta": 0.0}, {"shrinkage": 1.5}],
)
def test_equals_the_method_on_the_whole_pile(options):
    support, labels, pile = task()
    wanted = mll_transductive(support, labels, pile, n_ways=4, **options)
    torch.testing.assert_close(in_passes(support, labels, pile, **options), wanted, rtol=1e-11, atol=1e-11)


@pytest.mark.usefixtures("rows_per_block")
def test_neither_threads_nor_rows_that_are_left_out_change_a_bit(monkeypatch):
    support, labels, pile = task(queries=30)
    support, rows = support.float(), pile.float().numpy()
    wanted = transductive_prototypes(support, labels, rows, n_ways=4)
    usable = np.insert(np.ones(len(rows), bool), [0, 10, 10, 25, 30], False)
    holes = np.full((len(usable), 11), np.nan, np.float32)
    holes[usable] = rows
    for threads in (1, 5):
        monkeypatch.setattr("likelyshot.machine.cores", lambda threads=threads: threads)
        assert torch.equal(transductive_prototypes(support, labels, rows, n_ways=4), wanted)
        assert torch.equal(transductive_prototypes(support, labels, holes, n_ways=4, usable=usable), wanted)


def test_the_order_of_the_pile_does_not_matter():
    support, labels, pile = task()
    order = torch.randperm(len(pile), generator=torch.Generator().manual_seed(5))
    scores = in_passes(support, labels, pile)
    torch.testing.assert_close(in_passes(support, labels, pile[order]), scores[order], rtol=1e-11, atol=1e-11)


@pytest.mark.usefixtures("rows_per_block")
def test_every_row_once_per_iteration():
    support, labels, pile = task()
    steps = []
    transductive_prototypes(support, labels, pile.numpy(), n_ways=4, iterations=6, progress=steps.append)
    assert sum(steps) == 6 * len(pile)


@pytest.mark.parametrize("queries", [0, 90])
def test_stops_once_nothing_moves(queries):
    support, labels, pile = task(queries=queries)
    steps = []
    options = {"eta": 0.0} if queries else {}  # an empty pile moves nothing
    prototypes = transductive_prototypes(
        support, labels, pile.numpy(), n_ways=4, iterations=9, progress=steps.append, **options
    )
    assert sum(steps) == queries
    wanted = mll(support, labels, support, n_ways=4)
    torch.testing.assert_close(prototype_scores(support, prototypes), wanted, rtol=1e-11, atol=1e-11)


def test_no_iterations_are_mll_without_a_pass():
    support, labels, pile = task()
    prototypes = transductive_prototypes(support, labels, pile.numpy(), n_ways=4, iterations=0, progress=pytest.fail)
    torch.testing.assert_close(prototype_scores(pile, prototypes), mll(support, labels, pile, n_ways=4))


def test_the_bound_of_long_vectors_is_that_of_the_method():
    support, labels, pile = task(dim=2_000)
    wanted = mll_transductive(support, labels, pile, n_ways=4)
    assert not torch.allclose(mll_transductive(support, labels, pile, n_ways=4, lambda_max=40.0), wanted)
    pieces = scores_of(METHODS["mll_transductive"], support, labels, pile.numpy(), n_ways=4)()
    torch.testing.assert_close(torch.cat([scores for _, scores in pieces]), wanted, rtol=1e-6, atol=1e-6)


def test_a_pile_of_one():
    support, labels, pile = task(queries=1)
    wanted = mll_transductive(support, labels, pile, n_ways=4)
    torch.testing.assert_close(in_passes(support, labels, pile), wanted, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_reads_less_precise_piles_from_a_memory_map(tmp_path, dtype):
    support, labels, pile = task()
    np.save(tmp_path / "pile.npy", pile.numpy().astype(dtype))
    mapped = np.load(tmp_path / "pile.npy", mmap_mode="r")
    prototypes = transductive_prototypes(support.float(), labels, mapped, n_ways=4)
    wanted = mll_transductive(support.float(), labels, torch.from_numpy(np.array(mapped)).float(), n_ways=4)
    torch.testing.assert_close(prototype_scores(as_tensor(mapped), prototypes), wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.usefixtures("rows_per_block")
def test_signed_piles_are_rectified_block_by_block():
    support, labels, pile = task()
    support, pile = support - 0.1, pile - 0.1
    split = [torch.cat([x.clamp_min(0), (-x).clamp_min(0)], -1) for x in (support, pile)]
    wanted = mll_transductive(split[0], labels, split[1], n_ways=4)
    prototypes = transductive_prototypes(split[0], labels, pile.numpy(), n_ways=4, rectified=True)
    scores = prototype_scores(as_tensor(pile.numpy(), rectified=True), prototypes)
    torch.testing.assert_close(scores, wanted, rtol=1e-11, atol=1e-11)


def test_what_makes_no_sense_is_refused():
    support, labels, pile = task()
    rows = pile.numpy()
    for options, words in (
        ({"eta": 1.5}, "eta must"),
        ({"iterations": -1}, "iterations must be"),
        ({"lambda_max": 0.0}, "lambda_max must be"),
    ):
        with pytest.raises(InputError, match=words):
            transductive_prototypes(support, labels, rows, n_ways=4, **options)
    with pytest.raises(InputError, match="non-negative"):
        transductive_prototypes(support, labels, -rows, n_ways=4)
    with pytest.raises(InputError, match="non-negative"):
        prototype_scores(-pile, support)


@pytest.mark.usefixtures("rows_per_block")
def test_blocks_hold_the_usable_rows_in_order():
    _, _, pile = task()
    rows, usable = pile.numpy(), np.arange(len(pile)) % 3 > 0
    sizes = [len(block) for block in blocks(rows, usable)]
    assert sizes[:-1] == [block_rows(11)] * (len(sizes) - 1)
    assert np.array_equal(np.concatenate(list(blocks(rows, usable))), rows[usable])
    assert np.array_equal(np.concatenate(list(blocks(rows))), rows)
    assert list(blocks(rows, np.zeros(len(pile), bool))) == []


def test_a_block_fits_the_cache():
    assert block_rows(512) == 4_096
    assert block_rows(10**9) == 1
