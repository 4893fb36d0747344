"""easyfsl 1.5.0 as a second oracle, where it is right, and where its slips can be worked around.

It computes in the precision of its inputs, one task at a time; every task here gets a fresh model, because its
BD-CSPN and PT-MAP overwrite their prototypes in `forward`.
"""

from __future__ import annotations

import warnings

import pytest
import torch

from likelyshot.functional.scores import class_means
from likelyshot.methods.bd_cspn import bd_cspn
from likelyshot.methods.laplacianshot import laplacianshot
from likelyshot.methods.matching import matching
from likelyshot.methods.protonet import protonet
from likelyshot.methods.pt_map import pt_map
from likelyshot.methods.simpleshot import simpleshot
from likelyshot.methods.tim import tim

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torchvision looks for image libraries that nothing here needs
    try:
        import easyfsl.methods as easyfsl
    except ImportError as error:
        pytest.skip(f"needs easyfsl 1.5.0, which is optional: {error}", allow_module_level=True)

WAYS, DIM = 4, 16
MEAN = torch.full((DIM,), 0.3, dtype=torch.float64)
CL2N = {"feature_centering": MEAN, "feature_normalization": 2.0}
LABELS = {"1-shot": [0, 1, 2, 3], "5-shot": [0, 1, 2, 3] * 5, "unequal shots": [0, 0, 0, 1, 2, 2, 3]}

every_task = pytest.mark.parametrize("seed", range(4))
every_support = pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)


def sample(seed, labels, queries=(10, 2, 5, 3), noise=0.3):
    generator = torch.Generator().manual_seed(seed)
    labels, truth = torch.as_tensor(labels), torch.arange(WAYS).repeat_interleave(torch.tensor(queries))
    centres = torch.rand(WAYS, DIM, generator=generator, dtype=torch.float64)

    def noisy(rows):
        return centres[rows] + noise * torch.rand(len(rows), DIM, generator=generator, dtype=torch.float64)

    return noisy(labels), labels, noisy(truth)


@torch.no_grad()
def ask(model, support, labels, query):
    model.process_support_set(support, labels)
    return model(query)


@every_task
@every_support
def test_protonet(seed, labels):
    """It scores by distances, we by their squares."""
    task = sample(seed, labels)
    theirs = ask(easyfsl.PrototypicalNetworks(), *task)
    torch.testing.assert_close(protonet(*task, n_ways=WAYS), -theirs.square())


@every_task
@every_support
def test_simpleshot(seed, labels):
    """It scores by the cosine to the mean, which decides as the distance does only where all means have one length."""
    task = sample(seed, labels)
    theirs = ask(easyfsl.SimpleShot(**CL2N), *task)
    ours = simpleshot(*task, n_ways=WAYS, base_mean=MEAN)
    support = torch.nn.functional.normalize(task[0] - MEAN, dim=-1)
    lengths = class_means(support, task[1], WAYS).norm(dim=-1)
    torch.testing.assert_close(ours, 2 * theirs * lengths - 1 - lengths**2)


class Silent(torch.nn.Module):
    """In place of the LSTM over the support: no context."""

    def forward(self, x):
        return (x.new_zeros(*x.shape[:-1], 2 * x.shape[-1]),)


class Forgetful(torch.nn.Module):
    """In place of the LSTM cell over the queries: no context."""

    def forward(self, x, state):
        return torch.zeros_like(state[0]), state[1]


@every_task
@every_support
def test_matching_without_the_lstms(seed, labels):
    """It leaves queries as long as they are and adds 1e-6 to the attention, so it gets unit queries and a tolerance."""
    support, labels, query = sample(seed, labels)
    query = torch.nn.functional.normalize(query, dim=-1)
    model = easyfsl.MatchingNetworks(feature_dimension=DIM, support_encoder=Silent(), query_encoder=Forgetful())
    model.process_support_set(support, labels)
    model.one_hot_support_labels = model.one_hot_support_labels.double()  # made in single precision
    theirs = model(query)
    torch.testing.assert_close(matching(support, labels, query, n_ways=WAYS), theirs, rtol=0, atol=2e-4)


