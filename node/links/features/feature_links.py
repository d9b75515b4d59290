"""Links for context vectors, on the proposer's node: what makes the vectors goes out, they come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from kakeya_fleet.engine.contracts.feature_encoder import EncoderWeights
from kakeya_fleet.engine.errors import TrainedForAnother
from kakeya_fleet.fleet.errors import ModelNotFound
from kakeya_fleet.node.links.features.feature_inbox import FeatureInbox
from kakeya_fleet.node.links.protocol.contract import TensorLink
from kakeya_fleet.node.links.protocol.opening import EncoderDescription, LinkRequest
from kakeya_fleet.node.links.protocol.settings import LinkLimits
from kakeya_fleet.node.links.protocol.tensor import WireTensor, from_buffer
from kakeya_fleet.node.links.transport.link_service import LinkService
from kakeya_fleet.node.links.transport.link_table import LinkTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

FC = "fc.weight"
HIDDEN_NORM = "hidden_norm.weight"
# One answer does for the deltas of several blocks.
TAKEN_DELAY_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class ConditionedProposer:
    """What a link needs to know of a proposer that takes context vectors.

    `target_weights_digest` is empty for one that drafts for every verifier.
    """

    weights: EncoderWeights
    hidden_size: int
    target_weights_digest: str

    @property
    def encoder(self) -> EncoderDescription:
        """What makes its vectors."""
        weights = self.weights
        return EncoderDescription(
            digest=weights.digest,
            tapped_layers=tuple(weights.taps),
            hidden_size=self.hidden_size,
            width=weights.fc.shape[0],
            eps=weights.eps,
        )


class FeatureLinks:
    """Implements `node.links.transport.link_service.LinkHandler`."""

    def __init__(self, proposers: Mapping[str, ConditionedProposer], table: LinkTable) -> None:
        """`proposers` by model id; the links are those of `table`."""
        self._proposers = proposers
        self._table = table
        self._inboxes: WeakKeyDictionary[LinkService, FeatureInbox] = WeakKeyDictionary()

    def open(self, request: LinkRequest) -> LinkService:
        """A link for one session. Raises `ModelNotFound`, `TrainedForAnother`."""
        proposer = self._proposer(request)
        encoder = proposer.encoder
        inbox = FeatureInbox(encoder.width)
        service = LinkService(
            limits=LinkLimits(
                most_tensor_bytes=inbox.tensor_bytes, taken_delay_seconds=TAKEN_DELAY_SECONDS
            ),
            memory_bytes=inbox.memory_bytes,
            serve=partial(_serve, proposer.weights),
            take=inbox.take,
            encoder=encoder,
        )
        self._inboxes[service] = inbox
        return service

    def inbox(self, link_id: str) -> FeatureInbox | None:
        """That of an open link; asking counts as using the link."""
        link = self._table.find(link_id)
        return self._inboxes.get(link.service) if link is not None else None

    def _proposer(self, request: LinkRequest) -> ConditionedProposer:
        proposer = self._proposers.get(request.model_id)
        if proposer is None:
            known = ", ".join(sorted(self._proposers)) or "none"
            raise ModelNotFound(
                f"no proposer {request.model_id[:64]!r} that takes features is served here; "
                f"served: {known}",
                model_id=request.model_id[:64],
                served=known,
            )
        wanted, given = proposer.target_weights_digest, request.verifier_weights_digest
        if wanted and given and wanted != given:
            raise TrainedForAnother(
                f"{request.model_id} was made for the verifier with weights {wanted[:12]}, "
                f"not {given[:12]}",
                target_weights_digest=wanted,
                verifier_weights_digest=given[:64],
            )
        return proposer


async def _serve(weights: EncoderWeights, link: TensorLink, want_encoder: bool) -> None:  # noqa: FBT001
    """Sends the weights, if they are wanted; the inbox takes what comes."""
    if want_encoder:
        for name, values in ((FC, weights.fc), (HIDDEN_NORM, weights.norm)):
            await link.send(weights_tensor(name, values))
    await link.wait_ended()


def weights_tensor(name: str, values: NDArray[np.float32]) -> WireTensor:
    """Weights as they lie: a copy of them for each who asks would fill the memory."""
    plain = np.ascontiguousarray(values, "<f4")
    return from_buffer(name, "float32", plain.shape, plain.data)
