"""A drafter's layers one after the other, by a back end's kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic

from kakeya_fleet.engine.backends.dflash.config import DFlashConfig
from kakeya_fleet.engine.backends.dflash.kernels import Array, DraftContext, DraftKernels, Turns
from kakeya_fleet.engine.backends.dflash.layers import draft_layers
from kakeya_fleet.engine.backends.dflash.tensors import NORM
from kakeya_fleet.engine.backends.dflash.visible import visible_keys


class LayeredBlock(Generic[Array]):
    """A `Block` for every drafter."""

    def __init__(
        self, kernels: DraftKernels[Array], weights: Mapping[str, Array], config: DFlashConfig
    ) -> None:
        """`weights` by their stored names."""
        self._kernels = kernels
        self._config = config
        self._heads = config.heads
        self._turned = config.heads + config.kv_heads
        self._rules = tuple(set(config.rules))
        self._layers = draft_layers(kernels, weights, config)
        self._norm = kernels.norm(weights[NORM], config.norm_eps)

    def new_context(self) -> DraftContext[Array]:
        """An empty one of the back end's."""
        return self._kernels.new_context(self._config)

    def __call__(
        self, context: DraftContext[Array], hidden: Array, rows: int, turns: Turns[Array]
    ) -> Array:
        """See `Block`."""
        kernels, heads = self._kernels, self._heads
        seen = {rule: visible_keys(rule, context.first, context.end, rows) for rule in self._rules}
        masks = {
            rule: None if visible.mask is None else kernels.array(visible.mask)
            for rule, visible in seen.items()
        }
        for index, layer in enumerate(self._layers):
            made, finished = layer.queries_keys_values(hidden)
            turned, values = kernels.turned_heads(made, layer.head_norm, self._turned, turns)
            found = context.attended(
                index,
                seen[layer.rule].first,
                turned[:heads],
                (turned[heads:], values),
                masks[layer.rule],
            )
            hidden = hidden + finished(layer.output(found))
            made, finished = layer.gate_up(hidden)
            hidden = hidden + finished(layer.down(kernels.gated(made)))
        return self._norm(hidden)
