"""
A method of your own
====================

A method is a function ``(support, labels, query, *, n_ways, ...) -> scores`` of torch tensors, over any leading batch
dimensions. It gives one score per query and class; higher is better. `evaluate` takes any such function.
"""

import matplotlib.pyplot as plt
import torch

from likelyshot import Balanced, Features, evaluate, sample_tasks
from likelyshot.data.packaged import PACKAGED
from likelyshot.functional.scores import l2_normalise, squared_distances
from likelyshot.methods import METHODS

# %%
# This one compares a query with the nearest labelled example of a class instead of their mean. Where an example does
# not belong to a class, the distance is set to infinity.


def nearest_example(support, labels, query, *, n_ways):
    """Score by the distance to the nearest labelled example of a class.

    Shapes: support (..., s, d), labels (..., s), query (..., q, d) -> (..., q, k).
    """
    distances = squared_distances(l2_normalise(query), l2_normalise(support))  # (..., q, s)
    member = labels.unsqueeze(-1) == torch.arange(n_ways)  # (..., s, k)
    return -distances.unsqueeze(-1).where(member.unsqueeze(-3), torch.inf).amin(-2)


# %%
# With one example per class it equals ``euclidean``. Is the mean better with more?

features = Features.load(PACKAGED, split="test")
methods = (nearest_example, METHODS["euclidean"], METHODS["mll"])
all_shots = (1, 2, 5, 10)
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
tasks = [sample_tasks(features.labels, n_tasks=300, shots=shots, query=Balanced(15), seed=0) for shots in all_shots]
for method in methods:
    results = [evaluate(method, features, each) for each in tasks]
    print(*results, sep="\n")
    means, intervals = zip(*((100 * result.mean, 100 * result.ci95) for result in results), strict=True)
    axes.errorbar(all_shots, means, yerr=intervals, marker="o", capsize=3, label=results[0].method)
axes.set(xlabel="labelled examples per class", ylabel="accuracy, %", xscale="log", xticks=all_shots)
axes.set_xticklabels(all_shots)
axes.minorticks_off()
axes.legend(frameon=False)
plt.show()

# %%
# To add a method to likelyshot, put it into a file of ``likelyshot/methods``: the page on architecture says how. The
# command line, the classifiers and the tests of all methods then know it.
