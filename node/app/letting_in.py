"""What a keeper gives to a machine that proved to have a code."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.node.joining.application import (
    MAX_PEERS,
    Grant,
    JoinGrantContent,
    VerifiedApplication,
)
from kakeya_fleet.node.membership.known_fleet import KnownFleet
from kakeya_fleet.node.trust.statement_wire import statement_to_wire
from kakeya_fleet.node.trust.trust import Trust

_log = structlog.get_logger(__name__)


def grant_of(trust: Trust, known: KnownFleet, own_addresses: Callable[[], Sequence[str]]) -> Grant:
    """Certifies whoever has a code; raises what `Trust.issue` does."""
    alive = _alive(known)

    def grant(application: VerifiedApplication) -> JoinGrantContent:
        certificate = trust.issue(application.certificate_request, application.node_id)
        _log.info("let_in", node_id=application.node_id, name=application.name)
        return JoinGrantContent(
            certificate=certificate,
            statements=tuple(
                statement_to_wire(each).SerializeToString() for each in trust.ledger.statements
            ),
            fleet_name=trust.fleet.name,
            fleet_id=trust.fleet.fleet_id,
            peers=tuple(dict.fromkeys((*own_addresses(), *alive())))[:MAX_PEERS],
        )

    return grant


def _alive(known: KnownFleet) -> Callable[[], list[str]]:
    def addresses() -> list[str]:
        return [
            view.card.addresses[0]
            for view in known.nodes()
            if view.liveness is Liveness.ALIVE and view.card.addresses
        ]

    return addresses