@every_task
@every_support
@pytest.mark.parametrize("neighbours", [2, 3, 5])
def test_laplacianshot(seed, labels, neighbours):
    """Its helper returns k - 1 neighbours, which is how we count; it rectifies the prototypes first, we do not."""

    class Unrectified(easyfsl.LaplacianShot):
        def rectify_prototypes(self, query_features):
            pass

        def compute_pairwise_affinities(self, features):  # made in single precision
            return super().compute_pairwise_affinities(features).to(features)

    task = sample(seed, labels)
    theirs = ask(Unrectified(knn=neighbours, **CL2N), *task)
    ours = laplacianshot(*task, n_ways=WAYS, base_mean=MEAN, neighbours=neighbours)
    torch.testing.assert_close(ours.exp(), theirs, rtol=0, atol=1e-8)


@every_task
@every_support
def test_bd_cspn(seed, labels):
    """Its variant weighs by exp(cos), keeps the true labels of the support, and decides by the cosine.

    Given log softmax(10 cos) for its cosine, its weights are the paper's. The tasks are so easy that the
    pseudo-labels of the support are the true ones. What is left to compare are the prototypes.
    """

    class Tempered(easyfsl.BDCSPN):
        def cosine_distance_to_prototypes(self, samples):
            return (10 * super().cosine_distance_to_prototypes(samples)).log_softmax(-1)

    support, labels, query = sample(seed, labels, noise=0.15)
    model = Tempered(**CL2N)
    model.process_support_set(support, labels)
    assert torch.equal(model.cosine_distance_to_prototypes(model.support_features).argmax(-1), labels)
    model(query)
    ours = bd_cspn(support, labels, query, n_ways=WAYS, base_mean=MEAN)
    unit = torch.nn.functional.normalize(query - MEAN, dim=-1)
    torch.testing.assert_close(ours, -torch.cdist(unit, model.prototypes).square(), rtol=0, atol=1e-9)


@every_task
@every_support
@pytest.mark.parametrize("steps", [1, 30])
def test_tim(seed, labels, steps):
    """It scores by cosines and weighs the entropy of a query by 0.1; its unguarded logarithm does no harm here."""

    class Quadratic(easyfsl.TIM):
        def cosine_distance_to_prototypes(self, samples):
            return -torch.cdist(samples, self.prototypes).square() / 2

    task = sample(seed, labels)
    model = Quadratic(
        fine_tuning_steps=steps, fine_tuning_lr=1e-2, conditional_entropy_weight=1.0, temperature=15.0,
        feature_normalization=2.0,
    )  # fmt: skip
    ours = tim(*task, n_ways=WAYS, steps=steps, learning_rate=1e-2)
    torch.testing.assert_close(ours, 15 * ask(model, *task), rtol=0, atol=1e-5)


@every_task
@every_support
def test_pt_map(seed, labels):
    """It leaves out the lengths and the centring, and its floor division makes it right for equal classes alone.

    Its Sinkhorn gives up after 1,000 sweeps, often too early: it gets a softer problem, lam = 2 instead of 10.
    """

    class Centred(easyfsl.PTMAP):
        def compute_features(self, images):
            unit = torch.nn.functional.normalize(super().compute_features(images), dim=-1)
            return torch.nn.functional.normalize(unit - unit.mean(0), dim=-1)

        def compute_optimal_transport(self, cost_matrix, epsilon=0.0):
            return super().compute_optimal_transport(cost_matrix, epsilon=1e-10)  # its 1e-6 shows after 20 rounds

    task = sample(seed, labels, queries=(5, 5, 5, 5))
    theirs = ask(Centred(fine_tuning_steps=20, lambda_regularization=2.0), *task)
    ours = pt_map(*task, n_ways=WAYS, lam=2.0, tolerance=1e-12)
    torch.testing.assert_close(ours.exp(), theirs, rtol=0, atol=1e-6)
