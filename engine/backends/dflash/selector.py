"""The path through each row's candidates (DFlash 2, 2026).

The candidates of a row are the tokens with its `top_k` largest logits. With A and B the tables of
predecessors and successors and h the row's hidden state, the one that the head takes, the step
from token p to candidate c is worth

    edge(p -> c) = <A[p] * project(h), B[c]> + unary[c]

unary[c] being c's logit, scaled and capped as the config says. The path begins at the last
committed token and takes the step that is worth most in each row in turn: greedy, as the
authors' serving code walks it, not the best of all paths. All but the products of many rows is
computed in numpy, alike on every back end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic

import numpy as np
from numpy.typing import NDArray

from kakeya_fleet.engine.backends.dflash import confidence
from kakeya_fleet.engine.backends.dflash.kernels import Array, Candidates, DraftKernels
from kakeya_fleet.engine.backends.dflash.version_2 import SelectorShape, Version2
from kakeya_fleet.engine.contracts.evicted_store import Floats

PROJECTION = "candidate_selector.hidden_projection.weight"
PREDECESSORS = "candidate_selector.predecessor_codebook"
SUCCESSORS = "candidate_selector.successor_codebook"


class CandidateSelector(Generic[Array]):
    """Chooses a block's tokens, each out of `count` candidates. Holds no session's state."""

    def __init__(
        self,
        kernels: DraftKernels[Array],
        weights: Mapping[str, Array],
        version_2: Version2,
        rows: int,
    ) -> None:
        """`weights` by their stored names; `rows` is about how many a block has."""
        self._kernels = kernels
        self._shape = version_2.selector
        self.count = version_2.selector.top_k
        self._confidence = version_2.confidence
        self._project = kernels.product(weights[PROJECTION], rows)
        self._predecessors = weights[PREDECESSORS]
        self._successors = weights[SUCCESSORS]
        if self._confidence is not None:
            self._weight = kernels.numbers(weights[confidence.WEIGHT])
            self._bias = kernels.numbers(weights[confidence.BIAS])

    def chosen(self, hidden: Array, candidates: Candidates, last_token: int) -> list[int]:
        """The tokens behind `last_token`, of as many rows or, cut by the confidence head, fewer.

        `hidden` [n, hidden_size] is what the head made the logits of, among which the
        `candidates`, `count` of each row, are the largest.
        """
        # A verifier that lies sends vectors that overflow: some candidates are drafted then.
        with np.errstate(over="ignore", invalid="ignore"):
            return self._chosen(hidden, candidates, last_token)

    def _chosen(self, hidden: Array, found: Candidates, last_token: int) -> list[int]:
        kernels = self._kernels
        candidates, logits = found
        unary = counted(logits, self._shape)
        predecessors = np.concatenate(([last_token], candidates[:-1].ravel()))
        before = kernels.numbers(kernels.rows(self._predecessors, predecessors))
        after = kernels.numbers(kernels.rows(self._successors, candidates.ravel()))
        path, befores = walked(
            unary,
            kernels.numbers(self._project(hidden)),
            before,
            after.reshape(*candidates.shape, -1),
        )
        tokens: list[int] = candidates[np.arange(len(path)), path].tolist()
        head = self._confidence
        if head is None or head.threshold <= 0.0:
            return tokens
        features = kernels.numbers(hidden)
        if head.with_predecessor:
            features = np.concatenate((features, befores), axis=1)
        return tokens[
            : confidence.confident_rows(features, self._weight, self._bias, head.threshold)
        ]


def counted(logits: Floats, shape: SelectorShape) -> Floats:
    """What the `logits` of candidates count: scaled, and then capped."""
    unary = logits * np.float32(shape.multiplier)
    if shape.softcap is None:
        return unary
    cap = np.float32(shape.softcap)
    capped: Floats = cap * np.tanh(unary / cap)
    return capped


def walked(
    unary: Floats, gates: Floats, predecessors: Floats, successors: Floats
) -> tuple[NDArray[np.int64], Floats]:
    """Which candidate is taken in each row [n], and A of the token before each [n, rank].

    `unary` [n, k] and `gates` [n, rank], the projected hidden states, are of the rows;
    `successors` [n, k, rank] has B of their candidates, `predecessors` [1 + (n - 1) k, rank] A
    of the first token and of the candidates of all rows but the last.
    """
    count, width = unary.shape
    path = np.zeros(count, np.int64)
    befores = np.empty_like(gates)
    at = 0
    for row in range(count):
        befores[row] = predecessors[at]
        edges = (successors[row] * (befores[row] * gates[row])).sum(axis=1) + unary[row]
        path[row] = edges.argmax()
        at = 1 + row * width + int(path[row])
    return path, befores
