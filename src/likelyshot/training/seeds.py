"""Seeds that follow from where a run stands."""

from __future__ import annotations

import numpy as np


def derived(seed: int, *place: int) -> int:
    """Give an independent seed for each place, such as (stage, epoch) or (stage, epoch, step, rank).

    >>> derived(0, 1, 2) == derived(0, 1, 2), derived(0, 1, 2) == derived(0, 2, 1)
    (True, False)
    """
    state = np.random.SeedSequence(seed, spawn_key=place).generate_state(2, np.uint32)
    return int(state[0]) << 31 | int(state[1]) >> 1  # 63 bits: torch takes signed ones
