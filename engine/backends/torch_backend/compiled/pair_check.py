"""Whether a processor's products of pairs are those that the others compute by two operations."""

from __future__ import annotations

import ctypes

import torch

from kakeya_fleet.engine.backends.torch_backend.compiled.structs import PAIRS, PANEL, Matrix

# Of four inputs in two pairs, and what an output is if each pair's second product is added first,
# and each sum is rounded: exact sums, and those of another order, would leave 1 and 2 ** 24 + 2.
CASES = (((0.0, 1.0, -(2.0**24), 2.0**24), 0.0), ((0.0, 2.0**24, 1.0, 1.0), 2.0**24))


def pairs_are_right(functions: ctypes.CDLL) -> bool:
    """Whether the library's products of pairs have the order and the roundings of the source."""
    workers = functions.kakeya_workers()
    try:
        return all(_product(functions, workers, inputs) == told for inputs, told in CASES)
    finally:
        functions.kakeya_free_workers(workers)


def _product(functions: ctypes.CDLL, workers: int, inputs: tuple[float, ...]) -> float:
    """That of `inputs` with weights of 1."""
    panels = torch.ones(1, len(inputs) // 2, PANEL, 2, dtype=torch.bfloat16)
    matrix = Matrix(panels.data_ptr(), None, len(inputs), PANEL, PAIRS)
    given, found = torch.tensor(inputs), torch.empty(PANEL)
    functions.kakeya_product(
        workers, ctypes.byref(matrix), given.data_ptr(), 1, found.data_ptr(), 1
    )
    return float(found[0])
