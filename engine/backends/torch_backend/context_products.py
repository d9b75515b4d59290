"""Products of the context encoder and of what narrows its vectors, compiled where they can be."""

from __future__ import annotations

import ctypes
import os

import numpy as np
import torch
from torch import Tensor

from kakeya_fleet.engine.backends.narrowing import read_narrowing
from kakeya_fleet.engine.backends.torch_backend.compiled.library import Library, library
from kakeya_fleet.engine.backends.torch_backend.compiled.panels import panels_of
from kakeya_fleet.engine.backends.torch_backend.compiled.parts import product_of
from kakeya_fleet.engine.backends.torch_backend.compiled.threads import threads_for, workers_of
from kakeya_fleet.engine.backends.torch_backend.stored_tensors import read_tensors
from kakeya_fleet.engine.contracts.feature_encoder import (
    ContextEncoder,
    EncoderWeights,
    PairedProducts,
    Products,
    Rows,
)
from kakeya_fleet.engine.restoration.learned_map import LearnedMap

PRODUCTS_A_THREAD = 1 << 23
"""Below a quarter of a millisecond's work another thread is not worth its waking."""


class CompiledProducts:
    """A matrix times rows, a sum at a time in ascending order: its bits are the row's alone.

    They are those of any number of threads, and of every processor.
    """

    def __init__(self, found: Library, matrix: Rows) -> None:
        self._library = found
        # Torch takes no memory that is not to be written. Where they are bfloat16 numbers, as
        # drafters are published, the panels have half the bytes.
        self._panels = panels_of(product_of(torch.from_numpy(matrix.copy())))
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
    return ContextEncoder(weights, _products_of(weights.fc))


def load_narrowing(found: LearnedMap, inputs: int) -> Products:
    """The products of a map's first part, for vectors of `inputs` values, as the encoder's."""
    return _products_of(read_narrowing(found, inputs, read_tensors, torch.float32, Tensor.numpy))


def _products_of(matrix: Rows) -> Products:
    found = library()
    return PairedProducts(matrix) if found is None else CompiledProducts(found, matrix)
