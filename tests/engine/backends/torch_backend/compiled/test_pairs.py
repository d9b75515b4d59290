"""Products of bfloat16 pairs: one order of sums and roundings on every processor."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from kakeya_fleet.engine.backends.torch_backend.compiled import library as libraries
from kakeya_fleet.engine.backends.torch_backend.compiled.draft_structs import DRAFTER
from kakeya_fleet.engine.backends.torch_backend.compiled.pair_check import pairs_are_right
from kakeya_fleet.engine.backends.torch_backend.compiled.panels import (
    Panels,
    panels_of,
    rows_of,
)
from kakeya_fleet.engine.backends.torch_backend.compiled.parts import Product, part_of, product_of
from kakeya_fleet.engine.backends.torch_backend.compiled.structs import BFLOAT16, FLOAT32, PAIRS

SEED = 20_261_125
INPUTS, OUTPUTS, ROWS = 160, 70, 13
"""More inputs than go at once, and more rows."""
TINY = 2.0**-126
"""The least normal number."""


def layer(weight: Tensor, bias: Tensor | None = None) -> Panels:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    linear.weight = nn.Parameter(weight.to(torch.bfloat16))
    if bias is not None:
        linear.bias = nn.Parameter(bias.to(torch.bfloat16))
    found = panels_of(Product([part_of(linear)]), dtype=torch.bfloat16)
    assert isinstance(found, Panels)
    assert found.matrix.format == PAIRS
    return found


def product(library: libraries.Library, panels: Panels, inputs: Tensor) -> np.ndarray:
    workers = library.functions.kakeya_workers()
    found = torch.empty(len(inputs), panels.width)
    library.functions.kakeya_product(
        workers,
        ctypes.byref(panels.matrix),
        inputs.data_ptr(),
        len(inputs),
        found.data_ptr(),
        2,
    )
    library.functions.kakeya_free_workers(workers)
    told: np.ndarray = found[:, : panels.columns].numpy()
    return told


def by_steps(weight: Tensor, inputs: Tensor) -> np.ndarray:
    """The sums as they are meant: float64 has each step exactly before it is rounded to float32."""
    own = weight.to(torch.bfloat16).to(torch.float64).numpy()
    given = inputs.to(torch.bfloat16).to(torch.float64).numpy()
    sums = np.zeros((len(inputs), len(weight)), dtype=np.float32)
    for first in range(0, weight.shape[1], 2):
        for index in (first + 1, first):
            wide = sums.astype(np.float64) + np.outer(given[:, index], own[:, index])
            sums = wide.astype(np.float32)
    return sums


def test_sums_are_those_of_the_steps_on_every_processor(
    processors: dict[str, libraries.Library],
) -> None:
    generator = torch.Generator().manual_seed(SEED)
    # Whole numbers: float64 rounds no step of these.
    weight = torch.randint(-120, 121, (OUTPUTS, INPUTS), generator=generator).to(torch.float32)
    weight *= 2.0 ** torch.randint(0, 9, (OUTPUTS, INPUTS), generator=generator)
    # These have more digits than bfloat16 and are rounded to it, half of them up.
    inputs = torch.randint(-1000, 1001, (ROWS, INPUTS), generator=generator).to(torch.float32)
    inputs *= 2.0 ** torch.randint(0, 9, (ROWS, INPUTS), generator=generator)
    expected = by_steps(weight, inputs)
    assert np.abs(expected).max() > 2.0**24, "sums that are rounded"
    for options, library in processors.items():
        np.testing.assert_array_equal(product(library, layer(weight), inputs), expected, options)
        assert pairs_are_right(library.functions), options


def test_what_is_subnormal_is_nothing_on_every_processor(
    processors: dict[str, libraries.Library],
) -> None:
    generator = torch.Generator().manual_seed(SEED)
    weight = TINY * torch.randn(OUTPUTS, INPUTS, generator=generator)
    inputs = torch.randn(ROWS, INPUTS, generator=generator)
    found = {product(library, layer(weight), inputs).tobytes() for library in processors.values()}
    assert len(found) == 1
    largest = np.abs(product(next(iter(processors.values())), layer(weight / 4), inputs / 4)).max()
    assert largest == 0.0


def test_neither_rows_nor_threads_change_a_bit(processors: dict[str, libraries.Library]) -> None:
    generator = torch.Generator().manual_seed(SEED)
    panels = layer(
        torch.randn(OUTPUTS, INPUTS, generator=generator), torch.randn(OUTPUTS, generator=generator)
    )
    inputs = torch.randn(ROWS, INPUTS, generator=generator)
    for library in processors.values():
        whole = product(library, panels, inputs)
        for row in range(ROWS):
            alone = product(library, panels, inputs[row : row + 1].contiguous())
            np.testing.assert_array_equal(alone[0], whole[row])
        for count in (2, 3, 4, 6, 7):
            some = product(library, panels, inputs[:count].contiguous())
            np.testing.assert_array_equal(some, whole[:count])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nor_of_numbers_that_are_no_pairs(
    dtype: torch.dtype, processors: dict[str, libraries.Library]
) -> None:
    """Of float32 weights, and of those that half the bytes hold without loss."""
    generator = torch.Generator().manual_seed(SEED)
    linear = nn.Linear(INPUTS, OUTPUTS)
    weight = torch.randn(OUTPUTS, INPUTS, generator=generator).to(dtype).to(torch.float32)
    linear.weight = nn.Parameter(weight)
    panels = panels_of(Product([part_of(linear)]), dtype=torch.float32)
    assert isinstance(panels, Panels)
    assert panels.matrix.format == {torch.float32: FLOAT32, torch.bfloat16: BFLOAT16}[dtype]
    inputs = torch.randn(ROWS, INPUTS, generator=generator)
    found = set()
    for library in processors.values():
        whole = product(library, panels, inputs)
        for count in (1, 2, 3, 4, 6, 7):
            some = product(library, panels, inputs[:count].contiguous())
            np.testing.assert_array_equal(some, whole[:count])
        found.add(whole.tobytes())
    assert len(found) == 1


def test_rows_of_a_tied_head_are_its_weights(processors: dict[str, libraries.Library]) -> None:
    """Of pairs, of plain bfloat16 numbers and of float32."""
    weight = torch.randn(OUTPUTS, INPUTS)
    narrow = weight.to(torch.bfloat16)
    ids = [0, 31, 32, 69]
    for library in processors.values():
        assert torch.equal(rows_of(library, layer(narrow), ids), narrow[ids].to(torch.float32))
        for each in (weight, narrow):
            panels = panels_of(product_of(each))
            assert torch.equal(rows_of(library, panels, ids), each[ids].to(torch.float32))


def test_the_check_at_load_tells_other_roundings(monkeypatch: pytest.MonkeyPatch) -> None:
    own = libraries.library()
    if own is None:
        pytest.skip("there is no compiled decoder here")
    module = "kakeya_fleet.engine.backends.torch_backend.compiled.pair_check._product"
    monkeypatch.setattr(module, lambda _functions, _workers, inputs: sum(inputs))
    assert not pairs_are_right(own.functions)


def test_folder_of_sources_is_whole() -> None:
    folder = Path(libraries.__file__).parent
    files = {path.name for kind in ("*.h", "*.cpp") for path in folder.glob(kind)}
    own = {"drafter.h", "drafter.cpp"}
    why = "a header that is not digested is not made anew"
    assert files - own == set(libraries.DECODER.sources), why
    assert files - {"decoder.cpp"} == set(DRAFTER.sources), why
