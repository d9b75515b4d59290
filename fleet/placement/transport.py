"""Which road a pair's tensors take, and the sentence that says what is not certain of it."""

from __future__ import annotations

from kakeya_fleet.fleet.cards.address import parse_address
from kakeya_fleet.fleet.cards.card import Card
from kakeya_fleet.fleet.cards.ways import ip_of
from kakeya_fleet.fleet.placement.plan import Transport
from kakeya_fleet.fleet.placement.predicted_pair import PredictedPair


def transport_of(pair: PredictedPair) -> Transport | None:
    """The best road that both cards offer for tensors, else that of the drafts; None alone.

    Drafts are ids and travel by gRPC; tensors are the context vectors of a proposer
    that is conditioned on the verifier. A card has a ring address where the node has
    tried a ring and its `links` allow one; between two nodes of one host shared memory
    is tried before the ring.
    """
    if pair.proposer is None:
        return None
    verifier, proposer = pair.verifier.card, pair.proposer.card
    if verifier.node_id == proposer.node_id:
        return Transport.LOCAL
    if not pair.proposer.offer.feature_width or not _offers_roads(verifier, proposer):
        return Transport.GRPC
    if is_one_host(verifier, proposer):
        return Transport.LOCAL
    stays = _keeps_its_ring(verifier) or _keeps_its_ring(proposer)
    return Transport.GRPC if stays else Transport.RING


def transport_reasons(pair: PredictedPair) -> tuple[str, ...]:
    """What is known of the way of the context vectors; nothing where none travel."""
    proposer = pair.proposer
    if proposer is None or not proposer.offer.feature_width:
        return ()
    verifier = pair.verifier
    if verifier.card.node_id == proposer.card.node_id:
        return ()
    way = f"Context vectors for {proposer.offer.model_id} travel from {verifier.card.name} over "
    if transport_of(pair) is Transport.GRPC:
        without = [
            server.card.name for server in (verifier, proposer) if not server.card.ring_address
        ]
        if not without:
            return (f"{way}gRPC: rings stay within their hosts in this fleet.",)
        offer = "offer" if len(without) > 1 else "offers"
        return (f"{way}gRPC: {' and '.join(without)} {offer} no ring.",)
    first = "shared memory" if is_one_host(verifier.card, proposer.card) else "the ring"
    return (
        f"{way}gRPC at first; {first} will be tried, and kept where real tensors arrive "
        "faster over it.",
    )


def _offers_roads(one: Card, other: Card) -> bool:
    return bool(one.ring_address and other.ring_address)


def _keeps_its_ring(card: Card) -> bool:
    """Whether its ring listens where its own host alone comes: tensors are not to leave it."""
    ip = ip_of(card.ring_address.rpartition(":")[0] or card.ring_address)
    return ip is not None and ip.is_loopback


def is_one_host(one: Card, other: Card) -> bool:
    """Whether both run on one machine; told by their addresses where a card does not say."""
    if one.host_id and other.host_id:
        return one.host_id == other.host_id
    return bool(_hosts(one) & _hosts(other))


def _hosts(card: Card) -> frozenset[str]:
    return frozenset(parse_address(address)[0] for address in card.addresses)
