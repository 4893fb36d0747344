"""What methods do on accelerators, tested without one: host syncs, device placement, precision, memory."""

from __future__ import annotations

import pytest
import torch
from benchmarks import syncs

from likelyshot import machine
from likelyshot.methods import METHODS
from likelyshot.methods.binding import facts_of

#: More than one wait: two decompositions in BAVARDAGE; solvers that ask in every step whether tasks have converged.
MORE = {"bavardage": 2, "logistic": 100}
ASK = {"logistic", "svm", "pt_map", "lr_ici"}  # ask the device for a value at all
FEW = [name for name in METHODS if name != "lr_ici"]


@pytest.mark.parametrize("name", FEW)
def test_the_host_hardly_ever_waits(name):
    seen, _ = syncs.count(name)
    assert seen.found.total() <= MORE.get(name, 1), seen.found


@pytest.mark.parametrize("name", FEW)
def test_the_path_of_accelerators_gives_the_same_scores(name):
    _, support, labels, query = syncs.chunk()
    expected = syncs.ready(name)(support[:8], labels, query[:8])
    with syncs.as_on_an_accelerator():
        scores = syncs.ready(name)(support[:8], labels, query[:8])
    torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", [name for name in METHODS if name not in ASK])
def test_everything_is_on_the_device_of_the_inputs_in_the_precision_that_was_declared(name):
    seen, scores = syncs.count(name, "meta")
    assert scores.device.type == "meta"
    assert scores.shape == (syncs.TASKS, syncs.QUERIES, syncs.WAYS)
    assert seen.double == facts_of(METHODS[name]).double


@pytest.mark.parametrize("name", [name for name in METHODS if name not in ASK])
def test_no_method_allocates_more_than_it_declares(name):
    assert syncs.memory(name) <= facts_of(METHODS[name]).memory


def test_a_wait_is_counted():
    x = torch.rand(4)
    with syncs.HostSyncs("cpu") as seen:
        bool(x.any())
        x[x > 0.5]
        x[[0, 1]]
        torch.linalg.inv(torch.eye(2))
    assert seen.found == {"_local_scalar_dense": 1, "index": 1, "_linalg_check_errors": 1}
    assert not seen.double


def test_a_caller_who_has_checked_no_input_still_gets_the_checks():
    _, support, labels, query = syncs.chunk()
    with machine.checked_inputs():
        METHODS["mll"](support - 1, labels, query, n_ways=syncs.WAYS)
    with pytest.raises(ValueError, match="non-negative"):
        METHODS["mll"](support - 1, labels, query, n_ways=syncs.WAYS)
