"""What an archive adds to a step, as a formula.

Each layer that attends to the whole history sends its queries to the archive and
cannot go on before the answer is there; what of that is hidden behind the window's
own attention is too little to count:

    restored step = step + layers * wait

`wait` is what layers waited for the latest answers of the archive, their median, with
what it computed meanwhile; the round trip between the nodes while too few were. A step
of `full` attends to the same positions on the verifier's own machine: how long that
takes is not measured when models are loaded, and is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence

from kakeya_fleet.fleet.cards.card import StepCost


def restored_costs(
    costs: Sequence[StepCost], layer_count: int, wait_seconds: float
) -> tuple[StepCost, ...]:
    """Steps of a verifier whose layers wait for an archive, however many tokens a step has."""
    added = layer_count * wait_seconds
    return tuple(StepCost(cost.token_count, cost.seconds + added) for cost in costs)
