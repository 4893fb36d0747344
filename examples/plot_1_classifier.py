"""
Two labelled examples of each class
===================================

The classifiers of likelyshot work like those of scikit-learn: `fit` takes the few labelled embeddings, `predict` the
pile to label. Here the embeddings are the packaged ones of photographs of birds (CUB-200-2011); yours can come from any
network.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import PCA

from likelyshot import Features, MLLClassifier, TransductiveMLLClassifier
from likelyshot.data.packaged import PACKAGED

features = Features.load(PACKAGED, split="test")
X, names = features.vectors.float().numpy(), np.array(features.classes)[features.labels.numpy()]

# %%
# Draw five species, two labelled photographs of each, and a pile in which some species are common and others rare.

rng = np.random.default_rng(4)
species = rng.choice(features.classes, 5, replace=False)
labelled, pile = [], []
for name, size in zip(species, (36, 20, 12, 5, 2), strict=True):
    rows = rng.permutation(np.flatnonzero(names == name))
    labelled += list(rows[:2])
    pile += list(rows[2 : 2 + size])

# %%
# `MLLClassifier` looks at one photograph at a time. `TransductiveMLLClassifier` labels the whole pile together, however
# imbalanced it is: it moves the prototypes of the classes towards the photographs that it assigns to them. One pile
# says little about which is better: the next example has 500.

for classifier in (MLLClassifier(), TransductiveMLLClassifier()):
    classifier.fit(X[labelled], names[labelled])
    print(f"{type(classifier).__name__}: {classifier.score(X[pile], names[pile]):.0%} of {len(pile)} are right")

# %%
# The probabilities say how sure it is. Their temperature comes from the labelled examples.

predicted = classifier.predict(X[pile])
sure = classifier.predict_proba(X[pile]).max(axis=1)
wrong = predicted != names[pile]
print(f"mean probability where right {sure[~wrong].mean():.2f}, where wrong {sure[wrong].mean():.2f}")

# %%
# The pile in two dimensions. Colours are the answers, stars the labelled examples, crosses the mistakes; a faint dot is
# an uncertain answer.

unit = X / np.linalg.norm(X, axis=1, keepdims=True)
plane = PCA(2).fit(unit[labelled + pile])
figure, axes = plt.subplots(figsize=(7, 5), layout="constrained")
for number, name in enumerate(species):
    dots = plane.transform(unit[pile])[predicted == name]
    stars = plane.transform(unit[labelled])[names[labelled] == name]
    label = name.split(".")[-1].replace("_", " ")
    axes.scatter(*dots.T, color=f"C{number}", alpha=sure[predicted == name], label=label)
    axes.scatter(*stars.T, color=f"C{number}", marker="*", s=120, edgecolor="black", linewidth=0.5)
axes.scatter(*plane.transform(unit[pile])[wrong].T, color="black", marker="x", s=60, label="wrong")
axes.set(xlabel="first component", ylabel="second component", title="A pile of 75, labelled from 10 examples")
axes.legend(frameon=False)
plt.show()
