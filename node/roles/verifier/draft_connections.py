"""The draft sources of one session: one a proposer, each over the channel that is in use now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import grpc.aio

from kakeya_fleet.engine.contracts.draft import DraftSource, ProposerKey
from kakeya_fleet.engine.contracts.verifier import VerifierInfo
from kakeya_fleet.engine.sessions.session_features import SessionFeatures
from kakeya_fleet.engine.speculation.latest_book import LatestBook
from kakeya_fleet.engine.speculation.overlap import NOTHING_MEASURED, Overlap
from kakeya_fleet.engine.speculation.pace import Pace
from kakeya_fleet.engine.speculation.place_rates import NOTHING_TRIED, PlaceRates
from kakeya_fleet.engine.speculation.steps import FLAT, MeasuredSteps
from kakeya_fleet.engine.speculation.trial_book import TrialBooks
from kakeya_fleet.fleet.cards.card import ModelOffer, Role
from kakeya_fleet.fleet.errors import FleetError
from kakeya_fleet.fleet.placement.acceptance_prior import (
    SAME_WEIGHTS_ACCEPTANCE,
    has_same_weights,
)
from kakeya_fleet.fleet.placement.plan import Placement
from kakeya_fleet.fleet.placement.transport import is_one_host
from kakeya_fleet.node.links.features.encoder_fetch import EncoderShelf, ProposerAddress
from kakeya_fleet.node.links.features.feature_sender import FeatureSender, ReadFeatures
from kakeya_fleet.node.links.protocol.changes import LinkLog
from kakeya_fleet.node.links.transport.open_links import OpenLinks
from kakeya_fleet.node.planning.fleet_view import FleetView
from kakeya_fleet.node.planning.planner import Planner
from kakeya_fleet.node.roles.proposer.remote_draft import RemoteDraftSource
from kakeya_fleet.node.roles.proposer.served_proposer import ServedProposer
from kakeya_fleet.node.roles.verifier.breaker_book import BreakerBook, SharedSpeculationState
from kakeya_fleet.node.roles.verifier.conditioning import Conditioning


def key_of(placement: Placement) -> ProposerKey:
    """The proposer that a placement names."""
    return placement.node_id, placement.model_id


@dataclass(frozen=True, slots=True)
class PairingContext:
    """What the pairings of one node share.

    `proposers` are those of this node, by model id; `observe_round_trip` takes each
    remote draft's round trip in seconds. `overlaps` and `rates` have what sessions of a verifier
    found of a proposer, rates of greedy and of sampled text apart. What comes before a first
    draft, its stream or the encoder, is waited for `opening_seconds` at most.
    """

    fleet: FleetView
    planner: Planner
    proposers: Mapping[str, ServedProposer]
    breakers: BreakerBook
    trial_books: TrialBooks
    overlaps: LatestBook[tuple[str, ProposerKey], Overlap]
    rates: LatestBook[tuple[str, ProposerKey, bool], PlaceRates]
    observe_round_trip: Callable[[float], None]
    encoders: EncoderShelf
    links: OpenLinks
    opening_seconds: float


@dataclass(slots=True)
class DraftConnection:
    """A source, the channel below it (None in process), and what was learned of it.

    `features` are the vectors that the source reads, None when it takes none.
    `withdrawn` is set once a proposer of this node is served no more. Other sessions know what
    came of the first `told_blocks`.
    """

    placement: Placement
    source: DraftSource
    channel: grpc.aio.Channel | None
    state: SharedSpeculationState
    features: SessionFeatures | None
    withdrawn: asyncio.Event = field(default_factory=asyncio.Event)
    told_blocks: int = 0


class DraftConnections:
    """Opened when they are first asked for; a remote stream opens with its first draft.

    `judging` sessions leave a proposer that is slower than its rivals.
    """

    def __init__(
        self,
        info: VerifierInfo,
        context: PairingContext,
        conditioning: Conditioning,
        link_log: LinkLog,
        *,
        judging: bool,
    ) -> None:
        self._info = info
        self._context = context
        self._conditioning = conditioning
        self._link_log = link_log
        self._judging = judging
        self._open: dict[ProposerKey, DraftConnection] = {}
        self._sampled = False

    def opened(self, key: ProposerKey) -> DraftConnection | None:
        """The connection as it is; None when there is none."""
        return self._open.get(key)

    async def get(self, placement: Placement, verifier: Placement) -> DraftConnection | None:
        """One that stands, made anew if need be.

        None where the proposer is not there any more, or takes vectors of an encoder that the
        session has not, such as one that is still on its way.
        """
        key = key_of(placement)
        known = self._open.get(key)
        if known is not None and self._stands(known, placement):
            return known
        await self._end(key)
        made = self._connected(placement, verifier)
        if made is not None:
            self._open[key] = made
        return made

    def is_apart(self, placement: Placement) -> bool:
        """Whether it drafts on another machine, as both cards say."""
        fleet = self._context.fleet
        cards = {view.card.node_id: view.card for view in fleet.nodes()}
        here, there = cards.get(fleet.self_id), cards.get(placement.node_id)
        return here is not None and there is not None and not is_one_host(here, there)

    def begin_text(self, *, sampled: bool) -> None:
        """The next text is drawn at a temperature, or greedy: how much is guessed is its own."""
        if sampled is self._sampled:
            return
        for key, connection in self._open.items():
            self._tell(key, connection)
        self._sampled = sampled
        for connection in self._open.values():
            state = connection.state
            state.pace = replace(state.pace, places=self._rates(connection.placement))

    def rest(self) -> None:
        """Frees what remote proposers keep for the session while it is idle."""
        for key, connection in self._open.items():
            self._tell(key, connection)
            connection.source.rest()

    async def keep(self, keys: frozenset[ProposerKey]) -> None:
        """Closes all but those of `keys`."""
        for key in [key for key in self._open if key not in keys]:
            await self._end(key)

    async def _end(self, key: ProposerKey) -> None:
        connection = self._open.pop(key, None)
        if connection is not None:
            self._tell(key, connection)
            connection.state.detach()
            await connection.source.close()

    def _tell(self, key: ProposerKey, connection: DraftConnection) -> None:
        """Next sessions know what a forward beside a draft takes, and how much is right."""
        pace, verifier = connection.state.pace, self._info.model_id
        if pace.block_count > connection.told_blocks:
            connection.told_blocks = pace.block_count
            self._context.overlaps.put((verifier, key), pace.overlap)
            rates, of = self._context.rates, (verifier, key, self._sampled)
            rates.put(of, (rates.get(of) or NOTHING_TRIED).and_those_of(pace.places))

    def _stands(self, connection: DraftConnection, placement: Placement) -> bool:
        """Whether the connection is the placement's, over the channel that is in use now.

        And reads the vectors that are made now: a proposer that was started anew with
        other weights has another encoder.
        """
        if connection.placement != placement:
            return False
        if connection.features is not self._conditioning.features(connection.placement):
            return False
        if connection.channel is None:
            return not connection.withdrawn.is_set()
        return connection.channel is self._channel(connection.placement.node_id)

    def _connected(self, placement: Placement, verifier: Placement) -> DraftConnection | None:
        context = self._context
        features = self._conditioning.features(placement)
        if features is None and self._conditioning.takes_vectors(placement):
            return None
        state = SharedSpeculationState(
            context.breakers,
            key_of(placement),
            judging=self._judging,
            pace=self._pace(placement, verifier),
        )
        if placement.node_id == context.fleet.self_id:
            served = context.proposers.get(placement.model_id)
            if served is None:
                # Withdrawn since the plan was made.
                return None
            local = served.source(_reader(features), self._conditioning.giving(placement))
            return DraftConnection(placement, local, None, state, features, served.withdrawn)
        channel = self._channel(placement.node_id)
        if channel is None:
            return None
        source = RemoteDraftSource(
            channel,
            placement.model_id,
            self._info.vocabulary_size,
            self._info.tokenizer_digest,
            open_timeout=context.opening_seconds,
            observe=context.observe_round_trip,
            sender=self._sender(placement, channel, features),
            giving=self._conditioning.giving(placement),
        )
        return DraftConnection(placement, source, channel, state, features)

    def _pace(self, placement: Placement, verifier: Placement) -> Pace:
        """What the cards say of both models' steps."""
        offer = self._conditioning.offer(placement)
        return Pace(
            verify_steps=_steps(self._conditioning.offer(verifier, Role.VERIFIER)),
            draft_steps=_steps(offer, padded=False),
            ends_drafts=offer is not None and offer.ends_drafts,
            overlap=self._context.overlaps.get((self._info.model_id, key_of(placement)))
            or NOTHING_MEASURED,
            places=self._rates(placement),
        )

    def _rates(self, placement: Placement) -> PlaceRates:
        """Those of other sessions' texts of the kind, or what is assumed."""
        of = self._info.model_id, key_of(placement), self._sampled
        found, offer = self._context.rates.get(of), self._conditioning.offer(placement)
        if found is not None:
            return found.remembered()
        if offer is not None and has_same_weights(self._info.weights_digest, offer.weights_digest):
            return PlaceRates.assuming(SAME_WEIGHTS_ACCEPTANCE.rate)
        return NOTHING_TRIED

    def _sender(
        self, placement: Placement, channel: grpc.aio.Channel, features: SessionFeatures | None
    ) -> FeatureSender | None:
        offer, read = self._conditioning.offer(placement), _reader(features)
        if offer is None or read is None:
            return None
        address = ProposerAddress(
            channel,
            offer,
            self._context.fleet.self_id,
            self._info.weights_digest,
            placement.node_id,
        )
        return FeatureSender(
            address,
            read,
            open_timeout=self._context.opening_seconds,
            links=self._context.links,
            on_change=self._link_log.add,
        )

    def _channel(self, node_id: str) -> grpc.aio.Channel | None:
        try:
            return self._context.fleet.channel(node_id, Role.PROPOSER)
        except FleetError:
            # No address of the node is known any more, or keepers let it draft no more.
            return None


def _reader(features: SessionFeatures | None) -> ReadFeatures | None:
    return features.since if features is not None else None


def _steps(offer: ModelOffer | None, *, padded: bool = True) -> MeasuredSteps:
    """What a card says of a model's steps; flat while it says nothing."""
    if offer is None:
        return FLAT
    points = [(cost.token_count, cost.seconds) for cost in offer.step_costs]
    return MeasuredSteps.of(points, padded=padded)
