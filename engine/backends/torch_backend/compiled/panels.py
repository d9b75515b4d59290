"""Weights laid out for the compiled products: panels of 32 outputs."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from kakeya_fleet.engine.backends.torch_backend.compiled.library import Library
from kakeya_fleet.engine.backends.torch_backend.compiled.parts import (
    Piece,
    Product,
    new_bias,
    new_panels,
)
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
from kakeya_fleet.engine.backends.torch_backend.large_pages import empty_on_large_pages
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


AnyPanels: TypeAlias = Panels | WholePanels


def read_rows(library: Library, matrix: Matrix, ids: Sequence[int], to: Tensor) -> None:
    """Writes the weights of the outputs `ids` into the first of `to` [rows, inputs], float32."""
    library.functions.kakeya_rows(
        ctypes.byref(matrix), (ctypes.c_int64 * len(ids))(*ids), len(ids), to.data_ptr()
    )


def rows_of(library: Library, panels: AnyPanels, ids: Sequence[int]) -> Tensor:
    """The weights [n, inputs] of the outputs `ids`, float32."""
    matrix = panels.matrix
    found = torch.empty(len(ids), matrix.inputs)
    read_rows(library, matrix, ids, found)
    return found


def panels_of(
    product: Product, weights: str = AUTO, dtype: torch.dtype = torch.float32
) -> AnyPanels:
    """The product's weights as `weights` says, for a model that is computed in `dtype`.

    Takes the memory of the panels, and of one part's weights besides.
    """
    if weights in BITS:
        return whole_panels(product, BITS[weights])
    shape: tuple[int, ...] = (product.inputs, PANEL)
    if dtype == torch.bfloat16:
        shape = (product.inputs // 2, PANEL, 2)
    panels, bias = new_panels(product, *shape, dtype=torch.bfloat16), new_bias(product)

    def put(piece: Piece) -> None:
        nonlocal panels
        values = piece.weights
        if panels.dtype == torch.bfloat16 and weights != BF16 and not _is_narrow(values):
            # What is there already has lost nothing.
            wide = empty_on_large_pages(*panels.shape, dtype=values.dtype)
            panels = wide.copy_(panels)
        if panels.dim() == 4:
            values = values.view(*values.shape[:2], -1, 2)
        panels[piece.panels, :, piece.lanes] = values.transpose(1, 2)
        if bias is not None and piece.bias is not None:
            bias[piece.panels, piece.lanes] = piece.bias.to(torch.float32)

    product.lay_out(put)
    return Panels(panels, None if bias is None else bias.flatten(), product.columns)


def _is_narrow(values: Tensor) -> bool:
    """Whether they are bfloat16 numbers, in whatever format."""
    if values.dtype == torch.bfloat16:
        return True
    return torch.equal(values.to(torch.bfloat16).to(values.dtype), values)
