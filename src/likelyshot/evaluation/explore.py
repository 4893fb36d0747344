"""What features look like: their distributions within classes, and how these and the scores differ between classes."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from likelyshot.data.features import Features
from likelyshot.data.tasks import Balanced, sample_tasks
from likelyshot.errors import InputError
from likelyshot.evaluation.separation import score_separation
from likelyshot.functional.checks import check_lambda_max, check_non_negative
from likelyshot.functional.families import FAMILIES, fit_families, histogram, holm, rate_test
from likelyshot.functional.scores import l2_normalise, rate_bound
from likelyshot.machine import Progress

Array = NDArray[np.float64]

BINS = 40  # of a feature's histogram
LEAST_POSITIVE = 10  # values that a fit needs
MOST_PER_CLASS = 5_000  # images, evenly spaced, whose features are fitted
MOST_QUERIES = 15  # per class of a task
SHIPPED_BYTES = 1_500_000  # of histograms and rates, about
MOST_ON_MAP = 1_000  # images of the map, evenly spaced
HEAT_ROWS, HEAT_COLUMNS = 60, 40  # classes and features of the heat map

RULE = (
    "No density gives an exact value any probability, so for the likelihoods every family gets the same point mass at "
    "zero: the share of images whose feature is exactly zero. The exponential has one rate for all images, zeros "
    "included (eq. 2); every other family, the zero-inflated exponential among them, is fitted to the positive values. "
    "The best family has the largest log-likelihood minus its number of parameters (Akaike); how far the exponential "
    "is behind is measured in the same way. The Kolmogorov-Smirnov distance is over all images, and there the "
    f"exponential has no point mass. Pairs of a class and a feature with fewer than {LEAST_POSITIVE} positive values, "
    "or with equal ones only, are left out."
)
TEST = (
    "Rao's score test of one exponential rate for all classes, with the dispersion estimated (variance over squared "
    "mean, 1 for an exponential), against chi-squared; p-values corrected for the number of features (Holm). Features "
    "that are always zero are left out. For the heat map and the ratio, a class in which a feature is always zero gets "
    "the mean that it would have with one more image, at the feature's mean."
)


def explore(
    features: Features,
    *,
    tasks: int = 500,
    ways: int = 5,
    shots: int = 1,
    seed: int = 0,
    lambda_max: float | None = None,
    normalise: bool = True,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Describe features as plain data: zeros, histograms and rates, families, rates between classes, scores.

    The data are ready for JSON. The same arguments give the same data.

    Args:
        features: Non-negative features.
        tasks: Number of tasks whose queries are scored.
        ways: Classes per task.
        shots: Labelled examples per class.
        seed: Random seed of the tasks.
        lambda_max: Upper bound of the rates of MLL. Default: it follows from the mean of the features, as in `mll`.
        normalise: Whether to divide every vector by its length first.
        progress: Called with the units of work done, `explore_work` in all.

    >>> generator = torch.Generator().manual_seed(0)
    >>> vectors = torch.rand(60, 4, generator=generator)
    >>> features = Features.from_arrays(vectors, [f"class {i % 3}" for i in range(60)])
    >>> data = explore(features, tasks=10, ways=3)
    >>> data["classes"], data["families"]["fits"]
    (['class 0', 'class 1', 'class 2'], 12)
    """
    settings: dict[str, Any] = {"tasks": tasks, "ways": ways, "shots": shots, "seed": seed}
    check_lambda_max(lambda_max)
    check_non_negative("mll", features.vectors, who="explore")
    if not features.vectors.any():
        raise InputError("expected features, but all values are zero: check the encoder that made them")
    plan = Balanced(min(MOST_QUERIES, max(1, int(features.counts[features.counts > 0].min()) - shots)))
    task_set = sample_tasks(
        features.labels, n_tasks=tasks, ways=ways, shots=shots, query=plan, seed=seed, classes=features.classes
    )
    vectors = features.vectors.to(torch.promote_types(features.vectors.dtype, torch.float32))
    prepared = Features(
        l2_normalise(vectors) if normalise else vectors, features.labels, features.classes, features.source
    )
    if lambda_max is None:
        lambda_max = float(f"{float(rate_bound(prepared.vectors)):.3g}")
    settings |= {"lambda_max": lambda_max, "normalise": normalise}
    scores = score_separation(prepared, task_set, lambda_max, progress)
    rows = _rows_by_class(prepared)
    names = [features.classes[label] for label in rows]
    statistic, between = _between_classes(prepared, rows, names, lambda_max)
    chosen = _choose_features(statistic, len(rows), max(map(len, rows.values())))
    return {
        "about": _about(features, settings, normalise),
        "map": image_map(features, seed=seed),
        "zeros": _zeros(prepared.vectors),
        "classes": names,
        "features": chosen.tolist(),
        "features_of": features.dim,
        **_within_classes(prepared, rows, chosen, progress),
        "between": between,
        "scores": scores,
    }


def explore_map(features: Features, *, seed: int = 0) -> dict[str, Any]:
    """Describe features without classes to compare: only what they are, and the map of the images."""
    return {"about": _about(features, {"seed": seed}, True), "map": image_map(features, seed=seed)}


