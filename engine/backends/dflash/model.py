"""A DFlash drafter's forward: one bidirectional pass over a block behind its context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic

import numpy as np

from kakeya_fleet.engine.backends.dflash.angles import Angles
from kakeya_fleet.engine.backends.dflash.candidates import largest_in_order
from kakeya_fleet.engine.backends.dflash.config import DFlashConfig
from kakeya_fleet.engine.backends.dflash.kernels import (
    Array,
    Candidates,
    DraftContext,
    DraftEnds,
    DraftKernels,
    Turns,
)
from kakeya_fleet.engine.backends.dflash.layered_block import LayeredBlock
from kakeya_fleet.engine.backends.dflash.layers import ContextProjection
from kakeya_fleet.engine.backends.dflash.selector import CandidateSelector
from kakeya_fleet.engine.contracts.features import ContextVectors


class DFlashModel(Generic[Array]):
    """The drafter's weights and those of its target's ends. Holds no session's state.

    `extend` and `draft` compute all that they make: nothing is left for another thread,
    whose stream would not be this one's. Used by one thread at a time.
    """

    def __init__(
        self,
        kernels: DraftKernels[Array],
        config: DFlashConfig,
        weights: Mapping[str, Array],
        ends: DraftEnds[Array],
    ) -> None:
        """`weights` by their stored names."""
        self.config = config
        self._kernels = kernels
        self._ends = ends
        self._candidates = ends.candidates or self._among_logits
        self._masks = self._embedded(config.mask_token_id, config.block_size)
        whole = kernels.whole_block(weights, config)
        self._block = LayeredBlock(kernels, weights, config) if whole is None else whole
        self._selector = (
            None
            if config.version_2 is None
            else CandidateSelector(kernels, weights, config.version_2, config.block_size)
        )
        self._projection = ContextProjection(kernels, weights, config)
        self._angles = Angles(config)
        kernels.settle(self._masks)

    def new_context(self) -> DraftContext[Array]:
        """An empty context."""
        return self._block.new_context()

    def extend(self, context: DraftContext[Array], vectors: ContextVectors) -> None:
        """Takes context vectors [n, hidden_size] of the positions behind `context.end`."""
        unseen = max(0, len(vectors) - self.config.context_positions)
        if unseen:
            context.restart(context.end + unseen)
            vectors = vectors[unseen:]
        with self._kernels.computing():
            given = self._kernels.array(np.ascontiguousarray(vectors))
            turns = self._turns(context.end, len(vectors))
            context.extend(*self._projection.keys_values(given, turns))

    def draft(self, context: DraftContext[Array], last_token: int, count: int) -> list[int]:
        """`count` tokens behind `last_token`, whose position is `context.end`.

        Fewer, or none, where a confidence head cuts the block.
        """
        with self._kernels.computing():
            hidden = self.block_hidden(context, last_token, count + 1)[1:]
            if self._selector is None:
                return self._kernels.best(self.logits(hidden))
            candidates = self._candidates(hidden, self._selector.count)
            return self._selector.chosen(hidden, candidates, last_token)

    def block_hidden(self, context: DraftContext[Array], last_token: int, rows: int) -> Array:
        """What the head takes, [rows, hidden_size], of `last_token` and `rows` - 1 masks."""
        kernels = self._kernels
        with kernels.computing():
            hidden = kernels.joined([self._embedded(last_token, 1), self._masks[: rows - 1]])
            turns = self._turns(context.end, rows)
            return self._block(context, hidden, rows, turns)

    def logits(self, hidden: Array) -> Array:
        """[n, vocabulary_size] of `hidden` [n, hidden_size]."""
        return self._ends.head(hidden)

    def _among_logits(self, hidden: Array, count: int) -> Candidates:
        return largest_in_order(self._kernels.numbers(self.logits(hidden)), count)

    def _embedded(self, token_id: int, count: int) -> Array:
        """The scaled embedding [count, hidden_size] of an id, `count` times."""
        row = self._ends.embedding(token_id)
        return self._kernels.repeated(row, count, self.config.embedding_scale)

    def _turns(self, first: int, count: int) -> Turns[Array]:
        cos, sin = self._angles.of(first, count)
        return self._kernels.array(cos), self._kernels.array(sin)
