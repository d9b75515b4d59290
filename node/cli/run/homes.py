"""The nodes of a fleet as a model could be loaded on them, of what they say of themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kakeya import Liveness, NodeStatus, Role
from kakeya_fleet.fleet.placement.fit import MemoryOnPaper
from kakeya_fleet.fleet.placement.model_home import Candidate

PROCESSOR = "cpu"
"""What a card calls a node that computes with nothing else."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Where whoever asks may have a model loaded: nodes answer the same, once they are asked.

    `near_ids` are the nodes of this machine. Others can be told to in a fleet with an authority
    alone (`has_authority`), by its keepers, and by a name that `means_the_same` everywhere.
    """

    near_ids: frozenset[str]
    has_authority: bool
    is_keeper: bool
    means_the_same: bool

    def problem(self, node_id: str) -> str:
        """Why the node cannot be told to, as the end of a sentence; empty where it can."""
        if node_id in self.near_ids:
            return ""
        if not self.has_authority:
            return "without an authority a machine's own programs alone load there"
        if not self.is_keeper:
            return "its owner and keepers alone load there"
        return "" if self.means_the_same else "the model is a path on this machine"


def candidates(
    nodes: Iterable[NodeStatus], reach: Reach, memories: Mapping[str, MemoryOnPaper]
) -> list[Candidate]:
    """The living ones; `memories` with the model, by node id, of machines that told of theirs."""
    return [
        Candidate(
            node_id=node.node_id,
            name=node.name,
            problem=reach.problem(node.node_id),
            memory=memories.get(node.node_id),
            is_accelerated=bool(node.card and node.card.accelerator_kind != PROCESSOR),
            is_near=node.node_id in reach.near_ids,
            step_seconds=_step_seconds(node),
        )
        for node in nodes
        if node.liveness is Liveness.ALIVE and node.address
    ]


def _step_seconds(node: NodeStatus) -> dict[str, float]:
    """Steps of one token of the verifiers that it serves, by their names and number formats."""
    return {
        f"{offer.model_id} in {offer.quantization or offer.dtype}": cost.seconds
        for offer in node.models
        if offer.role is Role.VERIFIER
        for cost in offer.step_costs
        if cost.token_count == 1 and cost.seconds > 0
    }
