"""Products of the context encoder by the compiled library, where it is there."""

from __future__ import annotations

import ctypes
import os

import numpy as np
import torch

from kakeya_fleet.engine.backends.torch_backend.compiled.library import Library, library
from kakeya_fleet.engine.backends.torch_backend.compiled.panels import panels_of
from kakeya_fleet.engine.backends.torch_backend.compiled.parts import product_of
from kakeya_fleet.engine.backends.torch_backend.compiled.threads import threads_for, workers_of
from kakeya_fleet.engine.contracts.feature_encoder import (
    ContextEncoder,
    EncoderWeights,
    Rows,
)

PRODUCTS_A_THREAD = 1 << 23
"""Below a quarter of a millisecond's work another thread is not worth its waking."""


class CompiledProducts:
    """`fc` times rows, a sum at a time in ascending order: its bits are the row's alone.

    They are those of any number of threads, and of every processor.
    """

    def __init__(self, found: Library, fc: Rows) -> None:
        self._library = found
        # Torch takes no memory that is not to be written. Where they are bfloat16 numbers, as
        # drafters are published, the panels have half the bytes.
        self._panels = panels_of(product_of(torch.from_numpy(fc.copy())))
        self._matrix = self._panels.matrix

    def __call__(self, rows: Rows) -> Rows:
        """[n, width] of `rows` [n, inputs]."""
        inputs = np.ascontiguousarray(rows)
        made = np.empty((len(inputs), self._panels.width), np.float32)
        self._library.functions.kakeya_product(
            workers_of(self._library, os.getpid()),
            ctypes.byref(self._matrix),
            inputs.ctypes.data,
            len(inputs),
            made.ctypes.data,
            threads_for(inputs.size * self._panels.columns, PRODUCTS_A_THREAD),
        )
        return np.ascontiguousarray(made[:, : self._panels.columns])


def context_encoder(weights: EncoderWeights) -> ContextEncoder:
    """An encoder whose products are the compiled library's, or NumPy's where there is none."""
    found = library()
    if found is None:
        return ContextEncoder(weights)
    return ContextEncoder(weights, CompiledProducts(found, weights.fc))
