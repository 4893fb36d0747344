"""The weights that the training of each head starts from, by name: (dim, parameters) -> tensors.

Every head starts at, or close to, a method that needs no training, so that its first step is a good one.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from likelyshot.errors import InputError

Start = Callable[..., dict[str, Tensor]]


def normal(*shape: int, deviation: float) -> Tensor:
    """Draw weights from N(0, deviation^2)."""
    return torch.randn(*shape) * deviation


def feat(dim: int, *, rank: int = 128, layer_norm: bool = True) -> dict[str, Tensor]:
    """FEAT: one attention layer, whose output starts at zero, so that prototypes start unchanged.

    Args:
        dim: Length of the features.
        rank: Length of the vectors that the attention compares.
        layer_norm: Whether LayerNorm follows the attention.
    """
    deviation = math.sqrt(2 / (dim + rank))
    weights = {key: normal(rank, dim, deviation=deviation) for key in ("asks", "offers", "gives")}
    weights |= {"out": torch.zeros(dim, rank), "out_bias": torch.zeros(dim)}
    if layer_norm:
        weights |= {"norm": torch.ones(dim), "norm_bias": torch.zeros(dim)}
    return weights


def siamese(dim: int, *, squared: bool = False) -> dict[str, Tensor]:
    """Siamese: a weight for every feature, equal at the start.

    Args:
        dim: Length of the features.
        squared: Whether to weigh squared differences of features instead of absolute ones.
    """
    return {"square_scale" if squared else "scale": torch.full((dim,), math.log(math.e - 1))}


def versa(dim: int, *, width: int = 128) -> dict[str, Tensor]:
    """Versa: networks whose last layers start at zero, so that the class mean is the classifier.

    Args:
        dim: Length of the features.
        width: Number of units of every layer.
    """
    weights = {"into": normal(width, dim, deviation=dim**-0.5), "into_bias": torch.zeros(width)}
    for part in ("mean", "spread"):
        for layer in "12":
            weights[f"{part}{layer}"] = normal(width, width, deviation=width**-0.5)
            weights[f"{part}{layer}_bias"] = torch.zeros(width)
        weights |= {f"{part}3": torch.zeros(width + 1, width), f"{part}3_bias": torch.zeros(width + 1)}
    return weights


def tpn(dim: int, *, width: int = 8) -> dict[str, Tensor]:
    """TPN: a network that gives every sample the same length scale, 0.18, at the start.

    Args:
        dim: Length of the features.
        width: Number of hidden units.
    """
    return {
        "into": normal(width, dim, deviation=dim**-0.5),
        "into_bias": torch.zeros(width),
        "out": torch.zeros(1, width),
        "out_bias": torch.tensor([math.log(math.exp(0.18) - 1)]),
    }


def sib(dim: int, *, ways: int = 5, width: int = 8) -> dict[str, Tensor]:
    """SIB: a network that predicts no gradient at the start.

    Args:
        dim: Length of the features.
        ways: Number of classes of the tasks.
        width: Number of hidden units for each class.
    """
    hidden = width * ways
    weights = {"scale": torch.ones(dim), "factor": torch.tensor([10.0])}
    for layer, before in (("into", ways), ("middle", hidden)):
        weights |= {layer: normal(hidden, before, deviation=before**-0.5), f"{layer}_bias": torch.zeros(hidden)}
        weights |= {f"{layer}_norm": torch.ones(hidden), f"{layer}_norm_bias": torch.zeros(hidden)}
    return weights | {"out": torch.zeros(ways, hidden), "out_bias": torch.zeros(ways)}


def anil(dim: int, *, per_feature: bool = False) -> dict[str, Tensor]:
    """ANIL: a rate of 1.

    Args:
        dim: Length of the features.
        per_feature: Whether to learn a rate for every feature instead of one for all.
    """
    return {"log_rate": torch.zeros(dim if per_feature else 1)}


def lstm(name: str, before: int, width: int, deviation: float) -> dict[str, Tensor]:
    """Draw the weights of an LSTM, gates in torch's order."""
    return {
        f"{name}_in": normal(4 * width, before, deviation=deviation),
        f"{name}_state": normal(4 * width, width, deviation=deviation),
        f"{name}_bias": torch.zeros(4 * width),
    }


def matching_fce(dim: int, *, width: int = 128) -> dict[str, Tensor]:
    """Full context embeddings: a random projection, and LSTMs that say little at the start.

    Args:
        dim: Length of the features.
        width: Length of the vectors that the LSTMs read and compare.
    """
    weights = {"into": normal(width, dim, deviation=dim**-0.5), "log_factor": torch.tensor([math.log(10.0)])}
    for name, before in (("forth", width), ("back", width), ("query", 2 * width)):
        weights |= lstm(name, before, width, 0.1 * width**-0.5)
    return weights


