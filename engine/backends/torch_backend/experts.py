"""Mixtures of experts whose rows are computed as if each were alone.

Shazeer et al., "Outrageously Large Neural Networks" (2017). A router gives each row its
`k` experts and their shares; a row's output is the sum of those experts' outputs, each
times its share. What fixes the bits of a row, whatever rows share the forward:

- An expert's rows are multiplied in groups of fixed sizes that were found to round
  alike (`expert_groups`); the last group is filled up with another row.
- A row's experts are added in ascending order, in float32, one elementwise operation at
  a time, and the sum is rounded once.

The library holds a layer's experts as one tensor; here each has linear layers of its own,
which are read, laid out and counted as all others are: no load holds more than one
expert twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from kakeya_fleet.engine.backends.torch_backend.activation import bare, gated, piecewise
from kakeya_fleet.engine.backends.torch_backend.expert_groups import GroupSizes, Known
from kakeya_fleet.engine.backends.torch_backend.packed_linear import (
    GATE_UP,
    Made,
    Read,
    is_read,
    taken,
)

GATED = ("MixtralExperts", "Qwen3MoeExperts", "Gemma4TextExperts")
"""The library's classes of experts that are gated layers without biases."""
GPT_OSS = "GptOssExperts"
"""Its class of clamped ones, whose weights it holds transposed."""

Gate = Callable[[Tensor], Tensor]
"""Makes [1, rows, n] of gate and up side by side, [1, rows, 2 * n]."""


class Expert(nn.Module):
    """One expert's weights as they are read: those of `down(f(gate, up))`."""

    def __init__(self, hidden: int, inner: int, *, bias: bool) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=bias)
        self.up_proj = nn.Linear(hidden, inner, bias=bias)
        self.down_proj = nn.Linear(inner, hidden, bias=bias)


class LibraryExperts(Protocol):
    """All experts of a layer as the library holds them; gpt-oss has no `act_fn`, others no more."""

    down_proj: Tensor
    act_fn: nn.Module
    alpha: float
    limit: float


@dataclass(frozen=True, slots=True)
class Grouping:
    """Which rows are multiplied by which experts, in which groups.

    `sources` are the rows of all groups one behind the other, `products` the expert of each
    group and its rows' number; `places` says where each of the rows' choices, [rows * k] in
    their order, lies among `sources`.
    """

    sources: list[int]
    products: list[tuple[int, int]]
    places: list[int]

    @classmethod
    def of(cls, chosen: Sequence[Sequence[int]], sizes: Sequence[int]) -> Grouping:
        """For rows of which each has `chosen` some experts; `sizes` of groups are ascending."""
        rows_of: dict[int, list[int]] = {}
        choices = [(row, expert) for row, own in enumerate(chosen) for expert in own]
        for place, (_, expert) in enumerate(choices):
            rows_of.setdefault(expert, []).append(place)
        sources: list[int] = []
        products: list[tuple[int, int]] = []
        places = [0] * len(choices)
        for expert, own in rows_of.items():
            done = 0
            while done < len(own):
                left = len(own) - done
                size = next((size for size in sizes if size >= left), sizes[-1])
                group = own[done : done + size]
                for offset, place in enumerate(group):
                    places[place] = len(sources) + offset
                filled = [choices[place][0] for place in group]
                sources += filled + filled[-1:] * (size - len(filled))
                products.append((expert, size))
                done += size
        return cls(sources, products, places)


