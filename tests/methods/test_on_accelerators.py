"""What methods do on accelerators, tested without one: host syncs, device placement, precision, memory."""

from __future__ import annotations

import pytest
import torch
from benchmarks import syncs

from likelyshot import machine
from likelyshot.functional import logistic_regression
from likelyshot.methods import METHODS
from likelyshot.methods.binding import facts_of

ASK = {"logistic", "svm", "pt_map", "lr_ici"}  # ask the device for a value at all
FEW = [name for name in METHODS if name != "lr_ici"]
SOME = 2  # tasks: each is like the others, and the host waits as often for many


@pytest.mark.parametrize("shots", syncs.SHOTS)
@pytest.mark.parametrize("name", FEW)
def test_the_host_hardly_ever_waits_and_the_scores_are_the_same(name, shots):
    some = 2 if (name, shots) == ("svm", 5) else SOME  # a thousand rounds before it asks
    seen, scores = syncs.count(name, shots=shots, tasks=some)
    assert seen.counts.total() <= 1, seen.counts
    _, support, labels, query = syncs.chunk(shots=shots)
    expected = syncs.ready(name, shots=shots)(support[:some], labels, query[:some])
    torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shots", syncs.SHOTS)
@pytest.mark.parametrize("name", [name for name in METHODS if name not in ASK])
def test_everything_is_on_the_device_in_the_declared_precision_and_memory(name, shots):
    seen, scores = syncs.count(name, "meta", 75, 512, shots)
    assert scores.device.type == "meta"
    assert scores.shape == (syncs.TASKS, 75, syncs.WAYS)
    assert seen.double == facts_of(METHODS[name]).double
    assert syncs.multiple(seen, shots) <= facts_of(METHODS[name]).memory


def test_logistic_regression_does_so_with_more_examples_than_classes(monkeypatch):
    monkeypatch.setattr(logistic_regression, "STEPS", 2)  # each is like the others
    seen, _ = syncs.count("logistic", "meta", 75, 512, shots=5)
    assert seen.double
    assert syncs.multiple(seen, 5) <= facts_of(METHODS["logistic"]).memory


def test_a_wait_is_counted():
    x = torch.rand(4)
    with syncs.HostSyncs("cpu") as seen:
        bool(x.any())
        x[x > 0.5]
        x[[0, 1]]
        torch.linalg.inv(torch.eye(2))
    assert seen.counts == {"_local_scalar_dense": 1, "index": 1, "_linalg_check_errors": 1}
    assert not seen.double


def test_a_caller_who_has_checked_no_input_still_gets_the_checks():
    _, support, labels, query = syncs.chunk()
    with machine.checked_inputs():
        METHODS["mll"](support - 1, labels, query, n_ways=syncs.WAYS)
    with pytest.raises(ValueError, match="non-negative"):
        METHODS["mll"](support - 1, labels, query, n_ways=syncs.WAYS)
