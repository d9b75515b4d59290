"""What becomes of a model's linear layers, where torch's operators compute the rest."""

from __future__ import annotations

import torch
from torch import nn

from kakeya_fleet.engine.backends.torch_backend.compiled.library import Library
from kakeya_fleet.engine.backends.torch_backend.compiled.product_check import (
    require_exact_products,
)
from kakeya_fleet.engine.backends.torch_backend.compiled.whole_linear import (
    Products,
    WholeLinear,
)
from kakeya_fleet.engine.backends.torch_backend.device import HOST, Device
from kakeya_fleet.engine.backends.torch_backend.packed_linear import LinearChoice, packed_linears
from kakeya_fleet.engine.models.weight_choice import (
    AUTO,
    BF16,
    BITS,
    head_weights,
)


def chosen_linears(
    weights: str,
    dtype: torch.dtype,
    rows: int,
    library: Library | None,
    device: Device = HOST,
) -> LinearChoice:
    """By `weights`, one of `weight_choice.WEIGHTS` that `weight_sizes.loading_of` has not refused.

    `library` is that of the host, which whole numbers need. Raises `ModelUnusable` where products
    of them are not exact.
    """
    plain = packed_linears(dtype, rows, device)
    if weights == AUTO:
        return plain
    if weights == BF16:
        return LinearChoice(
            lambda linear: plain.layer(_rounded(linear)),
            lambda linear: plain.head(_rounded(linear)),
            lambda linear: plain.router(_rounded(linear)),
        )
    assert library is not None
    require_exact_products(library)
    products, bits, head_bits = Products(library), BITS[weights], BITS[head_weights(weights)]
    return LinearChoice(
        lambda linear: WholeLinear(products, linear, bits),
        lambda linear: WholeLinear(products, linear, head_bits),
        # Scores decide which experts there are: of few weights, none is quantized.
        plain.router,
    )


def _rounded(linear: nn.Linear) -> nn.Linear:
    """With weights that are bfloat16 numbers, in a copy: the embedding may be the same."""
    weight = linear.weight.detach()
    linear.weight = nn.Parameter(weight.to(torch.bfloat16).to(weight.dtype), requires_grad=False)
    return linear
