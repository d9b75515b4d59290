"""A context encoder whose products are the compiled library's."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from kakeya_fleet.engine.backends import make_encoder
from kakeya_fleet.engine.backends.torch_backend.compiled import library as libraries
from kakeya_fleet.engine.backends.torch_backend.context_products import (
    PRODUCTS_A_THREAD,
    CompiledProducts,
    context_encoder,
)
from kakeya_fleet.engine.contracts.feature_encoder import ContextEncoder, EncoderWeights
from kakeya_fleet.engine.contracts.features import Features

TAPS = (0, 2, 3)
SIZES = ((24, 40), (32, 64), (5, 33))
"""Hidden size and width: widths that whole panels have, and others."""


@pytest.fixture(autouse=True)
def _is_compiled() -> None:
    if libraries.library() is None:
        pytest.skip("no compiled library is here")


@pytest.fixture
def threads() -> Iterator[None]:
    """Sets torch's back."""
    own = torch.get_num_threads()
    yield
    torch.set_num_threads(own)


def weights_of(hidden: int, width: int, *, narrow: bool = False) -> EncoderWeights:
    """Random ones; `narrow` has bfloat16 numbers, as published drafters do."""
    random = np.random.default_rng(hidden)
    fc = torch.from_numpy(random.standard_normal((width, len(TAPS) * hidden), np.float32))
    if narrow:
        fc = fc.to(torch.bfloat16).to(torch.float32)
    norm = (1.0 + 0.1 * random.standard_normal(width)).astype(np.float32)
    return EncoderWeights(fc.numpy(), norm, 1e-6, TAPS)


def states(count: int, hidden: int) -> Features:
    return np.random.default_rng(2).standard_normal((count, len(TAPS), hidden), np.float32)


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize(("hidden", "width"), SIZES)
def test_vectors_are_those_of_numpy_but_for_roundings(
    hidden: int,
    width: int,
    narrow: bool,
) -> None:
    weights = weights_of(hidden, width, narrow=narrow)
    encoder, features = make_encoder(weights), states(9, hidden)
    assert isinstance(encoder._products, CompiledProducts)
    assert encoder.spec == ContextEncoder(weights).spec
    found = encoder.encode(features)
    assert found.flags.c_contiguous
    assert found.dtype == np.float32
    expected = ContextEncoder(weights).encode(features)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.usefixtures("threads")
def test_a_row_depends_on_no_other_and_on_no_thread() -> None:
    hidden, width = 96, 200
    encoder = context_encoder(weights_of(hidden, width))
    count = 4 * PRODUCTS_A_THREAD // (len(TAPS) * hidden * width)
    features = states(count, hidden)
    torch.set_num_threads(1)
    whole = encoder.encode(features)
    for number in (1, 2, 3):
        torch.set_num_threads(number)
        np.testing.assert_array_equal(encoder.encode(features), whole)
    for size in (0, 1, 2, 3, 7, 12, 13, 31):
        for first in (0, 5, 33):
            part = encoder.encode(features[first : first + size])
            np.testing.assert_array_equal(part, whole[first : first + size])


def test_every_processor_gives_the_same_bits(processors: dict[str, libraries.Library]) -> None:
    weights = weights_of(24, 40, narrow=True)
    found = {
        ContextEncoder(weights, CompiledProducts(library, weights.fc))
        .encode(states(5, 24))
        .tobytes()
        for library in processors.values()
    }
    assert len(found) == 1


def test_without_the_library_products_are_numpys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(libraries.SWITCH, "off")
    libraries.library.cache_clear()
    weights = weights_of(24, 40)
    try:
        found = make_encoder(weights).encode(states(5, 24))
    finally:
        libraries.library.cache_clear()
    np.testing.assert_array_equal(found, ContextEncoder(weights).encode(states(5, 24)))
