"""Linear layers whose outputs become one product's, read one at a time and laid out in pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from kakeya_fleet.engine.backends.torch_backend.compiled.structs import PANEL
from kakeya_fleet.engine.backends.torch_backend.large_pages import empty_on_large_pages
from kakeya_fleet.engine.contracts.positions import round_up

PIECE_VALUES = 1 << 17
"""Numbers that are laid out at once: what bounds the memory of it, whatever a layer's size."""


@dataclass(frozen=True, slots=True)
class Part:
    """A linear layer's sizes, and what gives its weight and bias, which nobody else keeps."""

    outputs: int
    inputs: int
    has_bias: bool
    read: Callable[[], tuple[Tensor, Tensor | None]]


def part_of(linear: nn.Linear) -> Part:
    """That of a layer that is loaded."""
    bias = None if linear.bias is None else linear.bias.detach()
    return Part(
        linear.out_features,
        linear.in_features,
        bias is not None,
        lambda: (linear.weight.detach(), bias),
    )


@dataclass(frozen=True, slots=True)
class Piece:
    """Some weights [panel, lane, inputs] of a part, and the panels and lanes where they go.

    `bias` [panel, lane] comes along if the part has one.
    """

    panels: slice
    lanes: slice
    weights: Tensor
    bias: Tensor | None


@dataclass(frozen=True, slots=True)
class Product:
    """The `parts` of one product, of the same inputs.

    Their outputs lie one after the other, where all but the last are a multiple of 32; or, if
    they are `gated`, two parts side by side, sixteen outputs of each in a panel.
    """

    parts: Sequence[Part]
    gated: bool = False

    @property
    def columns(self) -> int:
        """Outputs of all parts."""
        return sum(part.outputs for part in self.parts)

    @property
    def inputs(self) -> int:
        """Inputs of each."""
        return self.parts[0].inputs

    @property
    def has_bias(self) -> bool:
        """Whether the parts have one."""
        return self.parts[0].has_bias

    @property
    def panels(self) -> int:
        """Whole panels that hold all outputs."""
        return round_up(self.columns, PANEL) // PANEL

    def lay_out(self, put: Callable[[Piece], None]) -> None:
        """Has `put` take all weights, a part at a time: each is let go before the next is read."""
        width = PANEL // 2 if self.gated else PANEL
        first = 0
        for place, part in enumerate(self.parts):
            if self.gated:
                _lay_out(part, 0, slice(place * width, (place + 1) * width), put)
            else:
                _lay_out(part, first // PANEL, slice(0, PANEL), put)
            first += part.outputs


def _lay_out(part: Part, panel: int, lanes: slice, put: Callable[[Piece], None]) -> None:
    """Has `put` take a part for these `lanes` of the panels from `panel` on."""
    weight, bias = part.read()
    width = lanes.stop - lanes.start
    at_once = max(1, PIECE_VALUES // (width * part.inputs))
    row = 0
    while row < part.outputs:
        own = min(width, part.outputs - row)
        count = min(at_once, (part.outputs - row) // own)
        rows = slice(row, row + count * own)
        put(
            Piece(
                slice(panel, panel + count),
                slice(lanes.start, lanes.start + own),
                weight[rows].view(count, own, part.inputs),
                None if bias is None else bias[rows].view(count, own),
            )
        )
        row, panel = rows.stop, panel + count


def product_of(weight: Tensor) -> Product:
    """That of weights [outputs, inputs] that are there."""
    outputs, inputs = weight.shape
    return Product([Part(outputs, inputs, has_bias=False, read=lambda: (weight, None))])


def new_panels(product: Product, *shape: int, dtype: torch.dtype) -> Tensor:
    """Numbers [panel, *shape] to be laid out; those of outputs that there are not are zeros.

    All others are left as they are: the machine gives a block its pages when they are written.
    """
    found = empty_on_large_pages(product.panels, *shape, dtype=dtype)
    found[-1:] = 0
    return found


def new_bias(product: Product) -> Tensor | None:
    """Zeros [panel, 32] for a product that has a bias."""
    return torch.zeros(product.panels, PANEL) if product.has_bias else None
