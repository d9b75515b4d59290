"""Routers of mixtures of experts whose scores are products of a linear layer.

Where the library's router multiplies by itself, its product could not be laid out as all
others are. A row's scores, experts and shares are functions of that row.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kakeya_fleet.engine.backends.torch_backend.packed_linear import Made

KNOWN = ("MixtralTopKRouter", "Qwen3MoeTopKRouter")
"""The library's classes of routers that take the likeliest experts."""
WITH_LINEAR = ("Gemma4TextRouter",)
"""Those that have a layer `proj` for it."""


class TopKRouter(nn.Module):
    """The `k` likeliest experts of each row, and their shares."""

    def __init__(self, router: nn.Module, made: Made) -> None:
        """Takes the weights of the library's `router`; the product is `made` of them."""
        super().__init__()
        weight = router.weight.detach()
        linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
        linear.weight = nn.Parameter(weight, requires_grad=False)
        self._scores = made(linear)
        self._count = int(router.top_k)
        # Mixtral's has no such entry: shares always add up to 1.
        self._normalized = bool(getattr(router, "norm_topk_prob", True))

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scores [rows, experts], and of the chosen shares and indices [rows, k]."""
        scores: Tensor = self._scores(hidden)
        probabilities = scores.softmax(-1, dtype=torch.float32)
        shares, experts = probabilities.topk(self._count, dim=-1)
        if self._normalized:
            shares = shares / shares.sum(-1, keepdim=True)
        return scores, shares, experts


def is_router(name: str) -> bool:
    """Whether the module `name` of a model is the linear layer of a router."""
    return name.endswith(".router.proj")


def lay_out_routers(model: nn.Module, made: Made) -> None:
    """Has each router of a loaded `model` score with what is `made` of its linear layer."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child).__name__ in KNOWN:
                setattr(parent, name, TopKRouter(child, made))
            elif type(child).__name__ in WITH_LINEAR:
                child.proj = made(child.proj)
