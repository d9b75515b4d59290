"""Where a block is cut, by what a drafter trusts of it itself.

The head is DSpark's (DeepSpec, 2026): the confidence of a row, that its token is accepted if all
before it are, is sigmoid(<w, f> + b), f being the hidden state that the head of the vocabulary
takes and, where the config says so, behind it the numbers of the token before.
"""

from __future__ import annotations

import math

import numpy as np

from kakeya_fleet.engine.contracts.evicted_store import Floats

WEIGHT = "confidence_head.proj.weight"
BIAS = "confidence_head.proj.bias"


def confident_rows(features: Floats, weight: Floats, bias: Floats, threshold: float) -> int:
    """How many rows of `features` [n, size] stand before the first that is not confident.

    `weight` [1, size] and `bias` [1]. A row is confident when its confidence is at least
    `threshold`, a number from 0 and below 1, and always with 0.
    """
    if threshold <= 0.0:
        return len(features)
    # sigmoid(x) >= t exactly when x >= log(t / (1 - t)), which does not overflow.
    limit = math.log(threshold / (1.0 - threshold))
    confident = (features * weight[0]).sum(axis=1) + bias[0] >= limit
    return len(features) if confident.all() else int(np.argmin(confident))
