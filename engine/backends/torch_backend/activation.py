"""Activation functions whose value at an element does not depend on where it is.

torch evaluates an elementwise function with vector instructions, and the last
few elements of each thread's share with a scalar formula that rounds
differently. With three or more threads the shares end inside a row, so that a
token's activations would depend on its place in the block. Here the function
is applied to pieces that one thread takes alone and that vectors divide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from transformers.activations import SiLUActivation

VECTOR_ELEMENTS = 64
"""A multiple of the elements of an unrolled vector step, for all dtypes and processors."""

PIECE_ELEMENTS = 16_384
"""Up to here torch does not divide any of these functions' work among threads.

For most it does from at::internal::GRAIN_SIZE (32,768) on, for GELU above 16,384.
"""


ACTIVATIONS = ("act_fn", "activation_fn")
"""What the library's modules call their activation function."""


def piecewise(function: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
    """The elementwise `function` of `values`, any shape, piece by piece."""
    if not values.is_cpu:
        # A device computes every element by one formula.
        return function(values)
    count = values.numel()
    if count <= PIECE_ELEMENTS and count % VECTOR_ELEMENTS == 0 and values.is_contiguous():
        return function(values)
    flat = values.reshape(-1)
    flat = functional.pad(flat, (0, -count % VECTOR_ELEMENTS))
    pieces = [function(piece) for piece in torch.split(flat, PIECE_ELEMENTS)]
    return torch.cat(pieces)[:count].view(values.shape)


def gated(function: Callable[[Tensor], Tensor], both: Tensor) -> Tensor:
    """`function(gate) * up` [1, rows, n] of `both` [1, rows, 2 * n], gate and up side by side.

    A row's elements lie apart from the next one's, so that vectors begin anew
    in each. Where they divide a row, whole rows are pieces.
    """
    rows, size = both.shape[1], both.shape[2] // 2
    gate, up = both.chunk(2, 2)
    if not both.is_cpu:
        return function(gate).mul_(up)
    if size % VECTOR_ELEMENTS or size > PIECE_ELEMENTS:
        return piecewise(function, gate.contiguous()).mul_(up)
    if rows * size <= PIECE_ELEMENTS:
        return function(gate).mul_(up)
    result = both.new_empty(1, rows, size)
    step = PIECE_ELEMENTS // size
    for part in (slice(first, first + step) for first in range(0, rows, step)):
        torch.mul(function(gate[:, part]), up[:, part], out=result[:, part])
    return result


class PiecewiseActivation(nn.Module):
    """Applies the elementwise function `inner` to a tensor, piece by piece."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, values: Tensor) -> Tensor:
        """`inner` of each element of `values`, any shape."""
        return piecewise(self.inner, values)


class PiecewiseFunctions(TorchFunctionMode):
    """While it is entered, the library's gates are applied piece by piece too.

    They are calls of functions, not modules that could be wrapped.
    """

    GATES = (torch.sigmoid, functional.silu)

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """`func(*args, **kwargs)`, of pieces if it is one of `GATES`."""
        options = kwargs or {}
        if func in self.GATES:
            gate = partial(cast(Callable[..., Tensor], func), **options)
            return piecewise(gate, cast(Tensor, args[0]))
        return func(*args, **options)


class PiecewiseGates(nn.Module):
    """Runs the module `inner` with its gates applied piece by piece."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: object, **kwargs: object) -> object:
        """`inner(*args, **kwargs)`."""
        with PiecewiseFunctions():
            return self.inner(*args, **kwargs)


def bare(activation: nn.Module) -> Callable[[Tensor], Tensor]:
    """`activation` without the modules around it; its pieces are seen to by `gated`."""
    inner = activation.inner if isinstance(activation, PiecewiseActivation) else activation
    return functional.silu if isinstance(inner, (nn.SiLU, SiLUActivation)) else inner


def fix_activations(model: nn.Module) -> None:
    """Wraps each of `ACTIVATIONS` in `model` in place: of feed-forward layers and their like."""
    for module in list(model.modules()):
        for name in ACTIVATIONS:
            activation = getattr(module, name, None)
            if isinstance(activation, nn.Module) and not isinstance(
                activation, PiecewiseActivation
            ):
                setattr(module, name, PiecewiseActivation(activation))
