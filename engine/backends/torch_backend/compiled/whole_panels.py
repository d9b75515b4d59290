"""Weights as whole numbers of eight, four or two bits, laid out for the compiled products.

Each 32 inputs of an output have a scale of their own, as ggml's Q8_0 and Q4_1 blocks have
(https://github.com/ggml-org/ggml, `ggml-common.h`): of eight bits w = scale * q with q in -127 to
127, of four w = scale * q + minimum with q in 0 to 15, scale and minimum in float16. Of two, which
only tell where a product is large, w = scale * (q - 1.5) with q in 0 to 3. Inputs are rounded to
eight bits by the library, 32 at a time, so that products are sums of whole numbers and exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kakeya_fleet.engine.backends.torch_backend.compiled.parts import (
    Piece,
    Product,
    new_bias,
    new_panels,
)
from kakeya_fleet.engine.backends.torch_backend.compiled.structs import (
    INT2,
    INT4,
    INT8,
    PANEL,
    Matrix,
)
from kakeya_fleet.engine.errors import WeightFormatUnsupported
from kakeya_fleet.engine.models.weight_choice import AUTO, GROUP

SCALES_IN = "f16"
SCALE_BYTES = 2 * PANEL
SHRUNK = (1.0, 0.96, 0.92, 0.88, 0.84)
"""Parts of a group's range that are tried with four bits: what is cut off may cost less than
what a finer step wins."""
FORMATS = {8: INT8, 4: INT4, 2: INT2}
NUMBERS_OF_GROUP = {8: 1, 4: 2, 2: 1}
"""Scale and minimum."""
FOUR_STEPS = 0.9957
"""The step of four levels that loses least of normally distributed numbers, by their root mean
square. Source: Max, "Quantizing for Minimum Distortion" (1960), table II."""


@dataclass(frozen=True, slots=True)
class WholePanels:
    """`blocks` [panel, group, bytes] of `bits` each, padded with zeros to whole panels."""

    blocks: Tensor
    bias: Tensor | None
    columns: int
    bits: int

    @property
    def width(self) -> int:
        """Outputs, padded."""
        return int(self.blocks.shape[0]) * PANEL

    @property
    def matrix(self) -> Matrix:
        """For the library, for as long as this is there."""
        return Matrix(
            panels=self.blocks.data_ptr(),
            bias=None if self.bias is None else self.bias.data_ptr(),
            inputs=self.blocks.shape[1] * GROUP,
            columns=self.columns,
            format=FORMATS[self.bits],
        )


def whole_panels(product: Product, bits: int) -> WholePanels:
    """Of a product whose inputs are a multiple of 32.

    Takes the memory of the panels, and of one part's weights besides. Raises
    `WeightFormatUnsupported` for weights whose scale float16 cannot say.
    """
    groups = product.inputs // GROUP
    blocks = new_panels(product, groups, block_bytes(bits), dtype=torch.uint8)
    bias = new_bias(product)

    def put(piece: Piece) -> None:
        panels, lanes = piece.panels, piece.lanes
        values = piece.weights.to(torch.float32)
        grouped = values.view(*values.shape[:2], groups, GROUP)
        if bits == 8:
            scales, whole = _of_eight(grouped)
            fours = whole.view(*whole.shape[:3], GROUP // 4, 4).permute(0, 2, 3, 1, 4)
            _bytes_at(blocks, SCALE_BYTES, 4)[panels, :, :, lanes] = fours
        elif bits == 2:
            scales, whole = _of_two(grouped)
            quarters = whole.view(*whole.shape[:3], GROUP // 16, 4, 4)
            shifted = quarters << torch.arange(0, 8, 2, dtype=torch.uint8)[:, None]
            sixteens = shifted.sum(dim=4, dtype=torch.uint8).permute(0, 2, 3, 1, 4)
            _bytes_at(blocks, SCALE_BYTES, 16)[panels, :, :, lanes] = sixteens
        else:
            scales, minima, whole = _of_four(grouped)
            # Of eight inputs the first four in low halves of bytes, the others in high ones.
            halves = whole.view(*whole.shape[:3], GROUP // 8, 2, 4)
            eights = (halves[..., 0, :] | halves[..., 1, :] << 4).permute(0, 2, 3, 1, 4)
            _bytes_at(blocks, 2 * SCALE_BYTES, 8)[panels, :, :, lanes] = eights
            _numbers_at(blocks, SCALE_BYTES)[panels, :, lanes] = minima.transpose(1, 2)
            _require_finite(minima, values)
        _require_finite(scales, values)
        _numbers_at(blocks, 0)[panels, :, lanes] = scales.transpose(1, 2)
        if bias is not None and piece.bias is not None:
            bias[panels, lanes] = piece.bias.to(torch.float32)

    product.lay_out(put)
    return WholePanels(blocks, None if bias is None else bias.flatten(), product.columns, bits)


def block_bytes(bits: int) -> int:
    """Of a panel's group of inputs, its scales included."""
    return NUMBERS_OF_GROUP[bits] * SCALE_BYTES + PANEL * GROUP * bits // 8


