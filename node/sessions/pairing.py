"""The proposer of one session: chosen, connected, dropped, chosen again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import grpc.aio

from engine.generation_report import DropReason
from engine.history import History
from engine.proposers.contract import DraftSource
from engine.proposers.local_source import LocalDraftSource
from engine.session import Session
from engine.session_features import SessionFeatures
from engine.speculation.pace import Pace
from engine.speculation.state import SpeculationState
from engine.speculation.steps import FLAT, MeasuredSteps
from engine.verifier import VerifierInfo
from fleet.card import ModelOffer, Role
from fleet.errors import FleetError, ModelNotFound, NoPlacement
from fleet.plan import Placement, Plan
from node.drafting.remote_draft import OPEN_TIMEOUT_SECONDS, RemoteDraftSource
from node.drafting.served_proposer import ServedProposer
from node.links.encoder_fetch import EncoderShelf, ProposerAddress
from node.links.feature_sender import FeatureSender, ReadFeatures
from node.links.link_log import LinkLog
from node.links.open_links import OpenLinks
from node.planning.fleet_view import FleetView
from node.planning.planner import Planner
from node.sessions.breaker_book import BreakerBook, SharedSpeculationState
from node.sessions.conditioning import Conditioning
from node.sessions.runtime_wire import SessionSpec, SpeculationChoice


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the pairings of one node share.

    `observe_round_trip` takes each remote draft's round trip in seconds.
    """

    fleet: FleetView
    planner: Planner
    proposers: Mapping[str, ServedProposer]
    breakers: BreakerBook
    observe_round_trip: Callable[[float], None]
    encoders: EncoderShelf
    links: OpenLinks


@dataclass(slots=True)
class _Connection:
    """A source, the channel below it (None in process), and what was learned of it.

    `features` are the vectors that the source reads, None when it takes none.
    """

    placement: Placement
    source: DraftSource
    channel: grpc.aio.Channel | None
    state: SharedSpeculationState
    features: SessionFeatures | None