def image_map(features: Features, *, seed: int = 0) -> dict[str, Any]:
    """Lay images out in the plane so that similar ones are near each other, at most 1,000, evenly spaced.

    t-SNE of the first 50 principal components of the vectors, each of unit length.

    Args:
        features: Vectors with labels; signed ones are welcome.
        seed: Random seed of t-SNE.

    >>> generator = torch.Generator().manual_seed(0)
    >>> features = Features.from_arrays(torch.rand(12, 4, generator=generator), [0, 1] * 6)
    >>> layout = image_map(features)
    >>> len(layout["x"]), layout["names"][0]
    (12, 'row 1')
    """
    rows = _evenly(len(features), MOST_ON_MAP)
    vectors = l2_normalise(features.vectors[rows].to(torch.promote_types(features.vectors.dtype, torch.float32)))
    vectors = (vectors - vectors.mean(0)).cpu().double()
    left, spread, _ = torch.linalg.svd(vectors, full_matrices=False)
    left = left * (left[left.abs().argmax(0), torch.arange(left.shape[1])].sign())  # the same on every machine
    principal = (left * spread)[:, :50]
    places = np.zeros((len(rows), 2), np.float32)
    places[:, : min(2, principal.shape[1])] = principal[:, :2].numpy()
    if len(rows) > 4 and float(spread[0]) > 1e-3:
        from sklearn.manifold import TSNE
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

        first = places * (1e-4 / places[:, 0].std())
        tsne = TSNE(perplexity=min(30.0, (len(rows) - 1) / 3), init=first, random_state=seed, max_iter=500)
        with threadpool_limits(1):  # several threads wait for each other busily, and are slower
            places = tsne.fit_transform(principal.numpy())
    names = [features.paths[row] if features.paths is not None else f"row {row + 1}" for row in rows.tolist()]
    present = sorted(set(features.labels[rows].tolist()))
    position = {label: place for place, label in enumerate(present)}
    return {
        "x": places[:, 0].astype(float).round(3).tolist(),
        "y": places[:, 1].astype(float).round(3).tolist(),
        "labels": [position[label] for label in features.labels[rows].tolist()],
        "names": names,
        "classes": [features.classes[label] for label in present],
    }


def _about(features: Features, settings: dict[str, Any], normalise: bool) -> dict[str, Any]:
    file, split = features.source.get("file", "features"), features.source.get("split", "")
    return {
        "title": f"{file} ({split})" if split else file,
        "file": file,
        "split": split,
        "images": len(features),
        "dim": features.dim,
        "classes": len(set(features.labels.tolist())),
        "normalised": normalise,
        "encoder": features.source.get("encoder", ""),
        "dataset": features.source.get("dataset", ""),
        "left_out": features.source.get("left_out", ""),
        "settings": settings,
    }


def explore_work(features: Features, tasks: int) -> int:
    """Count the units of work of `explore`: one per image and one per task.

    >>> explore_work(Features.from_arrays([[1.0], [2.0]], [0, 1]), tasks=500)
    502
    """
    return len(features) + tasks


def _rows_by_class(features: Features) -> dict[int, Tensor]:
    """List the rows of every class that has images, at most MOST_PER_CLASS of them, evenly spaced."""
    rows = {}
    for label in sorted(set(features.labels.tolist())):
        of_class = (features.labels == label).nonzero().flatten()
        rows[label] = of_class[_evenly(len(of_class), MOST_PER_CLASS)]
    return rows


def _evenly(n: int, most: int) -> Tensor:
    """Choose at most `most` of n places, evenly spaced, including the first and the last."""
    return torch.linspace(0, n - 1, min(n, most), dtype=torch.float64).round().long()


def _zeros(vectors: Tensor) -> dict[str, Any]:
    shares = ((vectors == 0).sum(0).double() / len(vectors)).numpy()  # (d,)
    counts, edges = np.histogram(shares, bins=20, range=(0, 1))
    return {"share": float(shares.mean()), "edges": edges.round(9).tolist(), "counts": counts.tolist()}


def _between_classes(
    features: Features, rows: dict[int, Tensor], names: list[str], lambda_max: float
) -> tuple[Tensor, dict[str, Any]]:
    """Measure how the rates differ between classes: the statistic of every feature (d,), and a summary."""
    counts = torch.tensor([len(of_class) for of_class in rows.values()])
    moments = [torch.var_mean(features.vectors[of_class].double(), 0, correction=0) for of_class in rows.values()]
    variances, means = (torch.stack(of_classes) for of_classes in zip(*moments, strict=True))
    statistic, p = rate_test(counts, means, variances)
    overall = counts.double() @ means / counts.sum()
    alive = overall.nonzero().flatten()
    means = torch.where(means > 0, means, overall / (counts.unsqueeze(-1) + 1))[:, alive]
    classes, columns = _evenly(len(names), HEAT_ROWS), _evenly(len(alive), HEAT_COLUMNS)
    return statistic, {
        "classes": [names[i] for i in classes.tolist()],
        "features": alive[columns].tolist(),
        "log10_rate": (-means[classes][:, columns].log10()).numpy().round(4).tolist(),
        "p_below_0.01": float((holm(p[alive]) < 0.01).double().mean()),
        "median_ratio": float((means.amax(0) / means.amin(0)).quantile(0.5)),
        "above_lambda_max": float((means < 1 / lambda_max).double().mean()),
        "test": TEST,
    }


