"""
How to choose lambda_max
========================

MLL models a feature as exponential with the rate 1 / mean. With few examples some means are close to zero and their
rates huge, so rates are clipped at ``lambda_max``. Choose it on validation classes, never on those that you report.
"""

from functools import partial

import matplotlib.pyplot as plt

from likelyshot import Balanced, Features, evaluate, sample_tasks
from likelyshot.data.packaged import PACKAGED
from likelyshot.methods import METHODS

validation = Features.load(PACKAGED, split="val")
grid = (5, 10, 20, 40, 80, 160, 320)

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for shots in (1, 5):
    tasks = sample_tasks(validation.labels, n_tasks=300, shots=shots, query=Balanced(15), seed=0)
    results = [evaluate(partial(METHODS["mll"], lambda_max=value), validation, tasks) for value in grid]
    best = max(range(len(grid)), key=lambda place: results[place].mean)
    print(f"{shots}-shot: best at lambda_max={grid[best]}, {results[best]}")
    means, intervals = zip(*((100 * result.mean, 100 * result.ci95) for result in results), strict=True)
    axes.errorbar(grid, means, yerr=intervals, marker="o", capsize=3, label=f"{shots}-shot")
axes.set(xlabel="lambda_max", ylabel="accuracy, %", xscale="log", xticks=grid, title="5-way, validation classes")
axes.set_xticklabels(grid)
axes.minorticks_off()
axes.legend(frameon=False)
plt.show()

# %%
# The same on the command line, as a table, a JSON file and a plot::
#
#     likelyshot sweep --split val --grid lambda_max=5,10,20,40,80,160,320
