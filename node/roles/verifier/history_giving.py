"""Which proposers a session's verifier gives its keys and values, so that they need not read."""

from __future__ import annotations

from functools import partial

from kakeya_fleet.engine.contracts.blocking import Runner
from kakeya_fleet.engine.contracts.cache import CacheKind
from kakeya_fleet.engine.contracts.raw_numbers import KeysValues
from kakeya_fleet.engine.errors import SessionNotFound
from kakeya_fleet.engine.proposers.giving import Giving
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.fleet.cards.card import Card, ModelOffer, Role
from kakeya_fleet.fleet.placement.acceptance_prior import has_same_weights
from kakeya_fleet.fleet.placement.transport import is_one_host
from kakeya_fleet.node.roles.worker import WorkerClosed
from kakeya_fleet.node.rpc.refusals import WorkerFault


def giving_to(
    offer: ModelOffer, where: Card, here: Card, session: Session, run: Runner
) -> Giving | None:
    """What `session` gives to the proposer of an `offer`; None where that is nothing.

    To one of the same weights on this machine: one of another machine reads on cores of its own,
    and what would be sent takes a network longer than its reading. Where a window leaves positions
    behind, histories of no more than that. `run` runs steps in the verifier's thread.
    """
    info, spec = session.verifier.info, session.spec
    is_given = offer.given_history_tokens and is_one_host(where, here)
    if not is_given or not has_same_weights(info.weights_digest, offer.weights_digest):
        return None
    if any(own.rank_count for own in here.offers(Role.VERIFIER) if own.model_id == info.model_id):
        # Each rank has its heads alone.
        return None

    async def read(first: int, end: int) -> KeysValues | None:
        try:
            return await run(partial(session.keys_values, first, end))
        except (SessionNotFound, WorkerClosed, WorkerFault):
            # What ended tells its callers; the proposer reads by itself.
            return None

    most = offer.given_history_tokens
    if spec.kind is not CacheKind.CONTIGUOUS:
        most = min(most, spec.sink + spec.window)
    return Giving(read, most)