class Experts(nn.ModuleList):
    """The experts of one layer, in the place of the library's module of them."""

    rows: int | None = None
    """Of the next forward's rows so many are tokens, the others are left 0. None: all."""

    def __init__(self, gate: Gate, experts: Iterable[Expert]) -> None:
        super().__init__(experts)
        self._gate = gate
        # Plain objects: asking a module for its children takes longer than a small product's call.
        self._products: tuple[tuple[nn.Module, nn.Module], ...] = ()
        self._sizes = GroupSizes({})

    def lay_out(self, made: Made, known: Known, read: Read) -> None:
        """Has each expert compute with the layers `made` of its own, the first two as one.

        `read` gives a layer its weights, which are freed, one after the other. `known` is what is
        known of sizes of groups, for all layers of a model.
        """
        sizes = GroupSizes(known)
        products: list[tuple[nn.Module, nn.Module]] = []
        for each in self:
            expert = cast(Expert, each)
            hidden, inner = expert.gate_proj.in_features, expert.down_proj.in_features
            dtype = expert.down_proj.weight.dtype
            gate_up = taken(expert, GATE_UP, read=read, made=made)
            down = taken(expert, ("down_proj",), read=read, made=made)
            sizes.add(gate_up, hidden, 2 * inner, dtype)
            sizes.add(down, inner, hidden, dtype)
            products.append((gate_up, down))
        self._products, self._sizes = tuple(products), sizes

    def forward(self, hidden: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """The sums [rows, hidden] over the experts [rows, k] of each row, by their weights."""
        rows = len(hidden) if self.rows is None else self.rows
        experts, order = top_k_index[:rows].sort(dim=1)
        shares = top_k_weights[:rows].gather(1, order).to(torch.float32)
        grouping = Grouping.of(experts.tolist(), self._sizes.agreeing(hidden.device))
        found = self._multiplied(
            hidden[torch.tensor(grouping.sources, device=hidden.device)], grouping
        )
        chosen = (
            found[torch.tensor(grouping.places, device=hidden.device)]
            .view(*experts.shape, -1)
            .to(torch.float32)
        )
        total = chosen[:, 0] * shares[:, 0, None]
        for place in range(1, experts.shape[1]):
            total += chosen[:, place] * shares[:, place, None]
        result = hidden.new_zeros(hidden.shape)
        result[:rows] = total
        return result

    def _multiplied(self, rows: Tensor, grouping: Grouping) -> Tensor:
        """What its expert makes of each of the `rows` [n, hidden], in the same order."""
        sizes = [size for _, size in grouping.products]
        own = [self._products[expert] for expert, _ in grouping.products]
        groups = zip(own, torch.split(rows, sizes), strict=True)
        both = torch.cat([gate_up(group) for (gate_up, _), group in groups])
        inner = self._gate(both[None])[0]
        groups = zip(own, torch.split(inner, sizes), strict=True)
        return torch.cat([down(group) for (_, down), group in groups])


def clamped_gate(alpha: float, limit: float, both: Tensor) -> Tensor:
    """(up + 1) * gate * sigmoid(alpha * gate), of clamped gate and up side by side."""
    gate, up = both.chunk(2, 2)
    gate = gate.clamp(max=limit)
    passed = gate * piecewise(torch.sigmoid, gate * alpha)
    return (up.clamp(-limit, limit) + 1) * passed


def take_apart(model: PreTrainedModel) -> None:
    """Puts `Experts` in the place of each of the library's modules of them, without values."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            kind = type(child).__name__
            if kind not in (*GATED, GPT_OSS):
                continue
            library = cast(LibraryExperts, child)
            count, *sizes = library.down_proj.shape
            clamped = kind == GPT_OSS
            inner, hidden = sizes if clamped else reversed(sizes)
            gate = (
                partial(clamped_gate, library.alpha, library.limit)
                if clamped
                else partial(gated, bare(library.act_fn))
            )
            with torch.device("meta"):
                each = (Expert(hidden, inner, bias=clamped) for _ in range(count))
                experts = Experts(gate, each)
            setattr(parent, name, experts.to(library.down_proj.dtype))


def lay_out_experts(model: nn.Module, made: Made, known: Known, read: Read = is_read) -> None:
    """Has the experts of `model` compute with what is `made` of their layers; see `lay_out`."""
    for module in list(model.modules()):
        if isinstance(module, Experts):
            module.lay_out(made, known, read)
