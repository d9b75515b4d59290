"""Evicted stores that pack: what attention finds is that of numbers packed and unpacked before."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kakeya_fleet.engine.backends.torch_backend.kernels import TorchKernels
from kakeya_fleet.engine.codecs.known import CODECS, codec_named
from kakeya_fleet.engine.codecs.tile import TILE
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import EvictedKeysValues
from kakeya_fleet.engine.contracts.kv_layout import AttentionLayer, KvLayout
from kakeya_fleet.engine.contracts.raw_numbers import as_float32, in_format
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.errors import BadParameters, RestorerRefused
from kakeya_fleet.engine.kv.group_store import kv_pool
from kakeya_fleet.engine.kv.kernels import Kernels
from kakeya_fleet.engine.kv.packed_segments import PackedKernels
from kakeya_fleet.engine.restoration.matching import evicted_shape
from kakeya_fleet.engine.restoration.segment_store import SegmentStore
from tests.contract.test_evicted_store_contract import asked, same_bits
from tests.support import evicted_stores
from tests.support.breadth import all_wide_but

SINK, WINDOW = TILE, 13
LENGTH = 2048 + 1024 + 5 * TILE
"""Into the coarse segments, and several chunks of `CHUNK`."""
CHUNK = 1024
MakeKernels = Callable[[str], Kernels[Any]]


def shape_of(codec: str, dtype: str = "float32") -> EvictedShape:
    """One with two key heads of 16 channels, and one with a single head of 80."""
    plain = evicted_stores.small_shape(dtype, SINK, WINDOW, head_dims=(16, 80))
    return replace(plain, codec=codec)


@pytest.fixture(params=["torch", "mlx"])
def make_kernels(request: pytest.FixtureRequest) -> MakeKernels:
    if request.param == "torch":
        return TorchKernels
    pytest.importorskip("mlx.core", reason="MLX is not installed")
    module = importlib.import_module("kakeya_fleet.engine.backends.mlx_backend.kernels")
    made: MakeKernels = module.MlxKernels
    return made


def store_of(shape: EvictedShape, kernels: Kernels[Any]) -> SegmentStore[Any]:
    spec = RestorerSpec(RestorerKind.ARCHIVE, codec=shape.codec)
    codec = shape.kv_codec
    used: Kernels[Any] = kernels if codec is None else PackedKernels(kernels, codec)
    return SegmentStore(shape, spec, used, kv_pool(), chunk_keys=CHUNK)


def numbers_of(shape: EvictedShape, count: int, seed: int = 1) -> list[Any]:
    plain = replace(shape, codec="")
    return list(evicted_stores.random_evicted(plain, count, seed).groups)


def packed(shape: EvictedShape, arrays: list[Any]) -> EvictedKeysValues:
    codec = codec_named(shape.codec)
    return EvictedKeysValues(tuple(codec.encode(as_float32(array)) for array in arrays))


def round_trip(shape: EvictedShape, evicted: EvictedKeysValues) -> EvictedKeysValues:
    """What the packed ones stand for, as it would lie in a store that does not pack."""
    codec = codec_named(shape.codec)
    return EvictedKeysValues(
        tuple(
            in_format(codec.decode(array.view(np.uint8), group.shape.head_dim), shape.dtype)
            for group, array in zip(shape.groups, evicted.groups, strict=True)
        )
    )


@pytest.mark.parametrize(
    ("make_kernels", "codec", "dtype"),
    all_wide_but(
        [
            ("torch", "lossless", "bfloat16"),
            ("torch", "int8", "float32"),
            ("torch", "kvarn4", "bfloat16"),
            ("torch", "kivi3", "float32"),
            ("torch", "d4-3", "float32"),
            ("torch", "e8-2", "bfloat16"),
            ("mlx", "lossless", "float32"),
            ("mlx", "kvarn4", "float32"),
            ("mlx", "kivi3", "bfloat16"),
        ],
        itertools.product(
            ["torch", "mlx"],
            ["lossless", "int8", "kvarn4", "kivi3", "d4-3", "e8-2"],
            ["float32", "bfloat16"],
        ),
        several=True,
    ),
    indirect=["make_kernels"],
)
def test_attention_is_that_to_unpacked_numbers_bit_for_bit(
    make_kernels: MakeKernels, codec: str, dtype: str
) -> None:
    shape = shape_of(codec, dtype)
    arrays = numbers_of(shape, LENGTH - SINK)
    if codec == "lossless":
        # What bfloat16 holds.
        arrays = [in_format(as_float32(array), "bfloat16") for array in arrays]
    evicted = packed(shape, arrays)
    plain = store_of(replace(shape, codec=""), make_kernels(dtype))
    # Its windows are cut in tiles as well, so that both see the same positions.
    store = store_of(shape, make_kernels(dtype))
    store.deposit(SINK, evicted)
    plain.deposit(SINK, round_trip(shape, evicted))
    for layer, end in ((0, 3 * TILE), (2, 700), (3, LENGTH), (0, LENGTH)):
        # The last query of a window that ends where a tile does: both rules are one there.
        last = end // TILE * TILE + WINDOW - 1
        queries = evicted_stores.random_queries(shape, layer, last, 1, seed=end)
        assert same_bits(asked(store, queries), asked(plain, queries)), (layer, end)
    assert store.stored_bytes < plain.stored_bytes or (codec, dtype) == ("lossless", "bfloat16")


@pytest.mark.parametrize("codec", sorted(CODECS))
def test_a_store_holds_what_its_tiles_take(codec: str) -> None:
    shape = shape_of(codec, "bfloat16")
    store = store_of(shape, TorchKernels("bfloat16"))
    arrays = numbers_of(shape, 1024 - SINK)
    store.deposit(SINK, packed(shape, arrays))
    held = sum(
        len(group.layers)
        * group.shape.kv_heads
        * codec_named(codec).tile_bytes(group.shape.head_dim)
        for group in shape.groups
    )
    assert store.stored_bytes == held * 1024 // TILE
    store.release()


def test_deposits_queries_and_forks_are_cut_anywhere(make_kernels: MakeKernels) -> None:
    shape = shape_of("kvarn3", "bfloat16")
    end = 20 * TILE
    evicted = packed(shape, numbers_of(shape, end - SINK))
    whole, parts = (store_of(shape, make_kernels(shape.dtype)) for _ in range(2))
    whole.deposit(SINK, evicted)
    borders = [0, 1, 4, 5, 11, 19]
    for low, high in itertools.pairwise(borders):
        parts.deposit(SINK + low * TILE, shape.part(evicted, low * TILE, high * TILE))
    queries = evicted_stores.random_queries(shape, 2, 10 * TILE - 7, 3 * TILE, seed=5)
    expected = asked(whole, queries)
    assert same_bits(asked(parts, queries), expected)
    for row in (0, 1, TILE - 1, TILE, 2 * TILE + 19):
        one = replace(
            queries, first=queries.first + row, queries=queries.queries[:, row : row + 1].copy()
        )
        assert np.array_equal(asked(parts, one).output[:, 0], expected.output[:, row])
    # A fork has whole tiles; the rest comes again.
    fork = parts.fork(12 * TILE + 40)
    assert fork.length == 12 * TILE
    first = 12 * TILE - SINK
    fork.deposit(12 * TILE, shape.part(evicted, first, first + TILE))
    early = replace(queries, queries=queries.queries[:, : 2 * TILE].copy())
    assert np.array_equal(asked(fork, early).output, expected.output[:, : 2 * TILE])
    parts.release()
    whole.release()
    assert np.array_equal(asked(fork, early).output, expected.output[:, : 2 * TILE])


@pytest.mark.parametrize("seed", range(20))
def test_hostile_tiles_are_refused_or_finite_and_change_nothing(seed: int) -> None:
    shape = shape_of("kvarn4" if seed % 2 else "e8-3")
    store = store_of(shape, TorchKernels("float32"))
    store.deposit(SINK, packed(shape, numbers_of(shape, 2 * TILE)))
    queries = evicted_stores.random_queries(shape, 3, SINK + 2 * TILE + WINDOW - 1, 1, seed=5)
    expected = asked(store, queries)
    rng = np.random.default_rng(seed)
    hostile = EvictedKeysValues(
        tuple(rng.integers(0, 256, sizes, np.uint8) for _, sizes in shape.arrays(TILE))
    )
    # An exponent of ones somewhere among so many halves is all but sure; here it is.
    hostile.groups[0][..., -1] = 0x7C
    with pytest.raises(RestorerRefused, match="not finite"):
        store.deposit(SINK + 2 * TILE, hostile)
    assert store.length == SINK + 2 * TILE
    assert same_bits(asked(store, queries), expected)


def test_wrong_sizes_are_refused() -> None:
    shape = shape_of("int4")
    store = store_of(shape, TorchKernels("float32"))
    good = packed(shape, numbers_of(shape, TILE))
    for bad in (
        EvictedKeysValues(tuple(array[..., :-1].copy() for array in good.groups)),
        EvictedKeysValues(tuple(array[:, :, :, :0].copy() for array in good.groups)),
        EvictedKeysValues(good.groups[:1]),
        EvictedKeysValues(tuple(numbers_of(shape, TILE))),
    ):
        with pytest.raises(RestorerRefused):
            store.deposit(SINK, bad)
    store.deposit(SINK, good)
    for first, end in ((SINK, SINK + 1), (SINK + 1, SINK + TILE)):
        with pytest.raises(RestorerRefused):
            store.kept(0, first, end)
    assert store.kept(3, SINK, SINK + TILE).groups[0].tobytes() == good.groups[1].tobytes()


@pytest.mark.parametrize(
    ("head_dim", "codec", "words"),
    [(12, "kvarn4", "heads of 12 channels"), (64, "kvarn5", "no codec 'kvarn5'")],
)
def test_heads_that_a_codec_cannot_pack_are_refused_before_anything_is_opened(
    head_dim: int, codec: str, words: str
) -> None:
    layout = KvLayout((AttentionLayer(1, 1, head_dim),), 1024, 4)
    restorer = RestorerSpec(RestorerKind.ARCHIVE, codec=codec)
    spec = CacheSpec(CacheKind.RESTORED, sink=TILE, window=WINDOW, restorer=restorer)
    with pytest.raises(BadParameters, match=words):
        evicted_shape(layout, spec, "float32")
    lossless = replace(spec, restorer=RestorerSpec(RestorerKind.ARCHIVE))
    assert evicted_shape(layout, lossless, "float32").codec == ""
