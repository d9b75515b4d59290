"""Which part of a model one rank of a group computes: transformers' own plan, interpreted.

Tensor parallelism as in Shoeybi et al., "Megatron-LM" (2019): of each pair of
linear layers the first is split by its outputs (`colwise`), the second by its
inputs (`rowwise`), so that one sum over the ranks a pair is all they exchange.
Attention is split by heads: a rank keeps the keys and values of its own. The
plan is the config's `base_model_tp_plan`; embedding, norms and head are whole on
every rank.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Protocol

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from kakeya_fleet.engine.backends.architectures import Architecture
from kakeya_fleet.engine.errors import ArchitectureUnsupported

BASE = "model."
"""What the plan's names are under, in a model with a head."""

COLUMNS = "colwise"
ROWS = "rowwise"
WHOLE = ("replicated_with_grad_allreduce", "replicated")
"""Modules that take split values and are the same on every rank: norms of single heads."""

Parts = Mapping[str, tuple[slice, ...]]
"""Of each split tensor, by name, the part that is this rank's."""


class RankSum(Protocol):
    """Adds up what all ranks have, in ascending order of the ranks."""

    def __call__(self, partial: Tensor) -> Tensor:
        """The sum of every rank's `partial`, in the same shape and dtype."""
        ...


class RowwiseLinear(nn.Module):
    """A linear layer of which each rank has some of the inputs; the bias is added once."""

    def __init__(self, linear: nn.Linear, add: RankSum) -> None:
        """`linear` has this rank's inputs; its bias is the whole layer's."""
        super().__init__()
        self._bias = None if linear.bias is None else linear.bias.detach()
        linear.register_parameter("bias", None)
        self.partial = linear
        self._add = add

    def forward(self, values: Tensor) -> Tensor:
        """The whole layer's output [..., out] of this rank's inputs [..., in / ranks]."""
        total = self._add(self.partial(values))
        return total if self._bias is None else total + self._bias


class ModelShard:
    """The part of rank `rank` of `size`. Raises `ArchitectureUnsupported` for what has none."""

    def __init__(self, architecture: Architecture, rank: int, size: int, add: RankSum) -> None:
        if not 0 <= rank < size:
            raise ValueError(f"rank {rank} of {size}")
        self._name = architecture.name
        self._rank = rank
        self._size = size
        self._add = add
        if architecture.has_experts:
            raise self._refused("its experts are not split")
        plan = getattr(architecture.config, "base_model_tp_plan", None)
        if not plan:
            raise self._refused("the library has no plan to split it")
        self._rules = [(_pattern(name), str(style)) for name, style in plan.items()]
        config = architecture.config
        for index in range(len(architecture.layer_kinds)):
            own = config.per_layer_config[index]
            heads = own.num_attention_heads
            kv_heads = getattr(own, "num_key_value_heads", None) or heads
            for count, what in ((heads, "attention heads"), (kv_heads, "key and value heads")):
                if count % size:
                    raise self._refused(
                        f"layer {index} has {count} {what}, which {size} ranks cannot share evenly"
                    )

    def cut(self, model: PreTrainedModel) -> Parts:
        """Makes the split layers of an empty `model` as small as this rank's; what to read of each.

        Raises `ArchitectureUnsupported` for a layer that the plan does not cover.
        """
        parts: dict[str, tuple[slice, ...]] = {}
        for name, parent, child, style in self._planned(model):
            linear = getattr(parent, child)
            if not isinstance(linear, nn.Linear):
                raise self._refused(f"{name} is split, but no linear layer")
            by_columns = style == COLUMNS
            own = self._slice(name, linear.out_features if by_columns else linear.in_features)
            count = own.stop - own.start
            with torch.device("meta"):
                smaller = nn.Linear(
                    linear.in_features if by_columns else count,
                    count if by_columns else linear.out_features,
                    bias=linear.bias is not None,
                    dtype=linear.weight.dtype,
                )
            setattr(parent, child, smaller)
            parts[f"{name}.weight"] = (own,) if by_columns else (slice(None), own)
            if by_columns and linear.bias is not None:
                parts[f"{name}.bias"] = (own,)
        if not parts:
            raise self._refused("the library's plan splits none of its layers")
        return parts

    def add_sums(self, model: PreTrainedModel) -> None:
        """Lets the loaded layers that have some of the inputs add up over the ranks."""
        for _, parent, child, style in list(self._planned(model)):
            if style == ROWS:
                setattr(parent, child, RowwiseLinear(getattr(parent, child), self._add))

    def _planned(self, model: PreTrainedModel) -> Iterator[tuple[str, nn.Module, str, str]]:
        """Each split layer: its name, its parent, its name there, its style."""
        for path, parent in list(model.named_modules()):
            if not path.startswith(BASE):
                continue
            children = {child: f"{path}.{child}" for child, _ in parent.named_children()}
            styles = {child: self._style(name) for child, name in children.items()}
            split = {child for child, style in styles.items() if style in (COLUMNS, ROWS)}
            for child, style in styles.items():
                name = children[child]
                if style is not None and style not in (COLUMNS, ROWS, *WHOLE):
                    raise self._refused(f"{name} is planned as {style}, which is not served")
                # Beside split layers it would take a part of the values, and nobody says how.
                if (
                    split
                    and style is None
                    and any(True for _ in getattr(parent, child).parameters())
                ):
                    raise self._refused(f"the library's plan leaves out {name}")
            for child in sorted(split):
                yield children[child], parent, child, str(styles[child])

    def _style(self, name: str) -> str | None:
        inner = name.removeprefix(BASE)
        return next((style for pattern, style in self._rules if pattern.fullmatch(inner)), None)

    def _slice(self, name: str, count: int) -> slice:
        if count % self._size:
            raise self._refused(f"{name} has {count} values, which {self._size} ranks cannot share")
        own = count // self._size
        return slice(self._rank * own, (self._rank + 1) * own)

    def _refused(self, problem: str) -> ArchitectureUnsupported:
        return ArchitectureUnsupported(
            f"{self._name} cannot be split over {self._size} ranks: {problem}",
            architecture=self._name,
            ranks=str(self._size),
        )


def _pattern(name: str) -> re.Pattern[str]:
    """The plan's `*` stands for the index of a layer."""
    return re.compile(re.escape(name).replace(r"\*", r"\d+"))
