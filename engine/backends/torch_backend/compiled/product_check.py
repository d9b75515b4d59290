"""Whether products of whole numbers are exact on this processor, at their largest."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import torch
from torch import Tensor

from kakeya_fleet.engine.backends.torch_backend.compiled.library import Library
from kakeya_fleet.engine.backends.torch_backend.compiled.parts import product_of
from kakeya_fleet.engine.backends.torch_backend.compiled.structs import PANEL
from kakeya_fleet.engine.backends.torch_backend.compiled.whole_panels import whole_panels
from kakeya_fleet.engine.errors import ModelUnusable
from kakeya_fleet.engine.models.weight_choice import GROUP

GROUPS = 8
"""So many that float32 has every sum: 8 * 32 * 127 * 127 is below 2 ** 24."""
ROWS = 7
"""More than one pass of the library's takes, and fewer than two."""


def require_exact_products(library: Library) -> None:
    """Compares products with those of 64 bits: instructions that saturate would differ.

    Raises `ModelUnusable`.
    """
    workers = library.functions.kakeya_workers()
    try:
        for bits, weight in _extremes():
            panels = whole_panels(product_of(weight), bits)
            matrix = panels.matrix
            for sign in (1.0, -1.0):
                inputs = torch.full((ROWS, GROUPS * GROUP), 127.0 * sign)
                found = torch.empty(ROWS, panels.width)
                library.functions.kakeya_product(
                    workers, ctypes.byref(matrix), inputs.data_ptr(), ROWS, found.data_ptr(), 1
                )
                expected = inputs.to(torch.int64) @ weight.to(torch.int64).T
                if not torch.equal(found.to(torch.int64), expected):
                    raise ModelUnusable(
                        f"products of {bits} bits are not exact on this processor: leave"
                        " `--weights` at auto"
                    )
    finally:
        library.functions.kakeya_free_workers(workers)


def _extremes() -> Iterator[tuple[int, Tensor]]:
    largest = torch.full((PANEL, GROUPS * GROUP), 127.0)
    largest[1::2] = -127.0
    yield 8, largest
    # Of four bits 0 and 15 stand for the least and the most of a group.
    yield 4, torch.tensor([0.0, 15.0]).repeat(PANEL, GROUPS * GROUP // 2)
