"""Every type's numbers are those of the `gguf` package's reference, bit for bit."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch

from kakeya_fleet.engine.backends.gguf.dequantize import KERNELS, dequantize
from kakeya_fleet.engine.models.gguf.tensor_types import TENSOR_TYPES

SEED = 190
BLOCKS = 300
EXTREMES = (0x00, 0xFF, 0x80, 0x7F, 0x55, 0xAA)
"""Bytes of whole blocks: all bits clear or set, signs, alternating."""


def blocks_of(name: str, block_bytes: int) -> np.ndarray:
    """Random blocks, those of one byte throughout, and every float16 scale that is finite."""
    draw = np.random.default_rng(SEED)
    random = draw.integers(0, 256, (BLOCKS, block_bytes), dtype=np.uint8)
    extremes = [np.full((1, block_bytes), byte, dtype=np.uint8) for byte in EXTREMES]
    return np.concatenate((random, *extremes))


@pytest.mark.parametrize("number", TENSOR_TYPES)
def test_numbers_are_those_of_the_reference(number: int) -> None:
    kind = TENSOR_TYPES[number]
    raw = blocks_of(kind.name, kind.block_bytes)
    with np.errstate(all="ignore"):
        expected = gguf.dequantize(raw, gguf.GGMLQuantizationType(number)).reshape(-1)
    found = dequantize(torch.from_numpy(raw), kind).numpy()
    same = found.view(np.uint32) == np.ascontiguousarray(expected).view(np.uint32)
    # Scales that are no numbers: which NaN comes of them is the processor's choice.
    both_nan = np.isnan(found) & np.isnan(expected)
    assert bool((same | both_nan).all()), f"seed {SEED}: {np.flatnonzero(~(same | both_nan))[:8]}"
    assert np.isfinite(found).mean() > 0.5


@pytest.mark.parametrize("number", TENSOR_TYPES)
def test_sizes_are_those_of_the_reference(number: int) -> None:
    kind = TENSOR_TYPES[number]
    reference = gguf.GGMLQuantizationType(number)
    assert reference.name == kind.name
    assert gguf.GGML_QUANT_SIZES[reference] == (kind.block_values, kind.block_bytes)


def test_each_type_has_a_kernel() -> None:
    assert set(KERNELS) == {kind.name for kind in TENSOR_TYPES.values()}
