from __future__ import annotations

import pytest
import torch
from sklearn.neighbors import NearestCentroid
from sklearn.preprocessing import normalize

from likelyshot.methods.simpleshot import simpleshot


def test_predicts_as_nearest_centroid_on_centred_normalised_features():
    generator = torch.Generator().manual_seed(0)
    support, query = torch.rand(12, 8, generator=generator), torch.rand(40, 8, generator=generator)
    labels, mean = torch.arange(12) % 4, torch.rand(8, generator=generator)
    oracle = NearestCentroid().fit(normalize(support - mean), labels)
    scores = simpleshot(support, labels, query, n_ways=4, base_mean=mean)
    assert scores.argmax(-1).tolist() == oracle.predict(normalize(query - mean)).tolist()
    first = normalize(query - mean)[0] - normalize(support - mean)[labels == 2].mean(0)
    assert scores[0, 2].item() == pytest.approx(-(first**2).sum(), abs=1e-5)
