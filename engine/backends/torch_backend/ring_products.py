"""Attention to a ring of one segment: the whole softmax in one call.

Every query's weights are of the same slots, in the same order, whatever the
block: there is nothing to add up over segments, so that the maximum, the sum
and the division need no calls of their own. A small model's step is mostly
such calls.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kakeya_fleet.engine.kv.feed import FeedSegments, Partial


@dataclass(frozen=True, slots=True)
class RingAttention:
    """Scores and weights [kv_heads, rows, keys] in float32, and the weighted values.

    The values [kv_heads, rows, head_dim] are in the queries' dtype.
    """

    scores: Tensor
    weights: Tensor
    output: Tensor

    def joined(self, more: Partial[Tensor]) -> Tensor:
        """Attention [heads, queries, head_dim] to the keys of both, in float32.

        `more` is of [heads, queries, ...], or of one query for all. Where it saw
        nothing the output stays as it is, bit for bit: its share is t / t and
        that of `more` is 0.
        """
        more_total, more_output, more_maximum = more
        heads = more_total.shape[0]
        maximum = self.scores.amax(-1).view(heads, -1, 1)
        highest = torch.maximum(maximum, more_maximum)
        # The largest weight is exp(0) over the sum.
        total = self.weights.amax(-1).view(heads, -1, 1).reciprocal_()
        total = total.mul_(maximum.sub_(highest).exp_())
        more_factor = (more_maximum - highest).exp_()
        both = total + more_factor * more_total
        own = self.output.view(heads, -1, more_output.shape[2]).to(torch.float32) * total.div_(both)
        return own.add_(more_output * more_factor.div_(both))


def ring_attention(
    rows: Tensor, feed: FeedSegments[Tensor], mask: Tensor, scaling: float
) -> RingAttention:
    """Attention of `rows` [kv_heads, groups * queries, head_dim]; `mask` is `Masks.stacked`."""
    keys, values = feed.keys[0], feed.values[0]
    if rows.dtype == torch.float32:
        scores = torch.baddbmm(mask, rows, keys, alpha=scaling)
    else:
        scores = torch.bmm(rows, keys).to(torch.float32).mul_(scaling).add_(mask)
    weights = scores.softmax(-1)
    return RingAttention(scores, weights, torch.bmm(weights.to(rows.dtype), values))