class Pairing:
    """The plan of one session and, while it speculates, its draft source.

    The source opens with the first generation and stays for the session. With
    speculation auto a session that decodes alone, or whose proposer is
    dropped, is planned anew at its next generation. A proposer that takes context
    vectors gets those of the attached session; where their encoder cannot be had
    the session decodes alone, dropped for FEATURES.
    """

    def __init__(
        self,
        spec: SessionSpec,
        info: VerifierInfo,
        around: Surroundings,
        *,
        inherited: Plan | None = None,
    ) -> None:
        """Plans; takes the `inherited` plan, of a session that runs, when nothing can be planned.

        Raises `NoPlacement`.
        """
        self._info = info
        self._around = around
        self._choice = spec.speculation.choice
        self._request = spec.plan_request(around.fleet.self_id, info)
        self._plan = self._planned(inherited)
        self._connection: _Connection | None = None
        self._link_log = LinkLog()
        self._conditioning = Conditioning(info, around.fleet, around.proposers, around.encoders)
        self._hindrance: DropReason | None = None
        self._closed = False

    @property
    def plan(self) -> Plan:
        """The pair that serves the session, with reasons."""
        return self._plan

    @property
    def drop_reason(self) -> DropReason | None:
        """Why the session decodes alone now; None when it does not."""
        if self._connection is not None:
            return self._connection.state.drop_reason
        return self._hindrance

    @property
    def drafts_here(self) -> bool:
        """Whether the plan's proposer is one of this node."""
        proposer = self._plan.proposer
        return proposer is not None and proposer.node_id == self._around.fleet.self_id

    @property
    def link_log(self) -> LinkLog:
        """What carried the session's feature links, and when that changed."""
        return self._link_log

    @property
    def adaptive(self) -> bool:
        """Whether the measured pace chooses the size of each block, up to `block_size`."""
        return self._choice is SpeculationChoice.AUTO or self._request.block_size is None

    @property
    def block_size(self) -> int:
        """Tokens to draft at most; 0 for as many as one forward verifies.

        The plan's block size is a prediction; the pace measures.
        """
        return self._request.block_size or 0

    def attach(self, session: Session) -> None:
        """Says which session it is, and begins to fetch what its proposer's vectors need."""
        self._conditioning.attach(session)
        self._conditioning.begin(self._plan.proposer)

    async def conditioned(self) -> None:
        """Waits a bounded time until what the session computes gets its context vectors."""
        await self._conditioning.ready(self._plan.proposer)

    async def connect(self, history: History) -> tuple[DraftSource | None, SpeculationState | None]:
        """The source for the next generation, None to decode alone.

        A remote stream begins to open here, so that it is there when the first
        draft is asked for.
        """
        if self._choice is SpeculationChoice.AUTO and (
            self._plan.proposer is None or self.drop_reason is not None
        ):
            await self._replan()
        placement = self._plan.proposer
        if placement is None:
            await self.conditioned()
            return None, None
        if not await self._conditioning.ready(placement):
            self._hindrance = DropReason.FEATURES
            await self._disconnect()
            return None, None
        connection = self._connection
        if connection is None or not self._stands(connection):
            await self._disconnect()
            if self._closed:
                # The session ended meanwhile: what opens now, nobody would close.
                return None, None
            connection = self._connected(placement)
            self._connection = connection
        self._hindrance = DropReason.UNREACHABLE if connection is None else None
        if connection is None:
            return None, None
        if isinstance(connection.source, RemoteDraftSource) and connection.state.breaker.closed:
            connection.source.open(history)
        return connection.source, connection.state

    def rest(self) -> None:
        """Frees what a remote proposer keeps for this session while it is idle."""
        connection = self._connection
        if connection is not None and isinstance(connection.source, RemoteDraftSource):
            connection.source.rest()

    async def close(self) -> None:
        """Closes the source, for good."""
        self._closed = True
        self._conditioning.close()
        await self._disconnect()

    async def _disconnect(self) -> None:
        """Closes the source; the next generation opens a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.state.detach()
            await connection.source.close()

    def _planned(self, inherited: Plan | None) -> Plan:
        try:
            return self._around.planner.plan_here(self._request)
        except (ModelNotFound, NoPlacement) as error:
            if inherited is not None:
                return inherited
            if isinstance(error, NoPlacement):
                raise
            # The verifier is here: what nobody serves is the named proposer.
            raise NoPlacement(
                f"the proposer {self._request.proposer_model!r} cannot draft here: {error}",
                proposer_model=self._request.proposer_model,
                proposer_node_id=self._request.proposer_node_id,
            ) from error

    async def _replan(self) -> None:
        """Takes another plan when it has another proposer; a dropped one may come back."""
        try:
            plan = self._around.planner.plan_here(self._request)
        except FleetError:
            # The verifier is here and runs: the old plan stands.
            return
        if plan.proposer is not None and plan.proposer != self._plan.proposer:
            await self._disconnect()
            self._plan = plan

    def _stands(self, connection: _Connection) -> bool:
        """Whether the connection is the plan's, over the channel that is in use now.

        And reads the vectors that are made now: a proposer that was started anew with
        other weights has another encoder.
        """
        if connection.placement != self._plan.proposer:
            return False
        if connection.features is not self._features(connection.placement):
            return False
        if connection.channel is None:
            return True
        return connection.channel is self._channel(connection.placement.node_id)

    def _connected(self, placement: Placement) -> _Connection | None:
        around = self._around
        key = (placement.node_id, placement.model_id)
        features = self._features(placement)
        state = SharedSpeculationState(
            around.breakers,
            key,
            judging=self._choice is SpeculationChoice.AUTO,
            pace=self._pace(placement),
        )
        if placement.node_id == around.fleet.self_id:
            served = around.proposers[placement.model_id]
            source: DraftSource = LocalDraftSource(
                served.proposer, served.runner, features=_reader(features)
            )
            return _Connection(placement, source, None, state, features)
        channel = self._channel(placement.node_id)
        if channel is None:
            return None
        source = RemoteDraftSource(
            channel,
            placement.model_id,
            self._info.vocabulary_size,
            self._info.tokenizer_digest,
            observe=around.observe_round_trip,
            sender=self._sender(placement, channel, features),
        )
        return _Connection(placement, source, channel, state, features)

    def _pace(self, placement: Placement) -> Pace:
        """What the cards say of both models' steps."""
        return Pace(
            verify_steps=_steps(self._conditioning.offer(self._plan.verifier, Role.VERIFIER)),
            draft_steps=_steps(self._conditioning.offer(placement)),
        )

    def _features(self, placement: Placement) -> SessionFeatures | None:
        """The session's context vectors; None when the proposer takes none."""
        offer, session = self._conditioning.offer(placement), self._conditioning.session
        if offer is None or not offer.feature_width or session is None:
            return None
        return session.features

    def _sender(
        self, placement: Placement, channel: grpc.aio.Channel, features: SessionFeatures | None
    ) -> FeatureSender | None:
        offer, read = self._conditioning.offer(placement), _reader(features)
        if offer is None or read is None:
            return None
        address = ProposerAddress(
            channel,
            offer,
            self._around.fleet.self_id,
            self._info.weights_digest,
            placement.node_id,
        )
        return FeatureSender(
            address,
            read,
            open_timeout=OPEN_TIMEOUT_SECONDS,
            links=self._around.links,
            on_change=self._link_log.add,
        )

    def _channel(self, node_id: str) -> grpc.aio.Channel | None:
        try:
            return self._around.fleet.channel(node_id)
        except FleetError:
            # No address of the node is known any more.
            return None


def _reader(features: SessionFeatures | None) -> ReadFeatures | None:
    return features.since if features is not None else None


def _steps(offer: ModelOffer | None) -> MeasuredSteps:
    """What a card says of a model's steps; flat while it says nothing."""
    if offer is None:
        return FLAT
    return MeasuredSteps.of([(cost.token_count, cost.seconds) for cost in offer.step_costs])
