"""Cores, devices and threads."""

from __future__ import annotations

import itertools
import os
import platform
import threading

import pytest
import torch

from likelyshot import Balanced, InputError, evaluate, sample_tasks
from likelyshot.machine import check_device, ordered_map
from likelyshot.methods import METHODS
from processes import Child


@pytest.mark.parametrize("device", ["cuda:99", "nonsense", "", "hpu", "meta"])
def test_devices_that_are_not_there(device):
    with pytest.raises(InputError, match=r"is not available on this machine: use cpu"):
        check_device(device)
    assert check_device("cpu") == "cpu"


def test_results_come_in_order_and_items_are_taken_only_a_little_ahead():
    taken = itertools.count()
    results = ordered_map(lambda item: item * item, taken, threads=2)  # endless
    assert list(itertools.islice(results, 20)) == [item * item for item in range(20)]
    results.close()
    assert next(taken) < 40


def test_a_single_item_starts_no_thread():
    """`predict -` maps over the items of one line after the other."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        [worker] = ordered_map(lambda _: (threading.current_thread(), torch.get_num_threads()), [0], one_core_each=True)
        assert (*worker, torch.get_num_threads()) == (threading.current_thread(), 1, 2)
        assert list(ordered_map(str, [])) == []
        several = set(ordered_map(lambda _: threading.current_thread(), range(9), threads=2))
        assert threading.current_thread() not in several
    finally:
        torch.set_num_threads(before)


def test_an_exception_reaches_the_caller_and_what_has_not_begun_is_cancelled():
    seen = []

    def fail(item):
        seen.append(item)
        raise KeyError(item)

    with pytest.raises(KeyError, match="0"):
        list(ordered_map(fail, range(1000), threads=1))
    assert len(seen) < 10


def test_evaluate_leaves_the_number_of_threads_of_torch_as_it_was(features):
    """`torch.set_num_threads` in a worker sets the default of every thread that starts later."""
    counts = []
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        tasks = sample_tasks(features.labels, n_tasks=4, ways=3, shots=1, query=Balanced(2), seed=0)
        evaluate(METHODS["mll"], features, tasks)
        later = threading.Thread(target=lambda: counts.append(torch.get_num_threads()))
        later.start()
        later.join()
        assert (torch.get_num_threads(), counts) == (2, [2])
    finally:
        torch.set_num_threads(before)


FAULTS = """
import resource, sys
import torch
from likelyshot.machine import keep_memory
def faults():
    for step in range(16):
        if step == 10:  # it takes a few to settle
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.empty(40 * 2**20, dtype=torch.uint8).fill_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
plain = faults()
keep_memory()
print(plain, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators are not affected")
@pytest.mark.processes
def test_freed_memory_is_kept_unless_the_user_has_set_the_allocator(tmp_path, monkeypatch):
    def faults(**variables):
        child = Child(FAULTS, folder=tmp_path, **variables)
        assert child.wait() == 0, child.err
        return [int(count) for count in child.out.split()]

    for name in [name for name in os.environ if name.startswith("MALLOC_")]:
        monkeypatch.delenv(name)
    plain, kept = faults()
    assert kept < plain / 3
    plain, kept = faults(MALLOC_ARENA_MAX="2")
    assert kept > plain / 2
