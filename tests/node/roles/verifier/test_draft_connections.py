"""A proposer of context vectors is asked for drafts once the session makes them, and not before."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

from kakeya_fleet.engine.speculation.latest_book import LatestBook
from kakeya_fleet.fleet.cards.card import ModelKind, ModelOffer, Role
from kakeya_fleet.fleet.placement.plan import Placement
from kakeya_fleet.node.roles.verifier.breaker_book import BreakerBook
from kakeya_fleet.node.roles.verifier.conditioning import Conditioning
from kakeya_fleet.node.roles.verifier.draft_connections import DraftConnections
from tests.support import neighbourhood as nodes

HERE = "here"


def placement(model_id: str) -> Placement:
    return Placement(HERE, HERE, "", model_id)


def vectors_of(digest: str) -> Any:
    return SimpleNamespace(since=object(), spec=SimpleNamespace(digest=digest))


class Served:
    """A proposer of this node, by what it was given to read."""

    def __init__(self) -> None:
        self.withdrawn = asyncio.Event()
        self.readers: list[object] = []

    def source(self, read: object, _giving: object) -> Any:
        self.readers.append(read)

        async def close() -> None:
            return

        return SimpleNamespace(close=close)


async def test_it_is_nobody_s_rival_while_its_encoder_is_on_its_way() -> None:
    offers = (
        ModelOffer("taking", Role.PROPOSER, ModelKind.DFLASH, feature_width=8, encoder_digest="e"),
        ModelOffer("plain", Role.PROPOSER, ModelKind.AUTOREGRESSIVE, weights_digest="w"),
    )
    fleet: Any = SimpleNamespace(
        self_id=HERE, nodes=lambda: [SimpleNamespace(card=nodes.card(HERE, "a:1", offers))]
    )
    info: Any = SimpleNamespace(model_id="verifier", weights_digest="v")
    session: Any = SimpleNamespace(features=None, forgotten_count=0)
    unused: Any = None
    served = {"taking": Served(), "plain": Served()}
    conditioning = Conditioning(info, fleet, unused, unused, opening_seconds=1.0)
    conditioning.attach(session, unused)
    context: Any = SimpleNamespace(
        fleet=fleet,
        proposers=served,
        breakers=BreakerBook(time.monotonic, lambda _key: None),
        overlaps=LatestBook(time.monotonic),
        rates=LatestBook(time.monotonic),
    )
    connections = DraftConnections(info, context, conditioning, unused, judging=True)
    verifier = placement("verifier")
    assert await connections.get(placement("plain"), verifier) is not None
    assert await connections.get(placement("taking"), verifier) is None
    # Nor while the session makes another proposer's.
    session.features = vectors_of("another")
    assert await connections.get(placement("taking"), verifier) is None
    session.features = vectors_of("e")
    connection = await connections.get(placement("taking"), verifier)
    assert connection is not None
    assert served["taking"].readers == [session.features.since]
    assert served["plain"].readers == [None]
    # With vectors that begin anew so does the connection, and with none again it is gone.
    session.features = vectors_of("e")
    assert await connections.get(placement("taking"), verifier) is not connection
    session.features = None
    assert await connections.get(placement("taking"), verifier) is None
