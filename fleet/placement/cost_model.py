"""What a block of drafted tokens costs and brings, as a formula.

With acceptance a (probability that a drafted token is accepted, given that all
before it were) a block of B drafted tokens commits (Leviathan et al. 2023)

    E(B) = (1 - a^(B+1)) / (1 - a)          tokens, B + 1 for a = 1

The next block is drafted while this one is verified. The guess fits with
probability h = a^(B+1): all B accepted and the next token guessed too. A hit
takes as long as the slower of the two sides, a miss both after each other:

    hit     = max(verify(B+1), round_trip + draft(B))
    miss    = verify(B+1) + round_trip + draft(B)
    seconds = h * hit + (1 - h) * miss

A proposer that is conditioned on the hidden states of the committed tokens cannot
draft ahead: each of its blocks takes the whole `miss`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from kakeya_fleet.fleet.cards.card import StepCost

MAX_BLOCK_SIZE = 31


def step_seconds(costs: Sequence[StepCost], token_count: int) -> float:
    """Seconds of a step of `token_count` tokens, from measured steps.

    Linear between two measured counts and constant below the first. Above the
    last it grows in proportion, which is no less than any cost with a fixed
    part. Raises `ValueError` when nothing was measured.
    """
    if not costs:
        raise ValueError("no step was measured")
    if token_count <= costs[0].token_count:
        return costs[0].seconds
    for low, high in pairwise(costs):
        if token_count <= high.token_count:
            share = (token_count - low.token_count) / (high.token_count - low.token_count)
            return low.seconds + share * (high.seconds - low.seconds)
    return costs[-1].seconds * token_count / costs[-1].token_count


def expected_tokens(acceptance: float, block_size: int) -> float:
    """E(B): tokens that one verify forward over a block commits on average."""
    if acceptance >= 1.0:
        return block_size + 1.0
    return float((1.0 - acceptance ** (block_size + 1)) / (1.0 - acceptance))


def widest_block(verifier_costs: Sequence[StepCost]) -> int:
    """The most drafted tokens of a block: the widest measured step less one, 1 to 31."""
    return min(MAX_BLOCK_SIZE, max(1, verifier_costs[-1].token_count - 1))


@dataclass(frozen=True, slots=True)
class PairCost:
    """What is known of a pair; seconds, and acceptance in 0 to 1.

    `most_drafted` tokens are in one draft at most, 0 for no limit of the proposer's.
    """

    verifier_costs: Sequence[StepCost]
    proposer_costs: Sequence[StepCost]
    round_trip_seconds: float
    acceptance: float
    drafts_ahead: bool = True
    most_drafted: int = 0

    def block_seconds(self, block_size: int) -> float:
        """Expected seconds of one block."""
        verify = step_seconds(self.verifier_costs, block_size + 1)
        draft = self.round_trip_seconds + step_seconds(self.proposer_costs, block_size)
        hit = self.acceptance ** (block_size + 1) if self.drafts_ahead else 0.0
        return hit * max(verify, draft) + (1.0 - hit) * (verify + draft)

    def tokens_per_second(self, block_size: int) -> float:
        """Expected speed at a block size."""
        return expected_tokens(self.acceptance, block_size) / self.block_seconds(block_size)

    def widest_block(self) -> int:
        """The most drafted tokens that both sides take."""
        widest = widest_block(self.verifier_costs)
        return min(widest, self.most_drafted) if self.most_drafted else widest

    def best_block_size(self) -> int:
        """The fastest block size; the smallest of equals."""
        sizes = range(1, self.widest_block() + 1)
        return max(sizes, key=lambda size: (self.tokens_per_second(size), -size))


def alone_tokens_per_second(verifier_costs: Sequence[StepCost]) -> float:
    """Speed of the verifier without drafts: one token a step."""
    return 1.0 / step_seconds(verifier_costs, 1)