def _choose_features(statistic: Tensor, n_classes: int, largest: int) -> Tensor:
    """Choose features that fit into a page: half of them differ most between classes, half are evenly spaced."""
    each = n_classes * (BINS * _count_type(largest).itemsize + 4) * 4 / 3  # rates have 4 bytes; base64 adds a third
    dim, most = len(statistic), max(2, int(SHIPPED_BYTES / each))
    if dim <= most:
        return torch.arange(dim)
    differing = statistic.argsort(descending=True, stable=True)[: most // 2]
    return torch.tensor(sorted({*differing.tolist(), *_evenly(dim, most - most // 2).tolist()}))


def _count_type(largest: int) -> np.dtype[Any]:
    return np.dtype("u1") if largest < 2**8 else np.dtype("<u2")


def _within_classes(
    features: Features, rows: dict[int, Tensor], chosen: Tensor, progress: Progress | None
) -> dict[str, Any]:
    """Compute histograms and rates of the chosen features, and fit all features, class by class."""
    reach = features.vectors[:, chosen].double().amax(0)
    width = torch.where(reach > 0, reach / BINS, 1)
    sizes = [len(of_class) for of_class in rows.values()]
    counts, rates = [], []
    families = _Families()
    for label, of_class in rows.items():
        x = features.vectors[of_class].double().T.contiguous()  # (d, n)
        counts.append(histogram(x[chosen], width, BINS))
        mean = x[chosen].mean(-1)
        rates.append(torch.where(mean > 0, 1 / mean, 0).clamp_max(torch.finfo(torch.float32).max))
        families.add(x)
        if progress is not None:
            progress(int(features.counts[label]))
    dtype = _count_type(max(sizes))
    return {
        "histograms": {
            "bins": BINS,
            "width": width.tolist(),
            "counts": _base64(torch.stack(counts).numpy().astype(dtype)),
            "dtype": "uint8" if dtype.itemsize == 1 else "uint16",
            "images": sizes,
        },
        "rates": _base64(torch.stack(rates).numpy().astype("<f4")),
        "families": families.shares(),
    }


def _base64(array: NDArray[Any]) -> str:
    return base64.b64encode(array.tobytes()).decode()


class _Families:
    """Counts which family fits best, class by class."""

    def __init__(self) -> None:
        self.parameters = torch.tensor(list(FAMILIES.values())).unsqueeze(-1)
        self.pairs = 0
        self.likeliest, self.nearest, self.distance = (np.zeros(len(FAMILIES)) for _ in range(3))
        self.behind: list[Array] = []  # (2, pairs): the exponential, and the zero-inflated one

    def add(self, x: Tensor) -> None:
        """Fit the features of one class, (d, n)."""
        self.pairs += len(x)
        positive = x > 0
        lowest = torch.where(positive, x, torch.inf).amin(-1)
        x = x[(positive.sum(-1) >= LEAST_POSITIVE) & (lowest < x.amax(-1))]
        if not len(x):
            return
        fits = fit_families(x)
        merit = fits.log_likelihood - self.parameters / x.shape[-1]  # (families, d)
        best = merit.amax(0)
        self.likeliest += np.bincount(merit.argmax(0), minlength=len(FAMILIES))
        self.nearest += np.bincount(fits.ks.argmin(0), minlength=len(FAMILIES))
        self.distance += fits.ks.sum(-1).numpy()
        exponentials = [list(FAMILIES).index(name) for name in ("exponential", "zero-inflated exponential")]
        self.behind.append((best - merit[exponentials]).numpy())

    def shares(self) -> dict[str, Any]:
        """Give shares of the fitted pairs; all is 0 where nothing could be fitted."""
        behind = np.concatenate([np.zeros((2, 0)), *self.behind], axis=1)
        fits = behind.shape[1]
        median, apart = np.median(behind, axis=1) if fits else (0.0, 0.0)
        top = float(np.quantile(behind[0], 0.99)) if fits else 0.0
        counts, edges = np.histogram(behind[0].clip(max=top), bins=30, range=(0, top or 1))
        return {
            "names": list(FAMILIES),
            "best_by_likelihood": (self.likeliest / max(fits, 1)).tolist(),
            "best_by_ks": (self.nearest / max(fits, 1)).tolist(),
            "mean_ks": (self.distance / max(fits, 1)).tolist(),
            "fits": fits,
            "left_out": self.pairs - fits,
            "rule": RULE,
            "behind": {  # nats per image; the last bin holds all beyond it
                "edges": edges.tolist(),
                "counts": counts.tolist(),
                "median": float(median),
                "median_zero_inflated": float(apart),
            },
        }
