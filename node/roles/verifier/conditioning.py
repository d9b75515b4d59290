"""What a session's proposer has of its verifier: an encoder's context vectors, keys and values."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from kakeya_fleet.engine.contracts.blocking import Runner
from kakeya_fleet.engine.contracts.features import FeatureEncoder
from kakeya_fleet.engine.contracts.verifier import VerifierInfo
from kakeya_fleet.engine.proposers.giving import Giving
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.session_features import SessionFeatures
from kakeya_fleet.fleet.cards.card import ModelOffer, Role
from kakeya_fleet.fleet.errors import FleetError
from kakeya_fleet.fleet.placement.plan import Placement
from kakeya_fleet.node.links.features.encoder_fetch import (
    EncoderShelf,
    EncoderUnavailable,
    ProposerAddress,
)
from kakeya_fleet.node.planning.fleet_view import FleetView
from kakeya_fleet.node.roles.proposer.served_proposer import ServedProposer
from kakeya_fleet.node.roles.verifier.history_giving import giving_to

_log = structlog.get_logger(__name__)


class Conditioning:
    """The encoder of one session, for whichever proposer its plan has, and what it gives.

    Belongs to the event loop's thread. A session whose proposer takes no context
    vectors has none made.
    """

    def __init__(
        self,
        info: VerifierInfo,
        fleet: FleetView,
        proposers: Mapping[str, ServedProposer],
        encoders: EncoderShelf,
        *,
        opening_seconds: float,
    ) -> None:
        """`proposers` are those of this node, by model id.

        A prompt or a generation waits `opening_seconds` at most for an encoder: what is
        computed without one has no context vectors, and its drafts are worse.
        """
        self._info = info
        self._fleet = fleet
        self._proposers = proposers
        self._encoders = encoders
        self._opening_seconds = opening_seconds
        self._session: Session | None = None
        self._run: Runner | None = None
        self._bringing: tuple[str, asyncio.Task[None]] | None = None

    @property
    def session(self) -> Session | None:
        """The session that vectors are made of; None before `attach`."""
        return self._session

    def attach(self, session: Session, run: Runner) -> None:
        """Says which session it is; `run` runs steps in its verifier's thread."""
        self._session, self._run = session, run

    def offer(self, placement: Placement | None, role: Role = Role.PROPOSER) -> ModelOffer | None:
        """What the card of the placement's node says of its model."""
        if placement is None:
            return None
        for view in self._fleet.nodes():
            if view.card.node_id == placement.node_id:
                for offer in view.card.offers(role):
                    if offer.model_id == placement.model_id:
                        return offer
        return None

    def takes_vectors(self, placement: Placement | None) -> bool:
        """Whether the placement's proposer drafts from context vectors."""
        offer = self.offer(placement)
        return offer is not None and offer.feature_width > 0

    def features(self, placement: Placement) -> SessionFeatures | None:
        """The vectors that the session makes for the placement's proposer.

        None when it takes none, and while they are of no encoder, or of another one's.
        """
        offer, session = self.offer(placement), self._session
        if offer is None or session is None or not self._has(session, offer):
            return None
        return session.features

    def giving(self, placement: Placement) -> Giving | None:
        """What of the session a proposer of its verifier's weights need not read."""
        session, run, offer = self._session, self._run, self.offer(placement)
        if session is None or run is None or offer is None:
            return None
        cards = {view.card.node_id: view.card for view in self._fleet.nodes()}
        return giving_to(offer, cards[placement.node_id], cards[self._fleet.self_id], session, run)

    def begin(self, placement: Placement | None) -> None:
        """Fetches the encoder of a plan's proposer unless the session has it; waits for nothing."""
        session, offer = self._session, self.offer(placement)
        if session is None:
            return
        if placement is None or offer is None or not offer.feature_width:
            session.use_encoder(None)
            return
        if self._has(session, offer):
            return
        bringing = self._bringing
        if bringing is not None and bringing[0] == offer.encoder_digest:
            return
        self._cancel()
        task = asyncio.create_task(self._bring(session, placement, offer), name="encoder-bring")
        self._bringing = (offer.encoder_digest, task)
        task.add_done_callback(self._brought)

    async def ready(self, placement: Placement | None) -> bool:
        """Whether the session makes what the proposer needs; waits `opening_seconds` at most."""
        self.begin(placement)
        bringing = self._bringing
        if bringing is not None:
            await asyncio.wait((bringing[1],), timeout=self._opening_seconds)
        if placement is None or not self.takes_vectors(placement):
            return True
        return self.features(placement) is not None

    def close(self) -> None:
        """Gives up a fetch under way."""
        self._cancel()

    def _has(self, session: Session, offer: ModelOffer) -> bool:
        features = session.features
        return features is not None and features.spec.digest == offer.encoder_digest

    async def _bring(self, session: Session, placement: Placement, offer: ModelOffer) -> None:
        try:
            self._use(session, await self._encoder(placement, offer))
        except (EncoderUnavailable, FleetError) as error:
            _log.warning(
                "encoder_unavailable",
                proposer=offer.model_id,
                node=placement.node_name,
                detail=str(error),
            )

    async def _encoder(self, placement: Placement, offer: ModelOffer) -> FeatureEncoder | None:
        if placement.node_id == self._fleet.self_id:
            served = self._proposers.get(placement.model_id)
            if served is None:
                raise EncoderUnavailable(f"{placement.model_id} is served here no more")
            return served.proposer.encoder
        channel = self._fleet.channel(placement.node_id, Role.PROPOSER)
        return await self._encoders.get(
            ProposerAddress(
                channel,
                offer,
                self._fleet.self_id,
                self._info.weights_digest,
                placement.node_id,
            )
        )

    def _use(self, session: Session, encoder: FeatureEncoder | None) -> None:
        """Raises `EncoderUnavailable` for one that does not fit the verifier."""
        info = self._info
        if encoder is not None and (
            encoder.spec.hidden_size != info.hidden_size
            or not all(0 <= layer < info.layer_count for layer in encoder.spec.taps)
        ):
            raise EncoderUnavailable(
                f"it taps layers {encoder.spec.taps} of {encoder.spec.hidden_size} values; "
                f"{info.model_id} has {info.layer_count} layers of {info.hidden_size}"
            )
        session.use_encoder(encoder)

    def _brought(self, task: asyncio.Task[None]) -> None:
        if self._bringing is not None and self._bringing[1] is task:
            self._bringing = None

    def _cancel(self) -> None:
        bringing, self._bringing = self._bringing, None
        if bringing is not None:
            bringing[1].cancel()
