"""Attention over key segments, with bits that depend on the history alone.

What fixes the bits of a query's output, whatever block it came in:

- Every product has one fixed shape: [groups * width, head_dim] queries against
  one segment. A row of a product does not depend on the other rows.
- The maximum is exact in any order. A masked key's weight is exactly 0, and so
  is what it adds. A segment masked altogether adds 0 to sum and output, so the
  number of trailing segments does not matter.
- Segments are added in ascending order, one at a time.
- No elementwise function here has a second formula for the end of a tensor
  (`exp` has one code path for whole and part vectors; the others round
  correctly by IEEE 754).

Grouped queries are stacked along rows, so that K/V are never repeated.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from engine.backends.torch_backend.kv_cache import LayerSegments

ATTENTION_NAME = "kakeya_segments"


def segment_attention(
    module: nn.Module,  # noqa: ARG001 - the library's signature
    query: Tensor,
    key: LayerSegments,
    value: LayerSegments,  # noqa: ARG001 - is `key`
    attention_mask: Tensor | None,
    *,
    scaling: float,
    **_: object,
) -> tuple[Tensor, None]:
    """Softmax attention of `query` [1, heads, width, head_dim] over `key`'s segments.

    Returns [1, width, heads, head_dim]. The signature is that of transformers'
    attention functions; `value` is `key`, and there is no mask but the
    segments' own, so that one from the model is a `ValueError`.
    """
    if attention_mask is not None:
        raise ValueError("masks come with the cache's segments, not from the model")
    heads, width, head_dim = query.shape[1:]
    kv_heads = key.values[0].shape[0]
    rows = query.reshape(kv_heads, heads * width // kv_heads, head_dim)
    output = _attend(rows, key, scaling)
    return output.view(1, heads, width, head_dim).transpose(1, 2), None


def _attend(rows: Tensor, segments: LayerSegments, scaling: float) -> Tensor:
    """The outputs [kv_heads, rows, head_dim] of the queries `rows`, same shape."""
    kv_heads, row_count, _ = rows.shape
    keys = segments.biases[0].shape[1]
    scores = rows.new_empty((len(segments.keys), kv_heads, row_count, keys))
    for part, bias, segment in zip(scores, segments.biases, segments.keys, strict=True):
        torch.baddbmm(bias.expand_as(part), rows, segment, alpha=scaling, out=part)
    scores = scores.to(torch.float32)
    weights = scores.sub_(scores.amax(dim=(0, 3), keepdim=True)).exp_()
    sums = weights.sum(dim=3, keepdim=True)
    weights = weights.to(rows.dtype)
    total = sums[0]
    output = torch.bmm(weights[0], segments.values[0]).to(torch.float32)
    for part, part_sum, segment in zip(weights[1:], sums[1:], segments.values[1:], strict=True):
        total = total + part_sum
        output += torch.bmm(part, segment)
    return (output / total).to(rows.dtype)


AttentionInterface.register(ATTENTION_NAME, segment_attention)
