"""Loads a proposer and measures what its drafts cost on this machine."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from engine.proposers.contract import Proposer
from engine.proposers.loading import load_proposer
from engine.proposers.local_source import run_inline
from fleet.card import ModelKind, ModelOffer, Role, StepCost
from node.drafting.served_proposer import ServedProposer, run_in_thread

MEASURED_BLOCK_SIZES = (1, 4, 8, 15)
_REPEATS = 9
# A history that repeats itself, so that a lookup finds something to draft.
_HISTORY = tuple(range(64)) * 8


def load_served_proposer(name: str, clock: Callable[[], float]) -> ServedProposer:
    """The proposer `name` with its offer; `clock` gives monotonic seconds.

    Raises `engine.errors.ModelNotFound`, naming those that there are.
    """
    proposer = load_proposer(name)
    offer = ModelOffer(
        model_id=proposer.model_id,
        role=Role.PROPOSER,
        kind=ModelKind.NGRAM,
        step_costs=measure_drafts(proposer, clock),
    )
    return ServedProposer(proposer, offer, run_inline, run_in_thread)


def measure_drafts(proposer: Proposer, clock: Callable[[], float]) -> tuple[StepCost, ...]:
    """Median seconds of one commit and one draft, by drafted tokens, rising.

    A longer block is never said to cost less than a shorter one.
    """
    costs: list[StepCost] = []
    for block_size in MEASURED_BLOCK_SIZES:
        state = proposer.open(_HISTORY)
        seconds: list[float] = []
        for token_id in _HISTORY[:_REPEATS]:
            began = clock()
            state.commit((token_id,))
            state.propose((), block_size, 0)
            seconds.append(clock() - began)
        least = costs[-1].seconds if costs else 0.0
        costs.append(StepCost(block_size, max(statistics.median(seconds), least)))
    return tuple(costs)
