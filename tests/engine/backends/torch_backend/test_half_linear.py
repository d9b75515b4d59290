"""Linear layers whose weights take half the bytes: the same product, or none at all."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from kakeya_fleet.engine.backends.torch_backend import half_linear
from kakeya_fleet.engine.backends.torch_backend.half_linear import (
    HalfLinear,
    can_halve,
    lossless_exponent,
)
from kakeya_fleet.engine.backends.torch_backend.packed_linear import (
    PackedLinear,
    can_pack,
    joint,
    packed,
)

pytestmark = pytest.mark.skipif(
    not can_halve(torch.float32), reason="no products with half the bytes here"
)


def layer(inputs: int, outputs: int, *, bias: bool = False, scale: float = 0.1) -> nn.Linear:
    """A layer whose weights have bfloat16's digits."""
    linear = nn.Linear(inputs, outputs, bias=bias)
    linear.weight.data.normal_(0, scale)
    linear.weight.data = linear.weight.data.to(torch.bfloat16).to(torch.float32)
    return linear.requires_grad_(requires_grad=False)


def halved(linear: nn.Linear) -> HalfLinear:
    exponent = lossless_exponent(linear.weight)
    assert exponent is not None
    return HalfLinear(linear, exponent)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(params=["alone", "shared"])
def _kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator for small products, and that for large ones."""
    if request.param == "shared":
        monkeypatch.setattr(half_linear, "SHARED_ELEMENTS", 0)


@pytest.mark.usefixtures("_kernel")
@pytest.mark.parametrize(("scale", "bias"), [(1e-6, True), (0.1, False), (1e6, True)])
def test_the_product_is_that_of_the_weights(scale: float, bias: bool) -> None:
    linear = layer(96, 160, bias=bias, scale=scale)
    before = linear.weight.clone()
    values = torch.randn(1, 11, 96)
    expected = values.double() @ before.double().T
    if bias:
        expected += linear.bias.double()
    got = halved(linear)(values)
    assert torch.equal(linear.weight, before)
    assert got.shape == (1, 11, 160)
    assert (got - expected).abs().max() < 1e-6 * expected.abs().max()


@pytest.mark.usefixtures("_kernel")
def test_a_row_depends_neither_on_what_others_hold_nor_on_threads() -> None:
    small = halved(layer(640, 200, bias=True))
    values, others = torch.randn(2, 1, 64, 640)
    threads = torch.get_num_threads()
    try:
        for rows in (1, 4, 7, 31, 64):
            torch.set_num_threads(1)
            expected = small(values[:, :rows])
            for count, kept in itertools.product((1, 2, 3), range(rows)):
                torch.set_num_threads(count)
                mixed = others[:, :rows].clone()
                mixed[:, kept] = values[:, kept]
                assert torch.equal(small(mixed)[:, kept], expected[:, kept])
    finally:
        torch.set_num_threads(threads)


def test_a_caller_may_scale_the_inputs_itself() -> None:
    linear = layer(64, 32, bias=True)
    own, folded = halved(linear), halved(linear)
    values = torch.randn(1, 4, 64)
    scale = folded.fold()
    assert scale != 1
    assert torch.equal(folded(values * scale), own(values))


@pytest.mark.parametrize(
    "weight",
    [
        pytest.param(torch.tensor([[1.0, 1 + 2.0**-11]]), id="too many digits"),
        pytest.param(torch.tensor([[1.0, 2.0**-40]]), id="too far apart"),
        pytest.param(torch.tensor([[1.0, float("inf")]]), id="infinite"),
        pytest.param(torch.tensor([[1.0, float("nan")]]), id="no number"),
    ],
)
def test_weights_that_would_lose_digits_are_left_as_they_are(weight: torch.Tensor) -> None:
    assert lossless_exponent(weight) is None
    linear = nn.Linear(2, 1, bias=False)
    linear.weight = nn.Parameter(weight, requires_grad=False)
    if can_pack(torch.float32):
        assert type(packed(linear, 16)) is PackedLinear


def test_every_part_of_the_weights_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = layer(8, 64).weight.data.clone()
    monkeypatch.setattr(half_linear, "CHECKED_ELEMENTS", 16)
    assert lossless_exponent(weight) is not None
    weight[63, 7] = 0.1
    assert lossless_exponent(weight) is None


def test_zeros_are_halved_too() -> None:
    linear = layer(16, 16, scale=0)
    assert torch.equal(halved(linear)(torch.randn(1, 4, 16)), torch.zeros(1, 4, 16))


def test_joint_layers_give_the_outputs_one_after_the_other() -> None:
    parts = [layer(32, outputs, bias=True) for outputs in (16, 8, 24)]
    values = torch.randn(1, 5, 32)
    expected = torch.cat([part(values) for part in parts], dim=-1)
    assert torch.allclose(joint(list(parts), lambda _: None)(values), expected, atol=1e-6)
    assert torch.allclose(
        packed(joint(list(parts), lambda _: None), 16)(values), expected, atol=1e-5
    )
    assert isinstance(packed(joint(list(parts), lambda _: None), 16), HalfLinear)
