from __future__ import annotations

import pytest
import torch
from torch import nn

from likelyshot.functional.scores import l2_normalise
from likelyshot.methods.matching import matching
from likelyshot.methods.matching_fce import _cell, _pass, matching_fce
from made_tasks import RAGGED, ragged
from trained_heads import check_gradients, random_head


@pytest.mark.parametrize(("shots", "queries"), RAGGED)
def test_with_lstms_of_zeros_it_is_matching(shots, queries):
    support, labels, query = ragged(0, shots, queries)
    head = random_head("matching_fce", width=12, size=0.0)
    for name, weight in head.named_parameters():
        weight.copy_(torch.eye(12) if name == "into" else torch.zeros_like(weight))
    scores = matching_fce(support, labels, query, n_ways=len(shots), head=head)
    torch.testing.assert_close(scores, matching(support, labels, query, n_ways=len(shots)), rtol=1e-9, atol=1e-9)


def test_the_lstms_are_those_of_torch():
    head, x = random_head("matching_fce", width=4), torch.randn(3, 6, 4, dtype=torch.float64)
    w = head(x)
    both = nn.LSTM(4, 4, bidirectional=True, batch_first=True, dtype=torch.float64)
    cell = nn.LSTMCell(8, 4, dtype=torch.float64)
    with torch.no_grad():
        for suffix, name in (("", "forth"), ("_reverse", "back")):
            for part, ours in (("weight_ih", "in"), ("weight_hh", "state"), ("bias_ih", "bias")):
                getattr(both, f"{part}_l0{suffix}").copy_(w[f"{name}_{ours}"])
            getattr(both, f"bias_hh_l0{suffix}").zero_()
        for part, ours in (("weight_ih", "in"), ("weight_hh", "state"), ("bias_ih", "bias")):
            getattr(cell, part).copy_(w[f"query_{ours}"])
        cell.bias_hh.zero_()
        out, _ = both(x)
        ours = torch.cat([_pass(w, "forth", x), _pass(w, "back", x.flip(-2)).flip(-2)], -1)
        torch.testing.assert_close(ours, out)
        state = torch.randn(2, 5, 4, dtype=torch.float64)
        asked = torch.randn(5, 8, dtype=torch.float64)
        for one, other in zip(_cell(w, "query", asked, *state), cell(asked, tuple(state)), strict=True):
            torch.testing.assert_close(one, other)


def test_one_read_written_out():
    support, labels, query = ragged(1, (1, 2, 1), (2, 2, 2))
    head = random_head("matching_fce", width=4)
    w = head(support)
    x, f = (l2_normalise(z) * 12**0.5 @ w["into"].T for z in (support, query))
    order = (l2_normalise(support) @ l2_normalise(l2_normalise(support).mean(0))).argsort()
    g = torch.empty_like(x)
    g[order] = x[order] + _pass(w, "forth", x[order]) + _pass(w, "back", x[order].flip(0)).flip(0)
    scores = matching_fce(support, labels, query, n_ways=3, head=head, reads=1)
    for q in range(len(f)):
        out, _ = _cell(w, "query", torch.cat([f[q], g.mean(0)]), f[q], torch.zeros_like(f[q]))
        h = out + f[q]
        attention = (w["log_factor"].exp() * l2_normalise(h) @ l2_normalise(g).T).softmax(0)
        expected = torch.stack([attention[labels == way].sum() for way in range(3)]).log()
        torch.testing.assert_close(scores[q], expected)


def test_gradients():
    inputs = ragged(2, (1, 2), (1, 1), dim=3)
    check_gradients(matching_fce, inputs, random_head("matching_fce", dim=3, width=2), 2, reads=2)