def leo(dim: int, *, codes: int = 64) -> dict[str, Tensor]:
    """LEO: codes that the decoder turns into a small change of the class means.

    Args:
        dim: Length of the features.
        codes: Length of the latent code of a class.
    """
    weights = {"encoder": normal(codes, dim, deviation=dim**-0.5)}
    weights |= {"relation1": normal(2 * codes, 2 * codes, deviation=codes**-0.5)}
    weights |= {"relation2": normal(2 * codes, 2 * codes, deviation=codes**-0.5)}
    weights |= {"relation3": normal(codes, 2 * codes, deviation=(2 * codes) ** -0.5)}
    weights |= {"decoder": normal(dim, codes, deviation=0.01 * dim**-0.5)}
    weights |= {"log_latent_rate": torch.zeros(codes), "log_rate": torch.full((dim,), math.log(1e-3))}
    return weights | {"log_factor": torch.tensor([math.log(10.0)])}


def meta_lstm(dim: int, *, width: int = 20) -> dict[str, Tensor]:
    """Meta-LSTM: gates that make it gradient descent with a rate of 0.1 at the start.

    Args:
        dim: Length of the features.
        width: Number of units of the LSTM.
    """
    return {
        "input": normal(4 * width, 4, deviation=0.1),
        "state": normal(4 * width, width, deviation=0.1),
        "bias": torch.zeros(4 * width),
        "forget": normal(width + 2, deviation=0.01),
        "forget_bias": torch.tensor([5.0]),
        "admit": normal(width + 2, deviation=0.01),
        "admit_bias": torch.tensor([-2.2]),
        "start": torch.zeros(1, dim + 1),
        "log_factor": torch.tensor([math.log(3.0)]),
    }


def ctm(dim: int, *, width: int = 128, grid: int = 1) -> dict[str, Tensor]:
    """CTM: a random projection of every cell, and a projector that gives an even mask.

    Args:
        dim: Length of the features.
        width: Number of channels that are masked and compared.
        grid: Cells along a side of the map that a vector is; 1 for pooled vectors.
    """
    cells = grid * grid
    if dim % cells:
        raise InputError(f"expected features of grid x grid = {cells} cells, got {dim} numbers: change grid")
    channels = dim // cells
    return {
        "reshape": normal(width, channels, deviation=width**-0.5),
        "concentrate": normal(width, channels, deviation=channels**-0.5),
        "concentrate_bias": torch.zeros(width),
        "project": torch.zeros(width, 2 * width),
        "project_bias": torch.zeros(width),
    }


def maml(
    dim: int,
    *,
    width: int = 64,
    layers: int = 1,
    side: int = 1,
    rate: float = 0.01,
    classifier_rate: float = 0.5,
    batch_norm: bool = True,
) -> dict[str, Tensor]:
    """MAML: a network drawn as by He et al. (2015), of convolutions if the vectors are images.

    Args:
        dim: Length of the vectors.
        width: Number of channels, or units, of every layer.
        layers: Number of layers before the classifier.
        side: Side of the images that the vectors are, in pixels; 1 for vectors that are no images.
        rate: Rate of the gradient steps of the network, before training.
        classifier_rate: The same of the classifier.
        batch_norm: Whether layers normalise by BatchNorm; without it, they scale and shift.
    """
    if dim % (side * side):
        raise InputError(f"expected images of side x side = {side * side} pixels, got {dim} numbers: change side")
    if side // 2**layers == 0 and side > 1:
        raise InputError(f"expected images of at least {2**layers} pixels for {layers} layers, got {side}: use fewer")
    for key, value in (("rate", rate), ("classifier_rate", classifier_rate)):
        if not 0 < value <= 100:
            raise InputError(f"expected {key} above 0 and up to 100, got {value}: the paper's is 0.05 here")
    weights = {"log_rate": torch.tensor([math.log(rate), math.log(classifier_rate)])}
    before, kernel = dim // side**2, (3, 3) if side > 1 else ()
    for number in range(1, layers + 1):
        weights[f"layer{number}"] = normal(width, before, *kernel, deviation=math.sqrt(2 / (before * 3 ** len(kernel))))
        names = ("norm", "norm_bias") if batch_norm else ("scale", "shift")
        weights |= {f"{names[0]}{number}": torch.ones(width), f"{names[1]}{number}": torch.zeros(width)}
        before = width
    return weights


def entropy_min_network(
    dim: int, *, width: int = 64, layers: int = 1, side: int = 1, batch_norm: bool = True
) -> dict[str, Tensor]:
    """Entropy-min: the network of MAML, with the means and variances of BatchNorm.

    Args:
        dim: Length of the vectors.
        width: As in `maml`.
        layers: As in `maml`.
        side: As in `maml`.
        batch_norm: As in `maml`.
    """
    weights = maml(dim, width=width, layers=layers, side=side, batch_norm=batch_norm)
    for number in range(1, layers + 1 if batch_norm else 1):
        weights |= {f"mean{number}": torch.zeros(width), f"variance{number}": torch.ones(width)}
    return {key: value for key, value in weights.items() if key != "log_rate"}


#: Heads that episodes train.
TRAINED: dict[str, Start] = {
    start.__name__: start for start in (feat, versa, siamese, matching_fce, tpn, sib, leo, anil, maml, ctm, meta_lstm)
}
#: All heads: that of entropy_min_network is a trained encoder.
STARTS: dict[str, Start] = {**TRAINED, "entropy_min_network": entropy_min_network}
