"""Activation functions whose value at an element does not depend on where it is.

torch evaluates an elementwise function with vector instructions, and the last
few elements of each thread's share with a scalar formula that rounds
differently. With three or more threads the shares end inside a row, so that a
token's activations would depend on its place in the block. Here the function
is applied to pieces that one thread takes alone and that vectors divide.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

VECTOR_ELEMENTS = 64
"""A multiple of the elements of an unrolled vector step, for all dtypes and processors."""

PIECE_ELEMENTS = 32768 - VECTOR_ELEMENTS
"""Below at::internal::GRAIN_SIZE (32,768), torch does not divide work among threads."""


class PiecewiseActivation(nn.Module):
    """Applies the elementwise function `inner` to a contiguous tensor, piece by piece."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, values: Tensor) -> Tensor:
        """`inner` of each element of `values`, any shape."""
        count = values.numel()
        if count <= PIECE_ELEMENTS and count % VECTOR_ELEMENTS == 0:
            return self._inner(values)
        flat = values.reshape(-1)
        flat = functional.pad(flat, (0, -count % VECTOR_ELEMENTS))
        pieces = [self._inner(piece) for piece in torch.split(flat, PIECE_ELEMENTS)]
        return torch.cat(pieces)[:count].view(values.shape)

    def _inner(self, values: Tensor) -> Tensor:
        result: Tensor = self.inner(values)
        return result


def fix_activations(model: nn.Module) -> None:
    """Wraps each feed-forward layer's `act_fn` in place."""
    for module in list(model.modules()):
        activation = getattr(module, "act_fn", None)
        if isinstance(activation, nn.Module) and not isinstance(activation, PiecewiseActivation):
            module.act_fn = PiecewiseActivation(activation)
