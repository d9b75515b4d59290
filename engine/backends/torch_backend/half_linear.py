"""Linear layers with float32 in and out whose weights are kept in half the bytes, without loss.

A checkpoint in bfloat16 that is served in float32 has zeros for half of its
bits, and few rows take as long as reading the weights does. FBGEMM multiplies
float32 by float16 and adds in float32. A bfloat16 number has fewer digits than
a float16 one, so that a layer's weights, times a power of two that moves the
largest below float16's maximum, are float16 numbers as long as none is smaller
than the largest by more than 2 ** 31. This is checked for each weight.

On a 2-core AVX512 machine the products of 4 rows of a model of 15 MB take 0.44
ms instead of 1.06 ms, those of 16 rows 1.33 instead of 1.82. A row's bits depend neither on
what the other rows hold nor on the threads, but on processors without AVX512 on the
row's place where few rows are left over: `engine.verifiers.exactness` finds which row counts agree.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

LARGEST_EXPONENT = 15
"""Scaled weights are less than 2 ** 15, half of what float16 can hold."""
CHECKED_ELEMENTS = 1 << 22
"""Weights compared at once: what bounds the check's memory."""
SHARED_ELEMENTS = 1 << 21
"""From here on a product is shared among threads; of a smaller one, waking them takes longer."""

# The operators have no public names; the distribution pins torch to a minor version.
_QUANTIZED = torch.ops.quantized
_PREPACK = "linear_prepack_fp16"
_SHARED = "linear_dynamic_fp16"
_ALONE_PACK = "fbgemm_pack_gemm_matrix_fp16"
_ALONE = "fbgemm_linear_fp16_weight_fp32_activation"


class HalfLinear(nn.Module):
    """`linear` for inputs [..., in_features] in float32.

    Its products are of inputs scaled by `input_scale`, a power of two.
    """

    def __init__(self, linear: nn.Linear, exponent: int) -> None:
        """The weights times 2 ** `exponent` are float16 numbers: see `lossless_exponent`."""
        super().__init__()
        self._scale = torch.tensor(2.0**-exponent)
        self._folded = exponent == 0
        self._bias = None if linear.bias is None else linear.bias.detach()
        weight = linear.weight.detach()
        # In place, and back: a power of two loses nothing, and a copy may not fit.
        weight.mul_(2.0**exponent)
        try:
            self._product = _packed_product(weight)
        finally:
            weight.mul_(2.0**-exponent)

    def fold(self) -> float:
        """Leaves the scaling of inputs to the caller, who scales them by what is returned."""
        self._folded = True
        return float(self._scale)

    def forward(self, values: Tensor) -> Tensor:
        """The product with the transposed weights, plus the bias."""
        product = self._product(values if self._folded else values * self._scale)
        return product if self._bias is None else product.add_(self._bias)


def can_halve(dtype: torch.dtype) -> bool:
    """Whether this build and processor have products of float32 inputs in `dtype` and float16."""
    engine = torch.backends.quantized.engine
    available = hasattr(_QUANTIZED, _PREPACK) and hasattr(_QUANTIZED, _SHARED)
    return dtype == torch.float32 and engine in ("x86", "fbgemm") and available


def lossless_exponent(weight: Tensor) -> int | None:
    """The power of two that makes all of `weight` [out, in] float16 numbers; None if none does."""
    largest = float(torch.maximum(weight.amax(), -weight.amin()))
    if not math.isfinite(largest):
        return None
    exponent = LARGEST_EXPONENT - math.frexp(largest)[1] if largest else 0
    step = max(1, CHECKED_ELEMENTS // weight.shape[1])
    for part in torch.split(weight.detach(), step):
        scaled = part * 2.0**exponent
        if not torch.equal(scaled.to(torch.float16).to(torch.float32), scaled):
            return None
    return exponent


def _packed_product(weight: Tensor) -> Callable[[Tensor], Tensor]:
    """Products with the transposed `weight`, which is copied."""
    if weight.numel() < SHARED_ELEMENTS and hasattr(torch, _ALONE):
        with warnings.catch_warnings():
            # Deprecated, for the one below, which wakes threads for the smallest product.
            warnings.simplefilter("ignore", UserWarning)
            packed = getattr(torch, _ALONE_PACK)(weight)
            alone = getattr(torch, _ALONE)
            alone(weight.new_zeros(1, weight.shape[1]), packed, None)
        return lambda values: alone(values, packed, None)
    packed = getattr(_QUANTIZED, _PREPACK)(weight, None)
    shared = getattr(_QUANTIZED, _SHARED).default
    return lambda values: shared(values, packed)
