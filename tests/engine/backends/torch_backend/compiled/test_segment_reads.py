"""Attention to what a store keeps, packed or not: near torch's own, and the same bits anywhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from kakeya_fleet.engine.backends.torch_backend.compiled import library as libraries
from kakeya_fleet.engine.backends.torch_backend.compiled import packing, segment_reads
from kakeya_fleet.engine.backends.torch_backend.kernels import TorchKernels
from kakeya_fleet.engine.codecs.known import CODECS
from kakeya_fleet.engine.codecs.tile import TILE
from kakeya_fleet.engine.contracts.kv_layout import AttentionLayer, LayerGroup
from kakeya_fleet.engine.contracts.positions import contiguous_placement
from kakeya_fleet.engine.kv.chunks import chunks, cut
from kakeya_fleet.engine.kv.feed import FeedSegments, Masks, Partial
from kakeya_fleet.engine.kv.kernels import ALL_QUERY_COUNTS, Kernels
from kakeya_fleet.engine.kv.packed_segments import PackedKernels
from kakeya_fleet.engine.restoration.evicted_slots import evicted_slots, seen_spans
from tests.support.breadth import all_wide_but

SEED = 20_261_127
READ = sorted(name for name in CODECS if name.startswith(("kivi", "kvarn")))
SINK, WINDOW = TILE, 13


PLAIN = ""


class Stored:
    """Segments of a layer, packed if there is a codec, and what queries see of them."""

    def __init__(
        self,
        name: str,
        shape: AttentionLayer,
        length: int,
        most: int = 8192,
        dtype: str = "float32",
    ) -> None:
        self.codec = CODECS.get(name)
        self.shape = shape
        self.placement = contiguous_placement(length)
        self.chunks = chunks(self.placement.segments, most)
        group = LayerGroup((0, 1), shape)
        kernels: Kernels[Any] = TorchKernels(dtype)
        if self.codec is not None:
            kernels = PackedKernels(kernels, self.codec)
        self.segments = [kernels.segment(group, keys) for keys in self.placement.segments]
        for index, segment in enumerate(self.segments):
            segment.fill(SEED + index)

    def asked(
        self, kernels: TorchKernels, positions: list[int], queries: np.ndarray, layer: int = 1
    ) -> list[Partial[Tensor]]:
        """The attention of queries [heads, n, head_dim] at `positions`, chunk by chunk."""
        packed: Kernels[Any] = kernels
        if self.codec is not None:
            packed = PackedKernels(kernels, self.codec)
        at = np.array(positions)
        seen = evicted_slots(self.placement, SINK, WINDOW, at, TILE)
        masks: Masks[Tensor] = Masks(
            0,
            len(at),
            len(at),
            cut(self.chunks, len(seen)),
            packed.biases(seen, self.shape.groups),
            spans=seen_spans(self.placement, SINK, WINDOW, at, TILE),
        )
        feed: FeedSegments[Any] = FeedSegments(
            masks,
            [segment.keys[layer] for segment in self.segments],
            [segment.values[layer] for segment in self.segments],
        )
        rows = packed.rows(queries, self.shape.kv_heads)
        return packed.attend(rows, feed, self.shape.head_dim**-0.5)


def queries_of(shape: AttentionLayer, count: int) -> np.ndarray:
    rng = np.random.default_rng(SEED)
    sizes = (shape.kv_heads * shape.groups, count, shape.head_dim)
    return 2 * rng.standard_normal(sizes, np.float32)


def same(first: list[Partial[Tensor]], second: list[Partial[Tensor]]) -> bool:
    return len(first) == len(second) and all(
        torch.equal(own, other)
        for pair in zip(first, second, strict=True)
        for own, other in zip(*pair, strict=True)
    )


@pytest.fixture(autouse=True)
def _there() -> None:
    if libraries.library() is None:
        pytest.skip("there is no compiled decoder here")


HEAD_DIMS = (16, 80, 96, 128)
CASES = [
    (dtype, size, name) for dtype in ("float32", "bfloat16") for size in HEAD_DIMS for name in READ
]
# Each codec once, and each size of heads with both dtypes.
KEPT = {
    (("float32", "bfloat16")[place // 4 % 2], HEAD_DIMS[place % 4], name)
    for place, name in enumerate(READ)
}


@pytest.mark.parametrize(
    ("dtype", "head_dim", "name"), all_wide_but(KEPT.__contains__, CASES, several=True)
)
def test_it_is_attention_to_the_numbers(name: str, head_dim: int, dtype: str) -> None:
    shape = AttentionLayer(2, 3, head_dim)
    stored = Stored(name, shape, 1024 + 3 * TILE, most=1024)
    # The first sees nothing, the next one tile, the last all.
    positions = [SINK + 5, 2 * TILE + WINDOW - 1, 900, 1023, 1024 + 3 * TILE + WINDOW - 1]
    queries = queries_of(shape, len(positions))
    kernels = packing.PackingKernels(dtype)
    # KIVI's grids of 80 channels are of 20, no whole lanes.
    assert stored.codec is not None
    is_read = kernels.packed_reads(stored.codec, head_dim) is not None
    assert is_read is not (head_dim == 80 and name.startswith("kivi"))
    found = stored.asked(kernels, positions, queries)
    expected = stored.asked(TorchKernels(dtype), positions, queries)
    assert len(found) == len(expected) == 2
    # Queries and weights have eight bits of a tile's largest.
    apart = 6e-2 if dtype == "float32" else 1e-1
    for own, other in zip(found, expected, strict=True):
        for part, reference in zip(own, other, strict=True):
            assert part.shape == reference.shape
            assert part.dtype == reference.dtype
        total, output, maximum = own
        nothing = other[0] == 0
        assert torch.equal(total == 0, nothing)
        assert torch.equal(maximum[nothing], other[2][nothing])
        assert not output[nothing.expand_as(output)].any()
        torch.testing.assert_close(maximum, other[2], atol=apart, rtol=apart)
        weights = total.clamp_min(1e-9) * torch.exp(maximum - other[2])
        reference = other[1] / other[0].clamp_min(1e-9)
        scale = reference.abs().max()
        distance = (output * torch.exp(maximum - other[2]) / weights - reference).abs().max()
        assert float(distance) < apart * max(float(scale), 1.0), (distance, scale)


@pytest.mark.parametrize("head_dim", [32, 64, 96, 256])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_of_numbers_it_is_torchs(head_dim: int, dtype: str) -> None:
    shape = AttentionLayer(2, 3, head_dim)
    stored = Stored(PLAIN, shape, 1024 + 3 * TILE, most=1024, dtype=dtype)
    positions = [SINK + 5, 2 * TILE + WINDOW - 1, 900, 1023, 1024 + 3 * TILE + WINDOW - 1]
    queries = queries_of(shape, len(positions)) / 2
    kernels = packing.PackingKernels(dtype)
    assert kernels.query_counts(shape) == ALL_QUERY_COUNTS
    found = stored.asked(kernels, positions, queries)
    expected = stored.asked(TorchKernels(dtype), positions, queries)
    apart = 1e-5 if dtype == "float32" else 3e-2
    for (total, output, maximum), reference in zip(found, expected, strict=True):
        torch.testing.assert_close(maximum, reference[2], atol=apart, rtol=apart)
        nothing = reference[0] == 0
        assert torch.equal(total == 0, nothing)
        weights = total.clamp_min(1e-9)
        expected_output = reference[1] / reference[0].clamp_min(1e-9)
        torch.testing.assert_close(output / weights, expected_output, atol=apart, rtol=apart)


READS = [(size, name) for size in (32, 96, 128) for name in (*READ, PLAIN)]


@pytest.mark.parametrize(("head_dim", "name"), all_wide_but(READS[::4], READS, several=True))
def test_every_processor_finds_the_same_bits(
    processors: dict[str, libraries.Library],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    head_dim: int,
) -> None:
    shape = AttentionLayer(1, 3, head_dim)
    stored = Stored(name, shape, 5 * TILE)
    queries = queries_of(shape, 3)
    positions = [SINK + 1, 3 * TILE, 5 * TILE + WINDOW]
    found = {}
    for options, library in processors.items():
        monkeypatch.setattr(packing, "library", lambda library=library: library)
        found[options] = stored.asked(packing.PackingKernels("float32"), positions, queries)
    first = next(iter(found.values()))
    assert all(same(each, first) for each in found.values()), list(found)


@pytest.mark.parametrize("name", ["kvarn4", PLAIN])
def test_neither_company_nor_threads_nor_chunks_of_queries_change_a_bit(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(segment_reads, "PRODUCTS_A_THREAD", 1)
    shape = AttentionLayer(3, 5, 64)
    stored = Stored(name, shape, 2048 + 1024, most=2048, dtype="bfloat16")
    kernels = packing.PackingKernels("bfloat16")
    positions = list(range(2048 + 1024 - 9, 2048 + 1024 + 7))
    queries = queries_of(shape, len(positions))
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        whole = stored.asked(kernels, positions, queries)
        torch.set_num_threads(3)
        assert same(stored.asked(kernels, positions, queries), whole)
    finally:
        torch.set_num_threads(threads)
    for first, end in ((0, 1), (3, 10), (15, 16)):
        some = stored.asked(kernels, positions[first:end], queries[:, first:end].copy())
        for own, of_all in zip(some, whole, strict=True):
            for part, all_rows in zip(own, of_all, strict=True):
                wide = all_rows.view(3, 5, len(positions), -1)[:, :, first:end]
                assert torch.equal(part.view(3, 5, end - first, -1), wide)


def test_queries_of_any_size_are_met() -> None:
    """Of zeros, of next to nothing, and of the largest that bfloat16 has for a head."""
    shape = AttentionLayer(1, 1, 64)
    stored = Stored("kvarn4v3", shape, 4 * TILE)
    kernels = packing.PackingKernels("float32")
    positions = [4 * TILE + WINDOW] * 4
    queries = queries_of(shape, 4)
    queries[0, 0], queries[0, 1], queries[0, 2] = 0.0, 1e-38, 1e4
    ((total, output, maximum),) = stored.asked(kernels, positions, queries)
    assert torch.isfinite(output).all()
    # A query of nothing weighs all alike.
    assert total[0, 0] == total[0, 1] == 3 * TILE
    assert maximum[0, 0] == 0.0
    assert abs(maximum[0, 1]) < 1e-30


@pytest.mark.parametrize("name", ["int4", "d4-3"])
def test_codecs_that_it_does_not_attend_to_are_unpacked(name: str) -> None:
    shape = AttentionLayer(1, 2, 64)
    stored = Stored(name, shape, 3 * TILE)
    kernels = packing.PackingKernels("float32")
    assert stored.codec is not None
    assert kernels.packed_reads(stored.codec, 64) is None
    queries = queries_of(shape, 1) / 2
    at = [3 * TILE + WINDOW]
    (found,) = stored.asked(kernels, at, queries)
    (expected,) = stored.asked(TorchKernels("float32"), at, queries)
    for own, other in zip(found, expected, strict=True):
        torch.testing.assert_close(own, other, atol=1e-4, rtol=1e-4)


def test_reads_want_to_know_what_is_seen() -> None:
    shape = AttentionLayer(1, 1, 64)
    stored = Stored("kvarn4", shape, TILE)
    assert stored.codec is not None
    reads = packing.PackingKernels("float32").packed_reads(stored.codec, 64)
    assert reads is not None
    masks: Masks[Tensor] = Masks(0, 1, 1, chunks(stored.placement.segments), (None,))
    feed: FeedSegments[Any] = FeedSegments(
        masks, [stored.segments[0].keys[0]], [stored.segments[0].values[0]]
    )
    with pytest.raises(ValueError, match="one run of slots"):
        reads.attend(torch.zeros(1, 1, 64), feed, 1.0)
    assert replace(masks, spans=np.array([[0], [TILE]])).spans is not None
