"""Weights laid out for the compiled products: panels of 32 outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn

from kakeya_fleet.engine.backends.torch_backend.compiled.structs import (
    BFLOAT16,
    FLOAT32,
    PAIRS,
    PANEL,
    Matrix,
)
from kakeya_fleet.engine.backends.torch_backend.compiled.whole_panels import (
    WholePanels,
    whole_panels,
)
from kakeya_fleet.engine.models.weight_choice import AUTO, BF16, BITS

LANES = 16


@dataclass(frozen=True, slots=True)
class Panels:
    """Weights [outputs, inputs] as `panels` [panel, inputs, 32], padded with zeros.

    In half the bytes where that loses nothing: as bfloat16 numbers. By pairs they are [panel,
    inputs / 2, 32, 2]: inputs are rounded to bfloat16 then, as a model of that format has them,
    and products take half the time.
    """

    panels: Tensor
    bias: Tensor | None
    columns: int

    @property
    def width(self) -> int:
        """Outputs, padded."""
        return int(self.panels.shape[0]) * PANEL

    @property
    def matrix(self) -> Matrix:
        """For the library, for as long as this is there."""
        return Matrix(
            panels=self.panels.data_ptr(),
            bias=None if self.bias is None else self.bias.data_ptr(),
            inputs=self.panels[0, :, 0].numel(),
            columns=self.columns,
            format=self._format,
        )

    @property
    def _format(self) -> int:
        if self.panels.dim() == 4:
            return PAIRS
        return BFLOAT16 if self.panels.dtype == torch.bfloat16 else FLOAT32

    def rows(self, ids: Tensor) -> Tensor:
        """The weights [n, inputs] of the outputs `ids`, float32: a tied head embeds by this."""
        return self.panels[ids // PANEL, :, ids % PANEL].flatten(1).to(torch.float32)


AnyPanels: TypeAlias = Panels | WholePanels


def panels_of(
    linears: Sequence[nn.Linear], weights: str = AUTO, dtype: torch.dtype = torch.float32
) -> AnyPanels:
    """The layers of one input, their outputs one after the other, as `weights` says.

    For a model that is computed in `dtype`.
    """
    parts = [linear.weight.detach() for linear in linears]
    weight = torch.cat(parts) if len(parts) > 1 else parts[0]
    return _laid_out(weight, _bias(linears), weights, dtype)


def gated_panels(
    gate: nn.Linear, up: nn.Linear, weights: str = AUTO, dtype: torch.dtype = torch.float32
) -> AnyPanels:
    """Gates and what they open, side by side: sixteen of each in a panel."""
    weight = _interleaved(gate.weight.detach(), up.weight.detach())
    bias = None
    if gate.bias is not None:
        bias = _interleaved(gate.bias.detach()[:, None], up.bias.detach()[:, None])[:, 0]
    return _laid_out(weight, bias, weights, dtype)


def _interleaved(first: Tensor, second: Tensor) -> Tensor:
    parts = (first.view(-1, LANES, first.shape[1]), second.view(-1, LANES, second.shape[1]))
    return torch.stack(parts, dim=1).view(-1, first.shape[1])


def _bias(linears: Sequence[nn.Linear]) -> Tensor | None:
    if linears[0].bias is None:
        return None
    return torch.cat([linear.bias.detach() for linear in linears])


def _laid_out(weight: Tensor, bias: Tensor | None, weights: str, dtype: torch.dtype) -> AnyPanels:
    if weights in BITS:
        return whole_panels(weight, bias, BITS[weights])
    columns = weight.shape[0]
    if weight.dtype != torch.bfloat16:
        narrow = weight.to(torch.bfloat16)
        if weights == BF16 or torch.equal(narrow.to(weight.dtype), weight):
            weight = narrow
        del narrow
    missing = -columns % PANEL
    if missing:
        weight = nn.functional.pad(weight, (0, 0, 0, missing))
    if bias is not None:
        bias = nn.functional.pad(bias.to(torch.float32), (0, missing)).contiguous()
    if dtype == weight.dtype == torch.bfloat16:
        pairs = weight.view(-1, PANEL, weight.shape[1] // 2, 2).transpose(1, 2).contiguous()
        return Panels(pairs, bias, columns)
    panels = weight.view(-1, PANEL, weight.shape[1]).transpose(1, 2).contiguous()
    return Panels(panels, bias, columns)