def _of_eight(grouped: Tensor) -> tuple[Tensor, Tensor]:
    """Scales [panel, lane, group] and whole numbers, 128 more than they are, of weights
    [panel, lane, group, 32].
    """
    scales = _halves(grouped.abs().amax(dim=3) / 127.0)
    whole = torch.round(grouped / _divisor(scales)[..., None]).clamp_(-127, 127)
    return scales, (whole + 128).to(torch.uint8)


def _of_two(grouped: Tensor) -> tuple[Tensor, Tensor]:
    """Scales [panel, lane, group] and whole numbers of weights [panel, lane, group, 32].

    Larger ones than float16 can say are cut: where they are large is told all the same.
    """
    steps = grouped.square().mean(dim=3).sqrt_() * FOUR_STEPS
    scales = _halves(steps.clamp_(max=torch.finfo(torch.float16).max))
    whole = torch.floor(grouped / _divisor(scales)[..., None]).add_(2).clamp_(0, 3)
    return scales, whole.to(torch.uint8)


def _of_four(grouped: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Scales, minima [panel, lane, group] and whole numbers of weights [panel, lane, group, 32]."""
    least, most = grouped.amin(dim=3), grouped.amax(dim=3)
    best, lost = _rounded(grouped, least, most)
    for part in SHRUNK[1:]:
        cut = (most - least) * (1 - part) / 2
        tried, error = _rounded(grouped, least + cut, most - cut)
        better = error < lost
        best = tuple(
            torch.where(better[..., None] if new.dim() == 4 else better, new, old)
            for new, old in zip(tried, best, strict=True)
        )
        lost = torch.where(better, error, lost)
    scales, minima, whole = best
    return scales, minima, whole.to(torch.uint8)


def _rounded(grouped: Tensor, least: Tensor, most: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
    """Scales, minima and whole numbers for ranges; and the squares of what each group loses."""
    scales, least = _halves((most - least) / 15.0), _halves(least)
    whole = torch.round((grouped - least[..., None]) / _divisor(scales)[..., None]).clamp_(0, 15)
    lost = (whole * scales[..., None] + least[..., None] - grouped).square_().sum(dim=3)
    return (scales, least, whole), lost


def _halves(values: Tensor) -> Tensor:
    """The nearest float16 numbers, in float32."""
    return values.to(torch.float16).to(torch.float32)


def _require_finite(found: Tensor, values: Tensor) -> None:
    if bool(found.isinf().any()):
        raise WeightFormatUnsupported(
            f"weights of up to {float(values.abs().max()):g} are more than whole numbers with "
            f"scales in float16 can say: leave `--weights` at {AUTO}"
        )


def _numbers_at(blocks: Tensor, first: int) -> Tensor:
    """The float16 numbers [panel, group, 32] of the bytes from `first` on."""
    return blocks[:, :, first : first + SCALE_BYTES].view(torch.float16)


def _bytes_at(blocks: Tensor, first: int, inputs: int) -> Tensor:
    """The bytes [panel, group, of so many inputs, 32, 4] from `first` on."""
    panels, groups = blocks.shape[:2]
    parts = GROUP // inputs
    strides = (blocks.stride(0), blocks.stride(1), 4 * PANEL, 4, 1)
    return blocks.as_strided((panels, groups, parts, PANEL, 4), strides, first)


def _divisor(scales: Tensor) -> Tensor:
    """Groups of equal numbers have the scale 0."""
    return torch.where(scales == 0, torch.ones_like(scales), scales)
