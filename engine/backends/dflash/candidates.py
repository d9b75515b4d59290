"""The largest logits of rows, in order."""

from __future__ import annotations

import numpy as np

from kakeya_fleet.engine.backends.dflash.kernels import Candidates, Indices
from kakeya_fleet.engine.contracts.evicted_store import Floats

GROUP = 64
"""Ids of a group whose largest logit is found first."""
GROUPS_A_CANDIDATE = 4
"""With fewer groups there is little to leave out."""


def largest_in_order(logits: Floats, count: int) -> Candidates:
    """Ids of the `count` largest `logits` of each row [vocabulary_size], and those logits.

    The largest first, of equal ones the smaller id; which of equal ones are left out is not
    said, and always the same.
    """
    found = np.sort(largest(logits, count), axis=1)
    values = np.take_along_axis(logits, found, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    return np.take_along_axis(found, order, axis=1), np.take_along_axis(values, order, axis=1)


def largest(logits: Floats, count: int) -> Indices:
    """Ids [n, count] of the `count` largest of each row [vocabulary_size], in no order.

    Those lie in the `count` groups of ids whose largest are largest, so that a long row is read
    once, and what is sorted is a small part of it.
    """
    rows, size = logits.shape
    groups = size // GROUP
    if groups < GROUPS_A_CANDIDATE * count:
        return np.argpartition(logits, size - count, axis=1)[:, size - count :]
    grouped = groups * GROUP
    # Group g has the ids g, g + groups, g + 2 groups, ..: maxima of neighbours are made together.
    maxima = logits[:, :grouped].reshape(rows, GROUP, groups).max(axis=1)
    best = np.argpartition(maxima, groups - count, axis=1)[:, groups - count :]
    within = (best[:, :, None] + groups * np.arange(GROUP)).reshape(rows, -1)
    rest = np.broadcast_to(np.arange(grouped, size), (rows, size - grouped))
    ids = np.concatenate((within, rest), axis=1)
    values = np.take_along_axis(logits, ids, axis=1)
    behind = ids.shape[1] - count
    chosen = np.argpartition(values, behind, axis=1)[:, behind:]
    return np.take_along_axis(ids, chosen, axis=1)
