"""Two proposers over the wire: one that is late, or dies, costs neither a token nor much time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from time import sleep

import pytest
import pytest_asyncio

from kakeya.v1 import proposer_pb2, runtime_pb2
from kakeya_fleet.engine.contracts.verifier import Feed, Output
from kakeya_fleet.engine.sessions.history import History
from kakeya_fleet.engine.speculation.hedging import KEPT_ROUND_TRIPS
from kakeya_fleet.fleet.placement.plan import Placement, Trial
from tests.support import calls, liars
from tests.support import neighbourhood as nodes

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = [index * 5 % 96 for index in range(50)]
TOKENS = 90


class Guessing(liars.Liar):
    """Right guesses; the `late`-th comes half a second after `asked` was set."""

    def __init__(self, text: Sequence[int], late: int, asked: asyncio.Event) -> None:
        super().__init__(lambda proposal, known: liars.block(proposal, self.guess(proposal, known)))
        self.text = list(text)
        self.late = late
        self.asked = asked

    async def pause(self) -> None:
        if not self.late:
            self.asked.set()
        elif self.answered + 1 == self.late:
            await self.asked.wait()
            # The other's answer is on its way: this one comes behind it.
            await asyncio.sleep(0.5)

    def guess(self, proposal: proposer_pb2.DraftProposal, known: Sequence[int]) -> list[int]:
        return self.text[len(known) : len(known) + proposal.block_size]


class Dying(Guessing):
    """Ends the stream in place of its `late`-th answer, and each one that is opened later."""

    async def pause(self) -> None:
        if self.answered + 1 >= self.late:
            raise ConnectionError


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def alone(verifier: nodes.Node) -> list[int]:
    """What the verifier says without drafts."""
    client = calls.Caller(verifier.channel)
    session = await client.open()
    await client.append(session, PROMPT)
    return (await client.generate(session, TOKENS)).token_ids


async def opened(
    verifier: nodes.Node,
    neighbourhood: nodes.Neighbourhood,
    first: liars.Liar,
    second: liars.Liar,
) -> str:
    """A session that drafts with the first, one token a block; the second stands in."""
    client = calls.Caller(verifier.channel)
    await neighbourhood.start_liar("first", first)
    await neighbourhood.start_liar("second", second)
    session = await client.open(
        mode=calls.FIXED, proposer="liar", proposer_node="first", block_size=1
    )
    await client.append(session, PROMPT)
    pairing = verifier.roles.sessions.opened(session).pairing
    there = neighbourhood.directory.views["second"].card.addresses[0]
    spare = Placement("second", "second", there, "liar")
    pairing._plan = replace(pairing._plan, stand_in=Trial(spare, 1e9))
    return session


async def test_a_late_draft_is_had_of_the_other_node_and_told(
    verifier: nodes.Node, neighbourhood: nodes.Neighbourhood, alone: list[int]
) -> None:
    text, asked = [*PROMPT, *alone], asyncio.Event()
    first, second = Guessing(text, 30, asked), Guessing(text, 0, asked)
    session = await opened(verifier, neighbourhood, first, second)
    pairing = verifier.roles.sessions.opened(session).pairing
    roster = await pairing.connect(History(PROMPT))
    assert roster is not None
    for _ in range(KEPT_ROUND_TRIPS):
        # So that a busy machine's drafts are not late.
        roster.rivals[0].state.round_trips.add(0.3)
    before = verifier.metric("kakeya_draft_hedges_total", outcome="won")
    stream = await calls.Caller(verifier.channel).generate(session, TOKENS)
    told = stream.done.speculation
    assert stream.token_ids == alone
    assert told.hedge_won_count >= 1
    assert told.hedge_count <= told.verify_forward_count * 0.05
    assert {each.node_id for each in told.proposers} == {"first", "second"}
    won = verifier.metric("kakeya_draft_hedges_total", outcome="won") - before
    assert won == told.hedge_won_count
    assert second.sent_token_count <= len(text), "its stream has each token once"


async def test_one_that_dies_in_mid_stream_is_replaced_in_the_same_generation(
    verifier: nodes.Node,
    neighbourhood: nodes.Neighbourhood,
    alone: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text, asked = [*PROMPT, *alone], asyncio.Event()
    first, second = Dying(text, 20, asked), Guessing(text, 0, asked)
    session = await opened(verifier, neighbourhood, first, second)
    model = verifier.roles.sessions.get(session).session.verifier
    forward_batch = model.forward_batch

    def lasting(feeds: Sequence[Feed]) -> list[Output]:
        # Else the answer is at its end before a busy machine has opened the other's stream.
        if first.answered + 1 >= first.late and second.answered < 2:
            sleep(0.1)
        return forward_batch(feeds)

    monkeypatch.setattr(model, "forward_batch", lasting)
    stream = await calls.Caller(verifier.channel).generate(session, TOKENS)
    assert stream.token_ids == alone
    drafted_by = [block.proposer_node_id for block in stream.done.timeline]
    lost_at = max(index for index, name in enumerate(drafted_by) if name == "first")
    assert "second" in drafted_by[lost_at:]
    assert [fault.reason for fault in stream.done.speculation.faults] == [
        runtime_pb2.DROP_REASON_UNREACHABLE
    ]
    verifier.roles.verifier._breakers._breakers.clear()
