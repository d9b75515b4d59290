"""Attention to a ring of one segment: alone, and joined with what was evicted."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kakeya_fleet.engine.backends.torch_backend.attention import segment_attention
from kakeya_fleet.engine.backends.torch_backend.kernels import TorchKernels
from kakeya_fleet.engine.backends.torch_backend.ring_products import ring_attention
from kakeya_fleet.engine.contracts.evicted_store import NOTHING_SEEN
from kakeya_fleet.engine.contracts.positions import contiguous_placement, ring_placement
from kakeya_fleet.engine.kv.chunks import Run
from kakeya_fleet.engine.kv.feed import FeedSegments, Masks, Partial
from kakeya_fleet.engine.kv.slot_views import seen_slots

HEADS, KV_HEADS, HEAD_DIM = 4, 2, 16
GROUPS = HEADS // KV_HEADS
PLACEMENT = ring_placement(3, 40, 1024)
SLOTS = PLACEMENT.slots
KERNELS = TorchKernels("float32")


def feed(
    start: int, count: int, dtype: torch.dtype = torch.float32
) -> tuple[FeedSegments[torch.Tensor], tuple[torch.Tensor | None, ...]]:
    """A block of `count` queries from `start` on, and what they read."""
    generator = torch.Generator().manual_seed(0)
    keys = torch.randn(KV_HEADS, HEAD_DIM, SLOTS, generator=generator).to(dtype)
    values = torch.randn(KV_HEADS, SLOTS, HEAD_DIM, generator=generator).to(dtype)
    slots = seen_slots(PLACEMENT, np.arange(start, start + count), start + count)
    seen = KERNELS.biases(slots, GROUPS)
    mask = KERNELS.stacked(PLACEMENT, seen, GROUPS, count)
    assert mask is not None
    masks = Masks(0, count, count, ((Run(0, 1, SLOTS),),), seen, stacked=mask)
    return FeedSegments(masks, [keys], [values]), seen


def mixed(query: torch.Tensor, own: FeedSegments[torch.Tensor]) -> torch.Tensor:
    found, _ = segment_attention(torch.nn.Identity(), query, [own], [own], None, scaling=0.3)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("start", [0, 20, 500])
def test_is_softmax_attention_under_the_mask(start: int, dtype: torch.dtype) -> None:
    query = torch.randn(1, HEADS, 8, HEAD_DIM, generator=torch.Generator().manual_seed(1))
    own, (bias,) = feed(start, 8, dtype=dtype)
    keys = own.keys[0].double().repeat_interleave(GROUPS, 0)
    values = own.values[0].double().repeat_interleave(GROUPS, 0)
    scores = 0.3 * query.to(dtype)[0].double() @ keys
    assert bias is not None
    expected = (scores + bias).softmax(-1) @ values
    got = mixed(query.to(dtype), own)[0].transpose(0, 1).double()
    assert (got - expected).abs().max() < (1e-5 if dtype == torch.float32 else 3e-2)


def test_a_query_gets_the_same_bits_in_any_block() -> None:
    query = torch.randn(1, HEADS, 16, HEAD_DIM, generator=torch.Generator().manual_seed(1))
    # The last queries of a block of 16 and of 4: what later ones write, they do not see.
    whole, _ = feed(484, 16)
    part, _ = feed(496, 4)
    assert torch.equal(mixed(query[:, :, 12:], part), mixed(query, whole)[:, 12:])


def test_a_ring_that_is_seen_whole_has_a_mask_too() -> None:
    mask = KERNELS.stacked(PLACEMENT, (None,), GROUPS, 4)
    assert mask is not None
    assert torch.equal(mask, torch.zeros(GROUPS * 4, SLOTS))


def test_other_placements_have_none() -> None:
    assert KERNELS.stacked(contiguous_placement(100), (None,), GROUPS, 4) is None
    assert KERNELS.stacked(ring_placement(4, 400, 1024), (None, None), GROUPS, 4) is None


def partial(rows: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> Partial[torch.Tensor]:
    """Attention of `rows` to all of `keys`, as a store gives it."""
    scores = 0.3 * rows @ keys
    maximum = scores.amax(-1, keepdim=True)
    weights = (scores - maximum).exp()
    return weights.sum(-1, keepdim=True), weights @ values, maximum


@pytest.mark.parametrize("start", [20, 500])
def test_joined_with_what_was_evicted_it_is_attention_to_both(start: int) -> None:
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(KV_HEADS, GROUPS * 8, HEAD_DIM, generator=generator)
    more_keys = 4 * torch.randn(KV_HEADS, HEAD_DIM, 30, generator=generator)
    more_values = torch.randn(KV_HEADS, 30, HEAD_DIM, generator=generator)
    own, _ = feed(start, 8)
    assert own.masks.stacked is not None
    found = ring_attention(rows, own, own.masks.stacked, 0.3)
    got = found.joined(partial(rows, more_keys, more_values))
    scores = torch.cat((own.masks.stacked + 0.3 * rows @ own.keys[0], 0.3 * rows @ more_keys), -1)
    expected = scores.softmax(-1) @ torch.cat((own.values[0], more_values), 1)
    assert (got - expected).abs().max() < 1e-5


def test_joined_with_nothing_it_stays_as_it_is() -> None:
    rows = torch.randn(KV_HEADS, GROUPS * 8, HEAD_DIM, generator=torch.Generator().manual_seed(1))
    own, _ = feed(500, 8)
    assert own.masks.stacked is not None
    found = ring_attention(rows, own, own.masks.stacked, 0.3)
    alone = found.output.clone()
    nothing = torch.full_like(alone[..., :1], NOTHING_SEEN)
    got = found.joined((torch.zeros_like(nothing), torch.zeros_like(alone), nothing))
    assert got.numpy().tobytes() == alone.numpy().tobytes()
