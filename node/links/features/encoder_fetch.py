"""Context encoders of proposers on other nodes: fetched once each, checked, kept."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc.aio
import numpy as np

from kakeya_fleet.engine.backends import make_encoder
from kakeya_fleet.engine.contracts.feature_encoder import ContextEncoder, EncoderWeights
from kakeya_fleet.engine.contracts.features import FeatureEncoder
from kakeya_fleet.fleet.cards.card import ModelOffer
from kakeya_fleet.node.admission.limits import LinkEndLimits
from kakeya_fleet.node.links.ends.link_end import LinkUse
from kakeya_fleet.node.links.features.feature_links import FC, HIDDEN_NORM
from kakeya_fleet.node.links.protocol.contract import LinkClosed, LinkPurpose
from kakeya_fleet.node.links.protocol.opening import EncoderDescription, LinkRequest
from kakeya_fleet.node.links.protocol.settings import LinkLimits
from kakeya_fleet.node.links.protocol.tensor import to_floats
from kakeya_fleet.node.links.transport.open_links import OpenLinks

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BOUNDS = LinkEndLimits()
KEPT_ENCODERS = 8


class EncoderUnavailable(Exception):
    """An encoder cannot be had, or is not the one that the proposer's card names."""


@dataclass(frozen=True, slots=True)
class ProposerAddress:
    """Where links for `offer` are opened, and on behalf of which node and verifier.

    `node_id` is the proposer's node.
    """

    channel: grpc.aio.Channel
    offer: ModelOffer
    sender_node_id: str
    verifier_weights_digest: str
    node_id: str = ""


class EncoderShelf:
    """Encoders by digest, the latest `KEPT_ENCODERS`. Belongs to the event loop's thread."""

    def __init__(self, links: OpenLinks | None = None) -> None:
        """Encoders come over `links` of this node."""
        self._links = links if links is not None else OpenLinks()
        self._encoders: OrderedDict[str, FeatureEncoder] = OrderedDict()
        self._fetching: dict[str, asyncio.Task[FeatureEncoder]] = {}

    async def get(self, address: ProposerAddress) -> FeatureEncoder:
        """The encoder of the address's offer, fetched unless it is here.

        Several callers at once share one fetch, which goes on when one of them
        leaves. Raises `EncoderUnavailable`.
        """
        digest = address.offer.encoder_digest
        known = self._encoders.get(digest)
        if known is not None:
            self._encoders.move_to_end(digest)
            return known
        task = self._fetching.get(digest)
        if task is None:
            task = asyncio.create_task(fetch_encoder(address, self._links), name="encoder-fetch")
            self._fetching[digest] = task
            task.add_done_callback(lambda done: self._fetched(digest, done))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
            raise EncoderUnavailable("the channel was closed under the fetch") from None

    async def close(self) -> None:
        """Ends the fetches under way."""
        tasks = list(self._fetching.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _fetched(self, digest: str, task: asyncio.Task[FeatureEncoder]) -> None:
        self._fetching.pop(digest, None)
        if task.cancelled() or task.exception() is not None:
            return
        self._encoders[digest] = task.result()
        if len(self._encoders) > KEPT_ENCODERS:
            self._encoders.popitem(last=False)


async def fetch_encoder(address: ProposerAddress, links: OpenLinks) -> FeatureEncoder:
    """The encoder that the offer names, over a link that is closed again.

    Raises `EncoderUnavailable`, saying why.
    """
    offer = address.offer
    try:
        async with asyncio.timeout(_BOUNDS.encoder_seconds):
            encoder = await _fetched(address, links)
    except TimeoutError as error:
        raise EncoderUnavailable(
            f"the encoder of {offer.model_id} did not come within {_BOUNDS.encoder_seconds:g} s"
        ) from error
    except (grpc.aio.AioRpcError, grpc.aio.UsageError) as error:
        raise EncoderUnavailable(f"no link to {offer.model_id} opens: {_text(error)}") from error
    except LinkClosed as error:
        raise EncoderUnavailable(f"the link to {offer.model_id} has ended: {error}") from error
    except ValueError as error:
        raise EncoderUnavailable(f"the encoder of {offer.model_id} is unusable: {error}") from error
    if encoder.spec.digest != offer.encoder_digest:
        raise EncoderUnavailable(
            f"the encoder of {offer.model_id} has the digest {encoder.spec.digest[:12]}, "
            f"its node's card says {offer.encoder_digest[:12]}"
        )
    return encoder


async def _fetched(address: ProposerAddress, links: OpenLinks) -> ContextEncoder:
    opened = await links.open(
        address.channel,
        opening_request(address),
        peer_node_id=address.node_id,
        timeout=_BOUNDS.encoder_seconds,
        use=LinkUse(limits=LinkLimits(most_tensor_bytes=_BOUNDS.encoder_bytes)),
        want_encoder=True,
    )
    try:
        encoder = opened.encoder
        if encoder is None:
            raise ValueError("its node does not describe it")
        count = len(encoder.tapped_layers) * encoder.hidden_size
        if not 0 < encoder.width * count * 4 <= _BOUNDS.encoder_bytes:
            raise ValueError(f"it maps {count} values to {encoder.width}")
        values: dict[str, NDArray[np.float32] | None] = {}
        while len(values) < len((FC, HIDDEN_NORM)):
            tensor = await opened.end.receive()
            values[tensor.name] = to_floats(tensor)
    finally:
        await opened.end.close()
    fc, norm = values.get(FC), values.get(HIDDEN_NORM)
    if fc is None or norm is None or fc.shape != (encoder.width, count):
        raise ValueError(f"its tensors are {', '.join(map(repr, values))}")
    # Hashing and checking tens of megabytes must not hold up the event loop.
    return await asyncio.to_thread(_encoder, fc, norm, encoder)


def opening_request(address: ProposerAddress) -> LinkRequest:
    """What opens a link for context features to the address's proposer."""
    return LinkRequest(
        LinkPurpose.FEATURES,
        sender_node_id=address.sender_node_id,
        model_id=address.offer.model_id,
        verifier_weights_digest=address.verifier_weights_digest,
    )


def _encoder(
    fc: NDArray[np.float32], norm: NDArray[np.float32], described: EncoderDescription
) -> ContextEncoder:
    weights = EncoderWeights(fc, norm, described.eps, described.tapped_layers)
    return make_encoder(weights)


def _text(error: grpc.aio.AioRpcError | grpc.aio.UsageError) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return "the channel was closed"
