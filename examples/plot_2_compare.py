"""
Which method is better, and by how much?
========================================

Every method runs on the same tasks. Two methods are therefore compared task by task: the 95 % interval of a paired
difference is much narrower than the intervals of the two accuracies suggest.
"""

import matplotlib.pyplot as plt

from likelyshot import Dirichlet, Features, evaluate, sample_tasks
from likelyshot.data.packaged import PACKAGED
from likelyshot.methods import METHODS

features = Features.load(PACKAGED, split="test")
tasks = sample_tasks(features.labels, n_tasks=500, ways=5, shots=1, query=Dirichlet(total=75, alpha=2.0), seed=0)

# %%
# We run five of the methods of ``likelyshot list`` on 500 tasks. A task has five classes with one labelled photograph
# each, and 75 queries, photographs to label. The shares of the classes among them are drawn from a Dirichlet(2)
# distribution, so they are imbalanced. PT-MAP assumes as many queries of every class, which these tasks do not have.

chosen = ("euclidean", "mll", "pt_map", "mll_transductive", "paddle")
results = {name: evaluate(METHODS[name], features, tasks) for name in chosen}
for result in results.values():
    print(result)

# %%
# The differences from ``euclidean``, in points of accuracy. A difference is significant if its interval leaves out
# zero.

reference = results.pop("euclidean")
differences = {name: result.minus(reference) for name, result in results.items()}
for name, difference in differences.items():
    print(f"{name}: {difference}{' *' if difference.significant else ''}")

figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
means, intervals = zip(*((100 * d.mean, 100 * d.ci95) for d in differences.values()), strict=True)
axes.errorbar(means, list(differences), xerr=intervals, fmt="o", capsize=4)
axes.axvline(0, color="grey", linewidth=1)
axes.set(xlabel="accuracy minus that of euclidean, in points", title="500 tasks, 5-way 1-shot, imbalanced")
axes.margins(y=0.2)
axes.invert_yaxis()
plt.show()
