"""To whom a session's keys and values are given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kakeya_fleet.engine.contracts.blocking import Result
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.fleet.cards.card import Card, ModelKind, ModelOffer, Role
from kakeya_fleet.node.roles.verifier.history_giving import giving_to
from kakeya_fleet.node.roles.worker import WorkerClosed
from tests.support import neighbourhood as nodes
from tests.support.hash_verifier import HashVerifier

FULL = CacheSpec(CacheKind.CONTIGUOUS, capacity=900)
OFFER = ModelOffer(
    "random",
    Role.PROPOSER,
    ModelKind.AUTOREGRESSIVE,
    weights_digest="w",
    given_history_tokens=500,
)


def card(name: str, host: str, *models: ModelOffer) -> Card:
    return replace(nodes.card(name, f"{name}:1", models), host_id=host)


HERE = card("here", "host")


async def run(step: Callable[[], Result], /) -> Result:
    return step()


def session_of(spec: CacheSpec = FULL) -> Session:
    verifier = HashVerifier()
    verifier.info = replace(verifier.info, weights_digest="w", model_id="random")
    return Session.allocate(verifier, spec)


def test_one_of_the_same_weights_on_this_machine_is_given_what_it_takes() -> None:
    giving = giving_to(OFFER, card("there", "host"), HERE, session_of(), run)
    assert giving is not None
    assert giving.most == 500
    windowed = session_of(CacheSpec(CacheKind.SINK_WINDOW, sink=4, window=60))
    giving = giving_to(OFFER, HERE, HERE, windowed, run)
    assert giving is not None
    assert giving.most == 64


@pytest.mark.parametrize(
    "changes",
    [{"given_history_tokens": 0}, {"weights_digest": "other"}, {"weights_digest": ""}],
)
def test_others_read_by_themselves(changes: dict[str, Any]) -> None:
    assert giving_to(replace(OFFER, **changes), HERE, HERE, session_of(), run) is None


def test_one_of_another_machine_reads_on_its_own_cores() -> None:
    assert giving_to(OFFER, card("there", "another"), HERE, session_of(), run) is None


def test_a_group_has_no_whole_keys_to_give() -> None:
    verifies = ModelOffer("random", Role.VERIFIER, ModelKind.AUTOREGRESSIVE, rank_count=2)
    here = card("here", "host", verifies)
    assert giving_to(OFFER, here, here, session_of(), run) is None


async def test_a_session_that_ends_gives_no_more() -> None:
    session = session_of()
    giving = giving_to(OFFER, HERE, HERE, session, run)
    assert giving is not None
    session.end("closed")
    assert await giving.read(0, 0) is None

    async def closed(_step: Callable[[], Result], /) -> Result:
        raise WorkerClosed("gone")

    giving = giving_to(OFFER, HERE, HERE, session_of(), closed)
    assert giving is not None
    assert await giving.read(0, 4) is None
