"""Published figures, for tables that show them beside ours. None of them is a result of this package."""

from __future__ import annotations

from typing import NamedTuple

SOURCE = "Hess & Ditzler, A maximum log-likelihood method for imbalanced few-shot learning tasks"


class Published(NamedTuple):
    """A published row: 5-way accuracy in percent."""

    data: str
    network: str
    method: str
    one_shot: float
    five_shot: float


#: Table I: inductive, 15 queries per class. The Euclidean rows are quoted there from other papers.
INDUCTIVE = (
    Published("miniImageNet", "ResNet12", "Euclidean", 62.39, 80.53),
    Published("miniImageNet", "ResNet12", "MLL", 66.14, 81.24),
    Published("miniImageNet", "ResNet12", "Combined", 66.28, 81.53),
    Published("miniImageNet", "WRN", "Euclidean", 61.22, 81.00),
    Published("miniImageNet", "WRN", "MLL", 66.32, 81.18),
    Published("miniImageNet", "WRN", "Combined", 66.59, 81.28),
    Published("miniImageNet", "DenseNet121", "Euclidean", 63.63, 82.29),
    Published("miniImageNet", "DenseNet121", "MLL", 66.63, 81.22),
    Published("miniImageNet", "DenseNet121", "Combined", 66.88, 82.70),
    Published("tieredImageNet", "ResNet12", "Euclidean", 68.23, 84.79),
    Published("tieredImageNet", "ResNet12", "MLL", 68.54, 85.02),
    Published("tieredImageNet", "ResNet12", "Combined", 70.05, 85.23),
    Published("tieredImageNet", "WRN", "Euclidean", 68.86, 85.50),
    Published("tieredImageNet", "WRN", "MLL", 70.74, 85.99),
    Published("tieredImageNet", "WRN", "Combined", 71.77, 86.53),
    Published("tieredImageNet", "DenseNet121", "Euclidean", 69.91, 86.42),
    Published("tieredImageNet", "DenseNet121", "MLL", 71.45, 86.62),
    Published("tieredImageNet", "DenseNet121", "Combined", 72.37, 86.80),
)

#: Tables IV and V: transductive, Dirichlet(2), 75 queries; all but the MLL rows quote Veilleux et al. 2021.
IMBALANCED = (
    Published("miniImageNet", "ResNet18", "MAML", 47.6, 64.5),
    Published("miniImageNet", "ResNet18", "Versa", 47.8, 61.9),
    Published("miniImageNet", "ResNet18", "Entropy-min", 58.5, 74.8),
    Published("miniImageNet", "ResNet18", "LR+ICI", 58.7, 73.5),
    Published("miniImageNet", "ResNet18", "PT-MAP", 60.1, 67.1),
    Published("miniImageNet", "ResNet18", "LaplacianShot", 65.4, 81.6),
    Published("miniImageNet", "ResNet18", "BD-CSPN", 67.0, 80.2),
    Published("miniImageNet", "ResNet18", "TIM", 67.3, 79.8),
    Published("miniImageNet", "ResNet18", "alpha-TIM", 67.4, 82.5),
    Published("miniImageNet", "ResNet18", "MLL, transductive", 69.2, 80.7),
    Published("miniImageNet", "WRN", "Entropy-min", 60.4, 76.2),
    Published("miniImageNet", "WRN", "PT-MAP", 60.6, 66.8),
    Published("miniImageNet", "WRN", "SIB", 64.7, 72.5),
    Published("miniImageNet", "WRN", "LaplacianShot", 68.1, 83.2),
    Published("miniImageNet", "WRN", "TIM", 69.8, 81.6),
    Published("miniImageNet", "WRN", "BD-CSPN", 70.4, 82.3),
    Published("miniImageNet", "WRN", "alpha-TIM", 69.8, 84.8),
    Published("miniImageNet", "WRN", "MLL, transductive", 72.4, 83.3),
    Published("tieredImageNet", "ResNet18", "Entropy-min", 61.2, 75.5),
    Published("tieredImageNet", "ResNet18", "PT-MAP", 64.1, 70.0),
    Published("tieredImageNet", "ResNet18", "LaplacianShot", 72.3, 85.7),
    Published("tieredImageNet", "ResNet18", "BD-CSPN", 74.1, 84.8),
    Published("tieredImageNet", "ResNet18", "TIM", 74.1, 84.1),
    Published("tieredImageNet", "ResNet18", "LR+ICI", 74.6, 85.1),
    Published("tieredImageNet", "ResNet18", "alpha-TIM", 74.4, 86.6),
    Published("tieredImageNet", "ResNet18", "MLL, transductive", 76.0, 85.4),
    Published("tieredImageNet", "WRN", "Entropy-min", 62.9, 77.3),
    Published("tieredImageNet", "WRN", "PT-MAP", 65.1, 71.0),
    Published("tieredImageNet", "WRN", "LaplacianShot", 73.5, 86.8),
    Published("tieredImageNet", "WRN", "BD-CSPN", 75.4, 85.9),
    Published("tieredImageNet", "WRN", "TIM", 75.8, 85.4),
    Published("tieredImageNet", "WRN", "alpha-TIM", 76.0, 87.8),
    Published("tieredImageNet", "WRN", "MLL, transductive", 77.8, 86.6),
)
