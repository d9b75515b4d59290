"""How far a way of keeping K/V is from full attention: in logits, in keys and values, in attention.

All in numpy; softmax and sums in float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class LogitGap:
    """Of n positions: mean KL(full || other) in nats, and the share with the same first choice."""

    kl: float
    agreement: float


def logit_gap(full: Array, other: Array) -> LogitGap:
    """The gap of logits [n, vocabulary] to those of full attention, same shape."""
    p, q = _log_softmax(full), _log_softmax(other)
    kl = (np.exp(p) * (p - q)).sum(axis=1)
    same = full.argmax(axis=1) == other.argmax(axis=1)
    return LogitGap(float(kl.mean()), float(same.mean()))


def relative_error(full: Array, other: Array) -> float:
    """Squared error of `other` over the squared size of `full`; same shapes. 1 is what zeros get.

    0 where `full` has no numbers.
    """
    size = float(np.square(full, dtype=np.float64).sum())
    error = float(np.square(full.astype(np.float64) - other).sum())
    return error / size if size else 0.0


def attention_overlap(
    queries: Array,
    first: int,
    keys: Array,
    *,
    scaling: float,
    sink: int,
    window: int,
    restored: Array | None,
) -> float:
    """The effective attention fraction of one layer: 1 minus the total variation distance.

    `queries` [heads, n, head_dim] are full attention's own, at positions `first`
    onwards; `keys` [kv_heads, length, head_dim] full attention's at all positions.
    p is full attention's distribution over the positions; q is that of the same
    queries over what the strategy has: the sink, the window, and `restored` keys
    [kv_heads, evicted, head_dim] in the place of the positions from `sink` on that
    the query does not see. The fraction is sum_j min(p_j, q_j), the mean over heads
    and queries. Without `restored` it is the probability mass that full attention
    puts on what is resident.
    """
    heads, count, _ = queries.shape
    kv_heads, length, _ = keys.shape
    repeats = heads // kv_heads
    positions = first + np.arange(count)[:, None]
    slots = np.arange(length)[None, :]
    causal = slots <= positions
    evicted = (slots >= sink) & (slots <= positions - window)
    scores = _scores(queries, keys, repeats, scaling)
    p = _softmax(np.where(causal, scores, -np.inf))
    if restored is None:
        other = np.where(causal & ~evicted, scores, -np.inf)
    else:
        replaced = keys.copy()
        replaced[:, sink : sink + restored.shape[1]] = restored
        other = np.where(evicted, _scores(queries, replaced, repeats, scaling), scores)
        other = np.where(causal, other, -np.inf)
    return float(np.minimum(p, _softmax(other)).sum(axis=2).mean())


def _scores(queries: Array, keys: Array, repeats: int, scaling: float) -> NDArray[np.float64]:
    own = np.repeat(keys, repeats, axis=0).astype(np.float64)
    scores: NDArray[np.float64] = queries.astype(np.float64) @ own.transpose(0, 2, 1) * scaling
    return scores


def _softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares: NDArray[np.float64] = weights / weights.sum(axis=-1, keepdims=True)
    return shares


def _log_softmax(logits: Array) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    shares: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return shares
