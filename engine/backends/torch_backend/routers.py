"""Routers of mixtures of experts whose scores are products of a linear layer.

Where the library's router multiplies by itself, its product could not be laid out as all
others are. A row's scores, experts and shares are functions of that row.
"""

from __future__ import annotations

from typing import Protocol, cast

import torch
from torch import Tensor, nn

from kakeya_fleet.engine.backends.torch_backend.packed_linear import Made

OWN_WEIGHTS = ("MixtralTopKRouter", "Qwen3MoeTopKRouter", "GptOssTopKRouter")
"""The library's classes of routers that multiply by weights of their own."""
WITH_LINEAR = "Gemma4TextRouter"
"""That which has a layer `proj` for its scores."""


class LibraryRouter(Protocol):
    """A router of the library's that has weights of its own; gpt-oss's has a bias besides."""

    weight: Tensor
    top_k: int


class TopKRouter(nn.Module):
    """The `k` likeliest experts of each row, and their shares."""

    def __init__(self, router: LibraryRouter, made: Made, *, normalized: bool) -> None:
        """Takes the weights of the library's `router`; the product is `made` of them.

        Shares are `normalized` to a sum of 1.
        """
        super().__init__()
        weight, bias = router.weight, getattr(router, "bias", None)
        linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
        linear.weight = nn.Parameter(weight.detach(), requires_grad=False)
        if bias is not None:
            linear.bias = nn.Parameter(bias.detach(), requires_grad=False)
        self._scores = made(linear)
        self._count = router.top_k
        self._normalized = normalized

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scores [rows, experts], and of the chosen shares and indices [rows, k]."""
        scores: Tensor = self._scores(hidden)
        # gpt-oss's are likelihoods among the chosen: those among all, normalized.
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
            kind = type(child).__name__
            if kind in OWN_WEIGHTS:
                # Only Qwen's may leave shares as they are.
                normalized = bool(getattr(child, "norm_topk_prob", True))
                router = TopKRouter(cast(LibraryRouter, child), made, normalized=normalized)
                setattr(parent, name, router)
            elif kind == WITH_LINEAR:
                child.proj = made(cast(nn.Linear, child.proj))
