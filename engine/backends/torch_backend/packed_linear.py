"""Linear layers whose weights are laid out once, for products with few rows.

A plain product of few rows spends much of its time rearranging the weights.
oneDNN takes them rearranged: on a 2-core AVX512 machine, 2 rows in float32
through a [3072, 1024] layer take 114 us instead of 482. A row's bits depend
neither on the other rows, nor on how many there are from 2 up, nor on the threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypedDict

import torch
from torch import Tensor, nn

from kakeya_fleet.engine.backends.torch_backend.device import HOST, Device
from kakeya_fleet.engine.backends.torch_backend.half_linear import (
    HalfLinear,
    can_halve,
    lossless_exponent,
)

GATE_UP = ("gate_proj", "up_proj")
"""Layers of the same input of a gated feed-forward layer."""

# The operators have no public names; the distribution pins torch to a minor version.
_MKLDNN = torch.ops.mkldnn
_PACK = "_reorder_linear_weight"
_PRODUCT = "_linear_pointwise"
_HAS_BFLOAT16 = "_is_mkldnn_bf16_supported"

Read = Callable[[nn.Linear], None]
"""Gives a linear layer its weights."""
Made = Callable[[nn.Linear], nn.Module]
"""What takes a linear layer's place."""


class PackedLinear(nn.Module):
    """`linear` for inputs [..., n, in_features], laid out for about `rows` rows.

    The packed weights replace the original ones: callers drop `linear`.
    """

    def __init__(self, linear: nn.Linear, rows: int) -> None:
        super().__init__()
        self._packed = getattr(_MKLDNN, _PACK)(linear.weight.detach(), rows)
        self._bias = None if linear.bias is None else linear.bias.detach()
        self._product = getattr(_MKLDNN, _PRODUCT).default

    def forward(self, values: Tensor) -> Tensor:
        """The product with the transposed weights, plus the bias."""
        product: Tensor = self._product(values, self._packed, self._bias, "none", [], "")
        return product


class _Kind(TypedDict):
    dtype: torch.dtype
    device: torch.device


def joint(linears: list[nn.Linear], read: Read) -> nn.Linear:
    """One layer of the same input that gives the outputs of `linears` one after the other.

    All have a bias, or none. `read` gives each its weights, and `linears` is emptied: no two of
    them are there at once besides the one.
    """
    first = linears[0]
    sizes = [linear.out_features for linear in linears]
    has_bias = first.bias is not None
    read(first)
    kind: _Kind = {"dtype": first.weight.dtype, "device": first.weight.device}
    whole = nn.Linear(first.in_features, sum(sizes), bias=has_bias, device="meta")
    whole.weight = _frozen(torch.empty(sum(sizes), first.in_features, **kind))
    if has_bias:
        whole.bias = _frozen(torch.empty(sum(sizes), **kind))
    del first
    done = 0
    for index, size in enumerate(sizes):
        linear = linears.pop(0)
        if index:
            read(linear)
        own = slice(done, done + size)
        whole.weight[own] = linear.weight
        if has_bias:
            whole.bias[own] = linear.bias
        done += size
        del linear
    return whole


def _frozen(numbers: Tensor) -> nn.Parameter:
    return nn.Parameter(numbers, requires_grad=False)


def taken(parent: object, names: Sequence[str], *, read: Read, made: Made) -> nn.Module:
    """What is `made` of the layers `names` of `parent` as one; `parent` has them no longer.

    `read` gives each its weights, one after the other.
    """
    linears: list[nn.Linear] = [getattr(parent, name) for name in names]
    for name in names:
        delattr(parent, name)
    if len(linears) > 1:
        return made(joint(linears, read))
    read(linears[0])
    return made(linears.pop())


def is_read(linear: nn.Linear) -> None:
    """A `Read` of layers that have been read."""


def can_pack(dtype: torch.dtype, device: Device = HOST) -> bool:
    """Whether `device` has packed products in `dtype`: some builds and processors do."""
    if not device.is_host:
        return False
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if not (available and hasattr(_MKLDNN, _PACK) and hasattr(_MKLDNN, _PRODUCT)):
        return False
    return dtype == torch.float32 or bool(getattr(_MKLDNN, _HAS_BFLOAT16)())


def packed(linear: nn.Linear, rows: int) -> nn.Module:
    """`linear` laid out for about `rows` rows, in half the bytes if nothing is lost."""
    if can_halve(linear.weight.dtype):
        exponent = lossless_exponent(linear.weight)
        if exponent is not None:
            return HalfLinear(linear, exponent)
    return PackedLinear(linear, rows)


def replace_linears(model: nn.Module, made: Made) -> None:
    """Puts what is `made` of each `nn.Linear` in `model` in its place.

    Their weights are freed one after the other unless tied.
    """
    for name in [name for name, child in model.named_modules() if type(child) is nn.Linear]:
        path, _, own = name.rpartition(".")
        parent = model.get_submodule(path)
        setattr(parent, own, made(getattr(parent, own)))


@dataclass(frozen=True, slots=True)
class LinearChoice:
    """For the linear layers of a model's layers, its head and its routers. Called once for each."""

    layer: Made
    head: Made
    router: Made


def packed_linears(dtype: torch.dtype, rows: int, device: Device = HOST) -> LinearChoice:
    """Laid out for about `rows` rows, where `device` can."""
    made = partial(packed, rows=rows) if can_pack(dtype, device) else _as_it_is
    return LinearChoice(made, made, made)


def _as_it_is(linear: nn.Linear) -> nn.Module:
    return linear
