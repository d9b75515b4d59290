"""Linear layers in whole numbers, for models that torch's operators compute otherwise.

The same panels and the same products as those of the compiled decoder: sums are of whole numbers,
in one order, so that a row's bits depend neither on the other rows nor on the threads.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor, nn

from kakeya_fleet.engine.backends.torch_backend.compiled.library import Library
from kakeya_fleet.engine.backends.torch_backend.compiled.parts import Product, part_of
from kakeya_fleet.engine.backends.torch_backend.compiled.threads import Workers
from kakeya_fleet.engine.backends.torch_backend.compiled.whole_panels import (
    WholePanels,
    whole_panels,
)
from kakeya_fleet.engine.models.weight_choice import GROUP


class Products:
    """The library's products, and the threads that they are shared among.

    One product at a time.
    """

    def __init__(self, library: Library) -> None:
        self.functions = library.functions
        self.workers = Workers(library)


class WholeLinear(nn.Module):
    """`linear` for inputs [..., in_features], its weights in whole numbers of `bits`.

    They take the place of the original ones: callers drop `linear`.
    """

    def __init__(self, products: Products, linear: nn.Linear, bits: int) -> None:
        """Inputs are to be a multiple of `GROUP`: see `fits_groups`."""
        super().__init__()
        # Plain objects: asking a module for its children takes longer than a small product's call.
        panels = whole_panels(Product([part_of(linear)]), bits)
        self._parts = (products, panels, panels.matrix)

    @property
    def panels(self) -> WholePanels:
        """Its weights, for other functions of the library's."""
        return self._parts[1]

    def forward(self, values: Tensor) -> Tensor:
        """The product with the transposed weights, plus the bias, in the format of `values`."""
        products, panels, matrix = self._parts
        inputs = values.reshape(-1, values.shape[-1]).to(torch.float32).contiguous()
        found = torch.empty(len(inputs), panels.width)
        products.functions.kakeya_product(
            products.workers,
            ctypes.byref(matrix),
            inputs.data_ptr(),
            len(inputs),
            found.data_ptr(),
            torch.get_num_threads(),
        )
        own = found[:, : panels.columns].to(values.dtype)
        return own.reshape(*values.shape[:-1], panels.columns)


def fits_groups(linear: nn.Linear) -> bool:
    """Whether groups that share a scale divide its inputs."""
    return linear.in_features % GROUP == 0
