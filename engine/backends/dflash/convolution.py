"""Grouped dynamic depthwise convolutions around a sublayer of a drafter (DFlash 2, 2026).

With x [rows, channels] the block's rows, g(c) the group of channel c and x of a row before the
first one zero,

    out[i, c] = sum over taps t of (base[t, c] + delta[i, t, g(c)]) x[i - t, c]

A sublayer, attention or MLP, has two: one of its normed input, before its first product, and one
of what its last product gives, before that is added to the residual. `kernel_projection` makes
the deltas of both, in this order, of the normed input. Context positions are not convolved: their
keys and values are those of version 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kakeya_fleet.engine.backends.dflash.kernels import Array, DraftKernels, Map

BASE = "base_kernel"
PROJECTION = "kernel_projection.weight"
SIDES = 2
"""Of the input and of the output, in the order in which both tensors have them."""

Entry = Callable[[Array], tuple[Array, Map[Array]]]
"""A sublayer's first step: of hidden states, its first product, and what finishes its last one."""


def plain_entry(product: Map[Array]) -> Entry[Array]:
    """`product` of hidden states, and nothing after the last one: a sublayer of version 1."""
    return lambda hidden: (product(hidden), _unchanged)


def convolved_entry(
    kernels: DraftKernels[Array],
    weights: Mapping[str, Array],
    name: str,
    rows: int,
    *,
    norm: Map[Array],
    product: Map[Array],
) -> Entry[Array]:
    """`product` of the convolved `norm` of hidden states, and the convolution of the last one.

    `name` is that of the convolution in `weights`, `rows` about how many a block has.
    """
    base = weights[name + BASE]
    projection = kernels.product(weights[name + PROJECTION], rows)

    def enter(hidden: Array) -> tuple[Array, Map[Array]]:
        normed = norm(hidden)
        deltas = projection(normed)
        made = product(kernels.convolved(normed, deltas, base, side=0))
        return made, lambda output: kernels.convolved(output, deltas, base, side=1)

    return enter


def _unchanged(output: Array) -> Array:
    return output
