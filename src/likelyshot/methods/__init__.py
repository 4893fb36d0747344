"""The methods: pure functions `(support, labels, query, *, n_ways, ...) -> scores`, one paper per file.

Shapes, for every method: support (..., s, d), labels (..., s) or (s,) in 0..n_ways-1, query (..., q, d)
-> scores (..., q, n_ways), higher is better. A keyword without a default is a statistic that the method needs
from other data (`base_mean`, `calibration`). With `normalise`, every vector is scaled to length one first.
To add a method: one file, one entry in FACTS, one line in docs/methods.md.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from likelyshot.methods.alpha_tim import alpha_tim
from likelyshot.methods.anil import anil
from likelyshot.methods.baseline import baseline
from likelyshot.methods.baseline_pp import baseline_pp
from likelyshot.methods.bavardage import bavardage
from likelyshot.methods.bd_cspn import bd_cspn
from likelyshot.methods.combined import combined
from likelyshot.methods.combined_transductive import combined_transductive
from likelyshot.methods.cosine import cosine
from likelyshot.methods.ctm import ctm
from likelyshot.methods.deepemd import deepemd
from likelyshot.methods.entropy_min import entropy_min
from likelyshot.methods.entropy_min_network import entropy_min_network
from likelyshot.methods.euclidean import euclidean
from likelyshot.methods.facts import Facts, Variant
from likelyshot.methods.feat import feat
from likelyshot.methods.laplacianshot import laplacianshot
from likelyshot.methods.leo import leo
from likelyshot.methods.likelihood import likelihood
from likelyshot.methods.likelihood_mixture import likelihood_mixture
from likelyshot.methods.logistic import logistic
from likelyshot.methods.lr_ici import lr_ici
from likelyshot.methods.maml import maml
from likelyshot.methods.matching import matching
from likelyshot.methods.matching_fce import matching_fce
from likelyshot.methods.meta_lstm import meta_lstm
from likelyshot.methods.mll import mll
from likelyshot.methods.mll_transductive import mll_transductive
from likelyshot.methods.paddle import paddle
from likelyshot.methods.protolp import protolp
from likelyshot.methods.protonet import protonet
from likelyshot.methods.pt_map import pt_map
from likelyshot.methods.ridge import ridge
from likelyshot.methods.siamese import siamese
from likelyshot.methods.sib import sib
from likelyshot.methods.simpleshot import simpleshot
from likelyshot.methods.svm import svm
from likelyshot.methods.tim import tim
from likelyshot.methods.tpn import tpn
from likelyshot.methods.versa import versa

Method = Callable[..., Tensor]

#: Every method with its facts; `METHODS` has them by name.
FACTS: dict[Method, Facts] = {
    euclidean: Facts("Euclidean", "closed form"),
    cosine: Facts("Cosine", "closed form"),
    mll: Facts("MLL", "closed form", non_negative=True),
    mll_transductive: Facts("MLL, transductive", non_negative=True, runs=5, quick=True),
    likelihood: Facts("Likelihood", "closed form", non_negative=True, log_probabilities=True, temperature=0.8),
    likelihood_mixture: Facts(
        "Likelihood mixture",
        non_negative=True,
        log_probabilities=True,
        temperature=2.5,
        directions=20.0,
        runs=5,
        quick=True,
    ),
    combined_transductive: Facts(
        "Likelihood mixture, several networks",
        non_negative=True,
        several_networks=True,
        log_probabilities=True,
        temperature=2.5,
        runs=5,
        quick=True,
        memory=8.0,
    ),
    combined: Facts("Combined", "closed form", several_networks=True, double=True),
    protonet: Facts("ProtoNet, not normalised", "closed form", quick=True),
    simpleshot: Facts("SimpleShot", "closed form", quick=True),
    matching: Facts("Matching", "closed form", quick=True),
    baseline: Facts(
        "Baseline", "trained", variants={"baseline_plain": Variant("Baseline, no temperature", {"tau": 1.0})}
    ),
    baseline_pp: Facts("Baseline++", "trained"),
    logistic: Facts("Logistic regression", "trained", memory=8.0, double=True),
    ridge: Facts("Ridge regression", "closed form", double=True),
    svm: Facts("MetaOptNet's SVM", "trained", double=True),
    feat: Facts("FEAT", "closed form"),
    versa: Facts("Versa", "closed form", memory=7.0),
    siamese: Facts("Siamese", "closed form"),
    matching_fce: Facts("Matching, full contexts", "closed form", memory=6.0),
    tpn: Facts("TPN"),
    sib: Facts("SIB"),
    leo: Facts("LEO", "trained", memory=6.0),
    anil: Facts("ANIL", "trained"),
    maml: Facts("MAML", "trained", memory=6.0, rescales=True),
    deepemd: Facts("DeepEMD, one cell", "closed form", published="DeepEMD", memory=13.0),
    ctm: Facts("CTM", "closed form"),
    meta_lstm: Facts("Meta-LSTM", "trained", memory=21.0),
    entropy_min: Facts("Entropy-min, classifier only", published="Entropy-min", quick=True),
    entropy_min_network: Facts("Entropy-min, whole network", slow=True, memory=10.0, rescales=True),
    tim: Facts("TIM-GD", published="TIM", temperature=0.17, slow=True),
    alpha_tim: Facts("alpha-TIM", temperature=0.17, slow=True),
    laplacianshot: Facts(
        "LaplacianShot",
        quick=True,
        variants={"laplacianshot_rectified": Variant("LaplacianShot, prototypes rectified", {"rectified": True})},
    ),
    bd_cspn: Facts("BD-CSPN", quick=True),
    pt_map: Facts(
        "PT-MAP",
        non_negative=True,
        double=True,
        variants={"pt_map_estimated": Variant("PT-MAP, marginals estimated", {"marginals": "estimated"})},
    ),
    lr_ici: Facts("LR+ICI", temperature=0.25, slow=True, memory=6.0, double=True),
    bavardage: Facts("BAVARDAGE", memory=10.0, double=True),
    paddle: Facts("PADDLE", quick=True),
    protolp: Facts(
        "protoLP, marginals estimated",
        non_negative=True,
        double=True,
        variants={"protolp_uniform": Variant("protoLP, marginals uniform", {"marginals": "uniform"})},
    ),
}
METHODS: dict[str, Method] = {method.__name__: method for method in FACTS}
