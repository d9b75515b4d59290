"""Which verifier a call means: one of this node, or the node that serves it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kakeya_fleet.fleet.cards.card import Card, Role
from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.fleet.errors import ModelNotFound
from kakeya_fleet.fleet.views.node_view import NodeView
from kakeya_fleet.node.planning.fleet_view import FleetView
from kakeya_fleet.node.roles.verifier.served_verifier import ServedVerifier
from kakeya_fleet.node.rpc.refusals import ModelLoading, ModelServedElsewhere

POSSIBLE = (Liveness.ALIVE, Liveness.SUSPECT)
"""Whom a client is sent to, the best first."""
# Loads take seconds to minutes: so often a client asks again.
LOADING_RETRY_SECONDS = 1.0


class VerifierRouting:
    """Finds verifiers by model id. Belongs to the event loop's thread."""

    def __init__(
        self,
        verifiers: Mapping[str, ServedVerifier],
        fleet: FleetView,
        is_loading: Callable[[str], bool],
    ) -> None:
        """`is_loading` says whether a model is still being loaded here."""
        self._verifiers = verifiers
        self._fleet = fleet
        self._is_loading = is_loading

    def served(self, model_id: str) -> ServedVerifier:
        """The verifier of that name.

        Raises `ModelServedElsewhere`, `ModelLoading`, `ModelNotFound`.
        """
        served = self._verifiers.get(model_id)
        if served is not None:
            return served
        self.refer(model_id)
        if self._is_loading(model_id):
            raise ModelLoading(
                f"{model_id!r} is still being loaded here; wait, and ask again",
                model_id=model_id[:64],
                retry_after_seconds=str(LOADING_RETRY_SECONDS),
            )
        of_others = (self._models(view) for view in self._able())
        names = ", ".join(sorted(set(self._verifiers).union(*of_others))) or "none"
        raise ModelNotFound(
            f"no live node serves {model_id[:64]!r} as a verifier; served: {names}",
            model_id=model_id[:64],
            served=names,
        )

    def refer(self, model_id: str) -> None:
        """Raises `ModelServedElsewhere` where another node serves the model."""
        for view in self._able():
            address = self._fleet.address(view.card.node_id)
            is_other = view.card.node_id != self._fleet.self_id
            if is_other and address and model_id in self._models(view):
                raise ModelServedElsewhere(
                    f"{model_id!r} is served by {view.card.name} at {address}; ask there",
                    address=address,
                    node_id=view.card.node_id,
                    **_of_members(view.card, address),
                )

    def _able(self) -> list[NodeView]:
        """Those that may answer, the surest first: a suspect may only be slow."""
        able = [view for view in self._fleet.nodes() if view.liveness in POSSIBLE]
        return sorted(able, key=lambda view: POSSIBLE.index(view.liveness))

    @staticmethod
    def _models(view: NodeView) -> set[str]:
        return {offer.model_id for offer in view.card.offers(Role.VERIFIER)}


def _of_members(card: Card, address: str) -> dict[str, str]:
    """What clients must know of a node of a fleet with an authority before they call it."""
    if not card.certificate:
        return {}
    host, _, _ = address.rpartition(":")
    port = card.applications_port
    told = {"applications_address": f"{host}:{port}"} if port else {}
    return {"encrypted": "true", **told}
