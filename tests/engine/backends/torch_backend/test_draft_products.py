"""A drafter's products on a processor."""

from __future__ import annotations

import pytest
import torch

from kakeya_fleet.engine.backends.torch_backend.compiled.library import library
from kakeya_fleet.engine.backends.torch_backend.compiled.whole_linear import WholeLinear
from kakeya_fleet.engine.backends.torch_backend.dflash.kernels import TorchDraftKernels


def test_in_bfloat16_weights_are_kept_in_eight_bits_and_products_lose_little() -> None:
    if library() is None:
        pytest.skip("no compiled library is here")
    torch.manual_seed(3)
    weight, values = torch.randn(96, 64), torch.randn(5, 64)
    product = TorchDraftKernels("bfloat16").product(weight.to(torch.bfloat16), 8)
    assert isinstance(getattr(product, "__self__", None), WholeLinear)
    found, expected = product(values), values @ weight.T
    assert found.dtype == torch.float32
    assert 0.0 < (found - expected).norm() < 0.02 * expected.norm()


@pytest.mark.parametrize(("dtype", "inputs"), [("float32", 64), ("bfloat16", 40)])
def test_others_are_of_the_format_that_was_asked_for(dtype: str, inputs: int) -> None:
    """Also in bfloat16, where no group of weights that share a scale divides the inputs."""
    torch.manual_seed(3)
    weight, values = torch.randn(96, inputs), torch.randn(5, inputs)
    kind = getattr(torch, dtype)
    product = TorchDraftKernels(dtype).product(weight.to(kind), 8)
    assert not isinstance(getattr(product, "__self__", None), WholeLinear)
    expected = (values.to(kind) @ weight.to(kind).T).to(torch.float32)
    assert (product(values) - expected).norm() < 0.01 * expected.norm()
