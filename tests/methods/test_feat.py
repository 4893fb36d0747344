from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from likelyshot import InputError
from likelyshot.functional.scores import l2_normalise
from likelyshot.heads import build
from likelyshot.methods.euclidean import euclidean
from likelyshot.methods.feat import adapt, contrast, feat
from made_tasks import RAGGED, ragged


def random_head(layer_norm=True, seed=0, dim=12):
    head = build("feat", {"rank": 6, "layer_norm": layer_norm}, dim=dim, seed=seed).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in head.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator) / 3)
    return head.requires_grad_(False)


@pytest.mark.parametrize(("shots", "queries"), RAGGED)
def test_with_a_zero_output_layer_it_is_euclidean(shots, queries):
    support, labels, query = ragged(0, shots, queries)
    head = build("feat", {"layer_norm": False}, dim=12)
    scores = feat(support, labels, query, n_ways=len(shots), head=head)
    torch.testing.assert_close(scores, euclidean(support, labels, query, n_ways=len(shots)), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("layer_norm", [True, False])
def test_a_loop_over_the_classes(layer_norm):
    support, labels, query = ragged(1, (2, 3, 1), (4, 2, 3))
    head = random_head(layer_norm)
    w = head(support)
    unit, asked = l2_normalise(support), l2_normalise(query)
    prototypes = [math.sqrt(12) * unit[labels == way].mean(0) for way in range(3)]
    for way, own in enumerate(prototypes):
        weights = [math.exp(float((w["asks"] @ own) @ (w["offers"] @ other)) / math.sqrt(6)) for other in prototypes]
        seen = sum(a / sum(weights) * (w["gives"] @ other) for a, other in zip(weights, prototypes, strict=True))
        adapted = own + w["out"] @ seen + w["out_bias"]
        if layer_norm:
            centred = adapted - adapted.mean()
            adapted = centred / (centred.square().mean() + 1e-5).sqrt() * w["norm"] + w["norm_bias"]
        expected = -((math.sqrt(12) * asked - adapted) ** 2).sum(1) / 12
        scores = feat(support, labels, query, n_ways=3, head=head)[:, way]
        torch.testing.assert_close(scores, expected, rtol=1e-9, atol=1e-9)


def test_the_attention_is_that_of_torch():
    head, x = random_head(layer_norm=False), torch.randn(1, 5, 12, dtype=torch.float64)
    w = head(x)
    layer = nn.MultiheadAttention(6, 1, kdim=6, vdim=6, bias=False, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.eye(6).repeat(3, 1))
        layer.out_proj.weight.copy_(torch.eye(6))
    seen, _ = layer(x @ w["asks"].T, x @ w["offers"].T, x @ w["gives"].T)
    torch.testing.assert_close(adapt(w, x), x + seen @ w["out"].T + w["out_bias"])


def test_gradients_reach_support_queries_and_head():
    support, labels, query = ragged(2, (1, 2), (1, 1), dim=4)
    head = random_head(dim=4)
    names = [name for name, _ in head.named_parameters()]

    def scores(s, q, *values):
        weights = dict(zip(names, values, strict=True))
        call = lambda like: weights  # noqa: E731
        call.name, call.dim = "feat", 4
        return feat(s, labels, q, n_ways=2, head=call)

    values = [weight.detach().clone().requires_grad_() for weight in head.parameters()]
    assert torch.autograd.gradcheck(scores, (support.requires_grad_(), query.requires_grad_(), *values))


def test_the_regulariser_adapts_every_class_among_its_own():
    support, labels, _ = ragged(3, (3, 2, 4), (1, 1, 1))
    unit, head = l2_normalise(support), random_head()
    centres = [adapt(head(unit), math.sqrt(12) * unit[labels == way]).mean(0) / math.sqrt(12) for way in range(3)]
    expected = torch.stack([-((unit - centre) ** 2).sum(1) for centre in centres], 1)
    torch.testing.assert_close(contrast(head, unit, labels, 3), expected)


@pytest.mark.parametrize("head", [None, "best.safetensors", torch.zeros(3), lambda x: {}])
def test_what_is_no_head_is_refused(head):
    with pytest.raises(InputError, match=r"expected a head of feat, got .*load_head"):
        feat(*ragged(0), n_ways=4, head=head)


def test_a_head_for_other_features_is_refused():
    with pytest.raises(InputError, match="expected vectors of length 13, as the head of feat was trained on, got 12"):
        feat(*ragged(0), n_ways=4, head=build("feat", {}, dim=13))
