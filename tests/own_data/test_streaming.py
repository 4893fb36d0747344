from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from likelyshot.errors import InputError
from likelyshot.methods.mll import mll
from likelyshot.methods.mll_transductive import mll_transductive
from likelyshot.own_data.streaming import (
    as_tensor,
    block_rows,
    prototype_scores,
    transductive_prototypes,
    vector_chunks,
)


def task(seed: int = 0, ways: int = 4, shots: int = 3, queries: int = 90, dim: int = 11):
    """Labelled rows and a pile, exponential around class means, float64."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.rand(ways, dim, generator=generator, dtype=torch.float64) ** 2 + 0.01

    def draw(labels):
        noise = torch.empty(len(labels), dim, dtype=torch.float64).exponential_(generator=generator)
        return noise * centres[labels]

    labels = torch.arange(ways).repeat_interleave(shots)
    return draw(labels), labels, draw(torch.randint(ways, (queries,), generator=generator))


def streamed(support, labels, pile, size, ways=4, **options):
    """The scores by passes over chunks of `size` rows."""
    kept = {key: options[key] for key in ("lambda_max", "normalise") if key in options}
    rows = pile.numpy()
    means = transductive_prototypes(support, labels, lambda: vector_chunks(rows, size), n_ways=ways, **options)
    return torch.cat([prototype_scores(as_tensor(chunk), means, **kept) for chunk in vector_chunks(rows, size)])


@pytest.mark.parametrize("size", [1, 7, 90, 1_000])
@pytest.mark.parametrize(
    "options",
    [{}, {"iterations": 3, "eta": 0.9, "lambda_max": 7.0}, {"normalise": False}, {"eta": 0.0}, {"shrinkage": 1.5}],
)
def test_equals_the_method_on_the_whole_pile(size, options):
    support, labels, pile = task()
    wanted = mll_transductive(support, labels, pile, n_ways=4, **options)
    torch.testing.assert_close(streamed(support, labels, pile, size, **options), wanted, rtol=1e-11, atol=1e-11)


def test_many_blocks_are_summed_as_one(monkeypatch):
    monkeypatch.setattr("likelyshot.own_data.streaming.CPU_CHUNK_BYTES", 4 * 11 * 16)  # 16 rows a block
    support, labels, pile = task()
    wanted = mll_transductive(support, labels, pile, n_ways=4)
    torch.testing.assert_close(streamed(support, labels, pile, 5), wanted, rtol=1e-11, atol=1e-11)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 40), max_size=8), st.integers(1, 3), st.integers(0, 3))
def test_no_way_of_cutting_changes_a_bit(cuts, workers, seed):
    support, labels, pile = task(seed)
    rows = pile.float().numpy()
    wanted = transductive_prototypes(support.float(), labels, lambda: [rows], n_ways=4, workers=1)
    chunks = np.split(rows, np.cumsum(cuts))  # some of them empty
    found = transductive_prototypes(support.float(), labels, lambda: iter(chunks), n_ways=4, workers=workers)
    assert torch.equal(found, wanted)


def test_cuts_across_blocks_change_no_bit(monkeypatch):
    monkeypatch.setattr("likelyshot.own_data.streaming.CPU_CHUNK_BYTES", 4 * 11 * 16)
    support, labels, pile = task(queries=200)
    rows = pile.float().numpy()
    wanted = transductive_prototypes(support.float(), labels, lambda: [rows], n_ways=4, workers=1)
    for size, workers in ((1, 2), (16, 1), (37, 3)):
        chunks = lambda size=size: vector_chunks(rows, size)  # noqa: E731
        assert torch.equal(transductive_prototypes(support.float(), labels, chunks, n_ways=4, workers=workers), wanted)


def test_the_order_of_the_pile_does_not_matter():
    support, labels, pile = task()
    order = torch.randperm(len(pile), generator=torch.Generator().manual_seed(5))
    scores = streamed(support, labels, pile, 8)
    torch.testing.assert_close(streamed(support, labels, pile[order], 8), scores[order], rtol=1e-11, atol=1e-11)


def test_one_pass_an_iteration_and_every_row_once_a_pass():
    support, labels, pile = task()
    passes, told = [], []

    def chunks():
        passes.append(1)
        return vector_chunks(pile.numpy(), 20)

    transductive_prototypes(support, labels, chunks, n_ways=4, iterations=6, progress=told.append)
    assert len(passes) == 6
    assert sum(told) == 6 * len(pile)


@pytest.mark.parametrize("options", [{"eta": 0.0}, {}])
def test_stops_once_nothing_moves(options):
    support, labels, pile = task()
    pile = pile if options else pile[:0]  # an empty pile moves nothing
    passes = []

    def chunks():
        passes.append(1)
        return vector_chunks(pile.numpy(), 20)

    means = transductive_prototypes(support, labels, chunks, n_ways=4, iterations=9, **options)
    assert len(passes) == 1
    wanted = mll(support, labels, support, n_ways=4)
    torch.testing.assert_close(prototype_scores(support, means), wanted, rtol=1e-11, atol=1e-11)


def test_no_iterations_are_mll_without_a_pass():
    support, labels, pile = task()
    means = transductive_prototypes(support, labels, pytest.fail, n_ways=4, iterations=0)
    torch.testing.assert_close(prototype_scores(pile, means), mll(support, labels, pile, n_ways=4))


def test_a_pile_of_one():
    support, labels, pile = task(queries=1)
    wanted = mll_transductive(support, labels, pile, n_ways=4)
    torch.testing.assert_close(streamed(support, labels, pile, 10), wanted, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_reads_less_precise_piles_from_a_memory_map(tmp_path, dtype):
    support, labels, pile = task()
    np.save(tmp_path / "pile.npy", pile.numpy().astype(dtype))
    mapped = np.load(tmp_path / "pile.npy", mmap_mode="r")
    means = transductive_prototypes(support.float(), labels, lambda: vector_chunks(mapped, 9), n_ways=4)
    wanted = mll_transductive(support.float(), labels, torch.from_numpy(np.array(mapped)).float(), n_ways=4)
    torch.testing.assert_close(prototype_scores(as_tensor(mapped), means), wanted, rtol=1e-5, atol=1e-4)


def test_signed_piles_are_rectified_chunk_by_chunk():
    support, labels, pile = task()
    support, pile = support - 0.1, pile - 0.1
    split = [torch.cat([x.clamp_min(0), (-x).clamp_min(0)], -1) for x in (support, pile)]
    wanted = mll_transductive(split[0], labels, split[1], n_ways=4)
    means = transductive_prototypes(split[0], labels, lambda: vector_chunks(pile.numpy(), 13), n_ways=4, rectified=True)
    found = prototype_scores(as_tensor(pile.numpy(), rectified=True), means)
    torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-11)


def test_unusable_rows_are_left_out():
    support, labels, pile = task()
    rows, usable = pile.numpy(), np.arange(len(pile)) % 3 > 0
    means = transductive_prototypes(support, labels, lambda: vector_chunks(rows, 10, usable), n_ways=4)
    found = prototype_scores(pile[torch.from_numpy(usable)], means)
    wanted = mll_transductive(support, labels, pile[torch.from_numpy(usable)], n_ways=4)
    torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-11)


def test_what_makes_no_sense_is_refused():
    support, labels, pile = task()
    rows = pile.numpy()
    for options, words in (
        ({"eta": 1.5}, "eta must lie"),
        ({"iterations": -1}, "iterations must be"),
        ({"lambda_max": 0.0}, "lambda_max must be"),
    ):
        with pytest.raises(InputError, match=words):
            transductive_prototypes(support, labels, lambda: [rows], n_ways=4, **options)
    with pytest.raises(InputError, match="non-negative"):
        transductive_prototypes(support, labels, lambda: [-rows], n_ways=4)
    with pytest.raises(InputError, match="non-negative"):
        prototype_scores(-pile, support)


def test_a_failing_pass_ends_the_threads():
    support, labels, pile = task()

    def chunks():
        yield pile.numpy()
        raise InputError("the disk is gone")

    with pytest.raises(InputError, match="disk is gone"):
        transductive_prototypes(support, labels, chunks, n_ways=4)


def test_a_block_fits_the_cache():
    assert block_rows(512) == 2_048
    assert block_rows(10**9) == 1
