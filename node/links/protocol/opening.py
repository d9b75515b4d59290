"""How a link is asked for, and what the node that is called says of itself."""

from __future__ import annotations

from dataclasses import dataclass

from kakeya_fleet.node.links.protocol.contract import LinkPurpose


@dataclass(frozen=True, slots=True)
class LinkRequest:
    """Who asks, what for, and what of the called node the link is for.

    `model_id` names the proposer, and `verifier_weights_digest`, which may be empty, whose
    vectors it gets.
    """

    purpose: LinkPurpose
    sender_node_id: str = ""
    model_id: str = ""
    verifier_weights_digest: str = ""


@dataclass(frozen=True, slots=True)
class EncoderDescription:
    """What makes context vectors of `width` values, from layers' outputs of `hidden_size`.

    `digest` is SHA-256, hexadecimal, of all else and of the weights; `eps` is added below
    the root of the norm.
    """

    digest: str
    tapped_layers: tuple[int, ...]
    hidden_size: int
    width: int
    eps: float
